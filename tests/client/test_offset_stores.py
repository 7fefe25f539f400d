"""Offset stores: what is remembered, what brokers and files keep, and where a group begins."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orbitmq.client.instance import Instance, join
from orbitmq.client.offset_stores import BrokerOffsets, FileOffsets, first_offset
from orbitmq.client.settings import ClientSettings
from orbitmq.errors import BrokerNotFound, RouteNotFound, StoreError
from orbitmq.wire.bodies_client import ConsumeFromWhere, MessageQueue
from orbitmq.wire.command import Command
from tests.client.sites import Fresh, fill, make_group, make_topic, run
from tests.foreign.judged import System

QUEUE = MessageQueue("orders", "broker-a", 0)
OTHER = MessageQueue("bills", "broker-a", 1)
LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
TIME = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP


@asynccontextmanager
async def joined(system: System) -> AsyncIterator[Instance]:
    instance = await join(ClientSettings(namesrv=system.namesrv))
    try:
        yield instance
    finally:
        await instance.leave()


# --- in memory ---


def test_offsets_go_back_only_when_that_is_wanted(tmp_path: Path) -> None:
    async def work() -> None:
        store = FileOffsets("client", "group", folder=tmp_path)
        store.update(QUEUE, 7)
        store.update(QUEUE, 5, increases_only=True)
        assert store.cached(QUEUE) == 7
        store.update(QUEUE, 5)
        assert store.cached(QUEUE) == 5
        store.update(OTHER, 0, increases_only=True)
        assert store.snapshot("bills") == {OTHER: 0}
        assert store.snapshot("") == {QUEUE: 5, OTHER: 0}

    run(work())


# --- the file ---


def test_a_file_gives_back_what_was_persisted(tmp_path: Path) -> None:
    async def work() -> None:
        before = FileOffsets("10.0.0.1@DEFAULT", "group", folder=tmp_path)
        await before.load()
        assert await before.read(QUEUE) is None
        before.update(QUEUE, 7)
        before.update(OTHER, 9)
        await before.persist([QUEUE])
        after = FileOffsets("10.0.0.1@DEFAULT", "group", folder=tmp_path)
        await after.load()
        assert [await after.read(QUEUE), await after.read(OTHER)] == [7, 9]

    run(work())
    folder = tmp_path / ".rocketmq_offsets" / "10.0.0.1@DEFAULT" / "group"
    assert [path.name for path in folder.iterdir()] == ["offsets.json"]


def test_a_queue_that_was_lost_keeps_its_offset_in_the_file(tmp_path: Path) -> None:
    async def work() -> None:
        store = FileOffsets("client", "group", folder=tmp_path)
        store.update(QUEUE, 7)
        store.remove(QUEUE)
        assert await store.read(QUEUE) == 7

    run(work())


@pytest.mark.parametrize("damage", [b"", b"{torn"], ids=["empty", "torn"])
def test_for_a_damaged_file_its_backup_is_read(tmp_path: Path, damage: bytes) -> None:
    async def work() -> None:
        store = FileOffsets("client", "group", folder=tmp_path)
        for offset in (7, 8):
            store.update(QUEUE, offset)
            await store.persist([QUEUE])
        store.path.write_bytes(damage)
        again = FileOffsets("client", "group", folder=tmp_path)
        await again.load()
        assert await again.read(QUEUE) == 7

    run(work())


def test_offsets_that_nobody_can_read_are_not_taken_for_none(tmp_path: Path) -> None:
    async def work() -> None:
        store = FileOffsets("client", "group", folder=tmp_path)
        store.path.parent.mkdir(parents=True)
        store.path.write_bytes(b"{torn")
        with pytest.raises(StoreError, match=r"offsets.json.*mend the file, or remove it"):
            await store.load()

    run(work())


def test_two_persists_at_once_leave_a_whole_file(tmp_path: Path) -> None:
    async def work() -> None:
        store = FileOffsets("client", "group", folder=tmp_path)
        store.update(QUEUE, 1)
        first = asyncio.ensure_future(store.persist([QUEUE]))
        await asyncio.sleep(0)
        store.update(QUEUE, 2)
        await asyncio.gather(first, store.persist([QUEUE]))
        again = FileOffsets("client", "group", folder=tmp_path)
        await again.load()
        assert await again.read(QUEUE) == 2

    run(work())


# --- brokers ---


def test_a_broker_keeps_what_is_persisted(system: System, fresh_name: Fresh) -> None:
    group = make_group(system, fresh_name("Group"))
    queues = make_topic(system, fresh_name("Topic"), 2)
    for queue in queues:
        fill(system, queue, [b"1", b"2", b"3", b"4"])

    async def work() -> None:
        async with joined(system) as instance:
            store = BrokerOffsets(instance, group)
            store.update(queues[0], 2)
            store.update(queues[1], 3)
            await store.persist(queues[:1])
            again = BrokerOffsets(instance, group)
            assert await again.read(queues[0]) == 2
            assert again.cached(queues[0]) == 2
            # A young queue without an offset: the broker itself answers 0.
            assert await again.read(queues[1]) == 0
            again.remove(queues[0])
            assert again.cached(queues[0]) is None

    run(work())


def test_what_cannot_be_known_is_an_error_not_none(system: System, fresh_name: Fresh) -> None:
    queue = make_topic(system, fresh_name("Topic"), 1)[0]

    async def work() -> None:
        async with joined(system) as instance:
            store = BrokerOffsets(instance, fresh_name("Group"))
            with pytest.raises(BrokerNotFound):
                await store.read(MessageQueue(queue.topic, "broker-z", 0))
            with pytest.raises(RouteNotFound):
                await store.read(MessageQueue(fresh_name("Gone"), "broker-a", 0))

    run(work())


def test_no_offset_is_none_and_asked_for_within_five_seconds(
    system: System, fresh_name: Fresh
) -> None:
    queue = make_topic(system, fresh_name("Topic"), 1)[0]
    asked: list[float | None] = []

    async def answer(_address: str, _request: Command, **options: Any) -> Command:
        asked.append(options["timeout_s"])
        assert 22 in options["expected"]
        return Command(22, remark="Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")

    async def work() -> None:
        async with joined(system) as instance:
            await instance.routes.find(queue.topic)
            instance.remote.ask = answer  # type: ignore[method-assign,assignment]  # queues here are young
            assert await BrokerOffsets(instance, "group").read(queue) is None
            assert (asked, instance.settings.request_timeout_s) == ([None], 5.0)

    run(work())


def test_an_offset_that_cannot_be_stored_does_not_keep_others_back(
    system: System, fresh_name: Fresh
) -> None:
    group = make_group(system, fresh_name("Group"))
    queue = make_topic(system, fresh_name("Topic"), 1)[0]
    fill(system, queue, [b"1", b"2", b"3"])
    strange = MessageQueue(queue.topic, "broker-z", 0)

    async def work() -> None:
        async with joined(system) as instance:
            store = BrokerOffsets(instance, group)
            store.update(strange, 1)
            store.update(queue, 2)
            with pytest.raises(BrokerNotFound):
                await store.persist([strange, queue])
            assert await BrokerOffsets(instance, group).read(queue) == 2

    run(work())


# --- where a group begins ---


class Nothing(FileOffsets):
    """A store of a program's own, in which nothing is."""

    async def read(self, queue: MessageQueue) -> int | None:
        return None


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (LAST, 4),
        (ConsumeFromWhere.CONSUME_FROM_MAX_OFFSET, 4),
        (ConsumeFromWhere.CONSUME_FROM_MIN_OFFSET, 4),
        (ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST, 4),
        (FIRST, 0),
        (TIME, 0),
    ],
)
def test_a_new_group_begins_where_it_wants(
    system: System, fresh_name: Fresh, tmp_path: Path, where: ConsumeFromWhere, expected: int
) -> None:
    queue = make_topic(system, fresh_name("Topic"), 1)[0]
    fill(system, queue, [b"1", b"2", b"3", b"4"])

    async def work() -> None:
        async with joined(system) as instance:
            store = Nothing("client", "group", folder=tmp_path)
            assert await first_offset(instance, store, queue, where, 1_000) == expected

    run(work())


@pytest.mark.parametrize(("where", "expected"), [(LAST, 0), (FIRST, 0), (TIME, 2)])
def test_a_new_group_begins_its_retry_topic_at_its_beginning_but_by_time_at_its_end(
    system: System, fresh_name: Fresh, tmp_path: Path, where: ConsumeFromWhere, expected: int
) -> None:
    queue = make_topic(system, "%RETRY%" + fresh_name("Group"), 1)[0]
    fill(system, queue, [b"1", b"2"])

    async def work() -> None:
        async with joined(system) as instance:
            store = Nothing("client", "group", folder=tmp_path)
            assert await first_offset(instance, store, queue, where, 1_000) == expected

    run(work())


@pytest.mark.parametrize("where", [LAST, FIRST, TIME])
def test_a_stored_offset_counts_more_than_any_wish(
    system: System, fresh_name: Fresh, tmp_path: Path, where: ConsumeFromWhere
) -> None:
    queue = make_topic(system, fresh_name("Topic"), 1)[0]
    fill(system, queue, [b"1", b"2", b"3", b"4"])

    async def work() -> None:
        async with joined(system) as instance:
            store = FileOffsets("client", "group", folder=tmp_path)
            store.update(queue, 3)
            assert await first_offset(instance, store, queue, where, 1_000) == 3

    run(work())


def test_a_new_group_on_a_young_queue_begins_at_its_beginning(
    system: System, fresh_name: Fresh
) -> None:
    queue = make_topic(system, fresh_name("Topic"), 1)[0]
    fill(system, queue, [b"1", b"2"])

    async def work() -> None:
        async with joined(system) as instance:
            store = BrokerOffsets(instance, fresh_name("Group"))
            assert await first_offset(instance, store, queue, LAST, 0) == 0

    run(work())
