"""How Java starts quickly for tests: a collector and compiler that begin at once, and an archive.

In: which Java and which Spark there are. Out: Java's options, and where the archive would be.

Rules:
1. The archive holds Spark's classes as Java has parsed them. `orbitmq.spark.make_archive` makes it,
   once for each Java and Spark; where there is none, the other options help alone.
2. It lies in the user's cache. Java ignores one that does not fit.
3. Not for production: code that is compiled once and lightly runs at two thirds of the speed.
"""

import importlib.util
from pathlib import Path

from orbitmq.spark.user_cache import cached
from orbitmq.world.files import SystemFiles
from orbitmq.world.java import find_java

PLAIN_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss4m"
"""A deep plan needs a deep stack before it is compiled."""

SILENT = "-Xlog:disable -Xlog:all=off"
"""Java must not complain of an archive on standard output, where programs read other things."""


def java_options(archive: Path | None) -> str:
    """Return the options of a Java that starts quickly, with the archive if it is there."""
    if archive is None or SystemFiles().size(archive) is None:
        return PLAIN_OPTIONS
    return f"{PLAIN_OPTIONS} -XX:SharedArchiveFile={archive} {SILENT}"


def archive_path() -> Path | None:
    """Return where the archive of this Java and this Spark is kept; None without one of them."""
    java, spark = find_java(), importlib.util.find_spec("pyspark")
    if java is None or spark is None or spark.origin is None:
        return None
    # Java refuses an archive whose jars lay elsewhere (compiled_home), or of another version.
    facts = f"{java.path.resolve()} {java.version} {spark.origin} linked"
    return cached("spark", facts).with_suffix(".jsa")
