"""Held pulls: what wakes them, and what many of them may cost."""

import pytest

from orbitmq import core as chosen_core
from orbitmq.broker import held_reads
from orbitmq.broker.held_reads import HeldReads
from orbitmq.broker.long_poll import LongPolls
from orbitmq.broker.pulls import Pull
from orbitmq.core import CoreState, Queue
from orbitmq.wire.command import Command, decode_command
from orbitmq.wire.frame import FrameDecoder
from orbitmq.wire.java import string_hash
from orbitmq.wire.record import scan_records
from orbitmq.world.clock import Clock, SystemClock
from tests.core.hot import NOW_MS, ORIGIN, new_state, publish, send_frame

CORE = chosen_core
CLOCK = SystemClock()


class Asker:
    """Stands for the connection that owes the answer."""

    def __init__(self) -> None:
        self.answers: list[Command] = []

    def later_done(self, _later: object, _request: Command, reply: object) -> None:
        assert isinstance(reply, list)
        self.answers += map(decode_command, FrameDecoder().feed(b"".join(reply)))

    def later_failed(self, _request: Command, error: Exception) -> None:
        raise error


def send(state: CoreState, tag: str, count: int) -> None:
    for _ in range(count):
        CORE.handle_one_read(state, send_frame(i=f"TAGS\x01{tag}\x02"), 0, ORIGIN, NOW_MS)
    publish(state)


def new_polls(state: CoreState, clock: Clock = CLOCK) -> LongPolls:
    return LongPolls(state, clock, HeldReads(clock), lambda _pull, _found, _took_s: None)


def hold(polls: LongPolls, queue: Queue, tag: str, timeout_s: float = 15.0) -> tuple[Asker, float]:
    request = Command(11, opaque=5)
    pull = Pull(
        request=request,
        queue=queue,
        queue_offset=queue.readable_offset,
        count_max=32,
        codes=frozenset({string_hash(tag)}),
    )
    later = polls.hold(pull, timeout_s)
    asker = Asker()
    later.adopt(asker, request)
    return asker, later.timeout_s


def test_a_burst_of_other_tags_does_not_hide_the_wanted_one() -> None:
    """Symptom: a filtered pull slept through its message behind 800 others of one turn."""
    state = new_state(file_size=1 << 24)
    queue = state.topics["T"].queues[0]
    send(state, "Other", 1)
    polls = new_polls(state)
    asker, _ = hold(polls, queue, "Wanted")
    for _ in range(3_000):
        CORE.handle_one_read(state, send_frame(i="TAGS\x01Other\x02"), 0, ORIGIN, NOW_MS)
    send(state, "Wanted", 1)
    polls.held.wake({queue})
    (answer,) = asker.answers
    assert (answer.code, answer.fields["nextBeginOffset"]) == (20, "801")
    assert len(polls.held) == 0


def test_a_few_other_tags_leave_it_asleep_behind_them() -> None:
    state = new_state()
    queue = state.topics["T"].queues[0]
    send(state, "Other", 1)
    polls = new_polls(state)
    asker, _ = hold(polls, queue, "Wanted")
    send(state, "Other", 5)
    polls.held.wake({queue})
    assert not asker.answers
    send(state, "Wanted", 1)
    polls.held.wake({queue})
    (answer,) = asker.answers
    assert (answer.code, answer.fields["nextBeginOffset"]) == (0, "7")


def test_too_many_waiting_for_one_queue_are_answered_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held_reads, "HELD_PER_QUEUE_MAX", 2)
    state = new_state()
    polls = new_polls(state)
    waits = [hold(polls, state.topics["T"].queues[0], "x")[1] for _ in range(3)]
    assert waits == [15.0, 15.0, 0.0]


def test_a_group_that_changes_its_expression_gets_its_held_pulls_back_at_once() -> None:
    """Symptom: a message of the old tag was given to a consumer that had changed to another."""
    state = new_state(file_size=1 << 20)
    queue = state.topics["T"].queues[0]
    polls = new_polls(state)
    asker, _ = hold(polls, queue, "Old")
    polls.renew("another group", "T")
    polls.renew("", "another topic")
    assert len(polls.held) == 1
    polls.renew("", "T")
    assert [answer.code for answer in asker.answers] == [19]
    assert len(polls.held) == 0


def test_nothing_that_did_not_pass_is_looked_at_twice() -> None:
    state = new_state()
    queue = state.topics["T"].queues[0]
    send(state, "Other", 1)
    polls = new_polls(state)
    seen: list[int] = []

    def is_wanted(record: memoryview) -> bool:
        (found,) = scan_records(bytes(record))
        seen.append(found.queue_offset)
        return b"Wanted" in found.properties

    request = Command(11, opaque=5)
    pull = Pull(
        request=request,
        queue=queue,
        queue_offset=1,
        count_max=32,
        codes=None,
        accepts=is_wanted,
    )
    asker = Asker()
    polls.hold(pull, 15.0).adopt(asker, request)
    for tag, count in (("Other", 3), ("Other", 2), ("Wanted", 1)):
        send(state, tag, count)
        polls.held.wake({queue})
    (answer,) = asker.answers
    assert (answer.code, answer.fields["nextBeginOffset"]) == (0, "7")
    assert seen == [1, 2, 3, 4, 5, 6]
