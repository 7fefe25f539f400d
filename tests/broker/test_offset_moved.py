"""The event that says that a consumer asked for an offset its queue does not have."""

from orbitmq.broker.offset_moved import REPEAT_S, note_offset_moved
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.expression import tag_code
from orbitmq.wire.properties import parse_properties
from orbitmq.wire.record import Record
from orbitmq.world.net import run
from tests.broker.delaying import ROOT, Site, site
from tests.store.driven import HandClock
from tests.world.memory_files import MemoryFiles

QUEUE = MessageQueue("T", "broker-a", 3)


def events(at: Site) -> list[Record]:
    return at.records("OFFSET_MOVED_EVENT")


def test_the_event_has_the_originals_body_tag_and_key() -> None:
    async def inner() -> None:
        async with site(MemoryFiles(ROOT), HandClock()) as at:
            note_offset_moved(at.context, "G", QUEUE, 99, 1)
            await at.turn()
            (record,) = events(at)
            assert record.body == (
                b'{"consumerGroup":"G","messageQueue":{"brokerName":"broker-a","queueId":3,'
                b'"topic":"T"},"offsetNew":1,"offsetRequest":99}'
            )
            properties = parse_properties(record.properties)
            assert (properties["TAGS"], properties["KEYS"], properties["DELAY"]) == ("G", "G", "0")
            entry = at.store.queue("OFFSET_MOVED_EVENT", 0).entries
            assert int.from_bytes(entry[12:20], "big") == tag_code("G")

    run(inner())


def test_the_same_event_is_told_once_in_a_while() -> None:
    async def inner() -> None:
        async with site(MemoryFiles(ROOT), HandClock()) as at:
            for _ in range(10):
                note_offset_moved(at.context, "G", QUEUE, 99, 1)
            note_offset_moved(at.context, "G2", QUEUE, 99, 1)
            await at.turn()
            assert len(events(at)) == 2
            at.clock.now_ms += int(REPEAT_S * 1_000)
            note_offset_moved(at.context, "G", QUEUE, 99, 1)
            await at.turn()
            assert len(events(at)) == 3

    run(inner())


def test_a_store_that_takes_nothing_does_not_fail_the_pull() -> None:
    async def inner() -> None:
        async with site(MemoryFiles(ROOT), HandClock()) as at:
            at.store._refusals.note_disk("no room")
            note_offset_moved(at.context, "G", QUEUE, 99, 1)
            await at.turn()
            assert events(at) == []

    run(inner())
