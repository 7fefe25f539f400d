"""The splitter: order kept, runs as long as they may be, nothing lost."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.batches import record_size, split
from orbitmq.client.message import Message
from orbitmq.client.outgoing import encode_text, properties_text
from orbitmq.wire.batch import MESSAGE_SIZE_MIN

SIZES = st.lists(st.integers(0, 40), max_size=60)


@given(sizes=SIZES, bytes_max=st.integers(1, 100), count_max=st.integers(1, 10))
def test_runs_cover_everything_in_order_within_the_limits(
    sizes: list[int], bytes_max: int, count_max: int
) -> None:
    runs = list(split(sizes, bytes_max, count_max))
    covered = [index for run in runs for index in range(run.start, run.stop)]
    assert covered == list(range(len(sizes)))
    for run in runs:
        held = sizes[run]
        assert 1 <= len(held) <= count_max
        assert sum(held) <= bytes_max or len(held) == 1


@given(sizes=SIZES, bytes_max=st.integers(1, 100), count_max=st.integers(1, 10))
def test_no_run_could_have_taken_the_next_message(
    sizes: list[int], bytes_max: int, count_max: int
) -> None:
    runs = list(split(sizes, bytes_max, count_max))
    for run, following in itertools.pairwise(runs):
        is_full = len(sizes[run]) == count_max
        assert is_full or sum(sizes[run]) + sizes[following.start] > bytes_max


@given(
    body=st.binary(max_size=50),
    topic=st.text("abc", min_size=1, max_size=20),
    value=st.text(st.characters(exclude_characters="\x02", codec="utf-8"), min_size=1),
)
def test_a_message_is_never_counted_smaller_than_it_is_in_a_batch(
    body: bytes, topic: str, value: str
) -> None:
    message = Message(topic, body, properties={"p": value})
    properties = encode_text(properties_text(message, "I" * 32))
    assert record_size(message, properties) > MESSAGE_SIZE_MIN + len(body) + len(properties)
