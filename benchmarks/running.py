"""Puts every load on every server, in turn, and takes the typical round of each.

In: a plan, the generator, a folder. Out: rows of loads, deliveries of delayed messages and how late
they were, idle connections, and how many rounds others disturbed. Rules:

1. The servers run side by side and every load goes round them, several rounds, so that a slow
   minute of the machine hits all of them. Of the rounds that nobody disturbed, the one with the
   median CPU per message counts.
2. The original is warmed up first: its compiler needs some twenty seconds of load.
3. Servers that wait for the disk before they answer run after the others have ended, and only
   under the loads for them.
4. Runs of loads without an aim are half as long, and without the bare loop.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks import delays, filtered, idle, lateness, servers
from benchmarks.delays import Delivery
from benchmarks.idle import Idle
from benchmarks.lateness import Lateness
from benchmarks.loads import FIRST, PULL, SQL, WARM_UP_S, Figures, Generator, Load, pull_end_after
from benchmarks.machine import QUIET_CORES, await_quiet, touch_free_memory
from benchmarks.plan import Plan
from benchmarks.report import Row
from benchmarks.rounds import say, typical
from benchmarks.servers import BARE, ORIGINAL, Server

UNAIMED_SHARE = 0.5


@dataclass(slots=True)
class Found:
    """What was measured."""

    rows: list[Row] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    lateness: list[Lateness] = field(default_factory=list)
    idle: list[Idle] = field(default_factory=list)
    round_count: int = 0
    disturbed_count: int = 0

    def note_round(self, others_cores: float) -> None:
        """Count a round, and whether others used the machine just before it."""
        self.round_count += 1
        self.disturbed_count += others_cores >= QUIET_CORES


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the programme on its servers."""

    plan: Plan
    generator: Generator
    folder: Path
    core: int | None
    has_original: bool

    def measure(self, found: Found) -> None:
        """Measure what the plan names."""
        with self._servers(is_sync=False) as running:
            pull_ends = self._warm_up(running, self.plan.warm_up_s)
            brokers = [server for server in running if server.name != BARE]
            for load in self.plan.loads:
                asked = brokers if load.aim is None else running
                with _prepared(load, asked):
                    found.rows += self._measure_load(load, asked, pull_ends, found)
            self._measure_delays(brokers, found)
            self._measure_lateness(brokers, found)
            if self.plan.connections:
                found.idle += [self._measure_idle(server) for server in brokers]
        if self.plan.sync_loads:
            self._measure_sync(found)

    def _measure_sync(self, found: Found) -> None:
        with self._servers(is_sync=True) as running:
            pull_ends = self._warm_up(running, self.plan.warm_up_s / 2)
            for load in self.plan.sync_loads:
                found.rows += self._measure_load(load, running, pull_ends, found)

    @contextmanager
    def _servers(self, *, is_sync: bool) -> Iterator[Sequence[Server]]:
        folder = self.folder / ("sync" if is_sync else "async")
        with ExitStack() as stack:
            running = []
            if self.plan.has_bare and not is_sync:
                running.append(stack.enter_context(servers.bare(folder / "bare", self.core)))
            ours = servers.ours(folder / "ours", self.core, is_sync=is_sync)
            running.append(stack.enter_context(ours))
            if self.has_original:
                say("starting the original" + (" with SYNC_FLUSH" if is_sync else ""))
                original = servers.original(folder / "original", is_sync=is_sync)
                running.append(stack.enter_context(original))
            yield running

    def _warm_up(self, running: Sequence[Server], seconds: float) -> dict[str, int]:
        """Load an original until its compiler is done; return how far its queues are filled."""
        pull_ends = {}
        for server in running:
            if server.name == ORIGINAL:
                say(f"warming up {server.name}, {1.5 * seconds:.0f} s")
                sends = replace(self.generator, seconds=seconds)
                pull_end = pull_end_after(sends.run(server, FIRST, 0, 0.0), seconds)
                replace(sends, seconds=seconds / 2).run(server, PULL, pull_end, 0.0)
                pull_ends[server.name] = pull_end
        return pull_ends

    def _measure_load(
        self, load: Load, asked: Sequence[Server], pull_ends: dict[str, int], found: Found
    ) -> list[Row]:
        share = UNAIMED_SHARE if load.aim is None else 1.0
        generator = replace(self.generator, seconds=self.generator.seconds * share)
        rounds: dict[str, list[Figures]] = {server.name: [] for server in asked}
        for round_ in range(self.plan.rounds):
            for server in asked:
                say(f"{load.name}: {server.name}, round {round_ + 1} of {self.plan.rounds}")
                run_s = generator.seconds + WARM_UP_S
                used = self._prepare(found, writing_s=0.0 if load.is_pull else run_s)
                pull_end = filtered.PULL_END if load is SQL else pull_ends.get(server.name, 0)
                figures = generator.run(server, load, pull_end, used)
                pull_ends.setdefault(server.name, pull_end_after(figures, generator.seconds))
                rounds[server.name].append(figures)
        return [Row(load.name, name, typical(one), load.aim) for name, one in rounds.items()]

    def _prepare(self, found: Found, writing_s: float) -> float:
        """Make a round ready that writes for so long; return the cores that others use."""
        if writing_s:
            touch_free_memory(writing_s)
        used = await_quiet(self.plan.quiet_limit_s)
        found.note_round(used)
        return used

    def _measure_delays(self, brokers: Sequence[Server], found: Found) -> None:
        bursts: dict[str, list[Delivery]] = {server.name: [] for server in brokers}
        for burst in range(self.plan.bursts):
            for server in brokers:
                say(f"delayed messages: {server.name}, burst {burst + 1} of {self.plan.bursts}")
                used = self._prepare(found, 2 * (self.plan.burst_s + WARM_UP_S))
                one = delays.measure(server, self.generator, used, self.plan.burst_s)
                bursts[server.name].append(one)
        for found_bursts in bursts.values():
            if found_bursts:
                found.deliveries.append(min(found_bursts, key=lambda one: one.us_per_message))

    def _measure_lateness(self, brokers: Sequence[Server], found: Found) -> None:
        plan = self.plan.late
        if plan is None:
            return
        for server in brokers:
            say(f"delayed messages under load: {server.name}")
            self._prepare(found, plan.arrival_s)
            found.lateness.append(lateness.measure(server, self.generator, plan))

    def _measure_idle(self, server: Server) -> Idle:
        say(f"{self.plan.connections:,} idle connections: {server.name}")
        return idle.measure(server, self.plan.connections, self.plan.silence_s)


@contextmanager
def _prepared(load: Load, asked: Sequence[Server]) -> Iterator[None]:
    """Filtered pulls need messages with properties, and a group that has subscribed."""
    with ExitStack() as stack:
        for server in asked if load is SQL else ():
            stack.enter_context(filtered.filtered(server))
        yield
