"""`make test` and the nightly: a run of pytest, what failed once more, the time it took.

    python -m tests.whole_run                      the tests of `make test`
    python -m tests.whole_run tests/store -k scan  some of them; pytest's words
    python -m tests.whole_run --part kills         a part of the nightly
    python -m tests.whole_run --parts              all of them, and a table

In: words for pytest. Out: its output, then the unstable tests by name, the minutes, the files that
took longest; exit code 0 when everything passed.

Rules:
1. What failed runs once more, alone, for AGAIN_LIMIT_S at most in all. What passes then is printed
   as unstable; a test that shows up there twice is mended or goes into the nightly.
2. The failure of a test with the marker `once` counts at once: its seed is new each time.
3. A run that did not end by itself (interrupted, no tests, a wrong option) is not repeated.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.foreign import replays
from tests.foreign.judged import VERSIONS
from tests.nightly import LONG_FORMS, PARTS
from tests.reported import Report

WORKERS = 4
"""Most tests wait for others (brokers, clients, clocks): more of them run than there are cores."""
AGAIN_LIMIT_S = 180.0
REPLAY_AGAIN_S = 600.0
"""An original may be late, or die when a topic is deleted: it is the judge, not the judged."""
STOP_LIMIT_S = 30.0
DEAREST_COUNT = 20
TESTS_FAILED = 1
NO_TESTS = 5
"""pytest's codes."""

COMMANDS = {"bench": (["-m", "benchmarks"], ["-m", "benchmarks.spark"])}
"""Programs that a part runs before its tests."""

REPLAYED = "originals"
"""The part that plays tests of ours with an original in the place of OrbitMQ."""
REPLAY_WORDS = ("-n", "2", "--dist", "loadfile", "--timeout", "300")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    code: int
    unstable: list[str]
    report: Report

    @property
    def failed(self) -> list[str]:
        """The tests that count as failed."""
        return [test for test in self.report.failed if test not in self.unstable]


def main(words: Sequence[str] | None = None) -> int:
    """Run the tests, and say how it went."""
    parser = argparse.ArgumentParser(
        prog="whole_run", description=(__doc__ or "").partition("\n")[0], allow_abbrev=False
    )
    parser.add_argument("--part", choices=PARTS, help="a part of the nightly")
    parser.add_argument("--parts", action="store_true", help="all parts of the nightly")
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--name", default="make test", help="what this run is called at its end")
    parser.add_argument("--again-limit", type=float, default=AGAIN_LIMIT_S, metavar="SECONDS")
    given, further = parser.parse_known_args(words)
    if given.parts:
        return run_all(further, given.again_limit)
    if given.part is not None:
        return run_part(given.part, further, given.again_limit).code
    begun_s = time.monotonic()
    spread = ["-n", str(given.workers), "--dist", "loadfile"] if given.workers else []
    outcome = run([*further, *spread], given.again_limit)
    told(outcome, begun_s, given.name)
    return outcome.code


def run_all(words: Sequence[str], again_limit_s: float) -> int:
    """Run every part of the nightly, and print a table of minutes."""
    rows = []
    for part in PARTS:
        begun_s = time.monotonic()
        outcome = run_part(part, words, again_limit_s)
        minutes = (time.monotonic() - begun_s) / 60
        rows.append((part, minutes, outcome))
    print("\n| part | minutes | passed | failed | unstable |\n|---|---|---|---|---|")
    for part, minutes, outcome in rows:
        counts = (len(outcome.report.passed), len(outcome.failed), len(outcome.unstable))
        print(f"| {part} | {minutes:.1f} |", " | ".join(map(str, counts)), "|")
    return max(outcome.code for _, _, outcome in rows)


def run_part(part: str, words: Sequence[str], again_limit_s: float) -> Outcome:
    """Run a part of the nightly: its programs, then its tests, one after the other."""
    begun_s = time.monotonic()
    outcome = _part(part, words, again_limit_s)
    told(outcome, begun_s, f"nightly-{part}")
    return outcome


def _part(part: str, words: Sequence[str], again_limit_s: float) -> Outcome:
    for command in COMMANDS.get(part, ()):
        if code := subprocess.run([sys.executable, *command], check=False).returncode:
            return Outcome(code, [], Report())
    outcomes = [replay(version, words) for version in VERSIONS] if part == REPLAYED else []
    own = run([*words, "--nightly", part], again_limit_s, forms(part))
    outcomes.append(replace(own, code=0) if own.code == NO_TESTS else own)
    return joined(outcomes)


def replay(version: str, words: Sequence[str]) -> Outcome:
    """Play our tests on an original, and compare what passes with what did (replays.py)."""
    tests = [*replays.words_for(version), *REPLAY_WORDS, *words]
    outcome = run(tests, REPLAY_AGAIN_S, {"ORBITMQ_JUDGE": f"original-{version}"})
    lost = replays.judge(version, [*outcome.report.passed, *outcome.unstable])
    for test in lost:
        print(f"{version} passed it before: {test}")
    return replace(outcome, code=outcome.code or int(bool(lost)))


def joined(outcomes: Sequence[Outcome]) -> Outcome:
    """Return several runs as one."""
    report = Report()
    for each in outcomes:
        report.join(each.report)
    unstable = [test for each in outcomes for test in each.unstable]
    return Outcome(max(each.code for each in outcomes), unstable, report)


def forms(part: str) -> dict[str, str]:
    """Return the environment variables that make a part's tests long, as make's variables say."""
    named = LONG_FORMS.get(part, {})
    return {theirs: os.environ[ours] for ours, theirs in named.items() if os.environ.get(ours)}


def run(
    words: Sequence[str], again_limit_s: float, environment: Mapping[str, str] | None = None
) -> Outcome:
    """Run pytest, and what failed once more (rules 1 to 3)."""
    with tempfile.TemporaryDirectory(prefix="orbitmq-run-") as folder:
        first, again = Path(folder) / "first.json", Path(folder) / "again.json"
        code = _pytest([*words, "--report", str(first)], environment, None)
        report = Report.read(first)
        counts = set(report.failed_once)
        tests = [test for test in report.failed if test not in counts]
        if code != TESTS_FAILED or not tests:
            return Outcome(code, [], report)
        print(f"\n{len(tests)} failed and run once more, alone: {again_limit_s:.0f} s at most\n")
        marks = ["--nightly", words[words.index("--nightly") + 1]] if "--nightly" in words else []
        _pytest([*tests, *marks, "-q", "--report", str(again)], environment, again_limit_s)
        passed = set(Report.read(again).passed)
        unstable = [test for test in tests if test in passed]
        code = 0 if len(unstable) == len(report.failed) else TESTS_FAILED
        return Outcome(code, unstable, report)


def _pytest(
    words: Sequence[str], environment: Mapping[str, str] | None, limit_s: float | None
) -> int:
    """Run pytest; one that is out of time is interrupted, so that it still reports."""
    sys.stdout.flush()
    started = subprocess.Popen(
        [sys.executable, "-m", "pytest", *words], env={**os.environ, **(environment or {})}
    )
    with started:
        try:
            return started.wait(limit_s)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
            started.send_signal(signal.SIGINT)
            try:
                code = started.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                started.kill()
                code = started.wait()
            if isinstance(error, KeyboardInterrupt):
                raise
            print(f"\nout of time after {limit_s:.0f} s", flush=True)
            return code


def told(outcome: Outcome, begun_s: float, name: str) -> None:
    """Print how it went."""
    dearest = outcome.report.dearest(DEAREST_COUNT)
    print(f"\nthe {len(dearest)} dearest files, in seconds:")
    for file, seconds in dearest:
        print(f"{seconds:8.1f}  {file}")
    for test in outcome.unstable:
        print(f"unstable: {test} (it failed, and passed alone)")
    for test in outcome.failed:
        print(f"failed: {test}")
    minutes = (time.monotonic() - begun_s) / 60
    print(f"{name}: {minutes:.1f} minutes, {'FAILED' if outcome.code else 'passed'}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
