"""Messages of 10 MB, where maxMessageSize allows them: every way that a message can go.

Method: one broker for all tests, as programs use it. "hot": from memory; "cold": from its files,
after a restart. What is compared is the whole body.
"""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.aio import Admin, DeadLetter, Message, Producer, PullConsumer, PushConsumer, Retry
from orbitmq.app import App
from orbitmq.blocking import PullConsumer as BlockingPullConsumer
from orbitmq.client.message import ReceivedMessage
from orbitmq.errors import LimitExceeded, SendFailed
from orbitmq.store.check import check
from orbitmq.store.dump import Seen, Wanted, dump
from orbitmq.store.options import StoreOptions
from orbitmq.testing import EmbeddedBroker
from orbitmq.wire.frame import FRAME_SIZE_MAX
from orbitmq.wire.properties import PROPERTIES_SIZE_MAX
from orbitmq.wire.record import RECORD_SIZE_MAX
from orbitmq.world.files import SystemFiles
from tests.client.pushing import FIRST, Inbox

MOST = 12 << 20
SIZE = 10_000_000
BODY = random.Random(1).randbytes(SIZE)
"""Nothing makes it smaller."""
LIMIT_S = 20.0
SETTINGS = {"maxMessageSize": str(MOST), "mappedFileSizeCommitLog": str(64 << 20)}
OPTIONS = StoreOptions(
    log_file_size=64 << 20,
    queue_file_size=200_000,
    index_slot_count=10_000,
    index_entry_count=40_000,
)
STATES = pytest.mark.parametrize("state", ["hot", "cold"])


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings=SETTINGS) as broker:
        yield broker


@pytest.fixture
def topic(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> str:
    name = f"T{abs(hash(request.node.name))}"
    broker.create_topic(name, queues=1)
    return name


def producer_of(broker: EmbeddedBroker) -> Producer:
    return Producer(broker.namesrv, group="senders", message_bytes_max=MOST, batch_bytes_max=MOST)


async def send(broker: EmbeddedBroker, *messages: Message) -> list[str]:
    """Send messages; give their offset ids."""
    async with producer_of(broker) as producer:
        return [(await producer.send(each, timeout=LIMIT_S)).offset_id for each in messages]


def sent(broker: EmbeddedBroker, topic: str, state: str) -> str:
    """Send the large message and a small one behind it; give the first one's offset id."""
    ids = asyncio.run(send(broker, Message(topic, BODY, keys=["large"]), Message(topic, b"small")))
    if state == "cold":
        broker.restart()
    return ids[0]


async def pulled(broker: EmbeddedBroker, topic: str, count: int) -> list[ReceivedMessage]:
    """Return the first messages of a topic."""
    found: list[ReceivedMessage] = []
    consumer = PullConsumer(
        broker.namesrv,
        f"readers-of-{topic.replace('%', '')}",
        subscriptions={topic: "*"},
        from_where=FIRST,
    )
    async with consumer, asyncio.timeout(LIMIT_S):
        while len(found) < count:
            found += await consumer.poll(timeout=1)
    return found


def push_consumer(broker: EmbeddedBroker, topic: str, inbox: Inbox) -> PushConsumer:
    """Return a consumer of one topic for its own group."""
    return PushConsumer(
        broker.namesrv, f"{topic}-g", inbox, subscriptions={topic: "*"}, from_where=FIRST
    )


def assert_both(bodies: list[bytes]) -> None:
    assert [len(each) for each in bodies] == [SIZE, len(b"small")]
    assert bodies == [BODY, b"small"]


def test_what_the_setting_allows_fits_a_frame_and_every_reader() -> None:
    around = PROPERTIES_SIZE_MAX + 65_536
    most = MOST + around
    assert most < FRAME_SIZE_MAX
    assert most < RECORD_SIZE_MAX


def test_more_than_the_setting_allows_is_refused(broker: EmbeddedBroker, topic: str) -> None:
    with pytest.raises(LimitExceeded):
        asyncio.run(send(broker, Message(topic, bytes(MOST + 1))))

    async def too_much() -> None:
        async with Producer(
            broker.namesrv,
            group="senders",
            message_bytes_max=MOST + 1,
            compress_from_bytes=MOST * 2,
        ) as producer:
            await producer.send(Message(topic, bytes(MOST + 1)), timeout=LIMIT_S)

    with pytest.raises(SendFailed, match=f"limit {MOST}"):
        asyncio.run(too_much())


@STATES
def test_a_pull_consumer_gets_it(broker: EmbeddedBroker, topic: str, state: str) -> None:
    sent(broker, topic, state)
    assert_both([each.body for each in asyncio.run(pulled(broker, topic, 2))])


def test_a_synchronous_consumer_gets_it(broker: EmbeddedBroker, topic: str) -> None:
    sent(broker, topic, "hot")
    bodies: list[bytes] = []
    group, chosen = f"{topic}-b", {topic: "*"}
    with BlockingPullConsumer(
        broker.namesrv, group, subscriptions=chosen, from_where=FIRST
    ) as consumer:
        while len(bodies) < 2:
            bodies += [each.body for each in consumer.poll(timeout=LIMIT_S)]
    assert_both(bodies)


@STATES
def test_a_push_consumer_gets_it(broker: EmbeddedBroker, topic: str, state: str) -> None:
    sent(broker, topic, state)
    inbox = Inbox()

    async def main() -> None:
        async with push_consumer(broker, topic, inbox):
            await inbox.holds(2, LIMIT_S)

    asyncio.run(main())
    assert_both(sorted(inbox.bodies, key=len, reverse=True))


def test_a_listener_of_an_application_gets_it(broker: EmbeddedBroker, topic: str) -> None:
    sent(broker, topic, "hot")
    app = App(broker.namesrv, "large")
    inbox = Inbox()

    @app.listener(topic, from_where=FIRST)
    async def listen(message: ReceivedMessage) -> None:
        inbox.take(message)

    async def main() -> None:
        async with app:
            await inbox.holds(2, LIMIT_S)

    asyncio.run(main())
    assert_both(sorted(inbox.bodies, key=len, reverse=True))


def test_a_batch_of_as_much_is_taken_whole(broker: EmbeddedBroker, topic: str) -> None:
    bodies = [BODY[at : at + 1_000_000] for at in range(0, SIZE, 1_000_000)]

    async def main() -> None:
        async with producer_of(broker) as producer:
            await producer.send_batch([Message(topic, body) for body in bodies], timeout=LIMIT_S)

    asyncio.run(main())
    broker.restart()
    assert [each.body for each in asyncio.run(pulled(broker, topic, 10))] == bodies


@STATES
def test_a_message_that_failed_comes_again_and_ends_as_a_dead_letter(
    broker: EmbeddedBroker, topic: str, state: str
) -> None:
    """Symptom: a message above 4.26 MB could not be given back; the time-out answered."""
    sent(broker, topic, state)
    group = f"{topic}-g"

    def act(message: ReceivedMessage) -> None:
        if message.body == BODY:
            raise DeadLetter("enough") if message.reconsume_times else Retry(delay_level=1)

    async def main() -> None:
        inbox = Inbox(act)
        async with push_consumer(broker, topic, inbox):
            await broker.wait_for_delayed_async(1, timeout=LIMIT_S)
            await asyncio.to_thread(broker.advance, 2)
            await inbox.holds(3, LIMIT_S)
        assert [each.reconsume_times for each in inbox.messages if each.body == BODY] == [0, 1]

    asyncio.run(main())
    (letter,) = asyncio.run(pulled(broker, f"%DLQ%{group}", 1))
    assert (letter.body == BODY, letter.properties["RETRY_TOPIC"]) == (True, topic)


@STATES
def test_it_is_found_by_its_id_and_by_its_key(
    broker: EmbeddedBroker, topic: str, state: str
) -> None:
    """Symptom: a message above 8 MiB was not found by its key."""
    offset_id = sent(broker, topic, state)

    async def main() -> None:
        async with Admin(broker.namesrv) as admin:
            by_id = await admin.message(offset_id)
            assert by_id.body == BODY
            by_unique_id = await admin.message(by_id.message_id, topic=topic)
            assert by_unique_id.body == BODY
            assert [each.body for each in await admin.messages_by_key(topic, "large")] == [BODY]

    asyncio.run(main())


def test_a_running_consumer_is_asked_to_consume_it(broker: EmbeddedBroker, topic: str) -> None:
    """Symptom: the client took a record above 4.26 MB that a broker brought for damaged."""
    offset_id = sent(broker, topic, "hot")
    inbox = Inbox()

    async def main() -> None:
        async with push_consumer(broker, topic, inbox), Admin(broker.namesrv) as admin:
            await inbox.holds(2, LIMIT_S)
            (member,) = (await admin.consumers(f"{topic}-g")).clients
            message = await admin.message(offset_id)
            result = await admin.consume_directly(f"{topic}-g", member.client_id, message)
            assert result.result == "CR_SUCCESS"
        assert [each.body for each in inbox.messages].count(BODY) == 2

    asyncio.run(main())


def test_the_folder_of_a_broker_with_it_is_healthy(tmp_path: Path) -> None:
    with EmbeddedBroker(folder=tmp_path, settings=SETTINGS) as broker:
        broker.create_topic("T", queues=1)
        sent(broker, "T", "hot")
    files, root = SystemFiles(), tmp_path / "store"
    assert check(files, root, OPTIONS).is_healthy
    sizes = [
        len(each.record.body)
        for each in dump(files, root, Wanted(), OPTIONS)
        if isinstance(each, Seen)
    ]
    assert sizes == [SIZE, 5]
