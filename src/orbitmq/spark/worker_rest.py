"""A worker's rest between tasks, made short.

In: nothing. Out: nothing; the worker's collector of garbage looks at less.

Rules:
1. Spark's worker collects garbage after each task, and so looks at everything that was ever
   imported there: 23 ms of CPU, as much as 25,000 rows take to decode. What is imported stays for a
   worker's life, so the collector is told to leave alone what is there, when a worker begins to
   work and whenever a task finds more modules than the last one did. Where nothing was imported
   nothing is left to itself: it might be garbage one day.
2. Only Spark's workers are treated so, those that plan and commit like those that run tasks:
   elsewhere memory is the program's own affair.
"""

import gc
import sys

from pyspark import TaskContext

DAEMON = "pyspark.daemon"
"""The module that Spark starts workers with which it uses again."""


class _Worker:
    """This process."""

    module_count = 0
    """How many modules were there when the collector was told last."""


def shorten_rest() -> None:
    """Have the collector leave alone what is there, if modules have come since the last time."""
    count = len(sys.modules)
    is_worker = TaskContext.get() is not None or _is_started_by_spark()
    if is_worker and count > _Worker.module_count:
        _Worker.module_count = count
        gc.freeze()


def _is_started_by_spark() -> bool:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == DAEMON
