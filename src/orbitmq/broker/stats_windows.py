"""How much totals grew in the last minute, hour and day.

In: totals, sampled at even intervals. Out: growth, growth a second, growth each time.

Rules:
1. As in the original: a sample each 10 s for the minute, each 10 min for the hour, each hour for
   the day. A figure shows in a window from the window's first sample on, and no sooner.
2. A series begins at zero one interval before its first sample, unless it is told otherwise.
3. Samples are bounded: 7, 7 and 25 of them. Totals that stay the same are kept once.
"""

from typing import NamedTuple

from orbitmq.broker.counts import ZERO, Totals
from orbitmq.wire.bodies_runtime import BrokerStatsData, WindowFigures

SAMPLE_S = 10
"""How often a series is sampled."""


class Span(NamedTuple):
    """A window: how many samplings lie between two of its samples, and how many it keeps."""

    every: int
    length: int


MINUTE, HOUR, DAY = SPANS = (Span(1, 7), Span(60, 7), Span(360, 25))


class _Ring:
    """The samples of one window."""

    __slots__ = ("times_ms", "totals")

    def __init__(self) -> None:
        self.times_ms: list[int] = []
        self.totals: list[Totals] = []

    def add(self, span: Span, now_ms: int, totals: Totals) -> None:
        if not self.totals:
            self.times_ms.append(now_ms - span.every * SAMPLE_S * 1000)
            self.totals.append(ZERO)
        elif totals == self.totals[-1]:
            totals = self.totals[-1]
        self.times_ms.append(now_ms)
        self.totals.append(totals)
        del self.times_ms[: -span.length]
        del self.totals[: -span.length]

    def figures(self, place: int) -> WindowFigures:
        if not self.totals:
            return WindowFigures()
        first, last = self.totals[0], self.totals[-1]
        grown, times = last[place] - first[place], last.times - first.times
        took_ms = self.times_ms[-1] - self.times_ms[0]
        return WindowFigures(
            grown,
            grown * 1000 / took_ms if took_ms > 0 else 0.0,
            grown / times if times else 0.0,
        )


class Series:
    """One thing's totals over the last minute, hour and day."""

    __slots__ = ("_rings",)

    def __init__(self) -> None:
        self._rings = tuple(_Ring() for _ in SPANS)

    def sample(self, number: int, now_ms: int, totals: Totals) -> None:
        """Take in the totals at sampling `number`; smaller ones than before begin it anew."""
        minute = self._rings[0].totals
        if minute and totals.messages < minute[-1].messages:
            self._rings = tuple(_Ring() for _ in SPANS)
        for span, ring in zip(SPANS, self._rings, strict=True):
            if number % span.every == 0:
                ring.add(span, now_ms, totals)

    @property
    def is_idle(self) -> bool:
        """Whether nothing was added for a day and longer."""
        totals = self._rings[-1].totals
        return len(totals) == DAY.length and totals[0] == self._rings[0].totals[-1]

    def view(self, place: int) -> BrokerStatsData:
        """Return the growth of one of the totals, by its place."""
        return BrokerStatsData(*(ring.figures(place) for ring in self._rings))
