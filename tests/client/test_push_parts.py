"""The push consumer's parts by themselves: what is in hand, commits, workers, threads."""

import asyncio
import threading
from collections.abc import Collection, Iterable

from hypothesis import given
from hypothesis import strategies as some

from orbitmq.client.committing import SETTLE_S, Commits
from orbitmq.client.message import ReceivedMessage
from orbitmq.client.offset_stores import Remembered
from orbitmq.client.process_queue import Job, ProcessQueue, Room
from orbitmq.client.worker_tasks import WorkerTasks
from orbitmq.errors import ConnectFailed
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.host import Host
from orbitmq.world.workers import Workers
from tests.client.pushing import becomes, run

QUEUE = MessageQueue("Topic", "broker-a", 0)


def message(offset: int, size: int = 1) -> ReceivedMessage:
    return ReceivedMessage(
        topic="Topic",
        body=b"x" * size,
        queue=QUEUE,
        queue_offset=offset,
        log_offset=offset,
        born_ms=0,
        born_host=Host("127.0.0.1", 1),
        store_ms=0,
        store_host=Host("127.0.0.1", 1),
    )


def in_hand(offsets: Iterable[int], next_offset: int, size: int = 1) -> ProcessQueue:
    process_queue = ProcessQueue(QUEUE, 0, 0.0)
    process_queue.take([message(offset, size) for offset in offsets])
    process_queue.next_offset = next_offset
    process_queue.is_known = True
    return process_queue


@given(
    offsets=some.sets(some.integers(0, 200), min_size=1),
    order=some.randoms(use_true_random=False),
)
def test_the_progress_is_the_smallest_offset_in_hand(offsets: set[int], order: object) -> None:
    process_queue = in_hand(sorted(offsets), 500)
    left = set(offsets)
    leaving = sorted(offsets)
    order.shuffle(leaving)  # type: ignore[attr-defined]  # a Random
    for offset in leaving:
        assert process_queue.progress == min(left)
        assert process_queue.span == max(left) - min(left)
        assert process_queue.remove([message(offset)]) == 1
        assert process_queue.remove([message(offset)]) == 0
        left.discard(offset)
        assert process_queue.count == len(left)
    assert process_queue.progress == 500
    assert process_queue.size_bytes == 0


def test_before_the_first_answer_there_is_no_progress() -> None:
    assert ProcessQueue(QUEUE, 7, 0.0).progress is None


def test_messages_that_were_in_hand_already_are_not_taken_again() -> None:
    process_queue = in_hand([3, 4], 5)
    process_queue.remove([message(3)])
    assert process_queue.take([message(3), message(4), message(5)])[0].queue_offset == 5
    assert process_queue.count == 2


def test_room_ends_with_too_many_too_large_or_too_far_apart() -> None:
    def full(process_queue: ProcessQueue, room: Room) -> bool:
        return not process_queue.has_room(room)

    assert not full(in_hand(range(10), 10), Room(10, 1000, 2000))
    assert full(in_hand(range(11), 11), Room(10, 1000, 2000))
    assert not full(in_hand(range(2), 2, size=500), Room(10, 1000, 2000))
    assert full(in_hand(range(3), 3, size=500), Room(10, 1000, 2000))
    assert not full(in_hand([0, 2000], 2001), Room(10, 1000, 2000))
    assert full(in_hand([0, 2001], 2002), Room(10, 1000, 2000))
    assert not full(in_hand([0, 2001], 2002), Room(10, 1000, None))


def test_who_waits_for_room_goes_on_as_soon_as_there_is_some() -> None:
    async def main() -> None:
        process_queue = in_hand([0, 5, 6], 7)
        waiting = asyncio.create_task(process_queue.wait_room(Room(10, 1000, 3)))
        await asyncio.sleep(0)
        process_queue.remove([message(5)])
        await asyncio.sleep(0)
        assert not waiting.done()
        process_queue.remove([message(0)])
        await asyncio.wait_for(waiting, 1)
        full = in_hand(range(5), 5)
        waiting = asyncio.create_task(full.wait_room(Room(1, 1000, None)))
        await asyncio.sleep(0)
        full.drop()
        await asyncio.wait_for(waiting, 1)

    run(main())


def test_only_the_first_message_in_hand_can_be_stuck() -> None:
    process_queue = in_hand([1, 2], 3)
    jobs = [Job(process_queue, [message(offset)]) for offset in (1, 2)]
    process_queue.assign(jobs)
    assert process_queue.stuck_job(100.0) is None
    jobs[1].started_s = 10.0
    assert process_queue.stuck_job(100.0) is None
    jobs[0].started_s = 10.0
    assert process_queue.stuck_job(100.0) is jobs[0]
    assert process_queue.stuck_job(5.0) is None
    process_queue.remove(jobs[0].messages)
    assert process_queue.stuck_job(100.0) is jobs[1]


# --- commits ---


class Kept(Remembered):
    """A store that other members write to as well, and that may be out of reach."""

    def __init__(self, kept: int | None) -> None:
        super().__init__()
        self.kept = kept
        self.written: list[int] = []
        self.is_gone = False

    async def load(self) -> None:
        raise NotImplementedError

    async def read(self, _queue: MessageQueue) -> int | None:
        if self.is_gone:
            raise ConnectFailed("out of reach")
        return self.kept

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        if self.is_gone:
            raise ConnectFailed("out of reach")
        for queue in queues:
            self.written.append(self._offsets[queue])


def begun(store: Kept, next_offset: int, ago_s: float) -> tuple[Commits, ProcessQueue]:
    process_queue = in_hand([], next_offset)
    process_queue.began_s = asyncio.get_running_loop().time() - ago_s
    return Commits(store, is_shared=True), process_queue


def test_an_offset_that_the_last_owner_stored_late_is_not_set_back() -> None:
    async def main() -> None:
        store = Kept(20)
        commits, process_queue = begun(store, 5, ago_s=0)
        await commits.commit([process_queue])
        assert commits.with_pull(process_queue) is None
        assert store.written == []
        process_queue.began_s -= SETTLE_S
        await commits.commit([process_queue])
        assert store.written == [20]
        assert commits.with_pull(process_queue) == 20
        process_queue.next_offset = 30
        assert commits.with_pull(process_queue) == 30
        await commits.commit([process_queue])
        await commits.commit([process_queue])
        assert store.written == [20, 30]

    run(main())


def test_a_queue_that_is_given_away_at_once_is_stored_but_not_below_what_is_there() -> None:
    async def main() -> None:
        for kept, progress, expected in ((20, 5, [20]), (20, 25, [25]), (None, 3, [3])):
            store = Kept(kept)
            commits, process_queue = begun(store, progress, ago_s=0)
            await commits.commit([process_queue], is_last=True)
            assert store.written == expected

    run(main())


def test_what_could_not_be_stored_is_stored_the_next_time() -> None:
    async def main() -> None:
        store = Kept(None)
        commits, process_queue = begun(store, 5, ago_s=2 * SETTLE_S)
        store.is_gone = True
        await commits.commit([process_queue])
        store.is_gone = False
        await commits.commit([process_queue])
        store.is_gone = True
        process_queue.next_offset = 6
        await commits.commit([process_queue])
        store.is_gone = False
        await commits.commit([process_queue])
        assert store.written == [5, 6]

    run(main())


class SlowStore(Kept):
    """A store that handles requests which are under way together in either order."""

    def __init__(self) -> None:
        super().__init__(None)
        self.goes_on = asyncio.Event()
        self.asked_count = 0

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        offsets = [self._offsets[queue] for queue in queues]
        self.asked_count += 1
        await self.goes_on.wait()
        self.written += offsets


def test_a_queues_last_commit_is_not_overtaken_by_the_one_before() -> None:
    async def main() -> None:
        for is_reset in (False, True):
            store = SlowStore()
            commits, process_queue = begun(store, 5, ago_s=2 * SETTLE_S)
            first = asyncio.create_task(commits.commit([process_queue]))
            await becomes(lambda: store.asked_count == 1, "the first is under way", 5)  # noqa: B023 - called at once
            process_queue.next_offset = 6
            await commits.commit([process_queue])  # the timer's: it comes again
            last = asyncio.create_task(
                commits.set_to(process_queue, 2)
                if is_reset
                else commits.commit([process_queue], is_last=True)
            )
            await asyncio.sleep(0.05)
            assert store.asked_count == 1
            store.goes_on.set()
            await asyncio.gather(first, last)
            assert store.written == [5, 2 if is_reset else 6]

    run(main())


# --- workers ---


def test_worker_tasks_handle_everything_within_their_number() -> None:
    async def main() -> None:
        running, most, handled = 0, 0, []

        async def handle(item: int) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            if item % 3:
                await asyncio.sleep(0.001)
            running -= 1
            handled.append(item)
            if item == 50:
                raise ValueError("a bug")

        workers: WorkerTasks[int] = WorkerTasks(4, handle)
        workers.put(range(100))
        workers.put(range(100, 200))
        await workers.wait_empty()
        assert sorted(handled) == list(range(200))
        assert most == 4
        workers.put([201])
        assert workers.withdraw() == [201]
        await workers.close()

    run(main())


def test_items_that_never_wait_need_one_worker_and_let_others_have_the_loop() -> None:
    async def main() -> None:
        turns, handled = 0, []

        async def handle(item: int) -> None:
            handled.append(item)

        async def other() -> None:
            nonlocal turns
            while len(handled) < 1000:
                turns += 1
                await asyncio.sleep(0)

        workers: WorkerTasks[int] = WorkerTasks(20, handle)
        beside = asyncio.create_task(other())
        workers.put(range(1000))
        await workers.wait_empty()
        await beside
        assert handled == list(range(1000))
        assert turns > 10
        await workers.close()

    run(main())


def test_threads_that_block_run_side_by_side_and_quick_ones_stay_few() -> None:
    async def main() -> None:
        names: set[str] = set()
        results: list[tuple[int, object]] = []
        together = threading.Barrier(5, timeout=10)

        def work(job: int) -> int:
            names.add(threading.current_thread().name)
            if job < 0:
                together.wait()
            return job * 2

        workers: Workers[int] = Workers(5, "test", work, results.extend)
        workers.put(range(500))
        await workers.wait_quiet()
        assert results == [(job, job * 2) for job in range(500)] or len(names) > 1
        assert sorted(results) == [(job, job * 2) for job in range(500)]
        workers.put([-1] * 10)
        await workers.wait_quiet()
        assert len(results) == 510
        assert len(names) == 5
        assert workers.close(5)

    run(main())


def test_a_result_is_told_although_the_next_job_blocks() -> None:
    async def main() -> None:
        results: list[tuple[int, object]] = []
        goes_on = threading.Event()

        def work(job: int) -> None:
            if job == 1:
                goes_on.wait(10)

        workers: Workers[int] = Workers(1, "test", work, results.extend)
        workers.put([0, 1])
        await becomes(lambda: len(results) == 1, "the first result is there", 5)
        goes_on.set()
        await workers.wait_quiet()
        assert [job for job, _ in results] == [0, 1]
        assert workers.close(5)

    run(main())
