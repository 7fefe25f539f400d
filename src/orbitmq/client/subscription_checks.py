"""Whether brokers can use a subscription's expression, asked before a consumer relies on it.

In: a subscription. Out: nothing, or the error that a broker gives.
Rule: tags are always understood, so only SQL is asked about (46), of each broker of the topic.
"""

from orbitmq.client.instance import Instance
from orbitmq.client.remote import request
from orbitmq.client.subscriptions import Subscription
from orbitmq.errors import ConnectFailed, OutcomeUnknown, RouteNotFound
from orbitmq.wire.bodies_client import SQL92
from orbitmq.wire.bodies_filter import CheckClient
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.fastjson import write_json

CHECK_TIMEOUT_S = 3.0


async def check_expression(instance: Instance, group: str, subscription: Subscription) -> None:
    """Raise RequestFailed when a broker of the topic refuses the expression.

    A broker that does not answer now is not asked again: its pulls will tell.
    """
    if subscription.selector.kind != SQL92:
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
