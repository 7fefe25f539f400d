"""`make bench-spark`: rows per CPU second into Spark and out of it, beside Parquet.

In: options. Out: tables on standard output, progress on standard error, JSON with --json; with
--write the part `spark` of docs/figures.json, and from it docs/performance.md. Aims are printed
with what was found. The rules are in spark_rows.py (reads and writes) and spark_streams.py
(lateness, idle query).
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession

from benchmarks import spark_rows, spark_streams
from benchmarks.__main__ import commit
from benchmarks.machine import QUIET_CORES
from benchmarks.page import PageUnlike, keep, read_kept, write_pages
from benchmarks.rounds import say
from benchmarks.servers import ServerFailed, ours
from benchmarks.spark_cpu import Rate
from benchmarks.spark_data import fill
from benchmarks.spark_decode import ALL, decode_rates, to_bare
from benchmarks.spark_rows import BROKER, LOG, LOG_FOUR, PARQUET, SINK
from benchmarks.spark_streams import IdleQuery, Lateness
from benchmarks.tables import Tables, to_text
from orbitmq.core import append
from orbitmq.spark import session

QUIET_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    row_count: int = 1_000_000
    sink_row_count: int = 1_000_000
    warm_ups_max: int = 6
    rounds: int = 3
    decode_rows: int = 200_000
    late_count: int = 100
    idle_s: float = 30.0
    quiet_limit_s: float = QUIET_LIMIT_S


WHOLE = Plan()
QUICK = Plan(3_000, 3_000, 1, 1, 2_000, 3, 0.5, 0.0)

PARQUET_REFERENCE = 235_000
"""Rows/s/core of Parquet (zstd) on the machine for which the aims were set: an aim divided by it
tells slower code from a slower machine."""


@dataclass(slots=True)
class SparkReport:
    """Everything that one run measured."""

    machine: dict[str, str | int]
    decode: dict[str, float]
    rates: dict[str, Rate]
    late: Lateness
    idle: IdleQuery

    def aims(self) -> list["Aim"]:
        """Return each aim, what was found, and the verdicts."""
        least = [
            ("decode, all columns, without Spark", 1_000_000, self.decode[ALL]),
            ("log into Spark, all columns", 220_000, self._rate(LOG)),
            ("log into Spark, four header columns", 1_000_000, self._rate(LOG_FOUR)),
            ("topic into Spark through the broker", 100_000, self._rate(BROKER)),
            ("Arrow sink through the broker", 60_000, self._rate(SINK)),
        ]
        late, idle = self.late.half_ms, self.idle.cores
        return [
            *(self._aim(*each) for each in least),
            Aim("newest row to sink, half", "at most 150 ms", f"{late:.0f} ms", late <= 150),
            Aim("an idle query", "at most 0.02 cores", f"{idle:.3f} cores", idle <= 0.02),
        ]

    def _aim(self, name: str, aim: int, found: float) -> "Aim":
        wanted, ratio = aim / PARQUET_REFERENCE, found / self._rate(PARQUET)
        return Aim(
            name,
            f"at least {aim:,}/s/core",
            f"{found:,.0f}/s/core",
            found >= aim,
            f"{wanted:.2f}",
            f"{ratio:.2f}",
            ratio >= wanted,
        )

    def _rate(self, name: str) -> float:
        return self.rates[name].rows_per_core_s


class Aim(NamedTuple):
    """An aim as it was set, and as the ratio to Parquet's reads that it means."""

    name: str
    aimed_at: str
    found: str
    is_met: bool
    ratio_aimed_at: str = ""
    ratio_found: str = ""
    is_ratio_met: bool | None = None

    def cells(self) -> tuple[str, ...]:
        """Return its row of the table."""
        by_ratio = "" if self.is_ratio_met is None else _verdict(self.is_ratio_met)
        ratios = (self.ratio_aimed_at, self.ratio_found, by_ratio)
        return (self.name, self.aimed_at, self.found, _verdict(self.is_met), *ratios)


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "not met"


def measure(spark: SparkSession, folder: Path, plan: Plan) -> SparkReport:
    """Measure everything in a session that runs."""
    begin_s, load_before = time.monotonic(), os.getloadavg()[0]
    say("decoding, without Spark")
    decode = decode_rates(plan.decode_rows)
    with ours(folder / "broker", None) as source, ours(folder / "other", None) as sink:
        say(f"{plan.row_count:,} messages into a topic and into Parquet")
        place = fill(spark, source, sink, folder / "broker", plan.row_count, plan.sink_row_count)
        rates = spark_rows.measure(spark, place, plan.warm_ups_max, plan.rounds, plan.quiet_limit_s)
        late, idle = spark_streams.measure(spark, source.namesrv, plan.late_count, plan.idle_s)
    disturbed = sum(rate.others_cores >= QUIET_CORES for rate in rates.values())
    machine: dict[str, str | int] = {
        "commit": commit(),
        "core": "plain Python" if ".plain" in append.__module__ else "compiled",
        "Spark, Arrow, NumPy": f"{pyspark.__version__}, {pa.__version__}, {np.__version__}",
        "Python, Java": f"{platform.python_version()}, {_java(spark)}",
        "cores": os.cpu_count() or 1,
        "rows of 1 KiB read, written": f"{plan.row_count:,}, {plan.sink_row_count:,}",
        "load average before": f"{load_before:.1f}",
        "minutes": f"{(time.monotonic() - begin_s) / 60:.1f}",
        "kinds whose round others disturbed": disturbed,
    }
    return SparkReport(machine, decode, rates, late, idle)


def _java(spark: SparkSession) -> str:
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - nothing else knows its properties
    return str(jvm.System.getProperty("java.version"))


def tables(report: SparkReport) -> Tables:
    """Return the tables of the page."""
    rates, late = report.rates, report.late
    return {
        "spark run": [
            ("this run of Spark", "is"),
            *((name, str(is_)) for name, is_ in report.machine.items()),
        ],
        "spark aims": [
            ("aim, Spark", "aimed at", "this run", "so", "to Parquet, aimed at", "this run", "so"),
            *(aim.cells() for aim in report.aims()),
        ],
        "spark rates": [
            ("into and out of Spark", "rows/s/core", "rows/s", "to Parquet"),
            *(_rate_cells(rates, name) for name in spark_rows.names_of(rates)),
        ],
        "spark decode": [
            ("decode without Spark", "rows/s/core", "to the bare copy"),
            *(_decode_cells(report.decode, name) for name in report.decode),
        ],
        "spark streams": [
            ("a stream with little to do", "is"),
            (f"newest row to sink, half of {late.count}", f"{late.half_ms:.0f} ms"),
            ("newest row to sink, 99 %", f"{late.most_ms:.0f} ms"),
            ("a micro-batch of Spark alone, half", f"{late.alone_ms:.0f} ms"),
            ("an idle query", f"{report.idle.cores:.3f} cores"),
        ],
    }


def _rate_cells(rates: dict[str, Rate], name: str) -> tuple[str, ...]:
    found = spark_rows.ratio(rates, name)
    rate = rates[name]
    shown = "" if found is None else f"{found:.2f}"
    return (name, f"{rate.rows_per_core_s:,.0f}", f"{rate.rows_per_s:,.0f}", shown)


def _decode_cells(rates: dict[str, float], name: str) -> tuple[str, ...]:
    found = to_bare(rates, name)
    return (name, f"{rates[name]:,.0f}", "" if found is None else f"{found:.2f}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--rows", type=int, default=WHOLE.row_count, help="rows of 1 KiB to read (1000000)"
    )
    parser.add_argument("--quick", action="store_true", help="a bit of all: does it run?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report there")
    parser.add_argument("--write", action="store_true", help="put the tables into the page")
    options = parser.parse_args(arguments)
    if options.write and options.quick:
        parser.error("--write needs a whole run")
    plan = QUICK if options.quick else Plan(row_count=options.rows)
    try:
        with tempfile.TemporaryDirectory(prefix="orbitmq-bench-") as name:
            spark = session("bench", uses_internals=True, settings={"spark.driver.memory": "1g"})
            report = measure(spark, Path(name), plan)
            spark.stop()
        print(to_text(tables(report)), end="")
        if options.json is not None:
            options.json.write_text(json.dumps(asdict(report), indent=1) + "\n", encoding="utf-8")
        if options.write:
            kept = replace(read_kept(), spark=tables(report))
            write_pages(kept)
            keep(kept)
    except (ServerFailed, PageUnlike) as failed:
        print(f"benchmarks: {failed}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
