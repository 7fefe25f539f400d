"""What the store counts about itself, for metrics and for the tools that ask a broker how it is.

In: one call per write. Out: totals, and how long writes took, in the original's steps.
Rule: counting costs the hot path one call a turn, not one a message.
"""

from bisect import bisect_left

PUT_STEPS_MS = (0, 10, 50, 100, 200, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 10_000)
PUT_STEP_NAMES = (
    "[<=0ms]",
    "[0~10ms]",
    "[10~50ms]",
    "[50~100ms]",
    "[100~200ms]",
    "[200~500ms]",
    "[500ms~1s]",
    "[1~2s]",
    "[2~3s]",
    "[3~4s]",
    "[4~5s]",
    "[5~10s]",
    "[10s~]",
)
"""As the original names them; a write of exactly 10 ms is in [0~10ms]."""

_US_BITS_MAX = 32
"""Writes of more than an hour count as ones of an hour."""


class StoreStats:
    """Counters since the store was opened."""

    def __init__(self) -> None:
        self.put_count = 0
        self.put_bytes = 0
        self.put_failures = 0
        """Turns whose write was refused."""
        self.put_ms_max = 0
        self.last_put_s = 0.0
        """How long the last write took."""
        self.put_counts = [0] * len(PUT_STEP_NAMES)
        self.put_counts_us = [0] * (_US_BITS_MAX + 1)
        """Messages by the bits of the microseconds that their write took."""

    def count_puts(self, count: int, size: int, took_s: float) -> None:
        """Count the messages of one write and how long it took."""
        self.last_put_s = took_s
        took_us = int(took_s * 1_000_000)
        took_ms = took_us // 1000
        self.put_counts_us[min(took_us.bit_length(), _US_BITS_MAX)] += count
        self.put_count += count
        self.put_bytes += size
        if took_ms > self.put_ms_max:
            self.put_ms_max = took_ms
        self.put_counts[bisect_left(PUT_STEPS_MS, took_ms) if took_ms else 0] += count

    def put_times(self) -> str:
        """Return the distribution of put times as the original's runtime info prints it."""
        pairs = zip(PUT_STEP_NAMES, self.put_counts, strict=True)
        return "".join(f"{name}:{count} " for name, count in pairs)
