"""`make bench`: what a message costs here, beside a bare loop and beside the original.

In: options. Out: tables on standard output, progress on standard error, JSON with --json; with
--write docs/figures.json, and from it the tables of the README and of docs/performance.md; exit
code 0 when everything ran. The rules of a run are in running.py, how much is measured in plan.py.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import (
    client_runs,
    embedded_starts,
    in_process,
    many_messages,
    many_queues,
    servers,
    store_bench,
)
from benchmarks.loads import Generator, LoadFailed, build_generator
from benchmarks.machine import cores, resident_mb
from benchmarks.many_queues import Cost
from benchmarks.page import PageUnlike, keep_run, write_pages
from benchmarks.plan import QUICK, SHORT, WHOLE, Plan
from benchmarks.report import Report, Start, to_json, to_text
from benchmarks.rounds import say
from benchmarks.running import Found, Run
from benchmarks.servers import ServerFailed
from orbitmq.core.checksum import crc32

IDLE_S = 1.0
"""An idle process is looked at after this long: what it does at the start is then done."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit code."""
    options = _options(arguments)
    plan = QUICK if options.quick else SHORT if options.short else WHOLE
    try:
        report = _measure(plan, options)
        print(to_text(report), end="")
        if options.json is not None:
            options.json.write_text(json.dumps(to_json(report), indent=1) + "\n", encoding="utf-8")
        if options.write:
            keep_run(report)
            write_pages(report)
    except (LoadFailed, ServerFailed, PageUnlike) as failed:
        print(f"benchmarks: {failed}", file=sys.stderr)
        return 1
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="length of the aims' runs (2)")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--short", action="store_true", help="only the aims: four minutes")
    length.add_argument(
        "--quick", action="store_true", help="a bit of all, one round: does it run?"
    )
    parser.add_argument(
        "--original",
        action=argparse.BooleanOptionalAction,
        help="compare with the original (when Java and Maven are installed)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report there")
    parser.add_argument(
        "--write", action="store_true", help="keep the run in docs/figures.json, write the pages"
    )
    options = parser.parse_args(arguments)
    if options.write and (options.short or options.quick or options.original is False):
        parser.error("--write needs a whole run beside the original, for the page is of one run")
    return options


def _measure(plan: Plan, options: argparse.Namespace) -> Report:
    begin_s, load_before = time.monotonic(), os.getloadavg()[0]
    has_original = _wants_original(options)
    server_core, generator_core = cores()
    generator = Generator(build_generator(), generator_core, options.seconds)
    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        report = Report(_machine(generator_core))
        _measure_in_process(report, plan, folder)
        say("starts")
        report.start = _measure_start(folder, server_core, plan.starts)
        report.embedded = embedded_starts.measure(folder / "compiled", plan.starts)
        run = Run(plan, generator, folder, server_core, has_original)
        found = Found()
        run.measure(found)
        clients = plan.clients if has_original else replace(plan.clients, has_java=False)
        rounds = client_runs.Rounds(plan.rounds, options.seconds, plan.quiet_limit_s)
        report.clients = client_runs.measure(clients, folder / "clients", rounds)
    report.rows, report.deliveries, report.idle = found.rows, found.deliveries, found.idle
    report.lateness = found.lateness
    report.machine |= {
        "form": plan.name,
        "load average before": f"{load_before:.1f}",
        "minutes": f"{(time.monotonic() - begin_s) / 60:.1f}",
        "rounds": found.round_count + report.clients.round_count,
        "rounds disturbed by others": found.disturbed_count + report.clients.disturbed_count,
    }
    return report


def _measure_in_process(report: Report, plan: Plan, folder: Path) -> None:
    if plan.core is not None:
        say("the core, in process")
        report.core = in_process.measure(plan.core.repetitions, plan.core.repetition_s)
    if plan.store is not None:
        say("the store, in process")
        report.store = store_bench.measure(folder, plan.store)
    many: list[Cost] = []
    if plan.queues:
        say(f"a store with {plan.queues:,} queues")
        many += many_queues.measure(folder / "queues", plan.queues)
    if plan.messages:
        say(f"a store with {plan.messages:,} messages")
        many += many_messages.measure(folder / "messages", plan.messages)
    report.many = many


def _wants_original(options: argparse.Namespace) -> bool:
    missing = servers.missing_for_original()
    if (options.original or options.write) and missing:
        raise ServerFailed(f"the original needs {' and '.join(missing)}; install it")
    if options.original is None and missing:
        say(f"without the original: {' and '.join(missing)} not installed")
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


def _machine(generator_core: int | None) -> dict[str, str | int]:
    return {
        "commit": commit(),
        "Python": platform.python_version(),
        "on": f"{platform.system()} {platform.machine()}",
        "checksums by": crc32.__module__.partition(".")[0],
        "cores": os.cpu_count() or 1,
        "servers and generator": "on one core" if generator_core is None else "on separate cores",
    }


def commit() -> str:
    """The commit that is measured, and whether files were changed since."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(
            command, cwd=servers.ROOT, capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip().replace("-dirty", " and changes")


if __name__ == "__main__":
    sys.exit(main())
