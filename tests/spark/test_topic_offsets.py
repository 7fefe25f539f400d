"""Where a batch begins and ends: names, JSON, times, groups, and what is gone or never was."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from orbitmq.arrow.columns import arrow_schema
from orbitmq.errors import SettingError
from orbitmq.spark.cluster import QueueFailed, cluster_of
from orbitmq.spark.data_loss import DataLoss
from orbitmq.spark.offsets import batch_end, marks_in, nested, offsets_in, read_offsets, starts_in
from orbitmq.testing import EmbeddedBroker
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.world.clock import SystemClock
from orbitmq.world.loop_thread import LoopThread
from tests.spark.topics import forget_old, forgetful_broker, make, numbers, options_of, send
from tests.spark.topics import read_batch as read


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(scope="module")
def queues(broker: EmbeddedBroker) -> list[MessageQueue]:
    """Ten messages in two queues: even numbers in queue 0, odd ones in queue 1."""
    found = make(broker, "T")
    send(broker, found, range(10))
    return found


def listed(offsets: dict[MessageQueue, int]) -> str:
    return json.dumps(nested(offsets))


def test_offsets_as_text_have_sorted_keys_whatever_order_they_came_in() -> None:
    offsets = {MessageQueue(t, b, q): 1 for t in "ba" for b in "yx" for q in (10, 9)}
    text = json.dumps(nested(offsets))
    assert text == json.dumps(nested(dict(reversed(offsets.items()))))
    assert text == json.dumps(json.loads(text), sort_keys=True)
    assert offsets_in(json.loads(text)) == offsets


def test_the_starts_of_a_batch_are_no_part_of_the_next_ones_start() -> None:
    queue, other = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)
    end = batch_end({queue: 5, other: 7}, {other: 3})
    assert offsets_in(end) == {queue: 5, other: 7}
    assert starts_in(end) == {other: 3}
    assert json.dumps(end) == json.dumps(end, sort_keys=True)


def test_marks_are_no_offsets_and_the_text_stays_sorted() -> None:
    queue, other = MessageQueue("%RETRY%g", "b", 0), MessageQueue("T", "b", 1)
    end = batch_end({queue: 5, other: 7}, {other: 3}, {other: 1_700_000_000_000})
    assert offsets_in(end) == {queue: 5, other: 7}
    assert starts_in(end) == {other: 3}
    assert marks_in(end) == {other: 1_700_000_000_000}
    assert json.dumps(end) == json.dumps(end, sort_keys=True)


def test_a_queue_that_is_no_number_is_named() -> None:
    with pytest.raises(SettingError, match="'x' of topic T is no queue's number"):
        read_offsets("startingOffsets", '{"T": {"b": {"x": 1}}}')


def test_offsets_of_single_queues_begin_and_end_there(
    broker: EmbeddedBroker, queues: list[MessageQueue]
) -> None:
    starts, ends = listed({queues[0]: 2, queues[1]: -2}), listed({queues[0]: 4, queues[1]: 1})
    assert numbers(read(broker, topic="T", startingOffsets=starts, endingOffsets=ends)) == [1, 4, 6]


def test_queues_that_are_not_listed_begin_at_the_default(
    broker: EmbeddedBroker, queues: list[MessageQueue]
) -> None:
    starts = listed({queues[0]: 4})
    assert numbers(read(broker, topic="T", startingOffsets=starts)) == [1, 3, 5, 7, 8, 9]
    found = read(broker, topic="T", startingOffsets=starts, startingOffsetsDefault="latest")
    assert numbers(found) == [8]


def test_offsets_of_a_queue_that_is_not_there_are_refused(
    broker: EmbeddedBroker, queues: list[MessageQueue]
) -> None:
    wrong = listed({MessageQueue("T", queues[0].broker_name, 7): 0})
    with pytest.raises(SettingError, match="'startingOffsets': queue 7 of topic T at broker"):
        read(broker, topic="T", startingOffsets=wrong)
    with pytest.raises(SettingError, match="'endingOffsets': -2"):
        read(broker, topic="T", endingOffsets=listed({queues[0]: -2}))
    with pytest.raises(SettingError, match="-3 of queue 0 of topic T"):
        read(broker, topic="T", startingOffsets=listed({queues[0]: -3}))


def test_assigned_queues_are_read_and_no_others(
    broker: EmbeddedBroker, queues: list[MessageQueue]
) -> None:
    name = queues[0].broker_name
    assert numbers(read(broker, assign=json.dumps({"T": {name: [1]}}))) == [1, 3, 5, 7, 9]
    with pytest.raises(SettingError, match="'assign': there is no queue 9 of topic T at broker"):
        read(broker, assign=json.dumps({"T": {name: [1, 9]}}))


def test_a_groups_progress_is_a_start_and_an_end(
    broker: EmbeddedBroker, queues: list[MessageQueue]
) -> None:
    cluster = cluster_of(options_of(broker, topic="T"))
    cluster.store_group_offsets("halfway", {queues[0]: 3})
    given = {"topic": "T", "consumerGroup": "halfway"}
    assert numbers(read(broker, startingOffsets="group", **given)) == [1, 3, 5, 6, 7, 8, 9]
    found = read(broker, startingOffsets="group", startingOffsetsDefault="latest", **given)
    assert numbers(found) == [6, 8]
    assert numbers(read(broker, endingOffsets="group", **given)) == [0, 1, 2, 3, 4, 5, 7, 9]


def test_a_group_at_the_very_beginning_is_not_taken_for_a_new_one(broker: EmbeddedBroker) -> None:
    queues = make(broker, "young")
    send(broker, queues, range(4))
    cluster = cluster_of(options_of(broker, topic="young"))
    cluster.store_group_offsets("beginner", {queues[0]: 0})
    assert cluster.group_offsets("beginner", queues) == {queues[0]: 0, queues[1]: None}


def test_times_are_the_first_message_stored_then_or_later(broker: EmbeddedBroker) -> None:
    queues = make(broker, "timed", 1)
    send(broker, queues, range(5))
    rows = read(broker, arrow_schema(["storeTimestamp"]), topic="timed")
    border = rows[2]["storeTimestamp"]
    border_ms = round(border.timestamp() * 1000)
    before = [number for number, row in enumerate(rows) if row["storeTimestamp"] < border]
    since = [number for number in range(5) if number not in before]
    given = {"topic": "timed"}
    assert numbers(read(broker, startingTimestamp=str(border_ms), **given)) == since
    assert numbers(read(broker, startingTimestamp=border.isoformat(), **given)) == since
    assert numbers(read(broker, endingTimestamp=str(border_ms), **given)) == before
    by_queue = listed({queues[0]: border_ms})
    assert numbers(read(broker, startingOffsetsByTimestamp=by_queue, **given)) == since
    assert numbers(read(broker, endingOffsetsByTimestamp=by_queue, **given)) == before


def test_a_time_that_is_not_reached_yet_is_an_error_or_the_end(
    broker: EmbeddedBroker, queues: list[MessageQueue]
) -> None:
    later = str(SystemClock().wall_ms() + 3_600_000)
    with pytest.raises(SettingError, match="'startingTimestamp': queue 0 of topic T at broker"):
        read(broker, topic="T", startingTimestamp=later)
    given = {"topic": "T", "startingOffsetsByTimestampStrategy": "latest"}
    assert read(broker, startingTimestamp=later, **given) == []
    assert len(read(broker, topic="T", endingTimestamp=later)) == 10


def test_an_offset_behind_the_end_is_a_loss_that_names_the_queue(
    broker: EmbeddedBroker, queues: list[MessageQueue]
) -> None:
    given = {"topic": "T", "endingOffsets": listed({queues[1]: 99})}
    with pytest.raises(DataLoss, match=r"queue 1 of topic T at broker .*: offset 99 is behind"):
        read(broker, **given)
    assert len(read(broker, failOnDataLoss="false", **given)) == 10


def test_messages_that_retention_took_are_a_loss_that_says_which() -> None:
    with forgetful_broker() as broker:
        queues = make(broker, "old", 1)
        send(broker, queues, range(200), size=2_000)
        first = forget_old(broker, queues[0])
        assert numbers(read(broker, topic="old")) == list(range(first, 200))
        given = {"topic": "old", "startingOffsets": listed({queues[0]: 0})}
        gone = f"messages from offset 0 to {first - 1} are gone"
        with pytest.raises(DataLoss, match=gone):
            read(broker, **given)
        found = read(broker, failOnDataLoss="false", **given)
        assert numbers(found) == list(range(first, 200))


def test_a_namespace_is_in_no_row_and_no_offset(broker: EmbeddedBroker) -> None:
    queues = make(broker, "team%T")
    send(broker, queues, range(4))
    given = {"topic": "T", "namespace": "team"}
    rows = read(broker, arrow_schema(["topic", "body"]), **given)
    assert numbers(rows) == [0, 1, 2, 3]
    assert {row["topic"] for row in rows} == {"T"}
    starts = listed({MessageQueue("T", queues[0].broker_name, 0): 1})
    assert numbers(read(broker, startingOffsets=starts, **given)) == [1, 2, 3]


def test_a_broker_that_does_not_filter_by_sql_says_so(
    broker: EmbeddedBroker, queues: list[MessageQueue]
) -> None:
    with pytest.raises(QueueFailed, match=r"queue \d of topic T at broker .*SQL92"):
        read(broker, topic="T", sql92="price > 3")


def test_a_topic_that_comes_late_is_waited_for(broker: EmbeddedBroker) -> None:
    async def make_later() -> None:
        await asyncio.sleep(0.3)
        await asyncio.to_thread(make, broker, "late")

    thread = LoopThread("maker")
    try:
        made = thread.submit(make_later())
        assert read(broker, topic="late", waitForTopicMs="20000") == []
        made.result()
    finally:
        thread.close()
