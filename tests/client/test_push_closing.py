"""How push consumers end: handlers finish, offsets are right; and consumers as loops."""

import asyncio
import threading

import pytest

from orbitmq.client.message import ReceivedMessage
from orbitmq.client.push import PushConsumer
from orbitmq.errors import ClientStateError
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
from tests.foreign.judged import System
from tests.net.running import open_descriptors
from tests.wire_client import WireClient


@pytest.mark.parametrize("is_orderly", [False, True])
def test_a_close_waits_for_handlers_and_stores_what_they_did(
    system: System, fresh_name: FreshName, is_orderly: bool
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        begun, goes_on, done = asyncio.Event(), asyncio.Event(), []

        async def handle(message: ReceivedMessage) -> None:
            begun.set()
            await goes_on.wait()
            done.append(message.body)

        await send(system, topic, numbered(50), queue_id=0)
        options = {"consume_threads": 3, "is_orderly": is_orderly}
        consumer = await consumer_of(system, group, topic, handle, **options)
        await consumer.start()
        await begun.wait()
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0.3)
        assert not closing.done()
        goes_on.set()
        await closing
        # Those in their handlers were finished; those that waited were left to the next member.
        assert done == numbered(len(done))
        assert 1 <= len(done) <= 3
        assert await asyncio.to_thread(committed, system, group, topic) == len(done)
        rest = Inbox()
        async with await consumer_of(system, group, topic, rest):
            await rest.holds(50 - len(done))
        assert sorted(rest.bodies) == sorted(numbered(50)[len(done) :])

    run(main())


@pytest.mark.parametrize("is_async", [True, False])
def test_a_close_gives_up_handlers_that_do_not_end_and_their_messages_come_again(
    system: System, fresh_name: FreshName, is_async: bool
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)
    goes_on = threading.Event()

    async def main() -> None:
        seen = []

        async def handle(message: ReceivedMessage) -> None:
            seen.append(message.body)
            await asyncio.Event().wait()

        def plain(message: ReceivedMessage) -> None:
            seen.append(message.body)
            goes_on.wait()

        await send(system, topic, numbered(3), queue_id=0)
        options = {"close_timeout_s": 0.2, "consume_threads": 3}
        async with await consumer_of(
            system, group, topic, handle if is_async else plain, **options
        ):
            await becomes(lambda: len(seen) == 3, "all are in their handlers")
        goes_on.set()
        assert await asyncio.to_thread(committed, system, group, topic) == 0
        again = Inbox()
        async with await consumer_of(system, group, topic, again):
            await again.holds(3)

    run(main())


def test_brokers_know_at_once_that_a_member_has_left(system: System, fresh_name: FreshName) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        async with await consumer_of(system, group, topic, Inbox()) as consumer:
            with WireClient(system.broker) as client:
                members = client.ask(38, consumerGroup=group)
                assert consumer.client_id.encode() in members.body
        with WireClient(system.broker) as client:
            assert client.ask(38, consumerGroup=group).code == 1

    run(main())


def test_nothing_is_left_of_a_closed_consumer(system: System, fresh_name: FreshName) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 4)

    async def main() -> None:
        inbox = Inbox()
        await send(system, topic, numbered(8))
        open_before, threads_before = open_descriptors(), threading.active_count()
        for handler in (inbox, inbox.take, None):
            async with await consumer_of(system, fresh_name("group"), topic, handler):
                await asyncio.sleep(0.2)
        assert open_descriptors() == open_before
        assert threading.active_count() == threads_before
        refused = PushConsumer("127.0.0.1:1", group, inbox)
        await refused.subscribe(topic)
        with pytest.raises(Exception, match="name server"):
            await refused.start()
        assert open_descriptors() == open_before

    run(main())


def test_a_close_that_is_cancelled_leaves_nothing_behind(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        begun = asyncio.Event()

        async def handle(_message: ReceivedMessage) -> None:
            begun.set()
            await asyncio.Event().wait()

        open_before = open_descriptors()
        consumer = await consumer_of(system, group, topic, handle)
        await consumer.start()
        await send(system, topic, [b"stuck"])
        await begun.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await consumer.close()
        assert open_descriptors() == open_before

    run(main())


def test_a_close_that_is_cancelled_at_once_leaves_no_puller(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        for turns in range(1, 6):
            inbox = Inbox()
            consumer = await consumer_of(system, f"{group}{turns}", topic, inbox)
            await consumer.start()
            await send(system, topic, [b"it pulls"])
            await inbox.holds(1)
            closing = asyncio.create_task(consumer.close())
            for _ in range(turns):
                await asyncio.sleep(0)
            closing.cancel()
            await asyncio.wait([closing])
            assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main())


def test_a_consumer_that_is_closed_while_it_starts_does_not_run(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        open_before = open_descriptors()
        consumer = await consumer_of(system, group, topic, Inbox())
        starting = asyncio.create_task(consumer.start())
        await asyncio.sleep(0)
        await consumer.close()
        with pytest.raises(ClientStateError, match="closed while it started"):
            await starting
        assert open_descriptors() == open_before

    run(main())


# --- as a loop ---


def test_a_loop_gets_all_messages_and_asking_for_the_next_acknowledges(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        bodies = []
        await send(system, topic, numbered(100), queue_id=0)
        async with await consumer_of(system, group, topic) as consumer:
            async for message in consumer:
                bodies.append(message.body)
                if len(bodies) == 60:
                    break
        assert bodies == numbered(60)
        assert await asyncio.to_thread(committed, system, group, topic) == 60
        async with await consumer_of(system, group, topic) as consumer:
            async for message in consumer:
                bodies.append(message.body)
                if len(bodies) == 100:
                    break
        assert bodies == numbered(100)

    run(main())
    assert committed(system, group, topic) == 100


def test_an_exception_that_leaves_the_loop_returns_its_message(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        await send(system, topic, numbered(3), queue_id=0)

        async def leave() -> None:
            async with await consumer_of(system, group, topic) as consumer:
                async for message in consumer:
                    if message.body == b"m-1":
                        raise ValueError("no good")

        with pytest.raises(ValueError, match="no good"):
            await leave()
        # It was sent back, so it comes by the retry topic; the first one was acknowledged.
        assert await asyncio.to_thread(committed, system, group, topic) == 2
        again = Inbox()
        async with await consumer_of(system, group, topic, again):
            await again.holds(2)
        assert sorted(again.bodies) == [b"m-1", b"m-2"]
        assert [each.reconsume_times for each in again.messages if each.body == b"m-1"] == [1]

    run(main())


def test_an_exception_that_is_caught_returns_the_message_when_the_next_loop_begins(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        seen = []
        await send(system, topic, numbered(2), queue_id=0)
        async with await consumer_of(system, group, topic) as consumer:

            async def leave() -> None:
                async for message in consumer:
                    seen.append((message.body, message.reconsume_times))
                    raise ValueError("caught outside")

            with pytest.raises(ValueError, match="caught outside"):
                await leave()
            async for message in consumer:
                seen.append((message.body, message.reconsume_times))
                if len(seen) == 3:
                    break
        assert seen == [(b"m-0", 0), (b"m-1", 0), (b"m-0", 1)]

    run(main())


def test_several_loops_share_the_messages_and_end_when_the_consumer_closes(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 2)

    async def main() -> None:
        bodies: list[bytes] = []

        async def loop_over(consumer: PushConsumer) -> int:
            count = 0
            async for message in consumer:
                bodies.append(message.body)
                count += 1
                await asyncio.sleep(0)
            return count

        await send(system, topic, numbered(50))
        async with await consumer_of(system, group, topic) as consumer:
            loops = [asyncio.create_task(loop_over(consumer)) for _ in range(3)]
            await becomes(lambda: len(bodies) == 50, "all came")
        counts = await asyncio.gather(*loops)
        assert sum(counts) == 50
        assert min(counts) > 0
        assert sorted(bodies) == sorted(numbered(50))

    run(main())
    assert sum(committed(system, group, topic, each) or 0 for each in range(2)) == 50


def test_a_loop_over_an_orderly_consumer_keeps_the_order(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 2)

    async def main() -> None:
        order: dict[int, list[bytes]] = {0: [], 1: []}
        for queue_id in order:
            await send(system, topic, numbered(20, f"q{queue_id}"), queue_id=queue_id)
        async with await consumer_of(system, group, topic, is_orderly=True) as consumer:
            async for message in consumer:
                order[message.queue.queue_id].append(message.body)
                if sum(map(len, order.values())) == 40:
                    break
        for queue_id, bodies in order.items():
            assert bodies == numbered(20, f"q{queue_id}")

    run(main())
    assert [committed(system, group, topic, each) for each in range(2)] == [20, 20]
