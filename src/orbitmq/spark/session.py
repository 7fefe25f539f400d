"""A Spark session with settings that suit messages, here or under spark-submit.

In: how many cores, and other settings. Out: a SparkSession that knows `rocketmq`, `rocketmq_log`.

Rules:
1. Settings of the caller win over those of spark-submit, these over ours, and ours over Spark's.
2. A session that runs already is given as it is: Spark has one per process.
3. Under spark-submit the cluster is the submitter's: nothing that is for one machine is set.
4. What is missing (PySpark, Java) is named before anything is started.
5. Importing this imports no Spark: without it `session` says how to get it.
"""

import importlib
import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from orbitmq.errors import MissingExtra, MissingProgram, SettingError
from orbitmq.spark.internals import UNCHECKED_ACCESS, compiled_home, used_by
from orbitmq.spark.quick_start import archive_path, java_options
from orbitmq.world.java import find_java
from orbitmq.world.machine import core_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MAJOR_MIN = 17
"""What Spark 4 needs."""

JAVA_OPTIONS = "spark.driver.extraJavaOptions"

SHARED_SETTINGS = {
    "spark.buffer.size": str(256 << 10),
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4000",
    "spark.sql.session.timeZone": "UTC",
}
"""What is better everywhere; docs/guides/spark.md has the reasons and figures of all of these."""

LOCAL_SETTINGS = {
    **SHARED_SETTINGS,
    JAVA_OPTIONS: "-XX:+UseParallelGC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""What one machine with a disk of its own is better off with."""

FORMATS = (
    ("orbitmq.spark.topic_source", "TopicSource"),
    ("orbitmq.spark.log_source", "LogSource"),
)
"""Where the formats are. Spark finds them itself where the package is installed as usual."""

SUBMITTED_MARK = "PYSPARK_GATEWAY_PORT"
"""The variable by which spark-submit tells a program where its JVM is."""

_KNOWN: "WeakSet[SparkSession]" = WeakSet()
"""Sessions that know the formats: nobody need look again."""


def session(
    app_name: str = "orbitmq",
    *,
    cores: int | None = None,
    settings: Mapping[str, str] | None = None,
    is_quick_start: bool = False,
    uses_internals: bool = False,
) -> "SparkSession":
    """Return a Spark session that is tuned for messages and knows our formats.

    `cores` are all of the machine if not given; `settings` are Spark's own and win. With
    `is_quick_start` Java starts in a third of the time and runs slower: for tests. With
    `uses_internals` a local session is quicker by ways that Spark does not promise: see the guide.
    Under spark-submit it is the submitted session, and only `settings` change it.

    Raises MissingExtra without PySpark, MissingProgram without Java or with one that is too old,
    SettingError for a number of cores below 1.
    """
    spark = _running_session()
    if spark is None:
        given = dict(settings or {})
        if SUBMITTED_MARK in os.environ:
            spark = _started(app_name, {**_submitted_settings(), **given})
        else:
            _ensure_java()
            if is_quick_start:
                given = _with_quick_start(given)
            ours = _local_settings(cores)
            if uses_internals:
                ours[JAVA_OPTIONS] += f" {UNCHECKED_ACCESS}"
            chosen = {**ours, **given}
            start: AbstractContextManager[None] = nullcontext()
            if uses_internals:
                start = used_by(chosen)
            elif is_quick_start:  # its archive was made with that home
                start = compiled_home(chosen)
            with start:
                spark = _started(app_name, chosen)
    register_formats(spark)
    return spark


def register_formats(spark: "SparkSession") -> None:
    """Make `rocketmq` and `rocketmq_log` known to a session where Spark has not found them."""
    if spark in _KNOWN:
        return
    known: Any = spark._jsparkSession.sessionState().dataSourceManager()  # noqa: SLF001 - no other way
    for module, name in FORMATS:
        source = getattr(importlib.import_module(module), name)
        if not known.dataSourceExists(source.name()):
            spark.dataSource.register(source)
    _KNOWN.add(spark)


def _running_session() -> "SparkSession | None":
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtra("Spark sessions", "pyspark", "spark") from None
    return SparkSession.getActiveSession()


def _ensure_java() -> None:
    java = find_java()
    home = os.environ.get("JAVA_HOME")
    place = f"JAVA_HOME={home}" if home else "PATH"
    if java is None:
        raise MissingProgram(
            f"Spark needs Java {JAVA_MAJOR_MIN} or newer, and there is none in {place}; install it "
            "(apt install openjdk-17-jre-headless) and set JAVA_HOME where it is not in PATH"
        )
    if 0 < java.major < JAVA_MAJOR_MIN:
        raise MissingProgram(
            f"Spark needs Java {JAVA_MAJOR_MIN} or newer, and {java.path} (by {place}) is version "
            f"{java.version}; install a newer one and set JAVA_HOME to its folder"
        )


def _local_settings(cores: int | None) -> dict[str, str]:
    if cores is not None and cores < 1:
        raise SettingError(f"a session with {cores} cores cannot run; give 1 at least, or none")
    count = str(cores or core_count())
    # Spark would take any `python3` of the PATH for its workers: in a virtual environment that
    # nobody activated, one without our package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return {
        **LOCAL_SETTINGS,
        "spark.default.parallelism": count,
        "spark.master": f"local[{count}]",
        "spark.sql.shuffle.partitions": count,
    }


def _with_quick_start(given: Mapping[str, str]) -> dict[str, str]:
    options = f"{java_options(archive_path())} {given.get(JAVA_OPTIONS, '')}"
    return {**given, JAVA_OPTIONS: options.strip()}


def _submitted_settings() -> dict[str, str]:
    """Return those of ours that the submitter says nothing about."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # noqa: SLF001 - else SparkConf sees nothing of the JVM's
    submitted = SparkConf()
    return {name: text for name, text in SHARED_SETTINGS.items() if not submitted.contains(name)}


def _started(app_name: str, settings: Mapping[str, str]) -> "SparkSession":
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name)
    for name, text in settings.items():
        builder = builder.config(name, text)
    return builder.getOrCreate()
