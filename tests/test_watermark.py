"""Watermarks against a model: who waits is ended once, in order, for the right reason."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orbitmq.errors import StoreError
from orbitmq.net.later import TICK_S, Deadlines
from orbitmq.watermark import Call, Waiter, Watermark

WAITERS_MAX = 6
numbers = st.integers(0, 12)


class _Timer:
    def __init__(self, due_s: float, call: Callable[[], None]) -> None:
        self.due_s = due_s
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class _Loop:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._timers: list[_Timer] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, due_s: float, call: Callable[[], None]) -> _Timer:
        self._timers.append(_Timer(due_s, call))
        return self._timers[-1]

    def call_soon(self, call: Callable[[], None]) -> _Timer:
        return self.call_at(self.now_s, call)

    def run(self) -> None:
        """Run what is due."""
        while due := [one for one in self._timers if one.due_s <= self.now_s]:
            self._timers = [one for one in self._timers if one.due_s > self.now_s]
            for timer in due:
                if not timer.is_cancelled:
                    timer.call()


class _Told(Waiter):
    """Writes down how its wait ended."""

    def __init__(self, name: int, ends: list[tuple[int, str]]) -> None:
        super().__init__()
        self._name = name
        self._ends = ends

    def reached(self) -> None:
        self._ends.append((self._name, "reached"))

    def failed(self, error: StoreError) -> None:
        self._ends.append((self._name, str(error)))

    def late(self) -> None:
        self._ends.append((self._name, "late"))


class Waiting(RuleBasedStateMachine):
    """A watermark with deadlines beside a list of who waits."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = _Loop()
        self.mark = Watermark(3, waiters_max=WAITERS_MAX)
        self.deadlines = Deadlines(cast("asyncio.AbstractEventLoop", self.loop))
        self.ends: list[tuple[int, str]] = []
        self.expected: list[tuple[int, str]] = []
        self.waiting: list[tuple[int, int, int | None, _Told]] = []
        """Name, number, last tick, waiter: in the order they came."""
        self.count = self.refused = 0
        self.number, self.failure = 3, ""

    def _expect(self, over: list[tuple[int, int, int | None, _Told]], how: str) -> None:
        self.waiting = [one for one in self.waiting if one not in over]
        self.expected += [(one[0], how) for one in over]

    @rule(number=numbers, ticks=st.none() | st.integers(1, 4))
    def wait(self, number: int, ticks: int | None) -> None:
        self.count += 1
        waiter = _Told(self.count, self.ends)
        if ticks is not None:
            self.deadlines.add(waiter, (ticks - 0.5) * TICK_S)
        self.mark.wait(number, waiter)
        if len(self.waiting) == WAITERS_MAX:
            self.refused += 1
            self.expected.append((self.count, "late"))
            return
        tick = None if ticks is None else round(self.loop.now_s / TICK_S) + ticks
        self.waiting.append((self.count, number, tick, waiter))

    @rule(by=st.integers(0, 4))
    def advance(self, by: int) -> None:
        self.mark.advance(self.number + by)
        self.number += 0 if self.failure else by

    @rule()
    def wake(self) -> None:
        self.mark.wake()
        due = sorted((one for one in self.waiting if one[1] <= self.number), key=lambda one: one[1])
        self._expect(due, "reached")
        if self.failure:
            self._expect(sorted(self.waiting, key=lambda one: one[1]), self.failure)

    @rule(count=st.integers(1, 3))
    @precondition(lambda self: not self.failure)
    def wake_some(self, count: int) -> None:
        self.mark.wake(count)
        due = sorted((one for one in self.waiting if one[1] <= self.number), key=lambda one: one[1])
        self._expect(due[:count], "reached")

    @rule(number=numbers)
    def refuse(self, number: int) -> None:
        self.mark.refuse(StoreError("taken back"), number)
        over = sorted((one for one in self.waiting if one[1] <= number), key=lambda one: one[1])
        self._expect(over, "taken back")

    @rule()
    @precondition(lambda self: self.count % 5 == 4)
    def fail(self) -> None:
        self.mark.fail(StoreError("broken"))
        self.failure = "broken"

    @rule(which=st.integers(0, WAITERS_MAX))
    def leave(self, which: int) -> None:
        for one in self.waiting[which : which + 1]:
            one[3].leave()
            self.waiting.remove(one)

    @rule(ticks=st.integers(1, 3))
    def pass_time(self, ticks: int) -> None:
        for _ in range(ticks):
            tick = round(self.loop.now_s / TICK_S) + 1
            self.loop.now_s = tick * TICK_S + 1e-9
            self.loop.run()
            self._expect([one for one in self.waiting if one[2] == tick], "late")

    @invariant()
    def agrees(self) -> None:
        assert self.ends == self.expected
        assert self.mark.number == self.number
        assert self.mark.waiter_count == len(self.waiting)
        assert self.deadlines.waiter_count == sum(one[2] is not None for one in self.waiting)
        assert self.mark.refused_count == self.refused


TestWaiting = Waiting.TestCase
TestWaiting.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_a_watermark_never_falls() -> None:
    mark = Watermark(5)
    with pytest.raises(AssertionError, match="never falls"):
        mark.advance(4)


def test_one_that_raises_holds_up_nobody_and_is_heard_of() -> None:
    mark, ends = Watermark(), list[Any]()

    def fails(_error: StoreError | None) -> None:
        raise ZeroDivisionError

    mark.wait(1, Call(fails))
    mark.wait(1, Call(ends.append))
    mark.advance(1)
    with pytest.raises(ZeroDivisionError):
        mark.wake()
    assert ends == [None]


def test_one_may_end_another_and_wait_again_while_all_are_woken() -> None:
    mark, ends = Watermark(), list[Any]()
    second = Call(lambda _error: ends.append("second"))

    def first(_error: StoreError | None) -> None:
        second.leave()
        mark.wait(1, Call(lambda _error: ends.append("below")))
        mark.wait(3, Call(lambda _error: ends.append("behind")))
        mark.wake()

    mark.wait(2, Call(first))
    mark.wait(2, second)
    mark.wait(2, Call(lambda _error: ends.append("third")))
    mark.advance(2)
    mark.wake()
    assert ends == ["below", "third"]
    assert mark.waiter_count == 1


def test_one_that_waits_again_when_it_is_refused_is_not_refused_for_ever() -> None:
    mark, ends = Watermark(), list[StoreError | None]()

    def again(error: StoreError | None) -> None:
        ends.append(error)
        if len(ends) < 10:
            mark.wait(0, Call(again))

    mark.wait(0, Call(again))
    mark.refuse(StoreError("taken back"))
    assert len(ends) == 1
    mark.wake()
    assert ends[1:] == [None]
