"""How far a long command is, on standard error.

In: what is read and how much of it is done. Out: one line with a bar that is written over in a
terminal, or lines in a pipe when they were asked for. Rule: at most once a second, and nothing for
what is over before the first second.
"""

import sys
from types import TracebackType

from orbitmq.world.clock import Clock

INTERVAL_S = 1.0
BAR_WIDTH = 20


class ProgressLine:
    """Tells how far a command is."""

    def __init__(self, clock: Clock, *, is_wanted: bool) -> None:
        self._clock = clock
        self._is_terminal = sys.stderr.isatty()
        self._is_shown = is_wanted or self._is_terminal
        self._told_s = clock.monotonic_s()
        self._width = 0

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")

    def tell(self, part: str, done: int, total: int) -> None:
        """Say how far `part` is; `total` 0: nobody knows."""
        now_s = self._clock.monotonic_s()
        if not self._is_shown or now_s - self._told_s < INTERVAL_S:
            return
        self._told_s = now_s
        text = (
            f"{part}: {done:,} of {total:,} ({done / total:.0%})" if total else f"{part}: {done:,}"
        )
        if self._is_terminal:
            text = f"{_bar(done / total)} {text}" if total else text
            sys.stderr.write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            sys.stderr.write(text + "\n")
        sys.stderr.flush()


def _bar(share: float) -> str:
    """Draw a part of a whole.

    >>> _bar(0.25)
    '[#####...............]'
    """
    full = round(min(1.0, share) * BAR_WIDTH)
    return f"[{'#' * full}{'.' * (BAR_WIDTH - full)}]"
