"""Tasks: every offset in one of them exactly once, however they are split and put together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import SettingError
from orbitmq.spark.topic_options import TopicOptions, topic_options
from orbitmq.spark.topic_planning import Range, TopicPartition, planned
from orbitmq.wire.bodies_client import MessageQueue

COUNTS = st.none() | st.integers(1, 30)


def ranges_of(*lengths: int) -> list[Range]:
    return [
        Range(MessageQueue("T", "b", number), 100, 100 + length)
        for number, length in enumerate(lengths)
    ]


def offsets_in(partitions: list[TopicPartition]) -> list[tuple[MessageQueue, int]]:
    return [
        (each.queue, offset)
        for partition in partitions
        for each in partition.ranges
        for offset in range(each.begin, each.end)
    ]


@given(
    lengths=st.lists(st.integers(0, 50), max_size=6),
    least=COUNTS,
    most=COUNTS,
    records=COUNTS,
    size=COUNTS,
)
def test_every_offset_is_in_one_task_whatever_the_limits(
    lengths: list[int], least: int | None, most: int | None, records: int | None, size: int | None
) -> None:
    options = TopicOptions(
        min_partitions=least,
        max_partitions=most,
        max_records_per_partition=records,
        max_bytes_per_partition=size,
    )
    ranges = ranges_of(*lengths)
    found = planned(ranges, options, record_bytes=3)
    everything = [(each.queue, at) for each in ranges for at in range(each.begin, each.end)]
    assert sorted(offsets_in(found)) == sorted(everything)
    assert all(partition.ranges for partition in found)
    if most is not None:
        assert len(found) <= most
    elif least is not None:
        assert len(found) >= min(least, len(everything))
    if records is not None and most is None:
        assert all(each.length <= records for part in found for each in part.ranges)


def test_one_task_for_each_queue_that_has_something() -> None:
    found = planned(ranges_of(5, 0, 7), TopicOptions())
    assert [part.ranges[0].queue.queue_id for part in found] == [0, 2]


def test_the_larger_queue_is_split_more() -> None:
    found = planned(ranges_of(10, 90), TopicOptions(min_partitions=10))
    assert [part.ranges[0].queue.queue_id for part in found].count(1) == 9


def test_few_tasks_get_about_the_same_each() -> None:
    found = planned(ranges_of(10, 10, 10, 30), TopicOptions(max_partitions=2))
    assert sorted(sum(each.length for each in part.ranges) for part in found) == [30, 30]


def test_a_limit_in_bytes_lets_at_least_one_message_through() -> None:
    found = planned(ranges_of(3), TopicOptions(max_bytes_per_partition=10), record_bytes=1_000)
    assert [part.ranges[0].length for part in found] == [1, 1, 1]


def test_more_tasks_at_least_than_at_most_are_refused() -> None:
    given = {"namesrvAddr": "a:1", "topic": "T", "minPartitions": "5", "maxPartitions": "3"}
    with pytest.raises(SettingError, match="'minPartitions': '5' is more than 'maxPartitions', 3"):
        topic_options(given, is_stream=False)
