"""What a run of pytest says about its tests, for the programs that start one.

In: the reports of the tests, the option `--report FILE`. Out: a JSON file with seconds by file, and
the tests by outcome. It is written at the end, also of a run that was interrupted.
"""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

ONCE = "once"


class Report(msgspec.Struct):
    """The tests of a run."""

    seconds: dict[str, float] = {}
    passed: list[str] = []
    failed: list[str] = []
    failed_once: list[str] = []
    """The failed tests with the marker `once`: theirs count, whatever a second run says."""

    @classmethod
    def read(cls, path: Path) -> "Report":
        """Return what a run wrote; an empty report when it died before."""
        return msgspec.json.decode(path.read_bytes(), type=cls) if path.exists() else cls()

    def join(self, other: "Report") -> None:
        """Take over the tests of another run."""
        for file, seconds in other.seconds.items():
            self.seconds[file] = self.seconds.get(file, 0.0) + seconds
        self.passed += other.passed
        self.failed += other.failed
        self.failed_once += other.failed_once

    def dearest(self, count: int) -> list[tuple[str, float]]:
        """Return the files that took most seconds, most first."""
        in_order = sorted(self.seconds.items(), key=lambda item: item[1], reverse=True)
        return in_order[:count]


def add_option(parser: pytest.Parser) -> None:
    """Make `--report` known."""
    parser.addoption("--report", metavar="FILE", help="write outcomes and seconds by file there")


def write(config: pytest.Config, stats: dict[str, list[object]]) -> None:
    """Write the report, if the run was asked for one."""
    path = config.getoption("--report")
    if path is not None:
        reports = [each for some in stats.values() for each in some]
        found = report_of(each for each in reports if isinstance(each, pytest.TestReport))
        Path(path).write_bytes(msgspec.json.encode(found))


def report_of(reports: Iterable[pytest.TestReport]) -> Report:
    """Sort the reports of setups, calls and teardowns by test."""
    seconds: defaultdict[str, float] = defaultdict(float)
    called: dict[str, None] = {}
    failed: dict[str, bool] = {}
    for report in reports:
        seconds[report.nodeid.partition("::")[0]] += getattr(report, "duration", 0.0)
        if report.failed:
            failed[report.nodeid] = ONCE in report.keywords
        elif report.when == "call":
            called[report.nodeid] = None
    return Report(
        dict(seconds),
        [test for test in called if test not in failed],
        list(failed),
        [test for test, counts in failed.items() if counts],
    )
