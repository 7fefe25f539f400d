"""The parts of a run: each starts its servers, measures, and puts what it found into the report.

In: a plan, the generator, a folder. Out: a filled report. Rules:

1. The servers of a part run side by side and every load goes round them, several rounds, so that a
   slow minute of the machine hits all of them. Of the rounds that nobody disturbed, the one with
   the median CPU per message counts.
2. An original is warmed up first: its compiler needs some twenty seconds of load.
3. Servers that wait for the disk before they answer run after the others have ended, and only
   under the loads for them.
4. Between loads the brokers remove log files that are full, once no pulls are to come, which read
   old ones. A part's files go with it.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import (
    client_runs,
    delays,
    embedded_starts,
    filtered,
    idle,
    lateness,
    peers,
    profile,
    scale,
    servers,
    stalls,
)
from benchmarks.delays import Delivery
from benchmarks.loads import ALONE, FIRST, PULL, SQL, Figures, Generator, Load, pull_end_after
from benchmarks.machine import resident_mb
from benchmarks.plan import Plan
from benchmarks.report import Report, Row, Starts
from benchmarks.rounds import Rounds, say, typical
from benchmarks.servers import BARE, NATS, ORIGINAL, OURS, PLAIN, REDIS, Server

IDLE_S = 1.0
"""An idle process is looked at after this long: what it does at the start is then done."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the programme."""

    plan: Plan
    generator: Generator
    cpu: int | None
    """Where the servers run."""
    present: frozenset[str]
    """The servers that can be had here."""
    loads: Sequence[Load]
    sync_loads: Sequence[Load]
    rounds: Rounds
    report: Report

    @property
    def parts(self) -> Mapping[str, Callable[[Path], None]]:
        """What a run consists of, in its order; each gets a folder for itself."""
        return {
            "starts": self.measure_starts,
            "loads": self.measure_loads,
            "sync": self.measure_sync,
            "scale": self.measure_scale,
            "stalls": self.measure_stalls,
            "profiles": self.measure_profiles,
            "clients": self.measure_clients,
        }

    def measure(self, names: Sequence[str]) -> None:
        """Measure the parts with these names."""
        for name, part in self.parts.items():
            if name in names:
                with TemporaryDirectory(prefix="orbitmq-bench-", ignore_cleanup_errors=True) as it:
                    part(Path(it))

    # --- parts ---

    def measure_starts(self, folder: Path) -> None:
        """Start and stop `orbitmq up` a few times, each with a new folder; and test brokers."""
        say("starts")
        ready_s, resident = [], 0.0
        for number in range(self.plan.starts):
            with servers.ours(folder / str(number), self.cpu) as server:
                ready_s.append(server.ready_s)
                time.sleep(IDLE_S)
                resident = resident_mb(server.pids[0])
        self.report.starts = Starts(tuple(ready_s), resident)
        self.report.embedded = embedded_starts.measure(folder / "compiled", self.plan.starts)

    def measure_loads(self, folder: Path) -> None:
        """Put every load on its servers; then delayed messages on the brokers."""
        with self._running(folder, self.loads) as running:
            self._measure_all(self.loads, running, self.plan.warm_up_s)
            brokers = [server for server in running if server.name in (OURS, ORIGINAL)]
            self._measure_delays(brokers)
            for server in brokers[:1]:
                say(f"delayed messages under load: {server.name}")
                self.rounds.prepare(self.plan.late.arrival_s)
                self.report.lateness = lateness.measure(server, self.generator, self.plan.late)

    def measure_sync(self, folder: Path) -> None:
        """Put the loads whose answers wait for the disk on their servers."""
        with self._running(folder, self.sync_loads, is_sync=True) as running:
            self._measure_all(self.sync_loads, running, self.plan.warm_up_s / 2)

    def measure_scale(self, folder: Path) -> None:
        """Many topics, then many idle connections, each beside a broker without them."""
        plan, generator = self.plan, self.generator
        with servers.ours(folder / "few", self.cpu) as few:
            with servers.ours(folder / "many", self.cpu) as many:
                self.report.scale = scale.measure(
                    few, many, generator, self.rounds, plan.topics, plan.topics_fill_s
                )
            self.report.idle = idle.measure(
                few, generator, self.rounds, plan.connections, plan.silence_s
            )

    def measure_stalls(self, folder: Path) -> None:
        """Watch the loop under full load."""
        say(f"stalls in {self.plan.stall_s:g} s of full load")
        self.rounds.prepare(self.plan.stall_s)
        self.report.stalls = stalls.measure(folder / "stalls", self.generator, self.plan.stall_s)

    def measure_profiles(self, folder: Path) -> None:
        """Say where the time of two loads goes."""
        generator = replace(self.generator, seconds=self.plan.profile_s)
        for number, load in enumerate((FIRST, ALONE)):
            found = profile.measure(load, folder / str(number), self.cpu, generator)
            self.report.profiles.append(found)

    def measure_clients(self, folder: Path) -> None:
        """Put the clients to work."""
        plan = self.plan.clients
        plan = replace(plan, has_java=plan.has_java and ORIGINAL in self.present)
        found = client_runs.measure(plan, folder / "clients", self.rounds, self.plan.seconds)
        self.report.clients = found

    # --- servers ---

    @contextmanager
    def _running(
        self, folder: Path, loads: Sequence[Load], *, is_sync: bool = False
    ) -> Iterator[list[Server]]:
        """Start the servers that these loads ask, as far as they can be had here."""
        cpu = self.cpu
        start: dict[str, Callable[[Path], AbstractContextManager[Server]]] = {
            BARE: lambda at: servers.bare(at, cpu),
            OURS: lambda at: servers.ours(at, cpu, is_sync=is_sync),
            PLAIN: lambda at: servers.ours(at, cpu, is_sync=is_sync, is_plain=True),
            REDIS: lambda at: peers.redis(at, cpu, is_sync=is_sync),
            NATS: lambda at: peers.nats(at, cpu),
            ORIGINAL: lambda at: servers.original(at, is_sync=is_sync),
        }
        wanted = {name for load in loads for name in load.servers} & self.present
        with ExitStack() as stack:
            running = []
            for number, name in enumerate(one for one in start if one in wanted):
                say(f"starting {name}")
                running.append(stack.enter_context(start[name](folder / str(number))))
            yield running

    # --- loads ---

    def _measure_all(
        self, loads: Sequence[Load], running: Sequence[Server], warm_up_s: float
    ) -> None:
        pull_ends = self._fill(running, warm_up_s)
        for number, load in enumerate(loads):
            asked = [server for server in running if server.name in load.servers]
            with _prepared(load, asked):
                self._measure_load(load, asked, pull_ends)
            for server in asked if may_remove(loads, number) else ():
                if server.namesrv:
                    stalls.remove_full_logs(server)

    def _fill(self, running: Sequence[Server], warm_up_s: float) -> dict[str, int]:
        """Fill the queues that pulls read, load an original until its compiler is done.

        Return how far each server's queues are filled.
        """
        pull_ends = {}
        for server in running:
            seconds = warm_up_s if server.name == ORIGINAL else self.generator.seconds
            say(f"filling {server.name}, {seconds:.1f} s")
            sends = replace(self.generator, seconds=seconds)
            pull_end = pull_ends[server.name] = pull_end_after(sends.run(server, FIRST), seconds)
            if server.name == ORIGINAL:
                replace(sends, seconds=seconds / 2).run(server, PULL, pull_end)
        return pull_ends

    def _measure_load(
        self, load: Load, asked: Sequence[Server], pull_ends: Mapping[str, int]
    ) -> None:
        generator = replace(self.generator, seconds=self.generator.seconds * load.share)
        found: dict[str, list[Figures]] = {server.name: [] for server in asked}
        writing_s = 0.0 if load.is_pull else generator.warm_up_s + generator.seconds
        for round_ in range(self.rounds.each):
            for server in asked:
                say(f"{load.name}: {server.name}, round {round_ + 1} of {self.rounds.each}")
                used = self.rounds.prepare(writing_s)
                pull_end = filtered.PULL_END if load is SQL else pull_ends[server.name]
                found[server.name].append(generator.run(server, load, pull_end, used))
        self.report.rows += [Row(load.name, name, typical(one)) for name, one in found.items()]

    def _measure_delays(self, brokers: Sequence[Server]) -> None:
        bursts: dict[str, list[Delivery]] = {server.name: [] for server in brokers}
        for burst in range(self.plan.bursts):
            for server in brokers:
                say(f"delayed messages: {server.name}, burst {burst + 1} of {self.plan.bursts}")
                used = self.rounds.prepare(2 * self.plan.burst_s)
                one = delays.measure(server, self.generator, used, self.plan.burst_s)
                bursts[server.name].append(one)
        for found in bursts.values():
            self.report.deliveries.append(min(found, key=lambda one: one.us_per_message))


def may_remove(loads: Sequence[Load], number: int) -> bool:
    """Whether old messages may go after one of the loads: no pull is to come."""
    return not any(load.is_pull for load in loads[number + 1 :])


@contextmanager
def _prepared(load: Load, asked: Sequence[Server]) -> Iterator[None]:
    """Filtered pulls need messages with properties, and a group that has subscribed."""
    with ExitStack() as stack:
        for server in asked if load is SQL else ():
            stack.enter_context(filtered.filtered(server))
        yield
