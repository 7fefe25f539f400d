"""The session: what is missing is named, settings of the caller win, and formats are known.

What would need another process with another environment runs in one, but none of them starts Java.
"""

import inspect
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

import orbitmq.spark
from orbitmq.errors import SettingError
from orbitmq.spark import make_archive, quick_start
from orbitmq.spark.internals import MARK, UNCHECKED_ACCESS, compiled_home, used_by
from orbitmq.spark.session import (
    JAVA_OPTIONS,
    LOCAL_SETTINGS,
    _local_settings,
    _with_quick_start,
    session,
)
from tests.world.test_java import put_java

LIMIT_S = 120
ASK = "from orbitmq.spark import session; session()"


def last_line(program: str, env: Mapping[str, str]) -> str:
    """Return the last line of what a program that must fail says."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


def test_without_pyspark_the_extra_is_named() -> None:
    said = last_line("import sys; sys.modules['pyspark'] = None; " + ASK, {})
    assert said.endswith(
        "MissingExtra: Spark sessions need the package pyspark: pip install orbitmq[spark]"
    )


def test_without_java_its_place_and_remedy_are_named(tmp_path: Path) -> None:
    said = last_line(ASK, {"JAVA_HOME": str(tmp_path)})
    assert (
        f"MissingProgram: Spark needs Java 17 or newer, and there is none in JAVA_HOME={tmp_path}"
        in said
    )
    assert "openjdk-17" in said


def test_an_old_java_is_named_with_its_version(tmp_path: Path) -> None:
    put_java(tmp_path, release='JAVA_VERSION="11.0.2"')
    said = last_line(ASK, {"JAVA_HOME": str(tmp_path)})
    assert f"{tmp_path}/bin/java (by JAVA_HOME={tmp_path}) is version 11.0.2" in said


def test_importing_the_package_imports_neither_spark_nor_arrow() -> None:
    program = (
        "import sys, orbitmq.spark; "
        "sys.exit(str({'pyspark', 'pyarrow', 'numpy', 'pandas'} & set(sys.modules)))"
    )
    assert last_line(program, {}) == "set()"


def test_no_core_is_refused() -> None:
    with pytest.raises(SettingError, match="0 cores"):
        _local_settings(0)


def test_shuffles_and_tasks_are_as_many_as_cores() -> None:
    found = _local_settings(3)
    assert found["spark.master"] == "local[3]"
    assert found["spark.sql.shuffle.partitions"] == found["spark.default.parallelism"] == "3"
    assert LOCAL_SETTINGS.items() <= found.items()


def test_workers_run_the_python_of_the_driver(spark: SparkSession) -> None:
    """Symptom: ModuleNotFoundError in workers, of a virtual environment nobody activated."""
    found = spark.sparkContext.parallelize([0]).map(lambda _: sys.executable).collect()
    assert [Path(one).resolve() for one in found] == [Path(sys.executable).resolve()]


def test_processes_of_spark_import_the_installed_pyspark(spark: SparkSession) -> None:
    """Symptom: each of a dozen processes spent a second on compiling what Spark has in a zip."""
    found = spark.sparkContext.parallelize([0]).map(lambda _: pyspark.__file__).collect()
    assert found == [pyspark.__file__]


LOCAL = {"spark.master": "local[2]"}
ELSEWHERE = {"spark.master": "spark://127.0.0.1:7077"}
OTHER_PYTHON = {**LOCAL, "spark.pyspark.python": "/usr/bin/other"}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the user that is empty, and an environment that says nothing of Spark."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("SPARK_HOME", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_a_home_of_links_is_there_while_java_starts(cache: Path) -> None:
    for _ in range(2):  # made, and found again
        with compiled_home(LOCAL):
            home = Path(os.environ["SPARK_HOME"])
            assert home.is_relative_to(cache)
            assert (home / "jars").samefile(Path(pyspark.__file__).parent / "jars")
            assert (home / "bin/spark-submit").exists()
            assert not (home / "python").exists()
        assert "SPARK_HOME" not in os.environ


@pytest.mark.parametrize("settings", [ELSEWHERE, OTHER_PYTHON])
def test_spark_elsewhere_and_another_python_keep_sparks_own_home(
    settings: dict[str, str], cache: Path
) -> None:
    """Symptom: ModuleNotFoundError for pyspark in workers whose Python has none."""
    with compiled_home(settings):
        assert "SPARK_HOME" not in os.environ
    assert not list(cache.iterdir())


@pytest.mark.parametrize("name", ["SPARK_HOME", "PYSPARK_PYTHON"])
def test_what_the_environment_says_of_spark_stays(
    name: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "/usr/bin/other")
    with compiled_home(LOCAL):
        assert os.environ[name] == "/usr/bin/other"
        assert name == "SPARK_HOME" or "SPARK_HOME" not in os.environ
    assert not list(cache.iterdir())


def test_a_cache_that_cannot_be_written_starts_spark_as_ever(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "file"))
    with compiled_home(LOCAL):
        assert "SPARK_HOME" not in os.environ


def test_nothing_that_spark_does_not_promise_is_a_default() -> None:
    assert UNCHECKED_ACCESS not in LOCAL_SETTINGS[JAVA_OPTIONS]
    assert not inspect.signature(session).parameters["uses_internals"].default


def test_processes_learn_of_internals_while_java_starts(cache: Path) -> None:
    with used_by(LOCAL):
        assert os.environ[MARK]
        assert Path(os.environ["SPARK_HOME"]).is_relative_to(cache)
    assert MARK not in os.environ


def test_a_running_session_is_given_as_it_is(spark: SparkSession) -> None:
    again = orbitmq.spark.session(settings={"spark.sql.session.timeZone": "Asia/Tokyo"})
    assert again is spark
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert orbitmq.spark.session is session


def test_both_formats_are_known(spark: SparkSession) -> None:
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    assert manager.dataSourceExists("rocketmq")
    assert manager.dataSourceExists("rocketmq_log")


# --- a quick start ---


def test_options_of_the_caller_come_behind_those_of_a_quick_start() -> None:
    found = _with_quick_start({"spark.driver.extraJavaOptions": "-Xss8m", "other": "1"})
    assert found["other"] == "1"
    assert found["spark.driver.extraJavaOptions"].endswith(" -Xss8m")
    assert found["spark.driver.extraJavaOptions"].startswith(quick_start.PLAIN_OPTIONS)


def test_the_archive_is_used_when_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = quick_start.archive_path()
    assert path is not None
    assert path.parent == tmp_path / "orbitmq"
    assert quick_start.java_options(path) == quick_start.PLAIN_OPTIONS
    path.parent.mkdir()
    path.touch()
    assert f"-XX:SharedArchiveFile={path} " in quick_start.java_options(path)
    assert make_archive.main() == 0
    assert path.stat().st_size == 0, "what is there is kept"


def test_another_java_has_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = quick_start.archive_path()
    put_java(tmp_path, release='JAVA_VERSION="21"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert quick_start.archive_path() != ours
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    assert quick_start.archive_path() is None
    assert make_archive.main() == 1
