"""The original's Java producers to our Python consumers: every kind of message, as it was sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from orbitmq.aio import Admin, Compression, ConsumeFromWhere, DeadLetter, PullConsumer, PushConsumer
from orbitmq.client.message import ReceivedMessage
from orbitmq.wire.sysflag import compression_of, is_compressed
from tests.client.producing import run
from tests.foreign.accounts import events
from tests.foreign.judged import System
from tests.foreign.peers import Line, java_probe, java_program

pytestmark = [pytest.mark.nightly("clients"), pytest.mark.foreign]

FreshName = Callable[[str], str]
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
LONG = "long text, often repeated; " * 400
KINDS = {"plain", "tagged", "keyed", "own", "later", "oneway", "async", LONG} | {
    *(f"batch-{n}" for n in range(5)),
    *(f"ordered-{n}" for n in range(6)),
}
COMPRESSIONS = {"4.9.7": (), "5.5.0": ("LZ4", "ZSTD")}
"""What a Java producer can choose beside the default, zlib."""
LIMIT_S = 60.0


def sent_by_java(system: System, version: str, topic: str, group: str) -> dict[str, Line]:
    """Have a Java producer send one message of each kind; return what it was answered, by body."""
    words = (system.namesrv, topic, group, LONG, *COMPRESSIONS[version])
    lines = java_program(version, "EveryKind", *words)
    assert events(lines, "error") == []
    return {line["body"]: line for line in events(lines, "sent")}


async def consumed(
    system: System, topic: str, group: str, bodies: set[str]
) -> dict[str, ReceivedMessage]:
    """Consume until each of these has come, once."""
    got: asyncio.Queue[ReceivedMessage] = asyncio.Queue()
    consumer = PushConsumer(system.namesrv, group, got.put, from_where=FIRST)
    await consumer.subscribe(topic)
    found: dict[str, ReceivedMessage] = {}
    async with consumer, asyncio.timeout(LIMIT_S):
        while set(found) != bodies:
            message = await got.get()
            assert message.body.decode() not in found
            found[message.body.decode()] = message
    return found


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_a_python_consumer_gets_every_kind_of_message(
    system: System, fresh_name: FreshName, version: str
) -> None:
    topic = fresh_name("Topic")
    sent = sent_by_java(system, version, topic, fresh_name("PG"))
    compressed = {kind: f"{kind}{LONG}" for kind in COMPRESSIONS[version]} | {"ZLIB": LONG}

    async def main() -> None:
        bodies = KINDS | set(compressed.values())
        received = await consumed(system, topic, fresh_name("CG"), bodies)
        for body, line in sent.items():
            message = received[body]
            assert (message.topic, message.message_id) == (topic, line["msgId"])
            if body != "later":  # its answer tells where it waits
                place = (message.queue.queue_id, message.queue_offset)
                assert place == (line["queueId"], line["queueOffset"])
        assert received["tagged"].tag == "TagA"
        assert received["later"].tag == "TagL"
        assert received["later"].store_ms - received["later"].born_ms >= 900
        assert received["keyed"].keys == ["k1", "k2"]
        assert (received["batch-3"].tag, received["batch-3"].keys) == ("TagB", ["b3"])
        assert received["own"].properties["colour"] == "grün"
        assert (received["own"].properties["number"], received["own"].flag) == ("7", 3)
        for kind, body in compressed.items():
            assert is_compressed(received[body].sys_flag)
            assert compression_of(received[body].sys_flag) is Compression[kind]
        ordered = [received[f"ordered-{n}"] for n in range(6)]
        assert len({message.queue for message in ordered}) == 1
        offsets = [message.queue_offset for message in ordered]
        assert offsets == sorted(offsets)

    run(main())


def test_a_pull_consumer_reads_what_java_sent(system: System, fresh_name: FreshName) -> None:
    topic = fresh_name("Topic")
    java_probe("4.9.7", "send-batch", system.namesrv, topic, "200", "size=20", "body=p")

    async def main() -> None:
        bodies: list[bytes] = []
        group = fresh_name("CG")
        async with PullConsumer(system.namesrv, group, from_where=FIRST) as consumer:
            await consumer.subscribe(topic)
            async with asyncio.timeout(LIMIT_S):
                while len(bodies) < 200:
                    bodies += [message.body for message in await consumer.poll(timeout=5)]
        assert sorted(bodies) == sorted(b"p-%d" % n for n in range(200))

    run(main())


def test_what_python_gives_up_a_java_consumer_finds_among_the_dead_letters(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("CG")
    java_probe("4.9.7", "send", system.namesrv, topic, "3", "body=d", "keys=d")

    async def main() -> None:
        refused = asyncio.Event()
        count = 0

        def give_up(_message: ReceivedMessage) -> None:
            nonlocal count
            count += 1
            if count == 3:
                loop.call_soon_threadsafe(refused.set)
            raise DeadLetter("never")

        loop = asyncio.get_running_loop()
        consumer = PushConsumer(system.namesrv, group, give_up, from_where=FIRST)
        await consumer.subscribe(topic)
        async with consumer, asyncio.timeout(LIMIT_S):
            await refused.wait()
        async with Admin(system.namesrv) as admin, asyncio.timeout(LIMIT_S):
            await admin.topic_stats(f"%DLQ%{group}")

    run(main())
    words = ("consume", system.namesrv, f"%DLQ%{group}", fresh_name("CG"), "3", "60")
    received = events(java_probe("4.9.7", *words), "received")
    assert {line["body"] for line in received} == {"d-0", "d-1", "d-2"}
