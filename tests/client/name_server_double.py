"""A name server of the test's own making, on a real port: it says what the test wants said.

In: routes by topic. Out: an address that answers request 105, and the topics that it was asked for.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from orbitmq.net.connection import Connection
from orbitmq.wire.bodies_namesrv import BrokerData, ClusterInfo, QueueData, TopicRoute
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command, reply_to
from orbitmq.wire.fastjson import write_json
from tests.net.running import serving


def route_data(*brokers: str, perm: int = 6, queues: int = 4, broker_id: int = 0) -> TopicRoute:
    """Return a route with the same number of queues at each broker."""
    return TopicRoute(
        broker_datas=[
            BrokerData(
                cluster="C", broker_name=name, broker_addrs={broker_id: f"127.0.0.1:{9000 + n}"}
            )
            for n, name in enumerate(brokers)
        ],
        queue_datas=[
            QueueData(
                broker_name=name, read_queue_count=queues, write_queue_count=queues, perm=perm
            )
            for name in brokers
        ],
    )


@dataclass
class NameServerDouble:
    """What it says, and what it was asked."""

    address: str = ""
    routes: dict[str, TopicRoute] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    is_silent: bool = False

    def handle(self, request: Command, connection: Connection) -> Command | None:
        if self.is_silent:
            connection.close("test")
            return None
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            table = {
                broker.broker_name: broker
                for route in self.routes.values()
                for broker in route.broker_datas
            }
            return reply_to(
                request, body=write_json(ClusterInfo(broker_addr_table=table), standard=True)
            )
        topic = request.fields["topic"]
        self.asked.append(topic)
        route = self.routes.get(topic)
        if route is None:
            return reply_to(request, ResponseCode.TOPIC_NOT_EXIST, f"No topic route info: {topic}")
        return reply_to(request, body=write_json(route, standard=True))


@asynccontextmanager
async def name_server_double(**routes: TopicRoute) -> AsyncIterator[NameServerDouble]:
    """Run one for the length of the block."""
    double = NameServerDouble(routes=routes)
    async with serving(double.handle) as site:
        double.address = site.address
        yield double
