"""What clients cost: the figures of runs, beside those of Java's client.

In: messages and CPU of a client's process. Out: rows, ratios, lines to read. Rule: a ratio is to
Java's client doing the same kind in the same run; without it there is none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.client_kinds import JAVA
from benchmarks.machine import QUIET_CORES


@dataclass(frozen=True, slots=True)
class ClientFigures:
    """What one run measured; `others_cores` is what other processes used just before it."""

    messages_per_s: float
    us_per_message: float
    others_cores: float

    @property
    def cost_us(self) -> float:
        """What rounds are compared by."""
        return self.us_per_message


@dataclass(frozen=True, slots=True)
class ClientRow:
    """One kind of use of one client."""

    kind: str
    client: str
    figures: ClientFigures

    @property
    def is_disturbed(self) -> bool:
        """Whether others used the machine."""
        return self.figures.others_cores >= QUIET_CORES


def row_of(rows: Sequence[ClientRow], kind: str, client: str) -> ClientRow | None:
    """Return one row; None when that was not measured."""
    return next((row for row in rows if (row.kind, row.client) == (kind, client)), None)


def to_java(rows: Sequence[ClientRow], row: ClientRow) -> float | None:
    """CPU per message of a row against Java's client; None for its own, and without it."""
    java = row_of(rows, row.kind, JAVA)
    if java is None or row.client == JAVA or not java.figures.us_per_message:
        return None
    return row.figures.us_per_message / java.figures.us_per_message


def client_lines(rows: Sequence[ClientRow]) -> list[str]:
    """The rows, to read."""
    return [_line(row, to_java(rows, row)) for row in rows]


def _line(row: ClientRow, ratio: float | None) -> str:
    figures = row.figures
    return (
        f"  {row.kind:<30} {row.client:<12} {figures.messages_per_s:10,.0f}/s"
        f" {figures.us_per_message:8.2f} us CPU"
        f"   to Java {'-' if ratio is None else f'{ratio:.2f}':>6}"
        f"   others {figures.others_cores:.2f}{'*' if row.is_disturbed else ''}"
    )
