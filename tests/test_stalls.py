"""Whose stalls excuse a late answer: the machine's, never the loop's own."""

import asyncio
import threading

import pytest

from orbitmq.world.net import run
from tests.stalls import StallWatch

LONG_S = 0.3


def watched(block_s: float) -> StallWatch:
    watch = StallWatch()

    async def main() -> None:
        async with watch:
            await asyncio.sleep(0.05)
            threading.Event().wait(block_s)
            await asyncio.sleep(0.05)

    run(main())
    return watch


def test_a_loop_that_blocks_itself_is_not_excused() -> None:
    """Symptom: a broker that waited for its disk on the loop was let off by as much."""
    watch = watched(LONG_S)
    spans = [end - begin for (begin, end), _ in watch._stalls]
    assert max(spans) >= LONG_S - 0.05, "the stall was seen"
    assert watch.longest_ms() < LONG_S * 1_000 / 2


@pytest.mark.parametrize(
    ("seen", "waited_s", "excused_ms"),
    [
        ([], 0.0, 0.0),
        ([(10.1, 10.2)], 0.0, 100.0),
        ([(9.0, 10.1), (10.4, 20.0)], 0.0, 200.0),
        ([(10.1, 10.2)], 0.25, 250.0),
        ([(9.0, 20.0)], 3.0, 500.0),
        ([(11.0, 12.0)], 0.0, 0.0),
    ],
    ids=["nobody", "inside", "both ends", "no processor", "no more than it was", "another time"],
)
def test_a_stall_is_excused_by_as_much_as_others_saw_of_it(
    seen: list[tuple[float, float]], waited_s: float, excused_ms: float
) -> None:
    watch = StallWatch()
    watch._stalls = [((10.0, 10.5), waited_s)]
    watch._seen = seen
    assert watch.longest_ms() == pytest.approx(excused_ms)
    assert watch.stalls_ms() == [pytest.approx((500.0, 500.0 - excused_ms))]
