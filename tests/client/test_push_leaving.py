"""Queues that a push consumer gives away: locks given back, limits divided anew, listeners told."""

from orbitmq.client.push import PushConsumer
from orbitmq.wire.bodies_client import MessageQueue
from tests.client.pushing import (
    FreshName,
    Inbox,
    becomes,
    consumer_of,
    inner,
    make_topic,
    numbered,
    run,
    send,
)
from tests.foreign.judged import System


def own_count(consumer: PushConsumer, topic: str) -> int:
    return sum(queue.topic == topic for queue in inner(consumer).rebalancing.table)


def test_an_orderly_loop_that_nobody_goes_on_with_gives_back_the_locks_of_lost_queues(
    system: System, fresh_name: FreshName
) -> None:
    """Symptom: a message waited for a loop that did not ask, so its queue counted as being handled,
    and its lock was renewed for as long as the consumer lived: the queue stood still."""
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 2)

    async def main() -> None:
        for queue_id in range(2):
            await send(system, topic, numbered(3), queue_id=queue_id)
        inbox, orderly = Inbox(), {"is_orderly": True, "client_ip": "10.0.0.1"}
        async with await consumer_of(system, group, topic, **orderly) as idle:
            await becomes(lambda: own_count(idle, topic) == 2, "it has its queues")
            tables = inner(idle).rebalancing
            ours = [each for queue, each in tables.table.items() if queue.topic == topic]
            await becomes(lambda: all(each.is_handling for each in ours), "messages wait")
            other = await consumer_of(
                system, group, topic, inbox, is_orderly=True, client_ip="10.0.0.2"
            )
            async with other:
                await becomes(lambda: own_count(other, topic) == 1, "the lock came back", 15)
                assert not tables.leaving
                await inbox.holds(3)

    run(main())


def test_unsubscribing_divides_limits_anew_and_tells_the_listener(
    system: System, fresh_name: FreshName
) -> None:
    """Symptom: the queues of what was left still counted in `topic_messages_max`, and the listener
    never heard that they were gone."""
    kept, left = fresh_name("Kept"), fresh_name("Left")
    make_topic(system, kept, 2)
    make_topic(system, left, 6)

    async def main() -> None:
        heard: list[tuple[str, int, int]] = []

        def listen(of: str, queues: list[MessageQueue], mine: list[MessageQueue]) -> None:
            heard.append((of, len(queues), len(mine)))

        options = {"queue_listener": listen, "topic_messages_max": 80}
        consumer = await consumer_of(system, fresh_name("group"), kept, Inbox(), **options)
        async with consumer:
            await consumer.subscribe(left)
            await becomes(lambda: own_count(consumer, left) == 6, "it has them", 10)
            pulls = inner(consumer).pulls
            await becomes(lambda: (left, 6, 6) in heard, "it was told")
            before = pulls.room.count_max
            await consumer.unsubscribe(left)
            await becomes(lambda: (left, 6, 0) in heard, "it was told", 10)
            assert own_count(consumer, left) == 0
            assert pulls.room.count_max > before

    run(main())
