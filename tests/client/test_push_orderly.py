"""Orderly push consumers: the order of each queue, whatever fails, and one owner at a time."""

import asyncio
import random
import time

import pytest

from orbitmq.client.consume_hooks import ConsumeReturn
from orbitmq.client.message import ReceivedMessage
from orbitmq.client.outcomes import DeadLetter, Retry
from tests.client.pushing import (
    FreshName,
    Inbox,
    becomes,
    committed,
    consumer_of,
    make_topic,
    numbered,
    queue_of,
    run,
    send,
)
from tests.client.test_push_concurrent import Witness
from tests.client.test_push_retry import dead_letters
from tests.foreign.judged import System
from tests.wire_client import WireClient


@pytest.mark.parametrize("is_async", [True, False])
def test_each_queue_keeps_its_order_although_handlers_fail(
    system: System, fresh_name: FreshName, is_async: bool
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 3)
    chance = random.Random(7)
    done: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    active: set[int] = set()

    def act(message: ReceivedMessage) -> None:
        queue_id = message.queue.queue_id
        assert queue_id not in active
        active.add(queue_id)
        try:
            if chance.random() < 0.2:
                raise Retry(suspend_s=0.01)
            done[queue_id].append(message.body)
        finally:
            active.remove(queue_id)

    async def handle(message: ReceivedMessage) -> None:
        await asyncio.sleep(0)
        act(message)

    async def main() -> None:
        for queue_id in done:
            await send(system, topic, numbered(60, f"q{queue_id}"), queue_id=queue_id)
        handler = handle if is_async else act
        async with await consumer_of(system, group, topic, handler, is_orderly=True):
            await becomes(lambda: sum(map(len, done.values())) == 180, "all were consumed")
        for queue_id, bodies in done.items():
            assert bodies == numbered(60, f"q{queue_id}")

    run(main())
    assert [committed(system, group, topic, each) for each in range(3)] == [60, 60, 60]


def test_queues_run_side_by_side(system: System, fresh_name: FreshName) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 4)

    async def main() -> None:
        together = asyncio.Barrier(4)
        bodies = []

        async def handle(message: ReceivedMessage) -> None:
            async with asyncio.timeout(20):
                await together.wait()
            bodies.append(message.body)

        for queue_id in range(4):
            await send(system, topic, numbered(3), queue_id=queue_id)
        async with await consumer_of(system, group, topic, handle, is_orderly=True):
            await becomes(lambda: len(bodies) == 12, "all were consumed")

    run(main())


def test_a_failure_stops_its_queue_for_a_moment_and_no_other(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 2)

    async def main() -> None:
        def act(message: ReceivedMessage) -> None:
            if message.body == b"bad-0" and message.reconsume_times < 2:
                raise ValueError("not yet")

        inbox = Inbox(act)
        await send(system, topic, numbered(2, "bad"), queue_id=0)
        await send(system, topic, numbered(2, "good"), queue_id=1)
        options = {"is_orderly": True, "suspend_queue_s": 0.5}
        async with await consumer_of(system, group, topic, inbox, **options):
            await inbox.holds(6)
        of_bad = [
            (message.body, at_s)
            for message, at_s in zip(inbox.messages, inbox.times_s, strict=True)
            if message.queue.queue_id == 0
        ]
        assert [body for body, _ in of_bad] == [b"bad-0", b"bad-0", b"bad-0", b"bad-1"]
        assert of_bad[1][1] - of_bad[0][1] >= 0.4
        assert of_bad[2][1] - of_bad[1][1] >= 0.4
        good_s = [
            at_s
            for message, at_s in zip(inbox.messages, inbox.times_s, strict=True)
            if message.queue.queue_id == 1
        ]
        assert max(good_s) < of_bad[1][1]

    run(main())


def test_what_failed_too_often_is_a_dead_letter_and_the_queue_goes_on(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        def act(message: ReceivedMessage) -> None:
            if message.body == b"m-1":
                raise Retry
            if message.body == b"m-2":
                raise DeadLetter("never")

        inbox = Inbox(act)
        await send(system, topic, numbered(4), queue_id=0)
        options = {"is_orderly": True, "suspend_queue_s": 0.05, "max_reconsume_times": 2}
        async with await consumer_of(system, group, topic, inbox, **options):
            await inbox.holds(6)
        assert inbox.bodies == [b"m-0", b"m-1", b"m-1", b"m-1", b"m-2", b"m-3"]

    run(main())
    assert [letter.body for letter in dead_letters(system, group, 2)] == [b"m-1", b"m-2"]
    assert committed(system, group, topic) == 4


def test_hooks_see_orderly_calls_also_those_that_raise(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        def act(message: ReceivedMessage) -> None:
            if not message.reconsume_times:
                raise ValueError("not yet")

        inbox, witness = Inbox(act), Witness()
        await send(system, topic, [b"m"], queue_id=0)
        options = {"is_orderly": True, "suspend_queue_s": 0.05}
        consumer = await consumer_of(system, group, topic, inbox, **options)
        consumer.consume_hooks.append(witness)
        async with consumer:
            await becomes(lambda: len(witness.seen) == 4, "two calls were seen")
        assert witness.seen == [
            ("before", False, None),
            ("after", False, ConsumeReturn.EXCEPTION),
            ("before", False, None),
            ("after", True, ConsumeReturn.SUCCESS),
        ]

    run(main())


def held_by(system: System, group: str, topic: str, client_id: str, count: int) -> list[int]:
    """Return the queues whose locks a client gets; those it gets it keeps."""
    with WireClient(system.broker) as client:
        queues = ",".join(
            f'{{"topic":"{topic}","brokerName":"broker-a","queueId":{number}}}'
            for number in range(count)
        )
        body = f'{{"clientId":"{client_id}","consumerGroup":"{group}","mqSet":[{queues}]}}'
        answer = client.ask(41, body.encode())
        assert answer.code == 0, answer.remark
        return sorted(number for number in range(count) if b'"queueId":%d' % number in answer.body)


def test_queues_are_locked_while_it_runs_and_free_when_it_is_closed(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 3)

    async def main() -> None:
        async with await consumer_of(system, group, topic, Inbox(), is_orderly=True) as consumer:
            await becomes(lambda: len(consumer.queues()) >= 3, "its queues are locked")
            assert held_by(system, group, topic, "somebody@else", 3) == []
            assert held_by(system, group, topic, consumer.client_id, 3) == [0, 1, 2]
        assert held_by(system, group, topic, "somebody@else", 3) == [0, 1, 2]

    run(main())


def test_a_queue_that_somebody_else_has_locked_is_not_consumed(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 2)

    async def main() -> None:
        inbox = Inbox()
        for queue_id in (0, 1):
            await send(system, topic, numbered(1, f"q{queue_id}"), queue_id=queue_id)
        assert held_by(system, group, topic, "somebody@else", 1) == [0]
        async with await consumer_of(system, group, topic, inbox, is_orderly=True) as consumer:
            await inbox.holds(1)
            assert queue_of(topic, 0) not in consumer.queues()
            unlock(system, group, topic)
            await inbox.holds(2)
        assert inbox.bodies == [b"q1-0", b"q0-0"]

    run(main())


def unlock(system: System, group: str, topic: str) -> None:
    with WireClient(system.broker) as client:
        queue = f'{{"topic":"{topic}","brokerName":"broker-a","queueId":0}}'
        body = f'{{"clientId":"somebody@else","consumerGroup":"{group}","mqSet":[{queue}]}}'
        assert client.ask(42, body.encode()).code == 0


def test_a_queue_changes_hands_in_order_and_only_when_its_handler_is_done(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 2)
    order: dict[int, list[bytes]] = {0: [], 1: []}
    active: set[int] = set()

    async def handle(message: ReceivedMessage) -> None:
        queue_id = message.queue.queue_id
        assert queue_id not in active
        active.add(queue_id)
        await asyncio.sleep(0.05)
        active.remove(queue_id)
        order[queue_id].append(message.body)

    async def main() -> None:
        for queue_id in order:
            await send(system, topic, numbered(60, f"q{queue_id}"), queue_id=queue_id)
        first = await consumer_of(system, group, topic, handle, is_orderly=True)
        second = await consumer_of(system, group, topic, handle, is_orderly=True)
        async with first:
            await becomes(lambda: sum(map(len, order.values())) > 5, "it has begun")
            async with second:
                await becomes(lambda: len(_own(second, topic)) == 1, "a queue changed hands", 10)
                changed_s = time.monotonic()
                await becomes(lambda: sum(map(len, order.values())) == 120, "all were consumed")
                assert time.monotonic() - changed_s < 20
        for queue_id, bodies in order.items():
            assert bodies == numbered(60, f"q{queue_id}")

    run(main())


def _own(consumer: object, topic: str) -> list[object]:
    queues = consumer.queues()  # type: ignore[attr-defined]  # a PushConsumer
    return [queue for queue in queues if queue.topic == topic]
