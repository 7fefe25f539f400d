"""Whether brokers can use a subscription's expression, asked before a consumer relies on it.

In: a subscription. Out: nothing, or the error that a broker gives.

Rules:
1. Tags are always understood, so only SQL is asked about (46), of each broker of the topic.
2. Brokers older than 4.1.0 know neither SQL nor that question: the error names the kind of filter.
"""

from orbitmq.client.instance import Instance
from orbitmq.client.remote import request
from orbitmq.client.subscriptions import Subscription
from orbitmq.errors import (
    ConnectFailed,
    LocalProtocolError,
    OutcomeUnknown,
    RequestFailed,
    RouteNotFound,
)
from orbitmq.wire.bodies_client import TAG
from orbitmq.wire.bodies_filter import CheckClient
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.fastjson import write_json
from orbitmq.wire.versions import V4_1_0_SNAPSHOT

CHECK_TIMEOUT_S = 3.0


async def check_expression(instance: Instance, group: str, subscription: Subscription) -> None:
    """Raise RequestFailed when a broker of the topic refuses the expression.

    Raises LocalProtocolError when it is too old to know such expressions at all. A broker that does
    not answer now is not asked again: its pulls will tell.
    """
    if subscription.selector.kind == TAG:
        return
    try:
        route = await instance.routes.find(subscription.topic)
    except RouteNotFound:
        return
    body = write_json(
        CheckClient(
            client_id=instance.client_id,
            group=group,
            namespace=instance.settings.namespace or None,
            subscription_data=subscription.data(),
        ),
        standard=True,
    )
    for broker in route.data.broker_datas:
        address = broker.broker_addrs.get(0)
        if address is None:
            continue
        try:
            asked = request(RequestCode.CHECK_CLIENT_CONFIG, body=body)
            await instance.remote.ask(address, asked, timeout_s=CHECK_TIMEOUT_S)
        except (ConnectFailed, OutcomeUnknown):
            continue
        except RequestFailed as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise _too_old(broker.broker_name, subscription) from error
            raise


def refuse_old_broker(
    instance: Instance, address: str, broker_name: str, subscription: Subscription
) -> None:
    """Raise LocalProtocolError for a broker whose heartbeats said that it knows tags only."""
    version = instance.broker_versions.get(address)
    if version is not None and version < V4_1_0_SNAPSHOT:
        raise _too_old(broker_name, subscription)


def _too_old(broker_name: str, subscription: Subscription) -> LocalProtocolError:
    return LocalProtocolError(
        f"broker {broker_name} is older than 4.1.0 and cannot choose messages of topic "
        f"{subscription.topic} by {subscription.selector.kind}; upgrade it, or select by tags"
    )
