"""How much a micro-batch takes: parts add up to the limit, by backlog, and nobody starves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import SettingError
from orbitmq.spark.batch_limits import admitted, is_enough, read_duration
from orbitmq.wire.bodies_client import MessageQueue

A, B, C = (MessageQueue("T", "b", number) for number in range(3))


@given(
    backlog=st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 10_000)),
    count_max=st.integers(1, 10_000),
)
def test_the_parts_of_a_limit_add_up_to_it(
    backlog: dict[MessageQueue, int], count_max: int
) -> None:
    begins = dict.fromkeys(backlog, 7)
    ends = {queue: 7 + count for queue, count in backlog.items()}
    found = admitted(begins, ends, count_max)
    taken = {queue: found[queue] - 7 for queue in backlog}
    assert sum(taken.values()) == min(count_max, sum(backlog.values()))
    assert all(0 <= taken[queue] <= count for queue, count in backlog.items())


def test_the_larger_backlog_gets_the_larger_part() -> None:
    assert admitted({A: 0, B: 0}, {A: 900, B: 100}, 100) == {A: 90, B: 10}


def test_a_queue_with_one_message_is_not_starved_by_a_large_one() -> None:
    assert admitted({A: 0, B: 0}, {A: 1_000_000, B: 1}, 10)[B] == 1


def test_a_queue_that_ends_before_its_begin_takes_nothing() -> None:
    assert admitted({A: 5}, {A: 3}, None) == {A: 5}


def test_too_few_messages_wait_until_the_delay_is_over() -> None:
    assert not is_enough(9, 10, waited_s=1, delay_s=2)
    assert is_enough(10, 10, waited_s=1, delay_s=2)
    assert is_enough(9, 10, waited_s=2, delay_s=2)
    assert is_enough(1, None, waited_s=0, delay_s=2)


def test_durations_are_read_and_others_refused() -> None:
    durations = ("500ms", "2s", "15m", "1.5h", " 1 d ")
    assert [read_duration("x", text) for text in durations] == [0.5, 2, 900, 5400, 86400]
    with pytest.raises(SettingError, match="'maxTriggerDelay': 'soon' is no duration"):
        read_duration("maxTriggerDelay", "soon")
