"""How long a connection has been doing what it does, as the sweep sees it.

In: counts that a connection raises while it moves bytes, and the time of each sweep. Out: the
reason to end the connection, or None.

Rule: a state is timed from the first sweep that sees it, so no clock is read while bytes move. It
is noticed late by one sweep at most.
"""

from orbitmq.net.limits import Limits


class Pace:
    """The counts of one connection and what the last sweep saw of them."""

    __slots__ = (
        "_began_s",
        "_born_s",
        "_drains_seen",
        "_frames_seen",
        "_has_deadline",
        "_moved_s",
        "_moves_seen",
        "_undrained_s",
        "drains",
        "frames",
        "moves",
    )

    def __init__(self, born_s: float, *, first_frame_is_due: bool) -> None:
        self.moves = 0
        """Reads and writes so far."""
        self.frames = 0
        """Reads so far that ended a frame."""
        self.drains = 0
        """Times so far that the peer took what it had left unread."""
        self._born_s = born_s
        self._has_deadline = first_frame_is_due
        self._moves_seen = 0
        self._moved_s = born_s
        self._frames_seen = 0
        self._began_s = born_s
        self._drains_seen = 0
        self._undrained_s: float | None = None

    def overdue(
        self, now_s: float, limits: Limits, *, has_begun_frame: bool, is_undrained: bool
    ) -> str | None:
        """Return the limit that the connection has passed, if any.

        `has_begun_frame`: a part of a frame has been read; `is_undrained`: too much of our output
        is unsent, and nothing is read until it is sent.
        """
        if is_undrained:
            self._moved_s = now_s
            if self._undrained_s is None or self._drains_seen != self.drains:
                self._drains_seen = self.drains
                self._undrained_s = now_s
            return "slow-reader" if now_s - self._undrained_s > limits.blocked_s else None
        self._undrained_s = None
        if self._moves_seen != self.moves:
            self._moves_seen = self.moves
            self._moved_s = now_s
        if not has_begun_frame or self._frames_seen != self.frames:
            self._frames_seen = self.frames
            self._began_s = now_s
        if self._has_deadline and self.frames == 0 and now_s - self._born_s > limits.first_frame_s:
            return "first-frame-timeout"
        if now_s - self._began_s > limits.begun_frame_s:
            return "frame-timeout"
        return "idle" if now_s - self._moved_s > limits.idle_s else None
