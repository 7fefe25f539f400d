"""How the members of a group share queues while messages flow: nothing lost, nothing set back."""

import asyncio
import itertools
import time
from collections.abc import Sequence

import pytest

from orbitmq.client.message import Message, ReceivedMessage
from orbitmq.client.producer import Producer
from orbitmq.client.push import PushConsumer
from orbitmq.client.strategies import AveragelyByCircle
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.command import Command
from orbitmq.wire.headers_client import PULL_COMMITS
from tests.client.pushing import (
    FreshName,
    Inbox,
    becomes,
    committed,
    consumer_of,
    inner,
    make_topic,
    numbered,
    queue_of,
    run,
    send,
)
from tests.foreign.judged import System

QUEUE_COUNT = 16
PAUSE_S = 0.005
OWNERLESS_MAX_S = 1.5
"""The members are told at once, one after the other, on a machine that others use as well."""


class Flow:
    """Messages sent to all queues in turn until it is stopped."""

    def __init__(self, system: System, topic: str) -> None:
        self._system = system
        self._topic = topic
        self._is_stopped = False
        self.sent: list[bytes] = []

    async def run(self) -> None:
        async with Producer(self._system.namesrv, group="PG-flow") as producer:
            for number in itertools.count():
                if self._is_stopped:
                    return
                body = b"m-%d" % number
                queue = queue_of(self._topic, number % QUEUE_COUNT)
                await producer.send(Message(self._topic, body), queue=queue)
                self.sent.append(body)
                await asyncio.sleep(PAUSE_S)

    def stop(self) -> None:
        self._is_stopped = True


class Watcher:
    """Looks who has which queue, and at every commit that members send."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.members: list[PushConsumer] = []
        self.ownerless_max_s = 0.0
        self.commits: dict[int, list[int]] = {number: [] for number in range(QUEUE_COUNT)}

    def add(self, member: PushConsumer) -> None:
        """Watch a member that has started."""
        inner(member).instance.remote.before_request.append(self._see)
        self.members.append(member)

    def _see(self, _address: str, request: Command) -> None:
        fields = request.fields
        is_commit = request.code == 15 or (
            request.code == 11 and int(fields["sysFlag"]) & PULL_COMMITS
        )
        if is_commit and fields["topic"] == self._topic:
            self.commits[int(fields["queueId"])].append(int(fields["commitOffset"]))

    def shares(self) -> list[int]:
        return sorted(len(own_queues(member, self._topic)) for member in self.members)

    def owned(self) -> set[int]:
        return {
            queue.queue_id for member in self.members for queue in own_queues(member, self._topic)
        }

    async def run(self) -> None:
        since_s: dict[int, float] = {}
        while True:
            now_s = time.monotonic()
            owned = self.owned()
            for number in range(QUEUE_COUNT):
                if number in owned:
                    since_s.pop(number, None)
                else:
                    lost_s = since_s.setdefault(number, now_s)
                    self.ownerless_max_s = max(self.ownerless_max_s, now_s - lost_s)
            await asyncio.sleep(0.01)

    async def see_shares(self, wanted: list[int]) -> None:
        await becomes(
            lambda: self.shares() == wanted and len(self.owned()) == QUEUE_COUNT,
            f"the queues are shared like {wanted}",
            10,
        )


def own_queues(member: PushConsumer, topic: str) -> list[MessageQueue]:
    return [queue for queue in member.queues() if queue.topic == topic]


@pytest.mark.slow
@pytest.mark.parametrize("is_orderly", [False, True])
def test_sixteen_queues_are_shared_by_one_three_and_two_members_and_nothing_is_lost(
    system: System, fresh_name: FreshName, is_orderly: bool
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, QUEUE_COUNT)

    async def main() -> None:
        inbox, watcher, flow = Inbox(), Watcher(topic), Flow(system, topic)

        async def join() -> None:
            options = {"commit_interval_s": 0.3, "is_orderly": is_orderly}
            member = await consumer_of(system, group, topic, inbox, **options)
            await member.start()
            watcher.add(member)

        flowing = asyncio.create_task(flow.run())
        await join()
        await watcher.see_shares([16])
        watching = asyncio.create_task(watcher.run())
        await asyncio.sleep(2)
        await join()
        await join()
        await watcher.see_shares([5, 5, 6])
        await asyncio.sleep(3)
        leaver = watcher.members.pop(0)
        await leaver.close()
        await watcher.see_shares([8, 8])
        await asyncio.sleep(3)
        flow.stop()
        await flowing
        await becomes(lambda: len(set(inbox.bodies)) == len(flow.sent), "all were consumed")
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        for member in watcher.members:
            await member.close()
        assert set(inbox.bodies) == set(flow.sent)
        limit_s = OWNERLESS_MAX_S if not is_orderly else 3 * OWNERLESS_MAX_S
        assert watcher.ownerless_max_s < limit_s
        for offsets in watcher.commits.values():
            assert offsets == sorted(offsets)
            assert offsets
        stored = [committed(system, group, topic, each) for each in range(QUEUE_COUNT)]
        assert sum(each or 0 for each in stored) == len(flow.sent)
        if is_orderly:
            assert_in_order(inbox.messages)

    run(main(), 90)


def assert_in_order(messages: Sequence[ReceivedMessage]) -> None:
    """Each queue's messages came in order, none twice: an orderly queue is given away at rest."""
    offsets: dict[int, list[int]] = {}
    for message in messages:
        offsets.setdefault(message.queue.queue_id, []).append(message.queue_offset)
    for of_queue in offsets.values():
        assert of_queue == list(range(len(of_queue)))


def test_a_listener_hears_of_the_queues_and_a_strategy_chooses_them(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 6)

    async def main() -> None:
        heard: list[tuple[str, int, list[int]]] = []

        def listen(of: str, queues: list[MessageQueue], mine: list[MessageQueue]) -> None:
            heard.append((of, len(queues), [queue.queue_id for queue in mine]))
            raise ValueError("a listener may fail")

        options = {"strategy": AveragelyByCircle(), "queue_listener": listen}
        first = await consumer_of(system, group, topic, Inbox(), client_ip="10.0.0.1", **options)
        second = await consumer_of(
            system, group, topic, Inbox(), client_ip="10.0.0.2", strategy=AveragelyByCircle()
        )
        async with first:
            await becomes(lambda: bool(heard), "it has queues")
            assert heard == [(topic, 6, [0, 1, 2, 3, 4, 5])]
            versions = [each.version for each in inner(first).subscriptions.values()]
            async with second:
                await becomes(lambda: len(own_queues(second, topic)) == 3, "they share", 10)
                assert [queue.queue_id for queue in own_queues(second, topic)] == [1, 3, 5]
                await becomes(lambda: len(heard) == 2, "the listener heard")
                assert heard[1] == (topic, 6, [0, 2, 4])
                renewed = [each.version for each in inner(first).subscriptions.values()]
                assert renewed[0] > versions[0]
            await becomes(lambda: len(own_queues(first, topic)) == 6, "it has all again", 10)

    run(main())


class Refusing:
    """A strategy of one's own that has a bad day."""

    name = "REFUSING"

    def __init__(self) -> None:
        self.is_refusing = False

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if self.is_refusing:
            raise KeyError(f"{group} {client_id} {client_ids}")
        return list(queues)


def test_a_strategy_that_fails_changes_nothing(system: System, fresh_name: FreshName) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 2)

    async def main() -> None:
        inbox, strategy = Inbox(), Refusing()
        async with await consumer_of(system, group, topic, inbox, strategy=strategy) as consumer:
            await becomes(lambda: len(own_queues(consumer, topic)) == 2, "it has its queues")
            strategy.is_refusing = True
            assert not await inner(consumer).rebalancing.balance()
            assert len(own_queues(consumer, topic)) == 2
            await send(system, topic, numbered(4))
            await inbox.holds(4)

    run(main())


def test_queues_that_are_added_to_a_topic_are_consumed(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 2)

    async def main() -> None:
        inbox = Inbox()
        options = {"route_interval_s": 0.5}
        async with await consumer_of(system, group, topic, inbox, **options) as consumer:
            await becomes(lambda: len(own_queues(consumer, topic)) == 2, "it has its queues")
            await asyncio.to_thread(make_topic, system, topic, 4)
            await becomes(lambda: len(own_queues(consumer, topic)) == 4, "it has the new ones")
            for queue_id in range(4):
                await send(system, topic, numbered(1, f"q{queue_id}"), queue_id=queue_id)
            await inbox.holds(4)

    run(main())
