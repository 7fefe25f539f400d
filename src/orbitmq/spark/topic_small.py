"""Small batches: their rows are read while they are planned, and travel with the plan.

In: the ranges of a micro-batch. Out: its rows, or None: then a task reads them as ever.

Why: a task of Python's takes Spark longer than all else does for a few rows. Spark takes rows along
with the plan from readers of its own only, those of SimpleDataSourceStreamReader; `topic_stream`
is one of them for the length of that call, in sessions that ask for it (`internals`).

Rules:
1. Small are ROWS_MAX offsets with BATCH_BYTES of messages at most, and no option sizes tasks.
2. What cannot be read here is left to the task, which waits, retries and says why it failed.
"""

import logging
from collections.abc import Collection
from typing import Any

from orbitmq.errors import MQError
from orbitmq.spark.topic_options import TopicOptions
from orbitmq.spark.topic_planning import Range
from orbitmq.spark.topic_reading import BATCH_BYTES, read_ranges

log = logging.getLogger(__name__)

ROWS_MAX = 256


def is_small(ranges: Collection[Range], options: TopicOptions) -> bool:
    """Whether a batch has few messages, and nobody says how to part it (rule 1)."""
    is_sized = (
        options.min_partitions is not None
        or options.max_records_per_partition is not None
        or options.max_bytes_per_partition is not None
    )
    return not is_sized and 0 < sum(each.length for each in ranges) <= ROWS_MAX


def small_rows(ranges: Collection[Range], options: TopicOptions, schema: Any) -> list[Any] | None:
    """Return the rows as Arrow batches; None when a task is to read them (rules 1 and 2)."""
    found: list[Any] = []
    size = 0
    try:
        for batch in read_ranges(tuple(ranges), options, schema):
            found.append(batch)
            size += batch.nbytes
            if size > BATCH_BYTES:
                return None
    except MQError as error:
        log.info("a task reads this batch: %s", error)
        return None
    return found
