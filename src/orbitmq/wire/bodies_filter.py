"""The JSON body of 46 CHECK_CLIENT_CONFIG: a subscription to be checked before a consumer starts.

In: a body's bytes, read by `fastjson.read_json`. Out: CheckClient. The answer has no body: its code
and remark say whether the subscription's expression can be used.
"""

import msgspec

from orbitmq.wire.bodies_client import SubscriptionData


class CheckClient(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The body of 46; whoever sends no subscription asks nothing."""

    client_id: str = ""
    group: str = ""
    namespace: str | None = None
    subscription_data: SubscriptionData | None = None
