"""One attempt of one task of the sink, in a process that can be killed.

In: `python -m tests.spark.sink_task NAMESRV TOPIC BATCH ATTEMPT`. Out: `ready` when the first rows
are on their way, exit code 0 when all are stored. Rows come slowly, in an order that the attempt
chooses, as after a shuffle.
"""

import random
import sys
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from orbitmq.spark.sink_keys import TaskKey
from tests.spark.sinking import plan, run_task

ROWS = 240
ARROW_ROWS = 12
PAUSE_S = 0.02


def texts(batch: int) -> list[str]:
    """Return the rows of a batch, each different from all others."""
    return [f"batch {batch} row {number}" for number in range(ROWS)]


def rows(batch: int, attempt: int) -> Iterator[Any]:
    """Return the rows as a worker gets them."""
    shuffled = texts(batch)
    random.Random(attempt).shuffle(shuffled)
    for start in range(0, ROWS, ARROW_ROWS):
        yield pa.record_batch({"body": shuffled[start : start + ARROW_ROWS]})
        if not start:
            print("ready", flush=True)
        time.sleep(PAUSE_S)


def main(namesrv: str, topic: str, batch: int, attempt: int) -> None:
    """Write the rows."""
    options = {"delivery": "idempotent", "fenceMs": "250", "batchSize": "5"}
    made = plan(namesrv, ["body"], topic=topic, **options)
    run_task(made, rows(batch, attempt), TaskKey("killed", batch, 0, attempt))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
