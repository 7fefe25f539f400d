"""Questions that a task asks again while a broker or name server is away.

In: a question, and how often it may be asked again. Out: its answer, or the last failure.

Rules:
1. Only what may pass is waited for: no connection, no answer, a route that nobody has yet.
2. "This topic does not exist" is believed only of name servers that know brokers: one that has just
   started knows nothing until brokers tell it, and rows may lie where it cannot see them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from orbitmq.client.sender import RETRY_CODES
from orbitmq.errors import (
    BrokerBusy,
    BrokerNotFound,
    ConnectFailed,
    MQError,
    OutcomeUnknown,
    RemoteProtocolError,
    RequestFailed,
    RouteNotFound,
)
from orbitmq.spark.cluster import Cluster
from orbitmq.wire.bodies_client import MessageQueue

PAUSE_FIRST_S, PAUSE_MAX_S = 0.1, 3.0

UNKNOWN = (OutcomeUnknown, RemoteProtocolError)
NOT_SENT = (ConnectFailed, BrokerNotFound, RouteNotFound)

T = TypeVar("T")


def may_pass(error: MQError) -> bool:
    """Whether the same request may be answered the next time."""
    if isinstance(error, RouteNotFound):
        return "autoCreateTopicEnable" not in str(error)
    if isinstance(error, RequestFailed):
        return isinstance(error, BrokerBusy) or error.code in RETRY_CODES
    return isinstance(error, (*UNKNOWN, *NOT_SENT))


async def patiently(ask: Callable[[], Awaitable[T]], retries: int) -> T:
    """Ask again, after growing pauses, while the failure may pass; raises the last one."""
    pause_s = PAUSE_FIRST_S
    for _ in range(retries):
        try:
            return await ask()
        except MQError as error:
            if not may_pass(error):
                raise
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, PAUSE_MAX_S)
    return await ask()


async def readable_queues(cluster: Cluster, topic: str) -> tuple[MessageQueue, ...]:
    """Return the queues of a topic; none when it does not exist (rule 2)."""
    routes = (await cluster.instance()).routes
    try:
        return (await routes.refresh(topic)).subscribe_queues
    except RouteNotFound:
        if not await (await cluster.admin()).clusters():
            raise ConnectFailed(
                f"the name servers know no broker, so nobody knows what topic {topic} holds; start"
                " the brokers, or wait until they have registered"
            ) from None
    return ()
