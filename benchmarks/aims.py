"""What is aimed at, as ratios within one run, and whether a run reached it.

In: a report. Out: the aims with what was found. Rule: an aim that was not measured is not met and
not missed; it says so.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks import loads
from benchmarks.client_figures import row_of, to_java
from benchmarks.client_kinds import ASYNCIO, PIPELINED, PUSH
from benchmarks.loads import Figures, Load
from benchmarks.report import Report, cost_of
from benchmarks.servers import BARE, NATS, ORIGINAL, OURS, PLAIN, REDIS
from benchmarks.stalls import LONG_MS


@dataclass(frozen=True, slots=True)
class Aim:
    """What is aimed at, the limit, and what was found; None when that was not measured."""

    name: str
    limit: float
    found: float | None
    unit: str = ""
    is_least: bool = False
    """Whether more is better."""
    is_disturbed: bool = False

    @property
    def aimed_at(self) -> str:
        """The limit in words."""
        return f"{'at least' if self.is_least else 'at most'} {self.limit:g}{self.unit}"

    @property
    def verdict(self) -> str:
        """Whether it is met, in a word or two."""
        if self.found is None:
            return "not measured"
        is_met = self.found >= self.limit if self.is_least else self.found <= self.limit
        verdict = "met" if is_met else "not met"
        return f"{verdict}, but others disturbed it" if self.is_disturbed else verdict


Of = Callable[[Figures], float]


@dataclass(frozen=True, slots=True)
class LoadAim:
    """A figure of OrbitMQ under a load, to that of another server."""

    load: Load
    base: str
    limit: float
    what: str = "CPU"
    of: Of = cost_of
    is_least: bool = False
    server: str = OURS

    def judge(self, report: Report) -> Aim:
        """Say what the report has of it."""
        load, server = self.load.name, self.server
        note = ", plain core" if server == PLAIN else ""
        if server == PLAIN and report.machine.get("core") == "plain":
            server = OURS  # which is the plain one then
        return Aim(
            f"{load}{note}: {self.what}, to {self.base}",
            self.limit,
            report.ratio(load, server, self.base, self.of),
            is_least=self.is_least,
            is_disturbed=report.is_disturbed(load),
        )


def _half(figures: Figures) -> float:
    return figures.p50_us


def _rate(figures: Figures) -> float:
    return figures.messages_per_s


def _faster(load: Load, base: str, limit: float) -> LoadAim:
    return LoadAim(load, base, limit, "messages a second", _rate, is_least=True)


LOAD_AIMS = (
    LoadAim(loads.FIRST, BARE, 1.7),
    LoadAim(loads.ONE_EACH, BARE, 1.5),
    LoadAim(loads.ALONE, BARE, 2.5),
    LoadAim(loads.ALONE, BARE, 1.8, "half of the answers", _half),
    LoadAim(loads.SMALL, BARE, 1.8),
    LoadAim(loads.BATCH, BARE, 2.5),
    LoadAim(loads.PULL, BARE, 1.6),
    _faster(loads.FIRST, REDIS, 2.5),
    _faster(loads.FIRST, NATS, 2.5),
    _faster(loads.SYNC, REDIS, 1.5),
    LoadAim(loads.SQL, ORIGINAL, 0.7),
    LoadAim(loads.FIRST, ORIGINAL, 0.6, server=PLAIN),
)


def aims(report: Report) -> list[Aim]:
    """Return all aims, with what this run says to them."""
    return [*(aim.judge(report) for aim in LOAD_AIMS), *_of_work(report), *_of_the_process(report)]


def _of_work(report: Report) -> Iterator[Aim]:
    costs = {one.server: one.us_per_message for one in report.deliveries}
    ratio = costs[OURS] / costs[ORIGINAL] if {OURS, ORIGINAL} <= set(costs) else None
    yield Aim("delivery of delayed messages: CPU, to the original", 0.6, ratio)
    for kind in (PIPELINED, PUSH):
        row = row_of(report.clients, kind.name, ASYNCIO)
        found = None if row is None else to_java(report.clients, row)
        is_disturbed = row is not None and row.is_disturbed
        name = f"client, {kind.name}: CPU, to the Java client"
        yield Aim(name, kind.aim or 0.0, found, is_disturbed=is_disturbed)
    scale, idle = report.scale, report.idle
    name = f"{scale.topic_count:,} topics of 8 queues" if scale else "many topics"
    yield Aim(f"{name}: CPU, to one topic", 1.5, scale.ratio if scale else None)
    name = f"{idle.count:,} idle connections" if idle else "idle connections"
    yield Aim(f"{name} beside the load: CPU, to none", 1.1, idle.ratio if idle else None)


def _of_the_process(report: Report) -> Iterator[Aim]:
    stalls, late, starts = report.stalls, report.lateness, report.starts
    name = f"the longest stall of the loop in {stalls.seconds if stalls else 60:g} s of full load"
    yield Aim(name, LONG_MS, stalls.longest_own_ms if stalls else None, " ms")
    name = "delayed messages beside full load: the latest"
    yield Aim(name, 100, late.by_records.greatest_ms if late else None, " ms")
    yield Aim("start to ready line", 1, starts.median_s if starts else None, " s")
    yield Aim("memory, idle", 100, starts.resident_mb if starts else None, " MB")
    embedded = report.embedded
    name = "a start of the broker for tests"
    yield Aim(name, 300, embedded.again_ms if embedded else None, " ms")
