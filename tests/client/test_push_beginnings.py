"""Where push consumers begin and what they keep: broadcasting, from-where, stores of one's own."""

import asyncio
import time
from collections.abc import Collection
from pathlib import Path

import pytest

from orbitmq.client.message import ReceivedMessage
from orbitmq.client.offset_stores import Remembered
from orbitmq.client.push import PushConsumer
from orbitmq.client.push_settings import PushConsumerSettings
from orbitmq.wire.bodies_client import ConsumeFromWhere, MessageModel, MessageQueue
from tests.client.pushing import (
    FIRST,
    LAST,
    TIMESTAMP,
    FreshName,
    Inbox,
    becomes,
    committed,
    consumer_of,
    inner,
    make_topic,
    numbered,
    queue_of,
    run,
    send,
    stored_count,
)
from tests.foreign.judged import System
from tests.wire_client import WireClient

BROADCASTING = MessageModel.BROADCASTING


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the offsets of broadcasting consumers in a folder of the test's own."""
    monkeypatch.setenv("HOME", str(tmp_path))


def test_every_broadcasting_member_gets_every_message_and_failures_are_dropped(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 2)

    async def main() -> None:
        def fail(_message: ReceivedMessage) -> None:
            raise ValueError("dropped")

        inboxes = [Inbox(), Inbox(fail)]
        options = {"message_model": BROADCASTING}
        one = await consumer_of(system, group, topic, inboxes[0], **options, instance_name="one")
        two = await consumer_of(system, group, topic, inboxes[1], **options, instance_name="two")
        async with one, two:
            await send(system, topic, numbered(20))
            for inbox in inboxes:
                await inbox.holds(20)
            for each in (one, two):
                assert each.queues() == [queue_of(topic, 0), queue_of(topic, 1)]
            await asyncio.sleep(0.3)
        for inbox in inboxes:
            assert sorted(inbox.bodies) == sorted(numbered(20))

    run(main())
    with WireClient(system.broker) as client:
        retry = client.ask(30, topic=f"%RETRY%{group}", queueId=0)
        assert retry.code != 0 or retry.fields["offset"] == "0"


def test_the_offsets_of_a_broadcasting_member_are_written_to_its_file_by_time(
    system: System, fresh_name: FreshName, tmp_path: Path
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)
    assert PushConsumerSettings(group=group).commit_interval_s == 5.0

    async def main() -> None:
        inbox = Inbox()
        options = {"message_model": BROADCASTING, "commit_interval_s": 0.1}
        await send(system, topic, numbered(3), queue_id=0)
        async with await consumer_of(system, group, topic, inbox, **options) as consumer:
            kept = tmp_path / ".rocketmq_offsets" / consumer.client_id / group / "offsets.json"
            await inbox.holds(3)
            await becomes(lambda: kept.exists() and b":3" in kept.read_bytes(), "3 is in the file")
            await send(system, topic, [b"one more"], queue_id=0)
            await inbox.holds(4)
            remembered = inner(consumer).commits.store
            await becomes(lambda: remembered.cached(queue_of(topic, 0)) == 4, "4 is remembered")
            await becomes(lambda: b":4" in kept.read_bytes(), "4 is in the file")

    run(main())


def test_a_broadcasting_member_goes_on_after_a_restart_by_its_own_file(
    system: System, fresh_name: FreshName, tmp_path: Path
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 2)

    async def main() -> None:
        first, second = Inbox(), Inbox()
        options = {"message_model": BROADCASTING}
        await send(system, topic, numbered(10, "a"))
        async with await consumer_of(system, group, topic, first, **options) as consumer:
            client_id = consumer.client_id
            await first.holds(10)
        assert client_id.endswith("@DEFAULT")
        kept = tmp_path / ".rocketmq_offsets" / client_id / group / "offsets.json"
        assert topic.encode() in kept.read_bytes()
        await send(system, topic, numbered(10, "b"))
        async with await consumer_of(system, group, topic, second, **options):
            await second.holds(10)
        assert sorted(second.bodies) == sorted(numbered(10, "b"))

    run(main())


def test_a_new_group_begins_where_it_is_told_to(system: System, fresh_name: FreshName) -> None:
    topic = fresh_name("Topic")
    make_topic(system, topic, 1)

    async def main() -> None:
        await send(system, topic, numbered(3, "old"), queue_id=0)
        await asyncio.to_thread(stored_count, system, topic, 3)
        await asyncio.sleep(3)
        # Brokers of 4.9 give the message that is nearest in time, those of 5.x the next one.
        between_s = time.time() - 0.1
        await send(system, topic, numbered(3, "young"), queue_id=0)
        await asyncio.to_thread(stored_count, system, topic, 6)
        old, young, new = (numbered(3, word) for word in ("old", "young", "new"))
        began: list[tuple[Inbox, list[bytes]]] = []
        # What a broker says of a new group is another matter: the file of a broadcasting member
        # says nothing.
        for where, options, expected in (
            (FIRST, {}, old + young + new),
            (LAST, {}, new),
            (ConsumeFromWhere.CONSUME_FROM_MAX_OFFSET, {}, new),
            (TIMESTAMP, {"from_time_s": between_s}, young + new),
            (TIMESTAMP, {}, old + young + new),
        ):
            inbox, group = Inbox(), fresh_name("group")
            consumer = await consumer_of(
                *(system, group, topic, inbox),
                message_model=BROADCASTING,
                instance_name=group,
                from_where=where,
                **options,
            )
            await consumer.start()
            began.append((inbox, expected))
            consumers.append(consumer)
        for consumer in consumers:
            await becomes(lambda: len(consumer.queues()) == 1, "it has begun")  # noqa: B023 - called at once
        await send(system, topic, new, queue_id=0)
        for inbox, expected in began:
            await inbox.holds(len(expected))
        for consumer in consumers:
            await consumer.close()
        for inbox, expected in began:
            assert inbox.bodies == expected

    consumers: list[PushConsumer] = []
    run(main())


def test_a_new_group_on_a_young_topic_gets_all_of_it_whatever_it_is_told(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        inbox = Inbox()
        await send(system, topic, numbered(3))
        async with await consumer_of(system, group, topic, inbox, from_where=LAST):
            await inbox.holds(3)

    run(main())


class OwnStore(Remembered):
    """An offset store as a program may bring it: offsets in a dictionary."""

    def __init__(self, kept: dict[MessageQueue, int]) -> None:
        super().__init__()
        self.kept = kept
        self.is_loaded = False

    async def load(self) -> None:
        self.is_loaded = True

    async def read(self, queue: MessageQueue) -> int | None:
        return self.kept.get(queue)

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        for queue in queues:
            self.kept[queue] = self._offsets[queue]


def test_a_program_may_bring_its_own_offset_store(system: System, fresh_name: FreshName) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        inbox = Inbox()
        kept = {queue_of(topic, 0): 4}
        store = OwnStore(kept)
        await send(system, topic, numbered(10), queue_id=0)
        async with await consumer_of(system, group, topic, inbox, offset_store=store):
            await inbox.holds(6)
        assert store.is_loaded
        assert inbox.bodies == numbered(10)[4:]
        assert kept[queue_of(topic, 0)] == 10

    run(main())


def test_an_offset_behind_the_end_is_put_right(system: System, fresh_name: FreshName) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        inbox = Inbox()
        await send(system, topic, numbered(5), queue_id=0)
        async with await consumer_of(system, group, topic, Inbox()):
            pass  # the group is known to the broker now
        with WireClient(system.broker) as client:
            moved = client.ask(15, consumerGroup=group, topic=topic, queueId=0, commitOffset=900)
            assert moved.code == 0
        async with await consumer_of(system, group, topic, inbox) as consumer:
            table = inner(consumer).rebalancing.table
            await becomes(
                lambda: (
                    [each.next_offset for each in table.values() if each.queue.topic == topic]
                    == [5]
                ),
                "it goes on at the end",
            )
            await send(system, topic, [b"next"], queue_id=0)
            await inbox.holds(1)
        assert inbox.bodies == [b"next"]

    run(main())
    assert committed(system, group, topic) == 6
