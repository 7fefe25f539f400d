"""The original's own strategies and offsets file against ours: same shares, same file.

Java programs with unmodified client classes of 4.9.7 and 5.5.0; nothing is listening anywhere.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from orbitmq.client.offset_stores import FileOffsets
from orbitmq.client.strategies import (
    AllocateStrategy,
    Averagely,
    AveragelyByCircle,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
)
from orbitmq.wire.bodies_client import MessageQueue
from tests.foreign.peers import java_program, require_tool

pytestmark = [pytest.mark.nightly("clients"), pytest.mark.foreign]

VERSIONS = ("4.9.7", "5.5.0")
CASES = 400
SEED = 20_260_101


class FirstPart:
    """The room is what stands before the first `@`."""

    def of_queue(self, queue: MessageQueue) -> str:
        return queue.broker_name.partition("@")[0]

    def of_client(self, client_id: str) -> str:
        return client_id.partition("@")[0]


STRATEGIES: dict[str, AllocateStrategy] = {
    "averagely": Averagely(),
    "circle": AveragelyByCircle(),
    "hash=10": ConsistentHash(),
    "hash=3": ConsistentHash(3),
    "rooms=r1;r3": ByMachineRoom(["r1", "r3"]),
    "nearby=averagely": MachineRoomNearby(Averagely(), FirstPart()),
    "nearby=circle": MachineRoomNearby(AveragelyByCircle(), FirstPart()),
}


def generated(number: int) -> tuple[str, list[MessageQueue], list[str]]:
    """Return a case: strategy, queues, clients; names as deployments have them, some odd."""
    chance = random.Random(SEED + number)
    word = list(STRATEGIES)[number % len(STRATEGIES)]
    topic = chance.choice(["orders", "%RETRY%group", "shop%orders", "a-b_c|d"])
    ends = ["@a", "@b", "@b@", "@b@c", "", "-x"]
    brokers = {f"r{chance.randrange(5)}{chance.choice(ends)}" for _ in range(chance.randint(1, 5))}
    queues = [
        MessageQueue(topic, broker, queue_id)
        for broker in brokers
        for queue_id in range(chance.randint(1, 9))
    ]
    clients = {
        f"r{chance.randrange(6)}@10.0.0.{chance.randrange(50)}@{chance.randrange(99999)}#7"
        for _ in range(chance.randint(1, 12))
    }
    return word, sorted(queues), sorted(clients)


def line_of(word: str, queues: list[MessageQueue], clients: list[str]) -> str:
    queue_list = ",".join(f"{queue.broker_name}:{queue.queue_id}" for queue in queues)
    return "\t".join((word, queues[0].topic, queue_list, ",".join(clients)))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_strategy_gives_what_the_class_of_the_original_gives(version: str) -> None:
    require_tool("javac")
    cases = [generated(number) for number in range(CASES)]
    stdin = "".join(line_of(*case) + "\n" for case in cases)
    answers = java_program(version, "Shares", stdin=stdin)
    assert len(answers) == CASES
    for (word, queues, clients), answer in zip(cases, answers, strict=True):
        strategy = STRATEGIES[word]
        shares = [
            [queues.index(queue) for queue in strategy.allocate("group", each, queues, clients)]
            for each in clients
        ]
        assert (strategy.name, shares) == (answer["strategy"], answer["shares"]), (word, clients)


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_of_a_java_broadcasting_consumer_are_taken_over(
    version: str, tmp_path: Path
) -> None:
    require_tool("javac")
    args = (str(tmp_path / ".rocketmq_offsets"), "10.1.2.3", "watchers", "orders", "write", "12")
    java_program(version, "OffsetsFile", *args)
    store = FileOffsets("10.1.2.3@DEFAULT", "watchers", folder=tmp_path)
    asyncio.run(store.load())
    assert store.snapshot("orders") == {
        MessageQueue("orders", "broker-a", number): 100 + number for number in range(12)
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_a_java_broadcasting_consumer_takes_over_our_offsets(version: str, tmp_path: Path) -> None:
    require_tool("javac")
    store = FileOffsets("10.1.2.3@DEFAULT", "watchers", folder=tmp_path)

    async def write() -> None:
        await store.load()
        queues = [MessageQueue("orders", "broker-a", number) for number in range(12)]
        for queue in queues:
            store.update(queue, 7 * queue.queue_id)
        await store.persist(queues)

    asyncio.run(write())
    args = (str(tmp_path / ".rocketmq_offsets"), "10.1.2.3", "watchers", "orders", "read", "12")
    lines = java_program(version, "OffsetsFile", *args)
    assert {line["queue"]: line["offset"] for line in lines} == {
        number: 7 * number for number in range(12)
    }
