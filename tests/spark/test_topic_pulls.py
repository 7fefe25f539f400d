"""Pulls of a task: whole and in order with answers of any size, and while brokers come and go."""

import asyncio
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orbitmq.arrow.columns import arrow_schema
from orbitmq.spark.cluster import QueueFailed, cluster_of
from orbitmq.spark.data_loss import DataLoss
from orbitmq.spark.topic_offsets import Bounds
from orbitmq.spark.topic_planning import Range
from orbitmq.spark.topic_pulls import WINDOW_COUNT_MAX, Piece, QueuePulls
from orbitmq.spark.topic_reading import RangeReader, read_ranges
from orbitmq.testing import EmbeddedBroker
from orbitmq.wire.bodies_client import MessageQueue
from tests.spark.topics import COLUMNS, make, numbers, options_of, read_batch, send

SIZES = (10, 3_000, 10, 10, 3_900)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    settings = {"maxTransferBytesOnBulkPull": "8192"}  # answers of 2 to 32 messages
    with EmbeddedBroker(settings=settings) as broker:
        yield broker


@pytest.fixture(scope="module")
def mixed(broker: EmbeddedBroker) -> MessageQueue:
    """A queue whose small and large messages lie side by side: no two answers are alike."""
    queues = make(broker, "mixed", 1)
    for first in range(0, 300, 5):
        for number, size in enumerate(SIZES):
            send(broker, queues, [first + number], size=size)
    return queues[0]


def offsets(broker: EmbeddedBroker, whole: Range, **given: str) -> list[int]:
    given = {"topic": whole.queue.topic, **given}
    options = options_of(broker, is_stream=False, **given)
    batches = read_ranges((whole,), options, COLUMNS)
    return [offset for batch in batches for offset in batch.column("queueOffset").to_pylist()]


@pytest.mark.parametrize(("begin", "end"), [(0, 300), (17, 18), (17, 203), (299, 300)])
def test_a_range_is_whole_and_in_order_though_answers_differ_in_size(
    broker: EmbeddedBroker, mixed: MessageQueue, begin: int, end: int
) -> None:
    assert offsets(broker, Range(mixed, begin, end)) == list(range(begin, end))
    small = {"pullBatchSize": "3"}
    assert offsets(broker, Range(mixed, begin, end), **small) == list(range(begin, end))


def test_a_filter_gives_nothing_behind_the_range(
    broker: EmbeddedBroker, mixed: MessageQueue
) -> None:
    found = offsets(broker, Range(mixed, 10, 50), tags="t1")
    assert found == [offset for offset in range(10, 50) if offset % 3 == 1]


def test_an_answer_has_no_more_bytes_than_asked_for(
    broker: EmbeddedBroker, mixed: MessageQueue
) -> None:
    sizes = {}
    for given in ({}, {"pullMaxBytes": "4200"}):
        options = options_of(broker, is_stream=False, topic="mixed", **given)
        cluster = cluster_of(options)
        sizes[len(given)] = len(cluster.wait(QueuePulls(cluster, options, mixed).pull(0, 32)).body)
    assert sizes[1] <= 4_200 < sizes[0]
    assert offsets(broker, Range(mixed, 0, 300), pullMaxBytes="4200") == list(range(300))


def test_compressed_bodies_are_given_as_they_are_stored_if_asked_for(
    broker: EmbeddedBroker,
) -> None:
    send(broker, make(broker, "dense", 1), [3], size=9_000)
    schema = arrow_schema(["body", "size"])
    (plain,) = read_batch(broker, schema, topic="dense")
    (stored,) = read_batch(broker, schema, topic="dense", decompress="false")
    assert plain["body"] == b"body 3".ljust(9_000)
    assert len(stored["body"]) < stored["size"] < 1_000
    assert zlib.decompress(stored["body"]) == plain["body"]


def test_a_body_that_does_not_fit_its_checksum_is_a_loss_if_that_is_verified(
    tmp_path: Path,
) -> None:
    with EmbeddedBroker(folder=tmp_path) as broker:
        send(broker, make(broker, "torn", 1), range(5))
        log = next((tmp_path / "store" / "commitlog").iterdir())
        with log.open("r+b") as file:
            at = file.read(100_000).index(b"body 3")
            file.seek(at)
            file.write(b"bodY 3")
        bodies = [row["body"] for row in read_batch(broker, topic="torn")]
        assert bodies[3] == b"bodY 3"
        with pytest.raises(DataLoss, match=r"queue 0 of topic torn at broker .* is damaged .*CRC"):
            read_batch(broker, topic="torn", verifyCrc="true")
        given = {"topic": "torn", "verifyCrc": "true", "failOnDataLoss": "false"}
        assert numbers(read_batch(broker, **given)) == [0, 1, 2, 4]


def test_questions_about_offsets_are_asked_again_as_often_as_asked_for() -> None:
    with EmbeddedBroker() as broker, ThreadPoolExecutor(1) as pool:
        send(broker, make(broker, "asked", 1), range(3))
        once = {"topic": "asked", "fetchOffset.numRetries": "0"}
        often = {
            "topic": "asked",
            "fetchOffset.numRetries": "1000",
            "fetchOffset.retryIntervalMs": "30",
        }
        assert numbers(read_batch(broker, **once)) == [0, 1, 2]
        hasty = options_of(broker, is_stream=False, **once)
        options = options_of(broker, is_stream=False, **often)
        queues = cluster_of(options).queues("asked")
        broker.kill()
        with pytest.raises(QueueFailed, match="does not tell its end"):
            Bounds(cluster_of(hasty), hasty, queues).ends()
        asking = pool.submit(Bounds(cluster_of(options), options, queues).ends)
        with pytest.raises(TimeoutError):
            asking.result(0.3)
        broker.start()
        assert sum(asking.result(60).values()) == 3


def test_a_task_that_is_not_read_to_its_end_leaves_no_pull_behind(
    broker: EmbeddedBroker, mixed: MessageQueue
) -> None:
    options = options_of(broker, topic="mixed")
    cluster = cluster_of(options)

    async def task_count() -> int:
        await asyncio.sleep(0)
        return sum("_filled" in repr(task) for task in asyncio.all_tasks())

    for _ in range(3):
        batches = RangeReader(cluster, options, COLUMNS, Range(mixed, 0, 300)).batches()
        next(batches)
        batches.close()

    async def settled() -> None:
        while await task_count():
            await asyncio.sleep(0.01)

    cluster.wait(asyncio.wait_for(settled(), 10))


class Scripted(QueuePulls):
    """Pulls that a broker with the original's limits would answer: 32 messages, 256 KiB."""

    def begin(self, sizes: Callable[[int], int]) -> None:
        self.sizes = sizes
        self.count = self.active = self.active_max = 0

    async def _piece(self, begin: int, end: int, count_max: int) -> Piece:
        self.count += 1
        self.active += 1
        self.active_max = max(self.active_max, self.active)
        await asyncio.sleep(0)
        self.active -= 1
        size = self.sizes(begin)
        until = min(end, begin + min(32, count_max, max(1, 256 * 1024 // size)))
        return Piece(bytes((until - begin) * size), begin, until)


@pytest.fixture
def scripted(broker: EmbeddedBroker, mixed: MessageQueue) -> Scripted:
    options = options_of(broker, topic="mixed")
    return Scripted(cluster_of(options), options, mixed)


def pulled(pulls: Scripted, count: int, sizes: Callable[[int], int]) -> None:
    """Read so many messages of these sizes, and see that they are whole and in order."""

    async def read() -> list[Piece]:
        pulls.begin(sizes)
        return [piece async for piece in pulls.pieces(0, count)]

    pieces = asyncio.run(read())
    assert [piece.begin for piece in pieces] == [0, *(piece.end for piece in pieces[:-1])]
    assert pieces[-1].end == count


def test_messages_that_grow_do_not_have_a_whole_queue_pulled_at_once(scripted: Scripted) -> None:
    """Once: a window that shrank below what was on its way let everything through."""
    pulled(scripted, 50_000, lambda at: 1_200 if at < 3_200 else 3_200)
    assert scripted.active_max <= WINDOW_COUNT_MAX


def test_messages_that_shrink_are_pulled_many_at_a_time_again(scripted: Scripted) -> None:
    pulled(scripted, 50_000, lambda at: 200_000 if at < 50 else 100)
    assert scripted.count < 2 * 50_000 // 32


def test_one_short_answer_does_not_make_all_others_short(scripted: Scripted) -> None:
    """Once: the last piece that filled an answer up was the measure of those behind it."""
    pulled(scripted, 50_000, lambda at: 10_000 + at % 7 * 500)
    assert scripted.count < 2 * 50_000 // 20


def test_a_broker_that_restarts_while_a_task_reads_loses_nothing() -> None:
    with EmbeddedBroker() as broker:
        queues = make(broker, "restarted", 1)
        send(broker, queues, range(100))
        pulls = QueuePulls(
            cluster := cluster_of(options := options_of(broker, topic="restarted")),
            options,
            queues[0],
        )
        first = cluster.wait(pulls.pull(0, 10))
        broker.kill()
        reading = cluster.submit(pulls.pull(first.next_offset, 10))
        broker.start()
        assert reading.result(30).next_offset == 20


def test_a_broker_that_stays_away_is_named_after_the_time_out() -> None:
    with EmbeddedBroker() as broker:
        queues = make(broker, "away", 1)
        send(broker, queues, range(3))
        options = options_of(broker, topic="away", pullTimeoutMs="300")
        cluster = cluster_of(options)
        cluster.max_offsets(queues)
        broker.kill()
        message = "queue 0 of topic away at broker .* does not tell what is at offset 0"
        with pytest.raises(QueueFailed, match=message):
            cluster.wait(QueuePulls(cluster, options, queues[0]).pull(0, 1))
