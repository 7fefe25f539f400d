"""The Spark benchmark runs in a tiny form, finds every row, and its tables fit the page."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks import spark as programme
from benchmarks import spark_rows
from benchmarks.page import PAGES, places_of
from benchmarks.spark_cpu import CpuWatch, Rate
from benchmarks.spark_streams import IdleQuery, Lateness

BUSY = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"


@pytest.mark.nightly("bench")
@pytest.mark.timeout(600)
def test_the_quick_form_measures_everything(spark: SparkSession, tmp_path: Path) -> None:
    report = programme.measure(spark, tmp_path, programme.QUICK)
    assert len(report.rates) == 10
    assert all(rate.cpu_s > 0 for rate in report.rates.values())
    assert report.late.half_ms > 0
    assert report.machine["core"] == "plain Python"
    made = programme.tables(report)
    assert set(made) <= set(places_of(PAGES[1].read_text(encoding="utf-8")))
    assert spark_rows.LOG in [row[0] for row in made["spark rates"]]
    assert len(report.aims()) == 7


def test_a_ratio_is_to_parquet_of_the_same_columns() -> None:
    rates = {
        spark_rows.PARQUET: Rate(1_000, 2.0, 1.0),
        spark_rows.LOG: Rate(1_000, 1.0, 1.0),
        spark_rows.SINK: Rate(1_000, 1.0, 1.0),
        spark_rows.LOG_FOUR: Rate(1_000, 1.0, 1.0),
    }
    assert spark_rows.ratio(rates, spark_rows.LOG) == 2.0
    assert spark_rows.ratio(rates, spark_rows.SINK) is None
    assert spark_rows.ratio(rates, spark_rows.LOG_FOUR) is None


def test_an_aim_is_met_or_not() -> None:
    rates = dict.fromkeys(
        (spark_rows.LOG, spark_rows.LOG_FOUR, spark_rows.BROKER, spark_rows.SINK),
        Rate(220_000, 1.0, 1.0),
    ) | {spark_rows.PARQUET: Rate(235_000, 1.0, 1.0)}
    report = programme.SparkReport(
        {}, {"all columns": 999_999.0}, rates, Lateness(1, 150.0, 200.0), IdleQuery(0.021, 1.0)
    )
    assert [aim.is_met for aim in report.aims()] == [False, True, False, True, True, True, False]


def test_an_aim_missed_on_a_slow_machine_is_met_by_its_ratio_to_parquet() -> None:
    rates = dict.fromkeys(
        (spark_rows.LOG, spark_rows.LOG_FOUR, spark_rows.BROKER, spark_rows.SINK),
        Rate(110_000, 1.0, 1.0),
    ) | {spark_rows.PARQUET: Rate(117_000, 1.0, 1.0)}
    report = programme.SparkReport(
        {}, {"all columns": 400_000.0}, rates, Lateness(1, 150.0, 200.0), IdleQuery(0.01, 1.0)
    )
    decode, log, *_, idle = report.aims()
    assert decode.cells()[3:] == ("not met", "4.26", "3.42", "not met")
    assert log.cells()[3:] == ("not met", "0.94", "0.94", "met")
    assert idle.cells()[3:] == ("met", "", "", "")


def test_cpu_of_children_counts_also_when_they_have_ended() -> None:
    used = CpuWatch([os.getpid()])
    subprocess.run([sys.executable, "-c", BUSY], check=True)
    assert used.cpu_s() >= 0.3


def test_what_a_child_used_before_does_not_count_when_it_ends() -> None:
    """Symptom: an idle query of -0.1 cores, for workers ended while it was looked at."""
    program = f"{BUSY}\nprint(flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"\n"
        used = CpuWatch([os.getpid()])
        child.communicate(b"\n")
    assert 0 <= used.cpu_s() < 0.3


def test_the_page_is_only_written_from_a_whole_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        programme.main(["--write", "--quick"])
    assert "--write needs a whole run" in capsys.readouterr().err
