"""A home of Spark from which its Python processes import PySpark as it is installed: compiled.

In: the settings of a local session. Out: a folder for SPARK_HOME, for as long as Java starts.

Rules:
1. Spark puts `python/lib/pyspark.zip` of its home before all else that its Python processes import,
   and Python compiles what is in a zip anew in each process: a second of CPU, and a session has a
   dozen of them. Our home has what Spark's programs look for, and not that folder.
2. Only where the installed PySpark is what they would find then: Spark is local, its home is that
   of the package, and its workers run our Python.
3. It consists of links, is made once and lies in the user's cache. Where it cannot be made Spark
   starts without it, and slower.
"""

import importlib.util
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from orbitmq.errors import MQError
from orbitmq.spark.user_cache import cached
from orbitmq.world.files import SystemFiles
from orbitmq.world.links import link_into

log = logging.getLogger(__name__)

HOME = "SPARK_HOME"
PARTS = ("bin", "conf", "jars")
"""What Spark's programs look for in their home. Users may add `conf` at any time: its link is made
in advance."""


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
    """Whether Python processes of the session find the PySpark of this process (rule 2)."""
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
