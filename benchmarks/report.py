"""What one run of the benchmark found.

In: figures of every part. Out: the report as a value, and ratios within it. Rule: a ratio is of one
run; figures of different runs or machines are not comparable.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.client_figures import ClientRow
from benchmarks.delays import Delivery
from benchmarks.embedded_starts import EmbeddedStarts
from benchmarks.idle import Idle
from benchmarks.lateness import Lateness
from benchmarks.loads import Figures
from benchmarks.machine import QUIET_CORES
from benchmarks.profile import Profile
from benchmarks.scale import Scale
from benchmarks.stalls import Stalls


@dataclass(frozen=True, slots=True)
class Row:
    """One load on one server."""

    load: str
    server: str
    figures: Figures


@dataclass(frozen=True, slots=True)
class Starts:
    """How long starts took, and the memory of an idle process."""

    ready_s: tuple[float, ...]
    resident_mb: float

    @property
    def median_s(self) -> float:
        """The start in the middle of all."""
        return sorted(self.ready_s)[len(self.ready_s) // 2]


def cost_of(figures: Figures) -> float:
    """Return the CPU of the server per message."""
    return figures.server_us_per_message


@dataclass(slots=True)
class Report:
    """Everything that one run measured; what it did not measure is empty or None."""

    machine: dict[str, str | int] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    lateness: Lateness | None = None
    scale: Scale | None = None
    idle: Idle | None = None
    stalls: Stalls | None = None
    profiles: list[Profile] = field(default_factory=list)
    clients: list[ClientRow] = field(default_factory=list)
    starts: Starts | None = None
    embedded: EmbeddedStarts | None = None
    """Starts of the broker for tests."""

    def figures(self, load: str, server: str) -> Figures | None:
        """Return what a load found on a server; None when that was not measured."""
        found = (row for row in self.rows if (row.load, row.server) == (load, server))
        return next((row.figures for row in found), None)

    def ratio(
        self, load: str, server: str, base: str, of: Callable[[Figures], float] = cost_of
    ) -> float | None:
        """Return a figure of a load on a server, to that on another; None without one of them.

        A run can be too short for the kernel's clock and cost nothing; then there is no ratio.
        """
        one, other = self.figures(load, server), self.figures(load, base)
        if one is None or other is None or not of(other):
            return None
        return of(one) / of(other)

    def is_disturbed(self, load: str) -> bool:
        """Whether others used the machine under a load."""
        rows = (row for row in self.rows if row.load == load)
        return any(row.figures.others_cores >= QUIET_CORES for row in rows)
