"""Looking through a queue by a record filter: the same as by tags, and never for too long."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from orbitmq import core as chosen_core
from orbitmq.broker import turn_share
from orbitmq.broker.long_poll import HeldPull, LongPolls
from orbitmq.broker.pulls import Pull
from orbitmq.broker.selecting import LOOK_S, TimedFilter, look
from orbitmq.core import CoreState, Gathered, PullStatus, Queue, gather
from orbitmq.wire.command import Command, decode_command
from orbitmq.wire.expression import tag_code
from orbitmq.wire.frame import FrameDecoder
from orbitmq.wire.properties import TAGS, parse_properties
from orbitmq.wire.record import log_offset_of, properties_of, scan_records
from orbitmq.world.clock import SystemClock
from orbitmq.world.net import run
from tests.broker.test_long_poll import new_polls
from tests.core.hot import NOW_MS, ORIGIN, new_state, publish, send_frame

CORE = chosen_core


class Ticking:
    """A clock that goes on by a millisecond with each look at it."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_s(self) -> float:
        self.now_s += 0.001
        return self.now_s

    def wall_ms(self) -> int:
        return NOW_MS

    def file_stamp(self, wall_ms: int) -> int:
        return wall_ms


def stopped() -> float:
    return 0.0


def send(state: CoreState, *tags: str) -> None:
    for tag in tags:
        CORE.handle_one_read(state, send_frame(i=f"TAGS\x01{tag}\x02"), 0, ORIGIN, NOW_MS)
    publish(state)


def sent(*tags: str) -> CoreState:
    state = new_state(file_size=1 << 22)
    send(state, *tags)
    return state


def has_tag(tag: str) -> Callable[[memoryview], bool]:
    return lambda record: parse_properties(properties_of(record)).get(TAGS) == tag


def pull_of(state: CoreState, tag: str, offset: int = 0, count_max: int = 32) -> Pull:
    return Pull(
        request=Command(11, opaque=5),
        queue=state.topics["T"].queues[0],
        queue_offset=offset,
        count_max=count_max,
        codes=None,
        accepts=has_tag(tag),
    )


def outcome(found: Gathered) -> tuple[object, ...]:
    return found.status, found.next_offset, b"".join(found.parts), found.size, found.message_count


@pytest.mark.parametrize("offset", [-1, 0, 3, 899, 900, 901])
@pytest.mark.parametrize("tag", ["a", "b", "none"])
@pytest.mark.parametrize("count_max", [1, 5, 32, 1_000])
def test_a_look_by_the_record_finds_what_a_look_by_the_tag_finds(
    offset: int, tag: str, count_max: int
) -> None:
    state = sent(*(["a", "c", "b"] * 300))
    pull = pull_of(state, tag, offset, count_max)
    by_tag = gather(state, pull.queue, offset, count_max, frozenset({tag_code(tag)}))
    found = look(state, pull, offset, stopped)
    if found.message_count == min(count_max, state.pull_count_max):
        # Full: tags are cheap to pass over, so that look goes on up to the next match.
        *_, last = scan_records(b"".join(found.parts))
        assert found.next_offset == last.queue_offset + 1 <= by_tag.next_offset
        found = found._replace(next_offset=by_tag.next_offset)
    assert outcome(found) == outcome(by_tag)


def test_tag_codes_and_a_limit_of_bytes_count_in_a_look() -> None:
    state = sent("a", "b", "a", "a")
    (size,) = {len(part) for part in look(state, pull_of(state, "a"), 0, stopped).parts}
    pull = msgspec.structs.replace(
        pull_of(state, "a"), accepts=None, codes=frozenset({tag_code("a")}), bytes_max=2 * size
    )
    found = look(state, pull, 0, stopped)
    assert (found.message_count, found.next_offset) == (2, 3)
    assert [log_offset_of(part) for part in found.parts] == [
        record.log_offset for record in scan_records(b"".join(found.parts))
    ]


def test_records_outside_memory_are_left_to_who_reads_files() -> None:
    state = sent("a", "b", "a")
    state.tail.hot_offset = state.tail.end_offset
    assert look(state, pull_of(state, "a"), 0, stopped).status is PullStatus.COLD


# --- time ---


def test_a_look_that_filters_for_too_long_ends_with_where_to_go_on() -> None:
    state = sent(*(["a"] * 100))
    pull = pull_of(state, "none")
    found = look(state, pull, 0, Ticking().monotonic_s)
    assert found.status is PullStatus.NO_MATCHED_MESSAGE
    assert LOOK_S == 0.002
    assert 0 < found.next_offset <= 4, "each record takes a millisecond"
    assert look(state, pull, found.next_offset, stopped).next_offset == 100


def test_what_was_found_before_the_time_was_over_goes_out() -> None:
    state = sent(*(["a"] * 100))
    found = look(state, pull_of(state, "a"), 0, Ticking().monotonic_s)
    assert found.status is PullStatus.FOUND
    assert 0 < found.message_count == found.next_offset < 32


def test_a_timed_filter_counts_only_its_own_time() -> None:
    clock = Ticking()
    timed = TimedFilter(lambda _record: True, clock.monotonic_s)
    clock.now_s += 60
    assert not timed.is_late()
    while not timed.is_late():
        assert timed.accepts(memoryview(b""))
    assert clock.now_s - 60 >= LOOK_S


# --- waiting ---


class Asker:
    """Stands for the connection that owes the answer."""

    def __init__(self) -> None:
        self.answers: list[Command] = []

    def later_done(self, _later: object, _request: Command, reply: object) -> None:
        if reply is None:  # cancelled
            return
        assert isinstance(reply, list)
        self.answers += map(decode_command, FrameDecoder().feed(b"".join(reply)))

    def later_failed(self, _request: Command, error: Exception) -> None:
        raise error


def hold(polls: LongPolls, state: CoreState, tag: str) -> Asker:
    queue = state.topics["T"].queues[0]
    pull = pull_of(state, tag, queue.readable_offset)
    asker = Asker()
    polls.hold(pull, 15.0).adopt(asker, pull.request)
    return asker


def grow(polls: LongPolls, state: CoreState, *tags: str) -> Queue:
    send(state, *tags)
    queue = state.topics["T"].queues[0]
    polls.held.wake({queue})
    return queue


def test_a_waiting_pull_looks_at_each_message_once() -> None:
    state, noted = sent("a"), list[tuple[Pull, Gathered]]()
    polls = new_polls(state, SystemClock())
    polls.note = lambda pull, found, _took_s: noted.append((pull, found))
    asker = hold(polls, state, "wanted")
    grow(polls, state, "a", "a")
    (held,) = polls.held.of(state.topics["T"].queues[0])
    assert isinstance(held, HeldPull)
    assert (held.next_offset, asker.answers, noted) == (3, [], [])
    grow(polls, state, "a", "wanted", "a")
    (answer,) = asker.answers
    assert (answer.code, answer.fields["nextBeginOffset"]) == (0, "6")
    assert [found.message_count for _, found in noted] == [1]
    assert len(polls.held) == 0


def test_a_waiting_pull_whose_filter_takes_too_long_is_answered_with_where_to_go_on() -> None:
    state = sent("a")
    polls = new_polls(state, Ticking())
    asker = hold(polls, state, "wanted")
    grow(polls, state, *(["a"] * 100))
    (answer,) = asker.answers
    assert answer.code == 20
    assert 1 < int(answer.fields["nextBeginOffset"]) < 101


def test_many_waiting_pulls_are_looked_at_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_share, "SLICE_S", 0.0)
    state = sent("a")

    async def scenario() -> None:
        polls = new_polls(state, Ticking())
        askers = [hold(polls, state, "wanted") for _ in range(20)]
        grow(polls, state, "wanted")
        answered = [sum(len(asker.answers) for asker in askers)]
        while answered[-1] < 20:
            await asyncio.sleep(0)
            answered.append(sum(len(asker.answers) for asker in askers))
        assert answered == list(range(1, 21)), "one in each turn, in the order they came"
        assert len(polls.held) == 0

    run(scenario())


def test_a_pull_that_was_cancelled_between_slices_is_not_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turn_share, "SLICE_S", 0.0)
    state = sent("a")

    async def scenario() -> None:
        polls = new_polls(state, Ticking())
        first = hold(polls, state, "wanted")
        pull = pull_of(state, "wanted", 1)
        later, second = polls.hold(pull, 15.0), Asker()
        later.adopt(second, pull.request)
        grow(polls, state, "wanted")
        assert first.answers
        later.cancel()
        await asyncio.sleep(0)
        assert (second.answers, len(polls.held)) == ([], 0)

    run(scenario())


def test_a_look_ends_with_the_record_that_has_used_up_its_time() -> None:
    """Symptom: looks by expensive expressions took three times as long as they may: the time was
    looked at before every eighth record only."""
    state, clock = sent(*(["a"] * 50)), Ticking()
    judged = []

    def expensive(_record: memoryview) -> bool:
        clock.now_s += LOOK_S
        judged.append(clock.now_s)
        return False

    pull = msgspec.structs.replace(pull_of(state, "a"), accepts=expensive)
    found = look(state, pull, 0, clock.monotonic_s)
    assert (len(judged), found.next_offset) == (1, 1)
    assert found.status is PullStatus.NO_MATCHED_MESSAGE
