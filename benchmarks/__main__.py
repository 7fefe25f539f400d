"""`make bench`: what a message costs here, beside a bare server, other brokers and the original.

In: options. Out: tables on standard output, progress on standard error, JSON with --json; with
--write docs/figures.json, and from it the tables of the README and of docs/performance.md; exit
code 0 when everything ran. The rules of a run are in running.py, how much is measured in plan.py.
"""

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from benchmarks import page, peers, servers
from benchmarks.c_programs import BuildFailed
from benchmarks.loads import Load, LoadFailed, make_generator
from benchmarks.machine import cores
from benchmarks.page import PageUnlike
from benchmarks.plan import QUICK, WHOLE
from benchmarks.report import Report
from benchmarks.rounds import Rounds, say
from benchmarks.running import Run
from benchmarks.servers import BARE, NATS, ORIGINAL, OURS, PLAIN, REDIS, ServerFailed
from benchmarks.tables import tables, to_text
from orbitmq.core.checksum import crc32

PARTS = ("starts", "loads", "sync", "scale", "stalls", "profiles", "clients")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit code."""
    options = _options(arguments)
    try:
        report = _measure(options)
        print(to_text(tables(report)), end="")
        if options.json is not None:
            options.json.write_bytes(msgspec.json.encode(report))
        if options.write:
            kept = replace(page.read_kept(), run=report)
            page.write_pages(kept)
            page.keep(kept)
    except (BuildFailed, LoadFailed, ServerFailed, PageUnlike) as failed:
        print(f"benchmarks: {failed}", file=sys.stderr)
        return 1
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="a bit of all: does it run?")
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS)
    )
    parser.add_argument("--load", default="", metavar="TEXT", help="only loads with it in the name")
    parser.add_argument("--rounds", type=int, help="how often each load goes round")
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
    is_part = options.only is not PARTS or options.load or options.rounds
    if options.write and (options.quick or is_part or options.original is False):
        parser.error("--write needs a whole run beside the original, for the page is of one run")
    return options


def _measure(options: argparse.Namespace) -> Report:
    plan = QUICK if options.quick else WHOLE
    begin_s, load_before = time.monotonic(), os.getloadavg()[0]
    server_cpu, generator_cpu = cores()
    rounds = Rounds(options.rounds or plan.rounds, plan.quiet_limit_s)
    core = servers.default_core()
    versions = peers.versions()
    report = Report({"commit": commit(), "core": core})
    present = {BARE, OURS, *versions, *((PLAIN,) if core == "compiled" else ())}
    if _wants_original(options):
        present.add(ORIGINAL)
    for name in sorted({REDIS, NATS} - present):
        say(f"without {name}: it is not installed")

    def chosen(loads: Sequence[Load]) -> list[Load]:
        return [load for load in loads if options.load in load.name]

    run = Run(
        plan,
        make_generator(generator_cpu, plan.seconds),
        server_cpu,
        frozenset(present),
        chosen(plan.loads),
        chosen(plan.sync_loads),
        rounds,
        report,
    )
    run.measure(options.only)
    report.machine |= {
        "Python": platform.python_version(),
        **versions,
        "on": f"{platform.system()} {platform.machine()}",
        "checksums by": crc32.__module__.partition(".")[0],
        "cores": os.cpu_count() or 1,
        "servers and generator": "on one core" if generator_cpu is None else "on separate cores",
        "form": plan.name,
        "load average before": f"{load_before:.1f}",
        "minutes": f"{(time.monotonic() - begin_s) / 60:.1f}",
        "rounds": rounds.count,
        "rounds disturbed by others": rounds.disturbed_count,
    }
    return report


def _wants_original(options: argparse.Namespace) -> bool:
    missing = servers.missing_for_original()
    if (options.original or options.write) and missing:
        raise ServerFailed(f"the original needs {' and '.join(missing)}; install it")
    if options.original is None and missing:
        say(f"without the original: {' and '.join(missing)} not installed")
    return not missing if options.original is None else bool(options.original)


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
