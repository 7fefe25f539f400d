"""Reports of failures that repeat: a full disk must not fill a log as well.

In: each failure, as it happens. Out: a log line at once, and from then on one in PERIOD_S at most,
which says how many were left out before it.
"""

import logging

from orbitmq.world.clock import Clock

PERIOD_S = 10.0


class RepeatedFailure:
    """One kind of failure."""

    def __init__(self, log: logging.Logger, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._next_s: float | None = None
        self._left_out = 0

    def report(self, text: str) -> None:
        """Take in a failure; it is logged unless one of its kind was reported a moment ago."""
        now_s = self._clock.monotonic_s()
        if self._next_s is not None and now_s < self._next_s:
            self._left_out += 1
            return
        more = f" ({self._left_out} more such lines were left out)" if self._left_out else ""
        self._log.error("%s%s", text, more)
        self._next_s, self._left_out = now_s + PERIOD_S, 0
