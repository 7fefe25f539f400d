"""Java and Python members of one group: they share queues and retry for each other.

The Java ones are `tests/foreign/java/GroupMember.java` with the original's own client.
"""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from orbitmq.client.message import ReceivedMessage
from orbitmq.client.outcomes import Retry
from orbitmq.client.push import PushConsumer
from tests.client.pushing import (
    FreshName,
    Inbox,
    becomes,
    committed,
    consumer_of,
    make_topic,
    numbered,
    run,
    send,
)
from tests.client.test_push_rebalance import QUEUE_COUNT, Flow, own_queues
from tests.foreign.judged import System
from tests.foreign.peers import Line, java_running
from tests.wire_client import WireClient

pytestmark = [
    pytest.mark.nightly("clients"),
    pytest.mark.foreign,
    pytest.mark.slow,
    pytest.mark.timeout(180),
]

READY_LIMIT_S = 90.0


class JavaMember:
    """A member that runs in a JVM, and the lines that it has printed."""

    def __init__(self, lines: list[Line]) -> None:
        self._lines = lines

    @property
    def client_id(self) -> str:
        return str(self._lines[0]["client"])

    @property
    def is_ready(self) -> bool:
        return bool(self._lines)

    @property
    def received(self) -> list[Line]:
        return self._lines[1:]

    @property
    def bodies(self) -> list[bytes]:
        return [line["body"].encode() for line in self.received]

    def owned(self, system: System, group: str, topic: str) -> list[int]:
        """Ask it, through the broker, which queues it has."""
        with WireClient(system.broker) as client:
            answer = client.ask(307, consumerGroup=group, clientId=self.client_id)
        if answer.code != 0:
            return []  # its first heartbeat is still to come
        return [
            number
            for number in range(QUEUE_COUNT)
            if b'"queueId":%d,"topic":"%s"' % (number, topic.encode()) in answer.body
            and b'{"brokerName":"broker-a","queueId":%d,"topic":"%s"}:{' % (number, topic.encode())
            in answer.body
        ]


@contextmanager
def java_member(version: str, *args: str) -> Iterator[JavaMember]:
    """Run a Java member of a group for the length of the block."""
    lines: list[Line] = []
    with java_running(version, "GroupMember", *args) as process:
        output: Any = process.stdout

        def read() -> None:
            for line in output:
                if line.startswith("{"):
                    lines.append(json.loads(line))

        reader = threading.Thread(target=read)
        reader.start()
        yield JavaMember(lines)
    reader.join()


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_java_and_python_members_share_queues_and_rebalance_together(
    system: System, fresh_name: FreshName, version: str
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, QUEUE_COUNT)

    async def main(java: JavaMember) -> None:
        inbox, flow = Inbox(), Flow(system, topic)

        async def share(*members: PushConsumer) -> None:
            """Return when each queue has one owner, and the members have as many each."""
            begun_s = time.monotonic()
            while True:
                of_java = await asyncio.to_thread(java.owned, system, group, topic)
                found = [[queue.queue_id for queue in own_queues(each, topic)] for each in members]
                sizes = sorted(map(len, [of_java, *found]))
                together = sorted([*of_java, *(number for each in found for number in each)])
                if together == list(range(QUEUE_COUNT)) and sizes[-1] - sizes[0] <= 1:
                    return
                assert time.monotonic() - begun_s < 40, (of_java, found)
                await asyncio.sleep(0.1)

        await becomes(lambda: java.is_ready, "the Java member is ready", READY_LIMIT_S)
        flowing = asyncio.create_task(flow.run())
        options = {"commit_interval_s": 0.5}
        one = await consumer_of(system, group, topic, inbox, **options)
        two = await consumer_of(system, group, topic, inbox, **options)
        async with one:
            await share(one)
            async with two:
                await share(one, two)
                await asyncio.sleep(2)
            await share(one)
            flow.stop()
            await flowing
            await becomes(
                lambda: {*inbox.bodies, *java.bodies} == set(flow.sent), "all were consumed"
            )
            assert inbox.bodies
            assert java.bodies

    with java_member(version, system.namesrv, topic, group) as java:
        run(main(java), 150)


@pytest.mark.parametrize(
    ("version", "instance_name", "python_retries"),
    [("4.9.7", "~", False), ("5.5.0", "!", True)],
    ids=["Java 4.9.7 retries", "Python retries, Java is 5.5.0"],
)
def test_what_one_language_refuses_comes_again_to_the_group(
    system: System, fresh_name: FreshName, version: str, instance_name: str, python_retries: bool
) -> None:
    """Retries have one queue, the first member's in the order of ids: it gets all of them."""
    topic, group = fresh_name("Topic"), fresh_name("group")
    retries = f"%RETRY%{group}"
    make_topic(system, topic, 4)
    make_topic(system, retries, 1)  # before the members, or they look for its route after 30 s

    async def main(java: JavaMember) -> None:
        def act(message: ReceivedMessage) -> None:
            if message.body.startswith(b"python-fails") and not message.reconsume_times:
                raise Retry(delay_level=1)

        def here(*, is_again: bool) -> set[bytes]:
            return {one.body for one in inbox.messages if bool(one.reconsume_times) == is_again}

        def there(*, is_again: bool) -> set[bytes]:
            lines = [line for line in java.received if bool(line["times"]) == is_again]
            return {line["body"].encode() for line in lines}

        async def share() -> None:
            """Return when each member has two queues, and the right one has the retries."""
            wanted = {"here": (2, int(python_retries)), "there": (2, int(not python_retries))}
            found: dict[str, tuple[int, ...]] = {}
            while found != wanted:
                owned = [
                    await asyncio.to_thread(java.owned, system, group, each)
                    for each in (topic, retries)
                ]
                mine = [own_queues(consumer, each) for each in (topic, retries)]
                found = {"here": tuple(map(len, mine)), "there": tuple(map(len, owned))}

        inbox = Inbox(act)
        await becomes(lambda: java.is_ready, "the Java member is ready", READY_LIMIT_S)
        options = {"instance_name": instance_name}
        async with await consumer_of(system, group, topic, inbox, **options) as consumer:
            await share()
            bodies = numbered(20, "java-fails") + numbered(20, "python-fails")
            for queue_id in range(4):
                await send(system, topic, bodies[queue_id::4], queue_id=queue_id)
            await becomes(
                lambda: here(is_again=False) | there(is_again=False) == set(bodies), "all came"
            )
            refused_here = {each for each in here(is_again=False) if b"python-fails" in each}
            refused_there = {each for each in there(is_again=False) if b"java-fails" in each}
            assert refused_here
            assert refused_there
            again, by_other = (here, there) if python_retries else (there, here)
            await becomes(
                lambda: again(is_again=True) == refused_here | refused_there,
                "the owner of the retries got what both had refused",
            )
            assert by_other(is_again=True) == set()
        assert {line["topic"] for line in java.received} == {topic}
        assert {message.topic for message in inbox.messages} == {topic}

    with java_member(version, system.namesrv, topic, group) as java:
        run(main(java), 150)


def test_an_orderly_queue_goes_from_java_to_python_without_a_message_out_of_order(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 2)

    async def main(java: JavaMember) -> None:
        inbox = Inbox()
        await becomes(lambda: java.is_ready, "the Java member is ready", READY_LIMIT_S)
        for queue_id in range(2):
            await send(system, topic, numbered(10, f"q{queue_id}"), queue_id=queue_id)
        await becomes(lambda: len(java.bodies) == 20, "Java consumes alone")
        async with await consumer_of(system, group, topic, inbox, is_orderly=True) as consumer:
            await becomes(lambda: len(own_queues(consumer, topic)) == 1, "they share", 60)
            begun_s = time.monotonic()
            for queue_id in range(2):
                await send(system, topic, numbered(10, f"r{queue_id}"), queue_id=queue_id)
            await becomes(lambda: len(java.bodies) + len(inbox.bodies) >= 40, "all came", 60)
            assert time.monotonic() - begun_s < 60
        mine = [message.queue_offset for message in inbox.messages]
        assert mine == list(range(10, 20))
        assert len(java.bodies) == 30

    with java_member("4.9.7", system.namesrv, topic, group, "orderly") as java:
        run(main(java), 150)
    assert [committed(system, group, topic, each) for each in range(2)] == [20, 20]


def test_what_java_gives_up_python_finds_among_the_dead_letters(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)
    bodies = numbered(3, "java-gives-up")

    async def main(java: JavaMember) -> None:
        await becomes(lambda: java.is_ready, "the Java member is ready", READY_LIMIT_S)
        await send(system, topic, [*bodies, b"java-takes-it"])
        await becomes(lambda: len(java.bodies) == 4, "Java got them")
        inbox, dead = Inbox(), f"%DLQ%{group}"
        async with await consumer_of(system, fresh_name("group"), dead, inbox):
            await inbox.holds(3)
        assert sorted(inbox.bodies) == sorted(bodies)
        assert all(message.properties["ORIGIN_MESSAGE_ID"] for message in inbox.messages)
        assert {message.properties["RETRY_TOPIC"] for message in inbox.messages} == {topic}

    with java_member("4.9.7", system.namesrv, topic, group) as java:
        run(main(java), 150)
