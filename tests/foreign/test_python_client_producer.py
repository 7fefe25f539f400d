"""Our Python producer to the original's Java consumers: every kind of message, as it was sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from orbitmq.client.message import Message
from orbitmq.client.producer import Producer
from orbitmq.client.send_result import SendResult
from orbitmq.wire.sysflag import Compression
from tests.client.producing import run
from tests.foreign.accounts import events
from tests.foreign.judged import System
from tests.foreign.peers import Line, java_probe

pytestmark = [pytest.mark.nightly("clients"), pytest.mark.foreign]

FreshName = Callable[[str], str]
CONSUME_LIMIT_S = "60"
LONG = "long text, often repeated; " * 400


async def send_every_kind(producer: Producer, topic: str) -> dict[str, SendResult]:
    """Send one message of each kind; return the results by their bodies."""
    single = [
        Message(topic, b"plain"),
        Message(topic, b"tagged", tag="TagA"),
        Message(topic, b"keyed", keys=["k1", "k2"]),
        Message(topic, b"own", properties={"colour": "grün", "number": "7"}, flag=3),
        Message(topic, LONG.encode()),
        Message(topic, "Gruß an alle".encode()),
        Message(topic, b"unsynced", waits_for_store=False),
        Message(topic, b"later", delay_level=1, tag="TagL"),
    ]
    sent = {message.body.decode(): await producer.send(message) for message in single}
    futures = {
        f"submitted-{n}": producer.submit(Message(topic, b"submitted-%d" % n)) for n in range(20)
    }
    sent |= dict(zip(futures, await asyncio.gather(*futures.values()), strict=True))
    batch = [Message(topic, b"batch-%d" % n, tag="TagB", keys=[f"b{n}"]) for n in range(5)]
    results = await producer.send_batch(batch)
    sent |= {message.body.decode(): one for message, one in zip(batch, results, strict=True)}
    for n in range(6):
        result = await producer.send(Message(topic, b"ordered-%d" % n, sharding_key="one"))
        sent[f"ordered-{n}"] = result
    return sent


def consume(system: System, version: str, topic: str, group: str, count: int) -> dict[str, Line]:
    """Have a Java push consumer take all messages; give them by their bodies."""
    words = ("consume", system.namesrv, topic, group, str(count), CONSUME_LIMIT_S)
    lines = java_probe(version, *words)
    assert events(lines, "error") == []
    received = events(lines, "received")
    by_body: dict[str, Line] = {line["body"]: line for line in received}
    assert len(by_body) == len(received) == count
    return by_body


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_a_java_consumer_gets_every_kind_of_message(
    system: System, fresh_name: FreshName, version: str
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("CG")
    sent: dict[str, SendResult] = {}

    async def main() -> None:
        async with Producer(system.namesrv, group=fresh_name("PG")) as producer:
            sent.update(await send_every_kind(producer, topic))
            await producer.send_oneway(Message(topic, b"oneway"))

    run(main())
    received = consume(system, version, topic, group, len(sent) + 1)
    assert set(received) == {*sent, "oneway"}
    for body, result in sent.items():
        line = received[body]
        assert line["topic"] == topic
        assert line["msgId"] == result.message_id
        if body != "later":
            assert (line["queueId"], line["queueOffset"]) == (
                result.queue.queue_id,
                result.queue_offset,
            )
    assert received["tagged"]["tags"] == "TagA"
    assert received["later"]["tags"] == "TagL"
    assert received["keyed"]["keys"] == "k1 k2"
    assert received["batch-3"]["keys"] == "b3"
    assert received["own"]["properties"]["colour"] == "grün"
    assert received["own"]["properties"]["number"] == "7"
    ordered = [received[f"ordered-{n}"] for n in range(6)]
    assert len({line["queueId"] for line in ordered}) == 1
    offsets = [line["queueOffset"] for line in ordered]
    assert offsets == sorted(offsets)
    waited_ms = received["later"]["storeTimestamp"] - received["later"]["bornTimestamp"]
    assert waited_ms >= 900


@pytest.mark.parametrize("kind", [Compression.LZ4, Compression.ZSTD])
def test_a_java_5_consumer_reads_bodies_of_each_compression(
    system: System, fresh_name: FreshName, kind: Compression
) -> None:
    topic = fresh_name("Topic")

    async def main() -> None:
        async with Producer(system.namesrv, group="PG", compression=kind) as producer:
            await producer.send(Message(topic, LONG.encode()))

    run(main())
    assert set(consume(system, "5.5.0", topic, fresh_name("CG"), 1)) == {LONG}


def test_python_and_java_choose_the_same_queue_for_a_key(
    system: System, fresh_name: FreshName
) -> None:
    topic = fresh_name("Topic")
    chosen: dict[str, tuple[str, int]] = {}

    async def main() -> None:
        async with Producer(system.namesrv, group=fresh_name("PG")) as producer:
            for n in range(40):
                key = f"grün-{n}"
                result = await producer.send(Message(topic, b"x"), key=key)
                chosen[key] = result.queue.broker_name, result.queue.queue_id

    run(main())
    words = ("send", system.namesrv, topic, "40", "keys=grün", "body=grün", "hash=true")
    lines = java_probe("4.9.7", *words)
    assert events(lines, "error") == []
    theirs = {line["body"]: (line["brokerName"], line["queueId"]) for line in events(lines, "sent")}
    assert theirs == chosen
    assert len(set(chosen.values())) == 4
