"""What makes Spark quicker by ways that Spark does not promise: only where a session asks for it.

In: `session(uses_internals=True)`. Out: a session whose Python processes use what is here.

Rules:
1. Spark's processes know by a variable of the environment, which Java hands on to them.
2. A home of links: Spark puts `python/lib/pyspark.zip` of its home before all else that its Python
   processes import, and each compiles it anew. Our home lacks that folder. Only where the installed
   PySpark is what they would find then: Spark is local, its home is the package's, the Python ours.
3. A short rest: a worker collects garbage after each task and looks at all that was ever imported.
   The collector is told to leave alone what is there whenever a task finds more modules.
4. Rows that travel with a plan (`topic_small`): Spark takes them from a class of its own only.
"""

import gc
import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orbitmq.errors import MQError
from orbitmq.spark.user_cache import cached
from orbitmq.world.files import SystemFiles
from orbitmq.world.links import link_into
from orbitmq.world.machine import environment_text

log = logging.getLogger(__name__)

MARK = "ORBITMQ_SPARK_INTERNALS"
"""The variable that says so; any text does."""

UNCHECKED_ACCESS = "-Darrow.enable_unsafe_memory_access=true"
"""Java reads Arrow's batches without checking each access against the end of its memory."""

HOME = "SPARK_HOME"
PARTS = ("bin", "conf", "jars")
"""What Spark's programs look for in their home. Users may add `conf` at any time: its link is made
in advance."""

DAEMON = "pyspark.daemon"
"""The module that Spark starts workers with which it uses again."""


def are_used() -> bool:
    """Whether the session of this process has asked for it."""
    return bool(environment_text(MARK))


@contextmanager
def used_by(settings: Mapping[str, str]) -> Iterator[None]:
    """Have a Java that starts within the block use all of it."""
    os.environ[MARK] = "1"
    try:
        with compiled_home(settings):
            yield
    finally:
        del os.environ[MARK]


# --- a home of links (rule 2) ---


@contextmanager
def compiled_home(settings: Mapping[str, str]) -> Iterator[None]:
    """Have SPARK_HOME name our home within the block, if that is right for a session like this."""
    home = _home() if _is_ours(settings) else None
    if home is None:
        yield
        return
    os.environ[HOME] = str(home)
    try:
        yield
    finally:
        del os.environ[HOME]


def _is_ours(settings: Mapping[str, str]) -> bool:
    """Whether Python processes of the session find the PySpark of this process."""
    pythons = {os.environ.get("PYSPARK_PYTHON"), settings.get("spark.pyspark.python")}
    is_local = settings.get("spark.master", "").startswith("local")
    return is_local and HOME not in os.environ and pythons <= {None, sys.executable}


def _home() -> Path | None:
    """Return our home; None where PySpark brings no Spark along, or nothing can be written."""
    spec = importlib.util.find_spec("pyspark")
    package = Path(spec.origin).parent if spec is not None and spec.origin else None
    if package is None or not SystemFiles().names(package / "jars"):
        return None
    home = cached("spark-home", str(package))
    try:
        link_into(home, [package / part for part in PARTS])
    except MQError as error:
        log.info("Spark starts slower without a home of links: %s", error)
        return None
    return home


# --- a short rest of workers (rule 3) ---


class _Worker:
    """This process."""

    module_count = 0
    """How many modules were there when the collector was told last."""


def shorten_rest() -> None:
    """In a worker: have the collector leave alone what is there, if modules have come since."""
    if not are_used():
        return
    from pyspark import TaskContext

    count = len(sys.modules)
    is_worker = TaskContext.get() is not None or _is_started_by_spark()
    if is_worker and count > _Worker.module_count:
        _Worker.module_count = count
        gc.freeze()


def _is_started_by_spark() -> bool:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == DAEMON


# --- rows that travel with a plan (rule 4) ---


def carrying_class() -> type[Any] | None:
    """Return the class of readers whose rows Spark takes along; None in a Spark that has none."""
    internal = importlib.import_module("pyspark.sql.datasource_internal")
    found: type[Any] | None = getattr(internal, "_SimpleStreamReaderWrapper", None)
    return found
