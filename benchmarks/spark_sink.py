"""What the sink costs without Spark: Arrow batches in this process, into a broker beside it.

In: how many rows, of which size, delivered how. Out: rows per CPU second, the broker's CPU and that
of this process together, as if both had one core. Run: `python -m benchmarks.spark_sink`.

Rules:
1. The broker is `orbitmq up` in a process of its own; its CPU counts, and so does ours.
2. Rows are made before, bodies do not compress, and each has a tag and a key.
3. Of several rounds the best counts: the machine has other work, too.
"""

import argparse
import random
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.servers import Server, ours
from benchmarks.spark_cpu import Rate, tree_cpu_s
from orbitmq.spark.sink_keys import TaskKey
from orbitmq.spark.sink_options import sink_options
from orbitmq.spark.sink_writing import SinkPlan, write_task

ROWS = 200_000
BODY_SIZE = 1_024
ARROW_ROWS = 4_000
ROUNDS = 3
SEED = 7
COLUMNS = ("body", "tags", "keys")
KINDS: dict[str, dict[str, str]] = {
    "at least once": {},
    "idempotent": {"delivery": "idempotent"},
}

_batches = count(1)


def make_rows(row_count: int, body_size: int) -> list[Any]:
    """Return the rows as Spark's workers get them."""
    data = random.Random(SEED).randbytes(body_size * ARROW_ROWS)
    bodies = [data[at : at + body_size] for at in range(0, len(data), body_size)]
    return [
        pa.record_batch(
            {
                "body": bodies,
                "tags": [f"Tag{number % 7}" for number in range(ARROW_ROWS)],
                "keys": [f"order{start + number}" for number in range(ARROW_ROWS)],
            }
        )
        for start in range(0, row_count, ARROW_ROWS)
    ]


def sink_rate(server: Server, rows: list[Any], options: dict[str, str]) -> tuple[Rate, float]:
    """Write all rows as one task; return the rate, and the broker's share of the CPU."""
    given = {"namesrvAddr": server.namesrv, "topic": "SinkBench", **options}
    plan = SinkPlan(sink_options(given), COLUMNS)
    task = TaskKey("bench", next(_batches), 0, may_be_repeated=False)
    broker_s, own_s, began_s = tree_cpu_s(server.pids), time.process_time(), time.monotonic()
    stored = write_task(plan, task, rows[0], iter(rows[1:])).rows
    broker_s = tree_cpu_s(server.pids) - broker_s
    own_s = time.process_time() - own_s
    cpu_s = broker_s + own_s
    return Rate(stored, cpu_s, time.monotonic() - began_s), broker_s / cpu_s


def main() -> None:
    """Print a line for each kind of delivery."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--body-size", type=int, default=BODY_SIZE)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    rows = make_rows(given.rows, given.body_size)
    with tempfile.TemporaryDirectory() as folder, ours(Path(folder) / "broker", None) as server:
        for name, options in KINDS.items():
            found = [sink_rate(server, rows, options) for _ in range(given.rounds)]
            rate, share = max(found, key=lambda each: each[0].rows_per_core_s)
            print(
                f"Arrow sink, {name}: {rate.rows_per_core_s:,.0f} rows/s/core of {given.body_size}"
                f" bytes ({rate.cost_us:.1f} us a row, {share:.0%} of it the broker's),"
                f" {rate.rows_per_s:,.0f} rows/s"
            )


if __name__ == "__main__":
    main()
