"""`make bench`: what a message costs here, beside a bare loop and beside the original.

In: options. Out: one table on standard output, progress on standard error, JSON with --json; exit
code 0 when everything ran. Rules:

1. All servers run side by side and every load goes round them in turn, several rounds, so that a
   slow minute of the machine hits all of them. Of the rounds that nobody disturbed, the one with
   the median CPU per message counts.
2. The original is warmed up first: its compiler needs some twenty seconds of load.
3. Synchronous flush is measured with the first load only: it is the disk that it measures.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import in_process, many_messages, many_queues, servers, store_bench
from benchmarks.loads import (
    FIRST,
    LOADS,
    PULL,
    QUICK_LOADS,
    Figures,
    Generator,
    Load,
    LoadFailed,
    build_generator,
    pull_end_after,
)
from benchmarks.machine import QUIET_CORES, await_quiet, cores, resident_mb, touch_free_memory
from benchmarks.report import Report, Row, Start, to_json, to_text
from benchmarks.servers import OURS_SYNC, Server, ServerFailed
from benchmarks.store_bench import StorePlan

IDLE_S = 1.0
"""An idle process is looked at after this long: what it does at the start is then done."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    loads: Sequence[Load]
    rounds: int
    starts: int
    quiet_limit_s: float
    warm_up_s: float
    core_repetitions: int
    core_repetition_s: float
    store: StorePlan
    queues: int
    messages: int


WHOLE = Plan(
    loads=LOADS,
    rounds=3,
    starts=5,
    quiet_limit_s=10.0,
    warm_up_s=20.0,
    core_repetitions=in_process.REPETITIONS,
    core_repetition_s=in_process.REPETITION_S,
    store=store_bench.WHOLE,
    queues=many_queues.QUEUE_COUNT,
    messages=many_messages.MESSAGE_COUNT,
)
QUICK = Plan(
    loads=QUICK_LOADS,
    rounds=1,
    starts=1,
    quiet_limit_s=0.0,
    warm_up_s=3.0,
    core_repetitions=2,
    core_repetition_s=0.02,
    store=store_bench.QUICK,
    queues=80,
    messages=2_000,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and give the exit code."""
    options = _options(arguments)
    try:
        report = _measure(QUICK if options.quick else WHOLE, options)
    except (LoadFailed, ServerFailed) as failed:
        print(f"benchmarks: {failed}", file=sys.stderr)
        return 1
    print(to_text(report), end="")
    if options.json is not None:
        options.json.write_text(json.dumps(to_json(report), indent=1) + "\n", encoding="utf-8")
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each run (2)")
    parser.add_argument("--quick", action="store_true", help="few loads, one round: does it run?")
    parser.add_argument(
        "--original",
        action=argparse.BooleanOptionalAction,
        help="compare with the original (when Java and Maven are installed)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report there")
    return parser.parse_args(arguments)


def _measure(plan: Plan, options: argparse.Namespace) -> Report:
    server_core, generator_core = cores()
    generator = Generator(build_generator(), generator_core, options.seconds)
    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        _say("the core, in process")
        core = in_process.measure(plan.core_repetitions, plan.core_repetition_s)
        _say("the store, in process")
        store = store_bench.measure(folder, plan.store)
        _say(f"a store with {plan.queues:,} queues")
        many = many_queues.measure(folder / "queues", plan.queues)
        _say(f"a store with {plan.messages:,} messages")
        many += many_messages.measure(folder / "messages", plan.messages)
        _say("starts")
        start = _measure_start(folder, server_core, plan.starts)
        with _all_servers(folder, server_core, with_original=_wants_original(options)) as running:
            rows = _measure_loads(plan, generator, running)
    return Report(_machine(generator_core), core, start, rows, store, many)


def _wants_original(options: argparse.Namespace) -> bool:
    missing = servers.missing_for_original()
    if options.original and missing:
        raise ServerFailed(f"--original needs {' and '.join(missing)}; install, or leave it out")
    if options.original is None and missing:
        _say(f"without the original: {' and '.join(missing)} not installed")
    return not missing if options.original is None else bool(options.original)


def _measure_start(folder: Path, core: int | None, count: int) -> Start:
    """Start and stop `orbitmq up` a few times, each with a new folder."""
    ready_s = []
    for number in range(count):
        with servers.ours(folder / f"start-{number}", core) as server:
            ready_s.append(server.ready_s)
            time.sleep(IDLE_S)
            resident = resident_mb(server.pids[0])
    return Start(tuple(ready_s), resident)


@contextmanager
def _all_servers(
    folder: Path, core: int | None, *, with_original: bool
) -> Iterator[Sequence[Server]]:
    with ExitStack() as stack:
        running = [stack.enter_context(servers.bare(folder / "bare", core))]
        running.append(stack.enter_context(servers.ours(folder / "ours", core)))
        running.append(stack.enter_context(servers.ours(folder / "sync", core, is_sync=True)))
        if with_original:
            _say("starting the original")
            running.append(stack.enter_context(servers.original(folder / "original")))
        yield running


def _measure_loads(plan: Plan, generator: Generator, running: Sequence[Server]) -> list[Row]:
    pull_ends: dict[str, int] = {}
    for server in running:
        if server.name == servers.ORIGINAL:
            pull_ends[server.name] = _warm_up(server, generator, plan.warm_up_s)
    rows = []
    for load in plan.loads:
        asked = [server for server in running if load is FIRST or server.name != OURS_SYNC]
        found: dict[str, list[Figures]] = {server.name: [] for server in asked}
        for round_ in range(plan.rounds):
            for server in asked:
                _say(f"{load.name}: {server.name}, round {round_ + 1} of {plan.rounds}")
                touch_free_memory()
                used = await_quiet(plan.quiet_limit_s)
                pull_end = pull_ends.get(server.name, 0)
                figures = generator.run(server, load, pull_end, used)
                pull_ends.setdefault(server.name, pull_end_after(figures, generator.seconds))
                found[server.name].append(figures)
        rows += [Row(load.name, name, typical(figures)) for name, figures in found.items()]
    return rows


def _warm_up(server: Server, generator: Generator, seconds: float) -> int:
    """Load a server until its compiler has done its work; give how far its queues are filled."""
    _say(f"warming up {server.name}, {1.5 * seconds:.0f} s")
    sends = Generator(generator.program, generator.core, seconds)
    pull_end = pull_end_after(sends.run(server, FIRST, 0, 0.0), seconds)
    Generator(generator.program, generator.core, seconds / 2).run(server, PULL, pull_end, 0.0)
    return pull_end


def typical(rounds: Sequence[Figures]) -> Figures:
    """Of the undisturbed rounds, or of all when there is none, the one with the median CPU."""
    quiet = [figures for figures in rounds if figures.others_cores < QUIET_CORES] or rounds
    ordered = sorted(quiet, key=lambda figures: figures.server_us_per_message)
    return ordered[(len(ordered) - 1) // 2]


def _machine(generator_core: int | None) -> dict[str, str | int]:
    return {
        "Python": platform.python_version(),
        "on": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count() or 1,
        "servers and generator": "on one core" if generator_core is None else "on separate cores",
    }


def _say(what: str) -> None:
    print(f"benchmarks: {what}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
