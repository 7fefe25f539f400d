"""How Spark finds the format `rocketmq_log` by itself: it looks for modules named `pyspark_*`.

In: nothing. Out: `DefaultSource`, if what it needs is installed.

Rule: importing this never fails and is cheap. A failing one would break every Python source.
"""

from contextlib import suppress

with suppress(ImportError):  # without Spark or Arrow; `orbitmq.spark.session` says what to install
    from orbitmq.spark.log_source import LogSource as DefaultSource

__all__ = ["DefaultSource"]
