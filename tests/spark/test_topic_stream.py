"""Micro-batches without Spark: exact offsets, limits, waiting, and clusters that change."""

import asyncio
import json
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from orbitmq.blocking import Admin
from orbitmq.spark import topic_stream
from orbitmq.spark.cluster import cluster_of
from orbitmq.spark.data_loss import DataLoss
from orbitmq.spark.offsets import batch_end, marks_in, nested, offsets_in, starts_in
from orbitmq.spark.topic_commits import store_progress
from orbitmq.spark.topic_stream import TopicStreamReader
from orbitmq.testing import EmbeddedBroker
from orbitmq.world.clock import SystemClock
from orbitmq.world.loop_thread import LoopThread
from tests.spark.topics import (
    COLUMNS,
    forget_old,
    forgetful_broker,
    make,
    numbers,
    options_of,
    rows_of,
    send,
)

QUICK = {"longPollMs": "500", "routeCacheTtlMs": "0", "fetchOffset.retryIntervalMs": "50"}
ALL = ReadAllAvailable()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def stream(broker: EmbeddedBroker, topic: str, **given: str) -> TopicStreamReader:
    options = options_of(broker, is_stream=True, topic=topic, **{**QUICK, **given})
    return TopicStreamReader(options, COLUMNS)


def step(reader: TopicStreamReader, start: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Run one micro-batch as Spark does; give its end and which messages it had."""
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    json.dumps(end, sort_keys=True)
    return end, numbers(rows_of(reader, reader.partitions(start, end)))


def test_a_stream_begins_at_the_end_and_gives_each_message_once(broker: EmbeddedBroker) -> None:
    queues = make(broker, "once")
    send(broker, queues, range(4))
    reader = stream(broker, "once")
    at = reader.initialOffset()
    send(broker, queues, range(4, 7))
    at, first = step(reader, at)
    assert step(reader, at) == (at, [])
    send(broker, queues, range(7, 9))
    at, second = step(reader, at)
    assert (first, second) == ([4, 5, 6], [7, 8])


def test_an_end_without_news_is_the_start_to_the_letter(broker: EmbeddedBroker) -> None:
    queues = make(broker, "letters", 12)
    send(broker, queues, range(24))
    reader = stream(broker, "letters", startingOffsets="earliest")
    at = reader.initialOffset()
    end = reader.latestOffset(at, ALL)
    assert json.dumps(reader.latestOffset(json.loads(json.dumps(end)), ALL)) == json.dumps(end)
    assert json.dumps(end) == json.dumps(end, sort_keys=True)


def test_a_batch_that_is_run_again_reads_the_same_from_its_two_offsets_alone(
    broker: EmbeddedBroker,
) -> None:
    queues = make(broker, "again")
    reader = stream(broker, "again")
    start = reader.initialOffset()
    send(broker, queues, range(5))
    end = reader.latestOffset(start, ALL)
    send(broker, queues, range(5, 9))
    other = stream(broker, "again")
    moved = other.initialOffset()  # "latest" is elsewhere by now: the first batch must not move
    assert moved != start
    assert numbers(rows_of(other, other.partitions(moved, end))) == [0, 1, 2, 3, 4]


def test_a_batch_that_is_run_again_has_the_same_tasks_though_samples_differ(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: an idempotent sink stored rows twice, for it knows them by their task."""
    queues = make(broker, "sampled")
    send(broker, queues, range(40))
    given = {"startingOffsets": "earliest", "maxBytesPerPartition": "1000"}
    sizes = iter([100, 50, 25])
    monkeypatch.setattr(topic_stream, "record_bytes", lambda *_: next(sizes))
    reader = stream(broker, "sampled", **given)
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ALL)
    tasks = [part.value for part in reader.partitions(begin, end)]
    again = stream(broker, "sampled", **given)
    end = json.loads(json.dumps(end))
    assert [part.value for part in again.partitions(begin, end)] == tasks
    assert len(tasks) == 4
    assert again.latestOffset(end, ALL) == end


def test_a_batch_without_data_after_the_first_one_does_not_read_it_again(
    broker: EmbeddedBroker,
) -> None:
    queues = make(broker, "nodata")
    send(broker, queues, range(3))
    reader = stream(broker, "nodata", startingOffsets="earliest")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    assert starts_in(end)
    assert reader.partitions(end, end) == []


@pytest.mark.parametrize("where", ["group", "file"])
def test_the_start_is_the_same_after_a_restart_before_the_first_batch(
    broker: EmbeddedBroker, tmp_path: Any, where: str
) -> None:
    queues = make(broker, f"stable-{where}")
    send(broker, queues, range(3))
    path = tmp_path / "start.json"
    given = {
        "consumerGroup": f"stable-{where}",
        "initialOffsetStore": "group" if where == "group" else str(path),
    }
    start = stream(broker, f"stable-{where}", **given).initialOffset()
    send(broker, queues, range(3, 6))
    again = stream(broker, f"stable-{where}", **given)
    assert again.initialOffset() == start
    assert step(again, start)[1] == [3, 4, 5]
    again.commit(again.latestOffset(start, ALL))
    assert not path.exists()


def test_limits_of_messages_are_kept_and_shared_by_backlog(broker: EmbeddedBroker) -> None:
    queues = make(broker, "limited")
    send(broker, queues[:1], range(30))
    send(broker, queues[1:], range(30, 40))
    reader = stream(broker, "limited", startingOffsets="earliest", maxOffsetsPerTrigger="8")
    at = reader.initialOffset()
    end = reader.latestOffset(at, reader.getDefaultReadLimit())
    assert offsets_in(end) == {queues[0]: 6, queues[1]: 2}
    seen: list[int] = []
    while True:
        end, found = step(reader, at)
        if end == at:
            break
        assert len(found) <= 8
        seen += found
        at = end
    assert sorted(seen) == list(range(40))


def test_a_trigger_that_wants_all_gets_all_whatever_the_limits(broker: EmbeddedBroker) -> None:
    queues = make(broker, "everything")
    send(broker, queues, range(20))
    reader = stream(broker, "everything", startingOffsets="earliest", maxOffsetsPerTrigger="3")
    at = reader.initialOffset()
    assert sum(offsets_in(reader.latestOffset(at, ALL)).values()) == 20
    assert sum(offsets_in(reader.latestOffset(at, ReadMaxRows(2))).values()) == 2


def test_limits_of_bytes_are_kept_about(broker: EmbeddedBroker) -> None:
    queues = make(broker, "heavy", 1)
    send(broker, queues, range(20), size=3_000)  # larger ones would be compressed
    reader = stream(broker, "heavy", startingOffsets="earliest", maxBytesPerTrigger="17000")
    assert step(reader, reader.initialOffset())[1] == [0, 1, 2, 3, 4]


def test_few_messages_wait_for_more_until_the_delay_is_over(broker: EmbeddedBroker) -> None:
    queues = make(broker, "few", 1)
    given = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "5"}
    reader = stream(broker, "few", **given, maxTriggerDelay="1h")
    at = reader.initialOffset()
    send(broker, queues, range(4))
    assert step(reader, at) == (at, [])
    send(broker, queues, [4])
    assert step(reader, at)[1] == [0, 1, 2, 3, 4]
    hasty = stream(broker, "few", **given, maxTriggerDelay="1ms")
    assert step(hasty, nested({queues[0]: 3}))[1] == [3, 4]


def test_a_message_wakes_a_waiting_stream_at_once(broker: EmbeddedBroker) -> None:
    queues = make(broker, "awake", 4)
    reader = stream(broker, "awake", longPollMs="1000", startingOffsets="earliest")
    at = reader.initialOffset()
    assert reader.latestOffset(at, ALL) == at  # the held pulls stand
    clock = SystemClock()
    sent_s: list[float] = []

    async def send_later() -> None:
        await asyncio.sleep(0.3)
        await asyncio.to_thread(send, broker, queues, [2])
        sent_s.append(clock.monotonic_s())

    thread = LoopThread("sender")
    try:
        sending = thread.submit(send_later())
        found: list[int] = []
        while not found:
            _, found = step(reader, at)
        woken_s = clock.monotonic_s()
        sending.result()
    finally:
        thread.close()
    assert found == [2]
    assert woken_s - sent_s[0] < 0.5  # sooner than the long poll ends


def test_an_idle_stream_waits_and_asks_next_to_nothing(broker: EmbeddedBroker) -> None:
    make(broker, "idle", 4)
    reader = stream(broker, "idle", longPollMs="200", routeCacheTtlMs="10000")
    at = reader.initialOffset()
    reader.latestOffset(at, ALL)
    clock = SystemClock()
    began_s = clock.monotonic_s()
    assert reader.latestOffset(at, ALL) == at
    assert clock.monotonic_s() - began_s >= 0.19


def test_new_queues_are_read_from_their_beginning(broker: EmbeddedBroker) -> None:
    queues = make(broker, "growing", 1)
    reader = stream(broker, "growing", startingOffsets="earliest")
    send(broker, queues, [0])
    at, found = step(reader, reader.initialOffset())
    queues = make(broker, "growing", 3)
    send(broker, queues, [1, 2, 3])
    end = reader.latestOffset(at, ALL)
    assert starts_in(end) == {queues[1]: 0, queues[2]: 0}
    assert numbers(rows_of(reader, reader.partitions(at, end))) == [1, 2, 3]
    assert found == [0]


def test_new_queues_are_read_from_their_end_if_that_is_asked_for(broker: EmbeddedBroker) -> None:
    make(broker, "late-growing", 1)
    reader = stream(broker, "late-growing", startingOffsets="earliest", newQueueStart="latest")
    at = reader.initialOffset()
    queues = make(broker, "late-growing", 2)
    send(broker, queues, [1, 3])
    at, found = step(reader, at)
    assert found == []
    send(broker, queues, [5])
    assert step(reader, at)[1] == [5]


def test_a_new_queue_begins_where_it_was_first_seen_though_its_batch_waits(
    broker: EmbeddedBroker,
) -> None:
    """Symptom: what came to a new queue while minOffsetsPerTrigger held a batch was never read."""
    queues = make(broker, "held-back", 1)
    given = {"newQueueStart": "latest", "minOffsetsPerTrigger": "4"}
    reader = stream(broker, "held-back", **given)
    at = reader.initialOffset()
    assert step(reader, at) == (at, [])
    queues = make(broker, "held-back", 2)
    send(broker, queues, range(2))
    assert step(reader, at) == (at, []), "one new message is too few, the other one was there"
    send(broker, queues, range(2, 8))
    assert step(reader, at)[1] == [0, 2, 3, 4, 5, 6, 7]


def test_a_new_topic_that_the_pattern_matches_is_read(broker: EmbeddedBroker) -> None:
    queues = make(broker, "match-1")
    given = {**QUICK, "topicsPattern": "match-.*", "startingOffsets": "earliest"}
    reader = TopicStreamReader(options_of(broker, is_stream=True, **given), COLUMNS)
    at = reader.initialOffset()
    send(broker, make(broker, "match-2"), [1, 2])
    send(broker, queues, [3])
    assert step(reader, at)[1] == [1, 2, 3]


def test_a_query_that_ends_takes_what_was_there_at_its_beginning(broker: EmbeddedBroker) -> None:
    queues = make(broker, "now")
    send(broker, queues, range(7))
    reader = stream(broker, "now", startingOffsets="earliest", maxOffsetsPerTrigger="3")
    at = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    send(broker, queues, range(7, 12))
    make(broker, "now", 3)
    seen: list[int] = []
    for _ in range(3):
        at, found = step(reader, at)
        seen += found
    assert sorted(seen) == list(range(7))
    assert step(reader, at) == (at, [])


def test_a_stream_with_an_end_gives_nothing_behind_it(broker: EmbeddedBroker) -> None:
    queues = make(broker, "ended")
    send(broker, queues, range(6))
    ends = json.dumps(nested({queues[0]: 2, queues[1]: 1}))
    reader = stream(broker, "ended", startingOffsets="earliest", endingOffsets=ends)
    at, found = step(reader, reader.initialOffset())
    assert found == [0, 1, 2]
    send(broker, queues, range(6, 8))
    assert step(reader, at) == (at, [])


@pytest.mark.parametrize("form", ["endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_that_ends_at_a_time_to_come_goes_on_until_then(form: str) -> None:
    """Symptom: it stopped at once, with what was there when it began."""
    with EmbeddedBroker() as broker:
        queues = make(broker, "until", 2)
        send(broker, queues, range(4))
        until_ms = SystemClock().wall_ms() + 3_600_000
        times = json.dumps(nested(dict.fromkeys(queues, until_ms)))
        given = {form: str(until_ms) if form == "endingTimestamp" else times}
        reader = stream(broker, "until", startingOffsets="earliest", **given)
        at, found = step(reader, reader.initialOffset())
        assert found == [0, 1, 2, 3]
        send(broker, queues, range(4, 8))
        at, found = step(reader, at)
        assert found == [4, 5, 6, 7]
        broker.advance(7_200)
        send(broker, queues, [8])
        assert step(reader, at) == (at, [])
        assert step(stream(broker, "until", **given), at) == (at, [])


def test_new_queues_are_looked_for_no_sooner_than_asked_for(broker: EmbeddedBroker) -> None:
    queues = make(broker, "unlooked", 1)
    reader = stream(broker, "unlooked", startingOffsets="earliest", routeCacheTtlMs="3600000")
    prompt = stream(broker, "unlooked", startingOffsets="earliest")
    send(broker, queues, [0])
    at, found = step(reader, reader.initialOffset())
    assert found == [0]
    send(broker, make(broker, "unlooked", 2), [1, 2])
    assert step(reader, at)[1] == [2]  # number 1 is in the new queue
    assert step(prompt, at)[1] == [1, 2]


@pytest.mark.parametrize("commits", ["true", "false"])
def test_progress_is_told_or_not_as_asked_for(broker: EmbeddedBroker, commits: str) -> None:
    topic = f"asked-{commits}"
    queues = make(broker, topic)
    send(broker, queues, range(2))
    given = {"startingOffsets": "earliest", "commitOffsets": commits}
    given |= {"groupIdPrefix": "team"} if commits == "true" else {"consumerGroup": "quiet"}
    reader = stream(broker, topic, **given)
    end, _ = step(reader, reader.initialOffset())
    reader.commit(end)
    options = options_of(broker, is_stream=True, topic=topic, **given)
    assert options.group.startswith("team-" if commits == "true" else "quiet")
    with Admin(broker.namesrv) as admin:
        found = [admin.group_offset(options.group, queue) for queue in queues]
    assert found == ([1, 1] if commits == "true" else [None, None])


def test_a_topic_deleted_and_made_again_is_a_loss_or_read_from_its_beginning(
    broker: EmbeddedBroker,
) -> None:
    queues = make(broker, "phoenix", 1)
    send(broker, queues, range(5))
    reader = stream(broker, "phoenix", startingOffsets="earliest")
    at, _ = step(reader, reader.initialOffset())
    with Admin(broker.namesrv) as admin:
        admin.delete_topic("phoenix")
    queues = make(broker, "phoenix", 1)
    send(broker, queues, [7, 8])
    message = r"queue 0 of topic phoenix at broker .* ends at 2, but was read up to 5.*made again"
    with pytest.raises(DataLoss, match=message):
        stream(broker, "phoenix").latestOffset(at, ALL)
    tolerant = stream(broker, "phoenix", failOnDataLoss="false")
    at, found = step(tolerant, at)
    assert found == [7, 8]
    send(broker, queues, [9])
    assert step(tolerant, at)[1] == [9]


def test_a_queue_that_lost_its_newest_messages_is_not_read_from_its_beginning_again(
    broker: EmbeddedBroker,
) -> None:
    """Symptom: with failOnDataLoss=false all rows came twice after a broker lost its last ones."""
    queues = make(broker, "shorter", 1)
    send(broker, queues, range(5))
    reader = stream(broker, "shorter", startingOffsets="earliest")
    at, found = step(reader, reader.initialOffset())
    assert found == [0, 1, 2, 3, 4]
    lost_ms = marks_in(at)[queues[0]] + 1  # two more came, were read, and went with the machine
    at = batch_end({queues[0]: 7}, {}, {queues[0]: lost_ms})
    tolerant = stream(broker, "shorter", failOnDataLoss="false")
    at, found = step(tolerant, at)
    assert found == []
    send(broker, queues, [8, 9])
    assert step(tolerant, at)[1] == [8, 9]


@pytest.fixture
def grown_again(broker: EmbeddedBroker) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """A topic that was read up to 3 and then 5, made again meanwhile and grown past that."""
    queues = make(broker, "taller", 1)
    send(broker, queues, range(5))
    reader = stream(broker, "taller", startingOffsets="earliest", maxOffsetsPerTrigger="3")
    middle, first = step(reader, reader.initialOffset())
    end, second = step(reader, middle)
    assert (first, second) == ([0, 1, 2], [3, 4])
    with Admin(broker.namesrv) as admin:
        admin.delete_topic("taller")
    send(broker, make(broker, "taller", 1), range(10, 18))
    yield middle, end
    with Admin(broker.namesrv) as admin:
        admin.delete_topic("taller")


def test_a_topic_made_again_that_has_grown_past_the_offset_is_not_read_on(
    broker: EmbeddedBroker, grown_again: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    """Symptom: its first messages were never read, and nobody was told."""
    _, at = grown_again
    message = r"queue 0 of topic taller at broker .*: its message at offset 4 is not the one"
    with pytest.raises(DataLoss, match=message):
        stream(broker, "taller").latestOffset(at, ALL)
    tolerant = stream(broker, "taller", failOnDataLoss="false")
    at, found = step(tolerant, at)
    assert found == list(range(10, 18))
    send(broker, make(broker, "taller", 1), [18])
    assert step(tolerant, at)[1] == [18]


def test_a_batch_that_is_run_again_does_not_read_a_topic_made_again(
    broker: EmbeddedBroker, grown_again: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    begin, end = grown_again
    with pytest.raises(DataLoss, match="made again"):
        stream(broker, "taller").partitions(begin, end)
    assert stream(broker, "taller", failOnDataLoss="false").partitions(begin, end) == []


def test_an_offset_without_a_mark_is_read_on(broker: EmbeddedBroker) -> None:
    """Checkpoints of before have none, and messages that retention took give none."""
    queues = make(broker, "unmarked", 1)
    send(broker, queues, range(5))
    reader = stream(broker, "unmarked")
    end, found = step(reader, nested({queues[0]: 3}))
    assert found == [3, 4]
    assert set(marks_in(end)) == set(queues)
    send(broker, queues, range(5, 7))
    assert step(reader, end)[1] == [5, 6]


def test_a_queue_without_news_keeps_its_mark(broker: EmbeddedBroker) -> None:
    queues = make(broker, "kept-mark", 2)
    send(broker, queues, range(4))
    reader = stream(broker, "kept-mark", startingOffsets="earliest")
    at, _ = step(reader, reader.initialOffset())
    send(broker, queues, [4])
    end, found = step(reader, at)
    assert found == [4]
    assert marks_in(end)[queues[1]] == marks_in(at)[queues[1]]
    assert marks_in(end)[queues[0]] >= marks_in(at)[queues[0]]


def test_retention_that_overtakes_the_reader_is_a_loss_or_a_gap() -> None:
    with forgetful_broker() as broker:
        queues = make(broker, "overtaken", 1)
        reader = stream(broker, "overtaken", startingOffsets="earliest")
        at = reader.initialOffset()
        send(broker, queues, range(200), size=2_000)
        end = reader.latestOffset(at, ALL)
        first = forget_old(broker, queues[0])
        with pytest.raises(DataLoss, match=f"messages from offset 0 to {first - 1} are gone"):
            reader.partitions(at, end)
        tolerant = stream(broker, "overtaken", failOnDataLoss="false")
        found = numbers(rows_of(tolerant, tolerant.partitions(at, end)))
        assert found == list(range(first, 200))


def test_a_broker_that_goes_and_comes_back_is_read_on() -> None:
    with EmbeddedBroker() as broker:
        queues = make(broker, "back", 2)
        reader = stream(broker, "back", startingOffsets="earliest")
        send(broker, queues, range(4))
        at, found = step(reader, reader.initialOffset())
        assert found == [0, 1, 2, 3]
        broker.restart()
        send(broker, queues, range(4, 8))
        seen: list[int] = []
        while len(seen) < 4:
            at, found = step(reader, at)
            seen += found
        assert sorted(seen) == [4, 5, 6, 7]


def test_a_stream_waits_for_brokers_that_are_gone_instead_of_failing() -> None:
    with EmbeddedBroker() as broker:
        queues = make(broker, "gone", 2)
        reader = stream(broker, "gone", startingOffsets="earliest")
        at, _ = step(reader, reader.initialOffset())
        send(broker, queues, range(2))
        broker.kill()
        assert reader.latestOffset(at, ALL) == at
        broker.start()
        found: list[int] = []
        while not found:
            _, found = step(reader, at)
        assert found == [0, 1]


def test_progress_is_the_groups_offset_at_the_broker(broker: EmbeddedBroker) -> None:
    queues = make(broker, "tracked")
    send(broker, queues, range(6))
    given = {"consumerGroup": "trackers", "startingOffsets": "earliest"}
    reader = stream(broker, "tracked", **given)
    end, _ = step(reader, reader.initialOffset())
    reader.commit(end)
    cluster = cluster_of(options_of(broker, topic="tracked"))
    assert cluster.group_offsets("trackers", queues) == {queues[0]: 3, queues[1]: 3}
    options = options_of(broker, topic="tracked", consumerGroup="trackers")
    store_progress(options, {queues[0]: 2, queues[1]: 1})
    assert cluster.group_offsets("trackers", queues) == {queues[0]: 2, queues[1]: 1}
    with Admin(broker.namesrv) as admin:
        assert admin.progress("trackers").lag == 3
        assert len(admin.topic_route("%RETRY%trackers").brokers) == 1


def test_progress_is_not_told_without_a_group_of_ones_own(broker: EmbeddedBroker) -> None:
    queues = make(broker, "untracked")
    send(broker, queues, range(2))
    reader = stream(broker, "untracked", startingOffsets="earliest")
    end, _ = step(reader, reader.initialOffset())
    reader.commit(end)
    options = options_of(broker, topic="untracked")
    cluster = cluster_of(options)
    assert set(cluster.group_offsets(options.group, queues).values()) == {None}


def test_the_newest_ends_are_reported_for_lag(broker: EmbeddedBroker) -> None:
    queues = make(broker, "lagging", 1)
    send(broker, queues, range(9))
    reader = stream(broker, "lagging", startingOffsets="earliest", maxOffsetsPerTrigger="2")
    at = reader.initialOffset()
    assert offsets_in(reader.latestOffset(at, reader.getDefaultReadLimit())) == {queues[0]: 2}
    assert reader.reportLatestOffset() == nested({queues[0]: 9})


def test_a_query_that_is_to_end_does_not_look_caught_up_before_it_is(
    broker: EmbeddedBroker,
) -> None:
    """Symptom: no lag in every batch of an AvailableNow query, whatever was still to read."""
    queues = make(broker, "ending", 1)
    send(broker, queues, range(9))
    reader = stream(broker, "ending", startingOffsets="earliest", maxOffsetsPerTrigger="2")
    reader.prepareForTriggerAvailableNow()
    reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert reader.reportLatestOffset() == nested({queues[0]: 9})


def test_a_reader_travels_to_workers_without_its_connections(broker: EmbeddedBroker) -> None:
    queues = make(broker, "travelling", 1)
    send(broker, queues, range(2))
    reader = stream(broker, "travelling", startingOffsets="earliest")
    at = reader.initialOffset()
    end = reader.latestOffset(at, ALL)
    other = pickle.loads(pickle.dumps(reader))
    assert numbers(rows_of(other, other.partitions(at, end))) == [0, 1]
