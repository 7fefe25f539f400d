"""Push consumers that consume side by side: handlers of both kinds, batches, limits, hooks."""

import asyncio
import threading
from typing import Any

import pytest

from orbitmq.client.consume_hooks import ConsumeContext, ConsumeReturn
from orbitmq.client.message import ReceivedMessage
from orbitmq.client.outcomes import Retry
from orbitmq.client.push import PushConsumer
from orbitmq.client.subscriptions import Selector
from orbitmq.errors import ClientStateError, RequestFailed, SettingError
from orbitmq.wire.bodies_client import MessageQueue
from tests.behaviour.test_filters import changed
from tests.client.pushing import (
    FreshName,
    Inbox,
    becomes,
    committed,
    consumer_of,
    fail_first,
    inner,
    make_topic,
    numbered,
    run,
    send,
)
from tests.foreign.judged import System


def test_all_messages_come_to_an_async_handler_and_their_offsets_are_stored(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic)

    async def main() -> None:
        inbox = Inbox()
        await send(system, topic, numbered(200), tag="TagA", keys=["k"])
        async with await consumer_of(system, group, topic, inbox):
            await inbox.holds(200)
        assert sorted(inbox.bodies) == sorted(numbered(200))
        message = inbox.messages[0]
        assert (message.topic, message.tag, message.keys) == (topic, "TagA", ["k"])
        assert message.reconsume_times == 0
        assert int(message.properties["CONSUME_START_TIME"]) >= message.store_ms - 1000

    run(main())
    assert sum(committed(system, group, topic, each) or 0 for each in range(4)) == 200


def test_another_member_goes_on_where_the_last_one_stopped(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic)

    async def main() -> None:
        first, second = Inbox(), Inbox()
        await send(system, topic, numbered(20, "a"))
        async with await consumer_of(system, group, topic, first):
            await first.holds(20)
        await send(system, topic, numbered(20, "b"))
        async with await consumer_of(system, group, topic, second):
            await second.holds(20)
        assert sorted(second.bodies) == sorted(numbered(20, "b"))

    run(main())


def test_a_plain_function_is_called_in_as_many_threads_as_are_allowed(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic)
    together = threading.Barrier(4, timeout=20)
    names, bodies = set(), []

    def handle(message: ReceivedMessage) -> None:
        together.wait()
        names.add(threading.current_thread().name)
        bodies.append(message.body)

    async def main() -> None:
        await send(system, topic, numbered(40))
        async with await consumer_of(system, group, topic, handle, consume_threads=4):
            await becomes(lambda: len(bodies) == 40, "all were consumed")

    run(main())
    assert len(names) == 4
    assert sorted(bodies) == sorted(numbered(40))
    assert not names & {thread.name for thread in threading.enumerate()}
    assert sum(committed(system, group, topic, each) or 0 for each in range(4)) == 40


def test_no_more_async_handlers_run_at_a_time_than_allowed(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic)

    async def main() -> None:
        running, counts = 0, []

        async def handle(_message: ReceivedMessage) -> None:
            nonlocal running
            running += 1
            counts.append(running)
            await asyncio.sleep(0.01)
            running -= 1

        await send(system, topic, numbered(60))
        async with await consumer_of(system, group, topic, handle, consume_threads=5):
            await becomes(lambda: len(counts) == 60, "all were consumed")
        assert max(counts) == 5

    run(main())


@pytest.mark.parametrize("is_async", [True, False])
def test_a_batch_comes_as_a_list_of_messages_of_one_queue(
    system: System, fresh_name: FreshName, is_async: bool
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic)
    batches: list[list[ReceivedMessage]] = []

    def plain(messages: list[ReceivedMessage]) -> bool:
        batches.append(messages)
        return True

    async def handle(messages: list[ReceivedMessage]) -> bool:
        return plain(messages)

    async def main() -> None:
        await send(system, topic, numbered(100))
        handler = handle if is_async else plain
        async with await consumer_of(system, group, topic, handler, consume_batch_size=8):
            await becomes(lambda: sum(map(len, batches)) == 100, "all were consumed")

    run(main())
    assert max(map(len, batches)) == 8
    assert all(len({message.queue for message in batch}) == 1 for batch in batches)
    assert {message.body for batch in batches for message in batch} == set(numbered(100))


def test_of_a_failed_batch_only_the_rest_comes_again(system: System, fresh_name: FreshName) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        batches: list[list[bytes]] = []

        async def handle(messages: list[ReceivedMessage]) -> None:
            batches.append([message.body for message in messages])
            if not messages[0].reconsume_times:
                raise Retry(delay_level=1, consumed=3)

        await send(system, topic, numbered(5), queue_id=0)
        async with await consumer_of(system, group, topic, handle, consume_batch_size=5):
            await becomes(lambda: sum(map(len, batches)) >= 7, "the rest came again")
        assert batches[0] == numbered(5)
        assert sorted(body for batch in batches[1:] for body in batch) == [b"m-3", b"m-4"]

    run(main())
    assert committed(system, group, topic) == 5


def test_only_messages_with_the_wanted_tags_come_and_the_offset_passes_the_others(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        inbox = Inbox()
        # Aa and BB have one code: brokers cannot tell them apart.
        for tag in ("Aa", "BB", "paid", "other"):
            await send(system, topic, numbered(5, tag), tag=tag)
        async with await consumer_of(system, group, topic, inbox, selector="Aa || paid") as each:
            await inbox.holds(10)
            await becomes(
                lambda: inner(each).offsets(topic) == dict.fromkeys(each.queues()[1:], 20),
                "the offset is behind the last message",
            )
        assert sorted(inbox.bodies) == sorted(numbered(5, "Aa") + numbered(5, "paid"))

    run(main())
    assert committed(system, group, topic) == 20


def test_messages_are_chosen_by_an_sql_expression(system: System, fresh_name: FreshName) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic)

    async def main() -> None:
        inbox = Inbox()
        for price in ("1", "5", "9"):
            await send(system, topic, [price.encode()] * 3, properties={"price": price})
        options = {"selector": Selector.sql("price > 3 AND price < 8")}
        async with await consumer_of(system, group, topic, inbox, **options):
            await inbox.holds(3)
            await send(system, topic, [b"7"], properties={"price": "7"})
            await inbox.holds(4)
        assert sorted(inbox.bodies) == [b"5", b"5", b"5", b"7"]

    with changed(system, enablePropertyFilter="true"):
        run(main())


def test_a_wrong_sql_expression_is_refused_at_the_start(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic)

    async def main() -> None:
        consumer = await consumer_of(
            system, group, topic, Inbox(), selector=Selector.sql("price >")
        )
        for _ in range(2):  # a start that failed may be tried again
            with pytest.raises(RequestFailed) as refused:
                await consumer.start()
            assert refused.value.code == 23

    with changed(system, enablePropertyFilter="true"):
        run(main())


def test_a_suspended_consumer_gets_nothing_until_it_is_resumed(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        inbox = Inbox()
        async with await consumer_of(system, group, topic, inbox) as consumer:
            await send(system, topic, [b"before"])
            await inbox.holds(1)
            consumer.suspend()
            # The pull that brokers hold already may still bring one.
            await send(system, topic, [b"held"])
            await send(system, topic, numbered(10))
            await asyncio.sleep(1)
            assert len(inbox.messages) <= 2
            assert [consumer.is_suspended] == [True]
            consumer.resume()
            await inbox.holds(12)
            assert not consumer.is_suspended
        assert sorted(inbox.bodies) == sorted([b"before", b"held", *numbered(10)])

    run(main())


def test_a_queue_with_too_much_in_hand_is_not_pulled(system: System, fresh_name: FreshName) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        goes_on, bodies = asyncio.Event(), []

        async def handle(message: ReceivedMessage) -> None:
            await goes_on.wait()
            bodies.append(message.body)

        await send(system, topic, numbered(300))
        options = {"queue_messages_max": 10, "consume_threads": 2, "pull_batch_size": 8}
        async with await consumer_of(system, group, topic, handle, **options) as consumer:
            table = inner(consumer).rebalancing.table
            await becomes(lambda: any(each.count > 10 for each in table.values()), "it is full")
            await asyncio.sleep(0.5)
            assert max(each.count for each in table.values()) <= 18
            goes_on.set()
            await becomes(lambda: len(bodies) == 300, "all were consumed")
        assert sorted(bodies) == sorted(numbered(300))

    run(main())


def test_limits_of_a_topic_are_divided_by_the_queues(system: System, fresh_name: FreshName) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 4)

    async def main() -> None:
        options = {"topic_messages_max": 103, "topic_bytes_max": 1000}
        async with await consumer_of(system, group, topic, Inbox(), **options) as consumer:
            await becomes(lambda: len(consumer.queues()) == 5, "all queues are ours")
            room = inner(consumer).pulls.room
            await becomes(lambda: room.count_max == 103 // 5, "the limits are divided")
            assert room.bytes_max == 200

    run(main())


class Witness:
    """A hook that keeps what it sees."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bool, ConsumeReturn | None]] = []

    def before_consume(self, context: ConsumeContext) -> None:
        context.notes["begun"] = True
        self.seen.append(("before", context.is_success, context.returned))

    def after_consume(self, context: ConsumeContext) -> None:
        assert context.notes["begun"]
        self.seen.append(("after", context.is_success, context.returned))
        raise ValueError("a hook may fail")


@pytest.mark.parametrize("is_async", [True, False])
def test_hooks_see_each_call_of_the_handler(
    system: System, fresh_name: FreshName, is_async: bool
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        def act(message: ReceivedMessage) -> object:
            if message.body == b"bad":
                raise KeyError("no")
            return message.body != b"false"

        inbox, witness = Inbox(act), Witness()
        await send(system, topic, [b"good", b"bad", b"false"], queue_id=0)
        handler = inbox if is_async else act
        consumer = await consumer_of(system, group, topic, handler, consume_threads=1)
        consumer.consume_hooks.append(witness)
        async with consumer:
            await becomes(lambda: len(witness.seen) >= 6, "three calls were seen")
        assert witness.seen[:6] == [
            ("before", False, None),
            ("after", True, ConsumeReturn.SUCCESS),
            ("before", False, None),
            ("after", False, ConsumeReturn.EXCEPTION),
            ("before", False, None),
            ("after", True, ConsumeReturn.SUCCESS),
        ]

    run(main())


def test_a_filter_hook_takes_messages_away_and_the_offset_passes_them(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    def only_even(messages: list[ReceivedMessage], _queue: MessageQueue) -> list[ReceivedMessage]:
        return [message for message in messages if int(message.body) % 2 == 0]

    async def main() -> None:
        inbox = Inbox()
        await send(system, topic, [b"%d" % number for number in range(10)])
        consumer = await consumer_of(system, group, topic, inbox)
        consumer.filter_hooks.append(only_even)
        async with consumer:
            await inbox.holds(5)
        assert sorted(inbox.bodies) == [b"0", b"2", b"4", b"6", b"8"]

    run(main())
    assert committed(system, group, topic) == 10


def test_topics_are_subscribed_and_given_up_while_it_runs(
    system: System, fresh_name: FreshName
) -> None:
    topics, group = [fresh_name("Topic") for _ in range(2)], fresh_name("group")
    for topic in topics:
        make_topic(system, topic, 2)

    async def main() -> None:
        inbox = Inbox()
        async with await consumer_of(system, group, topics[0], inbox) as consumer:
            await consumer.subscribe(topics[1])
            await send(system, topics[1], [b"second"])
            await inbox.holds(1)
            await consumer.unsubscribe(topics[0])
            await becomes(
                lambda: topics[0] not in {queue.topic for queue in consumer.queues()},
                "its queues are given up",
            )
            await send(system, topics[0], [b"unwanted"])
            await send(system, topics[1], [b"wanted"])
            await inbox.holds(2)
        assert inbox.bodies == [b"second", b"wanted"]

    run(main())


def test_another_selector_counts_from_when_it_is_subscribed(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        inbox = Inbox()
        async with await consumer_of(system, group, topic, inbox, selector="a") as consumer:
            await send(system, topic, [b"a1"], tag="a")
            await inbox.holds(1)
            await consumer.subscribe(topic, "b")
            await send(system, topic, [b"a2"], tag="a")
            await send(system, topic, [b"b1"], tag="b")
            await inbox.holds(2)
        assert inbox.bodies == [b"a1", b"b1"]

    run(main())


def test_a_topic_that_is_made_later_is_consumed_then(system: System, fresh_name: FreshName) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")

    async def main() -> None:
        inbox = Inbox()
        async with await consumer_of(system, group, topic, inbox):
            await asyncio.to_thread(make_topic, system, topic)
            await send(system, topic, [b"at last"])
            await inbox.holds(1)

    run(main())


def test_topics_and_groups_of_a_namespace_are_its_own(
    system: System, fresh_name: FreshName
) -> None:
    topic, group, space = fresh_name("Topic"), fresh_name("group"), fresh_name("space")
    make_topic(system, f"{space}%{topic}", 1)

    async def main() -> None:
        inbox = Inbox(fail_first)
        await send(system, f"{space}%{topic}", [b"inside"])
        options = {"namespace": space}
        async with await consumer_of(system, group, topic, inbox, **options) as consumer:
            await inbox.holds(1)
            assert [message.topic for message in inbox.messages] == [topic]
            assert {queue.topic for queue in consumer.queues()} <= {
                f"{space}%{topic}",
                f"%RETRY%{space}%{group}",
            }
            await inbox.holds(2)
            assert inbox.messages[1].topic == topic

    run(main())
    assert committed(system, f"{space}%{group}", f"{space}%{topic}") == 1


def test_misuse_is_told_with_what_to_do(system: System, fresh_name: FreshName) -> None:
    group = fresh_name("group")

    async def main() -> None:
        with pytest.raises(SettingError, match="group of its own"):
            PushConsumer(system.namesrv)
        with pytest.raises(SettingError, match="group of its own"):
            PushConsumer(system.namesrv, "DEFAULT_CONSUMER")
        with pytest.raises(SettingError, match="consume_threads=0"):
            PushConsumer(system.namesrv, group, consume_threads=0)
        mistaken: dict[str, Any] = {"consume_thread": 3}
        with pytest.raises(SettingError, match="did you mean consume_threads"):
            PushConsumer(system.namesrv, group, **mistaken)
        consumer = PushConsumer(system.namesrv, group, Inbox(), instance_name="one")
        with pytest.raises(ClientStateError, match="call its start"):
            consumer.queues()
        closed = PushConsumer(system.namesrv, group, Inbox())
        await closed.close()
        with pytest.raises(ClientStateError, match="closed; make another one"):
            closed.queues()
        async with consumer:
            with pytest.raises(ClientStateError, match="started once"):
                await consumer.start()
            with pytest.raises(ClientStateError, match="has a handler"):
                aiter(consumer)
            twin = PushConsumer(system.namesrv, group, Inbox(), instance_name="one")
            with pytest.raises(ClientStateError, match=f"{group}.*another"):
                await twin.start()
        await consumer.close()
        async with twin:
            assert twin.queues() == []
        with pytest.raises(ClientStateError, match="closed"):
            await consumer.subscribe("Topic")

    run(main())
