"""Pull consumers of one group: shares, strategies of a program's own, queues that come and go."""

import asyncio
from collections.abc import Sequence

import pytest

from orbitmq.client.pull_consumer import PullConsumer
from orbitmq.client.pull_settings import PullConsumerOptions
from orbitmq.client.strategies import Averagely, AveragelyByCircle
from orbitmq.wire.bodies_client import MessageQueue
from tests.client.polling import FIRST, bodies, collect, turned
from tests.client.sites import Fresh, fill, make_topic, run, send
from tests.foreign.judged import System

NEVER_S = 3600.0
"""The longest time between two looks: what is seen earlier was seen because a broker said so."""


def test_members_of_a_group_share_queues_and_take_over_from_each_other(
    system: System, fresh_name: Fresh
) -> None:
    queues, group = make_topic(system, fresh_name("Topic"), 4), fresh_name("Group")
    for queue in queues:
        fill(system, queue, bodies(3))
    told: list[tuple[str, int, int]] = []

    async def work() -> None:
        options: PullConsumerOptions = {
            "from_where": FIRST,
            "strategy": AveragelyByCircle(),
            "rebalance_interval_s": NEVER_S,
        }
        listening: PullConsumerOptions = {
            **options,
            "queue_listener": lambda topic, all_, mine: told.append((topic, len(all_), len(mine))),
        }
        first = PullConsumer(system.namesrv, group, **listening)
        second = PullConsumer(system.namesrv, group, **options)
        async with first:
            await first.subscribe(queues[0].topic)
            await collect(first, 12)
            await first.commit()  # or the second would get them again, as it may
            async with second:
                await second.subscribe(queues[0].topic)
                while len(first.assignment()) != 2 or len(second.assignment()) != 2:
                    assert await first.poll(0.05) == []
                assert sorted(first.assignment() + second.assignment()) == queues
                assert await second.poll(0.2) == []
                for queue in queues:
                    await send(second._running().instance, queue, b"new")
                await collect(first, 2)
                await collect(second, 2)
            await turned(first, queues)
            assert await first.poll(0.2) == []
            assert [count for _, _, count in told] == [4, 2, 4]

    run(work())


class Directed:
    """A strategy of a program's own: one member has everything."""

    name = "DIRECTED"

    def __init__(self) -> None:
        self.owner = ""

    def allocate(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        return list(queues) if client_id == self.owner else []


def test_a_queue_that_goes_to_another_member_goes_on_where_it_was(
    system: System, fresh_name: Fresh
) -> None:
    queue, group = make_topic(system, fresh_name("Topic"), 1)[0], fresh_name("Group")
    fill(system, queue, bodies(9))

    async def work() -> None:
        strategy = Directed()
        options: PullConsumerOptions = {
            "from_where": FIRST,
            "pull_batch_size": 3,
            "strategy": strategy,
        }
        first = PullConsumer(system.namesrv, group, **options)
        second = PullConsumer(system.namesrv, group, **options)
        async with first, second:
            strategy.owner = first._running().instance.client_id
            await first.subscribe(queue.topic)
            await second.subscribe(queue.topic)
            assert second.assignment() == []
            await first.poll()
            await first.poll()
            strategy.owner = second._running().instance.client_id
            await first._running().look()
            assert first.assignment() == []
            await second._running().look()
            found = await collect(second, 6)
            assert [message.queue_offset for message in found] == [3, 4, 5, 6, 7, 8]

    run(work())


def test_a_strategy_that_fails_leaves_things_as_they_are_and_other_topics_alone(
    system: System, fresh_name: Fresh, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = (make_topic(system, fresh_name("Topic"), 1)[0] for _ in range(2))

    class Moody(Averagely):
        def allocate(
            self,
            group: str,
            client_id: str,
            queues: Sequence[MessageQueue],
            client_ids: Sequence[str],
        ) -> list[MessageQueue]:
            if queues[0] == first and told:
                raise KeyError("a mistake of the program")
            return super().allocate(group, client_id, queues, client_ids)

    told: list[str] = []

    async def work() -> None:
        consumer = PullConsumer(
            system.namesrv,
            fresh_name("Group"),
            strategy=Moody(),
            queue_listener=lambda topic, _all, _mine: told.append(topic),
        )
        async with consumer:
            await consumer.subscribe(first.topic)
            await consumer.subscribe(second.topic)
            assert consumer.assignment() == sorted([first, second])
            assert told == [first.topic, second.topic]

    run(work())
    assert f"sharing the queues of topic {first.topic} failed; they stay" in caplog.text


def test_queues_of_a_topic_that_is_not_wanted_any_more_are_dropped(
    system: System, fresh_name: Fresh
) -> None:
    """Symptom: the listener never heard that they were gone."""
    first, second = (make_topic(system, fresh_name("Topic"), 1)[0] for _ in range(2))
    told: list[tuple[str, int, int]] = []

    async def work() -> None:
        consumer = PullConsumer(
            system.namesrv,
            fresh_name("Group"),
            queue_listener=lambda topic, all_, mine: told.append((topic, len(all_), len(mine))),
        )
        async with consumer:
            await consumer.subscribe(first.topic)
            await consumer.subscribe(second.topic)
            await consumer.unsubscribe(first.topic)
            assert consumer.assignment() == [second]
            assert told[-1] == (first.topic, 1, 0)
            await send(consumer._running().instance, second, b"still")
            assert [message.body for message in await collect(consumer, 1)] == [b"still"]

    run(work())


def test_a_late_store_of_the_last_owner_is_not_undone(system: System, fresh_name: Fresh) -> None:
    queue, group = make_topic(system, fresh_name("Topic"), 1)[0], fresh_name("Group")
    fill(system, queue, bodies(9))

    async def work() -> None:
        options: PullConsumerOptions = {"from_where": FIRST, "pull_batch_size": 3}
        async with (
            PullConsumer(system.namesrv, group, **options) as consumer,
            PullConsumer(system.namesrv, group, instance_name="before") as before,
        ):
            await consumer.subscribe(queue.topic)
            assert len(await consumer.poll()) == 3
            await before.commit({queue: 5})
            await consumer.commit()
            assert await consumer.committed(queue) == 5
            await collect(consumer, 6)
            await consumer.commit()
            assert await consumer.committed(queue) == 9

    run(work())


def test_a_topic_that_is_made_later_is_found(system: System, fresh_name: Fresh) -> None:
    topic = fresh_name("Topic")

    async def work() -> None:
        options: PullConsumerOptions = {"from_where": FIRST, "rebalance_interval_s": 0.2}
        async with PullConsumer(system.namesrv, fresh_name("Group"), **options) as consumer:
            await consumer.subscribe(topic)
            assert consumer.assignment() == []
            queue = make_topic(system, topic, 1)[0]
            fill(system, queue, [b"first"])
            assert [each.body for each in await collect(consumer, 1)] == [b"first"]

    run(work())


def test_listeners_hear_of_new_queues(system: System, fresh_name: Fresh) -> None:
    topic = fresh_name("Topic")
    make_topic(system, topic, 2)

    async def work() -> None:
        async with PullConsumer(system.namesrv, fresh_name("Group")) as consumer:
            heard: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
            await consumer.on_queues_changed(
                topic, lambda name, queues: heard.put_nowait((name, len(queues)))
            )
            assert len(await consumer.queues(topic)) == 2
            make_topic(system, topic, 5)
            while heard.empty():
                await consumer._running().instance.refresh_routes()
            assert await heard.get() == (topic, 5)

    run(work())
