"""Which broker a pull goes to, what it may ask of an old one, and answers that go back."""

import asyncio

import pytest

from orbitmq.aio import PullConsumer
from orbitmq.client.instance import Instance, join
from orbitmq.client.pulling import Puller, PullResult
from orbitmq.client.settings import ClientSettings
from orbitmq.client.subscription_checks import check_expression
from orbitmq.client.subscriptions import Selector, Subscription
from orbitmq.errors import BrokerNotFound, LocalProtocolError
from orbitmq.net.connection import Connection, Result
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command, reply_to
from orbitmq.wire.host import Host
from orbitmq.wire.record import Record, encode_record
from orbitmq.wire.versions import V4_1_0_SNAPSHOT
from tests.client.name_server_double import name_server_double, route_data
from tests.client.polling import FIRST, bodies, collect
from tests.client.sites import Fresh, fill, make_topic, run
from tests.client.test_instance import SomeProducer
from tests.client.test_pulling import joined, subscription
from tests.client.test_shared_client import Listening, route_to
from tests.foreign.judged import System
from tests.net.running import serving

PULL = 11
QUEUE = MessageQueue("T", "a", 0)
HOST = Host("127.0.0.1", 10911)


def pulls_of(instance: Instance) -> list[dict[str, str]]:
    """Return the pulls of an instance, as they go out."""
    seen: list[dict[str, str]] = []

    def note(_address: str, request: Command) -> None:
        if request.code == PULL:
            seen.append(request.fields)

    instance.remote.before_request.append(note)
    return seen


def test_a_broker_that_is_not_in_the_route_is_looked_up_once_and_then_an_error() -> None:
    async def work() -> None:
        async with name_server_double(T=route_data("a")) as server:
            instance = await join(ClientSettings(namesrv=server.address))
            await instance.routes.find("T")
            gone = MessageQueue("T", "gone", 0)
            with pytest.raises(BrokerNotFound, match="no address for broker gone"):
                await Puller(instance, "group").pull(gone, subscription(gone), 0)
            await instance.leave()
            assert server.asked == ["T", "T"]

    asyncio.run(work())


class OldBroker(Listening):
    """A broker of another version, which does not know the request that checks expressions."""

    version = V4_1_0_SNAPSHOT - 1

    def handle(self, request: Command, connection: Connection) -> Result:
        if request.code == RequestCode.CHECK_CLIENT_CONFIG:
            return reply_to(request, 3, " request type 46 not supported")
        if request.code == PULL:
            fields = {"nextBeginOffset": "0", "minOffset": "0", "maxOffset": "0"}
            return reply_to(request, 19, fields=fields | {"suggestWhichBrokerId": "0"})
        super().handle(request, connection)
        answer = reply_to(request)
        answer.version = self.version
        return answer


async def pull_by_sql(broker: OldBroker) -> None:
    """Check an SQL selector at a broker, then tell it who we are and pull by that selector."""
    wanted = Subscription("T", Selector.sql("price > 3"), 1)
    async with serving(broker.handle) as site:
        broker.address = site.address
        async with name_server_double(T=route_to(broker)) as server:
            instance = await join(ClientSettings(namesrv=server.address))
            try:
                instance.add_producer(SomeProducer("PG", "T"))
                await instance.routes.find("T")
                with pytest.raises(LocalProtocolError, match=r"older than 4\.1\.0 .* by SQL92"):
                    await check_expression(instance, "group", wanted)
                assert await instance.heartbeat() == 1
                await Puller(instance, "group").pull(QUEUE, subscription(QUEUE, "tag"), 0)
                await Puller(instance, "group").pull(QUEUE, wanted, 0, sends_expression=True)
            finally:
                await instance.leave()


def test_a_filter_by_sql_is_refused_for_brokers_older_than_4_1() -> None:
    with pytest.raises(LocalProtocolError, match=r"broker a is older than 4\.1\.0 .* by SQL92"):
        asyncio.run(pull_by_sql(OldBroker("a")))
    young = OldBroker("a")
    young.version = V4_1_0_SNAPSHOT
    asyncio.run(pull_by_sql(young))


async def pull_from(answered: list[int], next_offset: int, asked: int) -> PullResult:
    """Ask a broker for an offset; it answers with messages of others."""

    def handle(request: Command, _connection: Connection) -> Result:
        body = b"".join(encode_record(_record(offset)) for offset in answered)
        fields = {"nextBeginOffset": str(next_offset), "minOffset": "0", "maxOffset": "9"}
        return reply_to(request, 0, fields=fields | {"suggestWhichBrokerId": "0"}, body=body)

    broker = Listening("a")
    async with serving(handle) as site:
        broker.address = site.address
        async with name_server_double(T=route_to(broker)) as server:
            instance = await join(ClientSettings(namesrv=server.address))
            result = await Puller(instance, "group").pull(QUEUE, subscription(QUEUE), asked)
            await instance.leave()
            return result


def _record(offset: int) -> Record:
    return Record(
        topic="T",
        body=b"x",
        queue_id=0,
        queue_offset=offset,
        log_offset=100 * offset,
        born_ms=1,
        born_host=HOST,
        store_ms=2,
        store_host=HOST,
        properties=b"",
    )


@pytest.mark.parametrize(
    ("answered", "next_offset", "is_suspicious"),
    [([5, 6], 7, False), ([8], 9, False), ([4, 5], 6, True), ([5], 3, True)],
)
def test_an_answer_with_offsets_below_the_one_asked_for_is_reported(
    caplog: pytest.LogCaptureFixture, answered: list[int], next_offset: int, is_suspicious: bool
) -> None:
    result = asyncio.run(pull_from(answered, next_offset, 5))
    assert [message.queue_offset for message in result.messages] == answered
    assert ("suspicious answer" in caplog.text) is is_suspicious
    if is_suspicious:
        assert "offset 5 was asked for" in caplog.text


def test_a_pull_consumer_that_pulls_by_hand_makes_no_pull_of_its_own(
    system: System, fresh_name: Fresh
) -> None:
    queue, group = make_topic(system, fresh_name("Topic"), 1)[0], fresh_name("Group")
    fill(system, queue, bodies(3))
    called: list[int] = []

    async def work() -> None:
        options = {"rebalance_interval_s": 0.1}
        async with PullConsumer(system.namesrv, group, **options) as consumer:  # type: ignore[arg-type]  # a table
            instance = consumer._running().instance
            seen = pulls_of(instance)
            waited = await consumer.pull(queue, 0, count_max=2)
            task = asyncio.create_task(consumer.pull(queue, waited.next_offset))
            task.add_done_callback(lambda done: called.append(len(done.result().messages)))
            await task
            # Other members come and go: everybody in the group looks at the queues again.
            async with PullConsumer(system.namesrv, group) as other:
                await other.subscribe(queue.topic)
            await consumer._running().look()
            assert [fields["queueOffset"] for fields in seen] == ["0", "2"]
        assert called == [1]

    run(work())


def test_pulls_in_the_background_are_held_20_seconds(system: System, fresh_name: Fresh) -> None:
    queue, group = make_topic(system, fresh_name("Topic"), 1)[0], fresh_name("Group")
    fill(system, queue, bodies(2))

    async def work() -> None:
        async with PullConsumer(system.namesrv, group, from_where=FIRST) as consumer:
            seen = pulls_of(consumer._running().instance)
            await consumer.subscribe(queue.topic)
            await collect(consumer, 2)
            assert {fields["suspendTimeoutMillis"] for fields in seen} == {"20000"}
            assert all(int(fields["sysFlag"]) & 2 for fields in seen)

    run(work())


def test_a_pull_returns_at_once_from_an_empty_queue_unless_it_is_to_wait(
    system: System, fresh_name: Fresh
) -> None:
    queue = make_topic(system, fresh_name("Topic"), 1)[0]

    async def work() -> None:
        async with joined(system) as instance:
            seen = pulls_of(instance)
            puller = Puller(instance, fresh_name("Group"))
            wanted = subscription(queue)
            at_once = await puller.pull(queue, wanted, 0, sends_expression=True, timeout_s=5)
            assert not at_once.messages
            assert seen[0]["suspendTimeoutMillis"] == "0"
            assert not int(seen[0]["sysFlag"]) & 2

    run(work())
