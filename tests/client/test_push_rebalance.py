"""How the members of a group share queues while messages flow: nothing lost, nothing set back."""

import asyncio
import itertools
import time
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from orbitmq.client.message import Message, ReceivedMessage
from orbitmq.client.process_queue import ProcessQueue
from orbitmq.client.producer import Producer
from orbitmq.client.push import PushConsumer
from orbitmq.client.push_running import RunningPush
from orbitmq.client.rebalancing import Rebalancing
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


class Gap(NamedTuple):
    """A time in which a queue was nobody's."""

    free_s: float
    gained_s: float
    owner: Rebalancing
    """Who has ended it."""


class Watcher:
    """Sees who has which queue, what members are told, and every commit that they send."""

    def __init__(self, topic: str, patch: pytest.MonkeyPatch, *, is_orderly: bool) -> None:
        self._topic = topic
        self.members: list[PushConsumer] = []
        self.gaps: list[Gap] = []
        self.commits: dict[int, list[int]] = {number: [] for number in range(QUEUE_COUNT)}
        self._owners: dict[int, Rebalancing] = {}
        self._free_s: dict[int, float] = {}
        self._told_s: dict[Rebalancing, list[float]] = {}
        self._looks_s: dict[Rebalancing, list[tuple[float, float]]] = {}
        self._watch_looks(patch)
        # An orderly queue can be taken once its last owner has given the lock back.
        self._watch_losses(patch, "_left" if is_orderly else "_drop")

    def add(self, member: PushConsumer) -> None:
        """Watch what a member sends that has started."""
        inner(member).instance.remote.before_request.append(self._see)
        self.members.append(member)

    def _see(self, _address: str, request: Command) -> None:
        fields = request.fields
        is_commit = request.code == 15 or (
            request.code == 11 and int(fields["sysFlag"]) & PULL_COMMITS
        )
        if is_commit and fields["topic"] == self._topic:
            self.commits[int(fields["queueId"])].append(int(fields["commitOffset"]))

    def _watch_looks(self, patch: pytest.MonkeyPatch) -> None:
        """Note when members are told, when they look, and what they take."""
        told, look, take = RunningPush.rebalance_soon, Rebalancing.balance, Rebalancing._take

        def note_told(member: RunningPush) -> None:
            self._told_s.setdefault(member.rebalancing, []).append(time.monotonic())
            told(member)

        async def note_look(member: Rebalancing) -> bool:
            began_s = time.monotonic()
            is_complete = await look(member)
            self._looks_s.setdefault(member, []).append((began_s, time.monotonic()))
            return is_complete

        async def note_taken(member: Rebalancing, queue: MessageQueue, asked_s: float) -> bool:
            is_taken = await take(member, queue, asked_s)
            if is_taken and queue.topic == self._topic:
                self._owners[queue.queue_id] = member
                if (free_s := self._free_s.pop(queue.queue_id, None)) is not None:
                    self.gaps.append(Gap(free_s, time.monotonic(), member))
            return is_taken

        patch.setattr(RunningPush, "rebalance_soon", note_told)
        patch.setattr(Rebalancing, "balance", note_look)
        patch.setattr(Rebalancing, "_take", note_taken)

    def _watch_losses(self, patch: pytest.MonkeyPatch, method: str) -> None:
        lose, stop = getattr(Rebalancing, method), Rebalancing.stop

        def note_lost(member: Rebalancing, process_queue: ProcessQueue) -> None:
            lose(member, process_queue)
            self._free(member, process_queue.queue)

        async def note_stop(member: Rebalancing) -> None:
            for queue in member.table:
                self._free(member, queue)
            await stop(member)

        patch.setattr(Rebalancing, method, note_lost)
        patch.setattr(Rebalancing, "stop", note_stop)

    def _free(self, member: Rebalancing, queue: MessageQueue) -> None:
        """Note that a queue is nobody's now, unless the next owner was faster."""
        number = queue.queue_id
        if queue.topic == self._topic and self._owners.get(number) is member:
            del self._owners[number]
            self._free_s[number] = time.monotonic()

    def shares(self) -> list[int]:
        return sorted(len(own_queues(member, self._topic)) for member in self.members)

    def looks_in_vain(self, gap: Gap) -> int:
        """Count the looks of a queue's next owner, once told, that left the free queue free."""
        told_s = [at_s for at_s in self._told_s.get(gap.owner, []) if at_s <= gap.gained_s]
        since_s = max([gap.free_s, *told_s[-1:]])
        looks_s = self._looks_s.get(gap.owner, [])
        return sum(since_s <= began_s and ended_s <= gap.gained_s for began_s, ended_s in looks_s)

    def told_count(self) -> int:
        """Count the times that members were told."""
        return sum(map(len, self._told_s.values()))

    async def see_shares(self, wanted: list[int]) -> None:
        await becomes(
            lambda: self.shares() == wanted and len(self._owners) == QUEUE_COUNT,
            f"the queues are shared like {wanted}",
            10,
        )


def own_queues(member: PushConsumer, topic: str) -> list[MessageQueue]:
    return [queue for queue in member.queues() if queue.topic == topic]


@pytest.mark.slow
@pytest.mark.parametrize("is_orderly", [False, True])
def test_sixteen_queues_are_shared_by_one_three_and_two_members_and_nothing_is_lost(
    system: System, fresh_name: FreshName, monkeypatch: pytest.MonkeyPatch, is_orderly: bool
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, QUEUE_COUNT)
    watcher = Watcher(topic, monkeypatch, is_orderly=is_orderly)

    async def main() -> None:
        inbox, flow = Inbox(), Flow(system, topic)

        async def join() -> None:
            options = {"commit_interval_s": 0.3, "is_orderly": is_orderly}
            member = await consumer_of(system, group, topic, inbox, **options)
            await member.start()
            watcher.add(member)

        flowing = asyncio.create_task(flow.run())
        await join()
        await watcher.see_shares([16])
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
        gaps = list(watcher.gaps)
        for member in watcher.members:
            await member.close()
        assert set(inbox.bodies) == set(flow.sent)
        assert len(gaps) >= QUEUE_COUNT // 3  # those of the member that left, at least
        assert (
            watcher.told_count() >= 4
        )  # the first of the second; two of the third; two at the end
        assert [gap for gap in gaps if watcher.looks_in_vain(gap)] == []
        limit_s = OWNERLESS_MAX_S if not is_orderly else 3 * OWNERLESS_MAX_S
        assert max(gap.gained_s - gap.free_s for gap in gaps) < limit_s
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
