"""Brokers of the test's own making, on real ports: they answer sends as the test says.

In: for each broker, what it does with one send after the other. Out: a name server's address that
has them in the route of every topic asked for, and the sends that each broker got.

Steps: a number is a response code (0, 10, 11, 12 say that it is stored); CLOSE ends the connection;
SILENT gives no answer. When the steps are used up, everything is stored.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from orbitmq.net.connection import Connection, Result
from orbitmq.wire.bodies_namesrv import BrokerData, QueueData, TopicRoute
from orbitmq.wire.command import Command, reply_to
from tests.client.name_server_double import NameServerDouble, name_server_double
from tests.net.running import Site, serving

SENDS = (310, 320)
STORED = (0, 10, 11, 12)
CLOSE, SILENT, JUNK = "close", "silent", "junk"
TOPIC = "T"


@dataclass
class ScriptedBroker:
    """One broker: its steps, and what it got."""

    name: str
    steps: list[int | str] = field(default_factory=list)
    sends: list[Command] = field(default_factory=list)
    others: list[int] = field(default_factory=list)
    site: Site | None = None

    def handle(self, request: Command, connection: Connection) -> Result:
        if request.code not in SENDS:
            self.others.append(request.code)
            return reply_to(request)
        self.sends.append(request)
        step = self.steps.pop(0) if self.steps else 0
        if step == CLOSE:
            connection.close("test")
        if step in (CLOSE, SILENT):
            return None
        if step == JUNK:
            return reply_to(request, fields={"msgId": "ID", "queueId": "many"})
        return self.answer(request, int(step))

    def answer(self, request: Command, code: int) -> Command:
        if code not in STORED:
            return reply_to(request, code, f"step {code}")
        fields = {"msgId": "ID", "queueId": request.fields["e"], "queueOffset": "7"}
        return reply_to(request, code, fields=fields)

    @property
    def address(self) -> str:
        assert self.site is not None
        return self.site.address


@dataclass
class Cluster:
    """Scripted brokers and the name server that knows them."""

    namesrv: NameServerDouble
    brokers: list[ScriptedBroker]

    def route(self, queues: int = 2) -> TopicRoute:
        return TopicRoute(
            broker_datas=[
                BrokerData(cluster="C", broker_name=one.name, broker_addrs={0: one.address})
                for one in self.brokers
            ],
            queue_datas=[
                QueueData(
                    broker_name=one.name, read_queue_count=queues, write_queue_count=queues, perm=6
                )
                for one in self.brokers
            ],
        )

    def sends(self) -> list[int]:
        return [len(broker.sends) for broker in self.brokers]


@asynccontextmanager
async def scripted(*scripts: list[int | str]) -> AsyncIterator[Cluster]:
    """Run a cluster with one broker for each script, for the length of the block."""
    async with AsyncExitStack() as stack:
        brokers = [ScriptedBroker(f"b{n}", list(steps)) for n, steps in enumerate(scripts)]
        namesrv = await stack.enter_async_context(name_server_double())
        for broker in brokers:
            broker.site = await stack.enter_async_context(serving(broker.handle))
        cluster = Cluster(namesrv, brokers)
        namesrv.routes[TOPIC] = cluster.route()
        yield cluster
