"""Work in slices: short while turns are short, a quarter of them while they are long."""

import asyncio

import pytest

from orbitmq.broker.delays import TURN_COUNT_MAX
from orbitmq.broker.held_reads import HeldRead, HeldReads
from orbitmq.broker.turn_share import SHARE_MAX_S, SLICE_S, share_s
from orbitmq.world.net import run
from tests.broker.delaying import ROOT, site
from tests.broker.test_long_poll import Asker, hold, new_polls, send
from tests.core.hot import new_state
from tests.namesrv.registering import HandClock
from tests.store.driven import HandClock as StoreClock
from tests.world.memory_files import MemoryFiles

LOOK_S = 0.0005
"""What looking for one held pull costs here."""


@pytest.mark.parametrize(
    ("others_s", "slice_s"),
    [(0.0, SLICE_S), (0.003, SLICE_S), (0.03, 0.01), (0.09, 0.03), (9.0, SHARE_MAX_S)],
)
def test_a_slice_takes_a_quarter_of_a_turn_within_limits(others_s: float, slice_s: float) -> None:
    assert share_s(others_s) == pytest.approx(slice_s)


class Costly(HeldReads):
    """Held reads of which each takes some time."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.hands = clock

    def _look_for(self, read: HeldRead) -> None:
        self.hands.now_s += LOOK_S
        super()._look_for(read)


def test_many_held_pulls_are_woken_within_few_turns_when_turns_are_long() -> None:
    """Symptom: 1,000 held pulls waited up to 840 ms beside a flood of sends: 2 ms of each turn were
    theirs, however long a turn was."""

    async def scenario() -> None:
        state, clock = new_state(), HandClock()
        queue = state.topics["T"].queues[0]
        polls = new_polls(state, clock)
        polls.held = Costly(clock)
        askers: list[Asker] = [hold(polls, queue, "Wanted")[0] for _ in range(500)]
        send(state, "Wanted", 1)
        polls.held.wake({queue})
        turns = 1
        while not all(asker.answers for asker in askers):
            clock.now_s += 0.06  # what others do in this turn
            turns += 1
            await asyncio.sleep(0)
        assert turns < 500 * LOOK_S / SLICE_S / 5

    run(scenario())


def test_delayed_messages_are_delivered_within_few_turns_when_turns_are_long() -> None:
    """Symptom: with turns of 100 ms, 2,000 messages that were due took four seconds: 50 of them
    were delivered in each turn, however long it was."""

    async def scenario() -> None:
        clock, count = StoreClock(), TURN_COUNT_MAX * 20
        async with site(MemoryFiles(ROOT), clock) as at:
            await at.until_waiting(0)
            for number in range(count):
                at.send(f"{number}", 1)
            await at.turn()
            clock.now_ms += 1_000
            at.delays.look_soon()
            turns = 0
            while at.context.delays.waiting_count():
                clock.now_ms += 30  # what others do in this turn
                turns += 1
                await asyncio.sleep(0)
            assert turns < 12
            assert len(at.bodies()) == count

    run(scenario())
