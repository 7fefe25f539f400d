"""A worker's rest between tasks, made short.

In: nothing. Out: nothing; the worker's collector of garbage looks at less.

Rules:
1. Spark's worker collects garbage after each task, and so looks at everything that was ever
   imported there: 23 ms of CPU, as much as 25,000 rows take to decode. What is there when a worker
   reads for the first time stays for its life, so the collector is told to leave it alone.
2. Only Spark's workers are treated so: elsewhere memory is the program's own affair.
"""

import gc

from pyspark import TaskContext


def shorten_rest() -> None:
    """Have the collector leave alone what is there, once in a worker's life."""
    if TaskContext.get() is not None and not gc.get_freeze_count():
        gc.freeze()
