"""A worker's rest between tasks, made short.

In: nothing. Out: nothing; the worker's collector of garbage looks at less.

Rules:
1. Spark's worker collects garbage after each task, and so looks at everything that was ever
   imported there: 23 ms of CPU, as much as 25,000 rows take to decode. What is there when a worker
   begins to work stays for its life, so the collector is told to leave it alone; and so, when it
   works again, is what it has imported and kept since (`TIMES`). Later nothing is left to itself:
   it might be garbage one day.
2. Only Spark's workers are treated so, those that plan and commit like those that run tasks:
   elsewhere memory is the program's own affair.
"""

import gc
import sys

from pyspark import TaskContext

DAEMON = "pyspark.daemon"
"""The module that Spark starts workers with which it uses again."""

TIMES = 3
"""So often the collector is told; the last imports are those of the first task's end."""

_times = iter(range(TIMES))


def shorten_rest() -> bool:
    """Have the collector leave alone what is there; give whether it was the first time here."""
    is_worker = TaskContext.get() is not None or _is_started_by_spark()
    time = next(_times, None) if is_worker else None
    if time is None:
        return False
    gc.freeze()
    return time == 0


def _is_started_by_spark() -> bool:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == DAEMON
