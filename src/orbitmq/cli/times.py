"""Times as people write and read them.

In: `-10m`, `now`, `2026-11-15T18:00`, or ms since 1970. Out: ms since 1970, and the other way
round in the machine's zone.
Rule: a time without a zone is local.
"""

import argparse
import re
from datetime import UTC, datetime

from orbitmq.world.clock import SystemClock

AGO = re.compile(r"-(\d+(?:\.\d+)?)([smhdw])")
NEGATIVE = re.compile(r"^-\d+$|^-\d*\.\d+$|^-\d+(\.\d+)?[smhdw]$")
"""What argparse is to take for a value although it begins like an option."""

SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
DIGITS_MIN = 9
"""Nobody means a time in ms by a number of fewer digits."""

FORMS = "-10m (s, m, h, d, w ago), now, 2026-11-15T18:00, or ms since 1970"
HELP = f"a time: {FORMS}"
ENDS = ("earliest", "latest")
"""The ends of a topic, for commands that take a time or one of these."""


def place(text: str) -> str | int:
    """Read one of ENDS or a time; raises ArgumentTypeError for anything else."""
    if text in ENDS:
        return text
    return _time_ms(text, f"{', '.join(ENDS)}, {FORMS}")


def time_ms(text: str) -> int:
    """Read a time; raises ArgumentTypeError for anything else."""
    return _time_ms(text, FORMS)


def _time_ms(text: str, forms: str) -> int:
    now_ms = SystemClock().wall_ms()
    ago = AGO.fullmatch(text)
    if ago is not None:
        return max(0, now_ms - round(float(ago[1]) * SECONDS[ago[2]] * 1000))
    if text == "now":
        return now_ms
    if text.isascii() and text.isdigit() and len(text) >= DIGITS_MIN:
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is not valid; write {forms}") from None


def take_times(parser: argparse.ArgumentParser) -> None:
    """Let a parser take `-10m` behind an option for its value."""
    parser._negative_number_matcher = NEGATIVE  # noqa: SLF001 - argparse has no public way


def time_text(at_ms: int) -> str:
    """Return a time as a person reads it, in the machine's zone; empty for 0.

    Seconds are always there, so that times sort as text.
    """
    if at_ms <= 0:
        return ""
    at = datetime.fromtimestamp(at_ms / 1000, UTC).astimezone()
    return f"{at:%Y-%m-%d %H:%M:%S}.{at_ms % 1000:03d}"


def span_text(span_ms: float) -> str:
    """Return a span of time as a person reads it.

    >>> span_text(93_000)
    '1m33s'
    """
    seconds = round(span_ms / 1000)
    parts = []
    for letter in "dhm":
        count, seconds = divmod(seconds, SECONDS[letter])
        if count:
            parts.append(f"{count}{letter}")
    parts.append(f"{seconds}s" if seconds or not parts else "")
    return "".join(parts[:2])
