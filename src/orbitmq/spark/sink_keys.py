"""The keys of rows: who a task is, and the unique id of each of its messages.

In: Spark's TaskContext. Out: a TaskKey, ids made of it, and whether the task may be a repetition.

Layout of an id, 32 hexadecimal digits as every client's: 14 of a hash of query and batch | 6 of
the partition | 12 of the row's number in it.

Rules:
1. The same row of the same task has the same id in every attempt.
2. The first row of an idempotent task (BEGIN) is stored before all others and the last one (END)
   after all others: no BEGIN and no END, nothing is stored; END, everything is.
3. A streaming query repeats only the first batch of a run. So a process that has seen an earlier
   batch of the same run knows that nobody has begun this one before the run did.
4. Two attempts of one task at the same time cannot be told apart: speculation is refused.
5. The function of foreachBatch may write several times: to be idempotent each write there has a
   name (writeId), which counts together with query and batch.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from orbitmq.errors import SettingError

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
RUN_ID = "spark.jobGroup.id"
APP_ID = "spark.app.id"
EXECUTION_ID = "spark.sql.execution.id"
SPECULATION = "spark.speculation"

BATCH_DIGITS, PARTITION_DIGITS, ROW_DIGITS = 14, 6, 12
TASK_DIGITS = BATCH_DIGITS + PARTITION_DIGITS
ID_DIGITS = TASK_DIGITS + ROW_DIGITS

BEGIN = 0
END = 16**ROW_DIGITS - 1
MOVED = 2**40
"""Added to the number of a row whose own number another row of an earlier attempt has taken."""

RUNS_MAX = 1_000
"""So many runs are remembered; those of a process are few."""

_RUN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The id of a run. A job group that is no such id is the program's own, and says nothing."""

_SHIFTS = np.arange(4 * (ROW_DIGITS - 1), -1, -4, dtype=np.uint64)
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)


class TaskKey(msgspec.Struct, frozen=True):
    """Which task this is."""

    query: str
    batch: int
    partition: int
    attempt: int = 0
    may_be_repeated: bool = True
    """Whether another run, or another attempt, may have begun it before."""

    @property
    def batch_prefix(self) -> str:
        """What the ids of all rows of the batch begin with."""
        named = f"{self.query}\n{self.batch}".encode()
        digest = hashlib.blake2b(named, digest_size=BATCH_DIGITS // 2)
        return digest.hexdigest().upper()

    @property
    def prefix(self) -> str:
        """What the ids of all rows of the task begin with."""
        return f"{self.batch_prefix}{self.partition:0{PARTITION_DIGITS}X}"

    def id_of(self, row: int) -> str:
        """Return the unique id of a row."""
        return f"{self.prefix}{row:0{ROW_DIGITS}X}"

    def ids_of(self, rows: Any) -> Any:
        """Return the unique ids of many rows as an Arrow array of strings."""
        digits = np.empty((len(rows), ID_DIGITS), np.uint8)
        digits[:, :TASK_DIGITS] = np.frombuffer(self.prefix.encode(), np.uint8)
        digits[:, TASK_DIGITS:] = _HEX[(rows[:, None] >> _SHIFTS) & np.uint64(15)]
        ends = np.arange(0, (len(rows) + 1) * ID_DIGITS, ID_DIGITS, dtype=np.int32)
        return pa.StringArray.from_buffers(len(rows), pa.py_buffer(ends), pa.py_buffer(digits))


_first_batches: dict[str, int] = {}
"""The first batch that this process has seen of each run (rule 3)."""


class Write(msgspec.Struct, frozen=True):
    """What is known of a write before its tasks run."""

    is_stream: bool = False
    """Whether it is a query's own sink."""
    name: str = ""
    is_idempotent: bool = False


def current_task(write: Write) -> TaskKey:
    """Return the task that runs in this process; raises SettingError (rules 4 and 5)."""
    context = TaskContext.get()
    if context is None:
        raise SettingError("rows are written by Spark's tasks, and this is none")
    if write.is_idempotent:
        _refuse_speculation(context.getLocalProperty(SPECULATION) or "")
    names = (QUERY_ID, BATCH_ID, RUN_ID, APP_ID, EXECUTION_ID)
    found = {name: context.getLocalProperty(name) or "" for name in names}
    return task_key(found, (context.partitionId(), context.attemptNumber()), write)


def task_key(found: Mapping[str, str], place: tuple[int, int], write: Write) -> TaskKey:
    """Return the task of these properties, with its partition and attempt as its place.

    Raises SettingError for a write of foreachBatch that needs a name (rule 5).
    """
    partition, attempt = place
    is_in_query = bool(found[QUERY_ID] and found[BATCH_ID])
    if is_in_query and not write.is_stream and write.is_idempotent and not write.name:
        raise SettingError(
            "delivery=idempotent inside foreachBatch needs the option 'writeId': a name for this"
            " write, another one for each write of the function"
        )
    if is_in_query and (write.is_stream or write.name):
        batch = int(found[BATCH_ID])
        query = found[QUERY_ID] if write.is_stream else f"{found[QUERY_ID]} write {write.name}"
        is_new = _is_new_batch(found[RUN_ID], batch)
        return TaskKey(query, batch, partition, attempt, bool(attempt) or not is_new)
    if write.name:
        return TaskKey(f"write {write.name}", 0, partition, attempt)
    query = f"{found[APP_ID]} {found[EXECUTION_ID]}"
    return TaskKey(query, 0, partition, attempt, bool(attempt))


def _refuse_speculation(found: str) -> None:
    """Raise SettingError when Spark may run two attempts of a task at once (rule 4)."""
    if found.lower() == "true":
        raise SettingError(
            "delivery=idempotent cannot tell two attempts at the same time apart: set"
            " spark.speculation=false for this application"
        )


def _is_new_batch(run: str, batch: int) -> bool:
    """Whether this process has seen an earlier batch of the run."""
    if not _RUN.fullmatch(run):
        return False
    if len(_first_batches) > RUNS_MAX:
        _first_batches.clear()
    return _first_batches.setdefault(run, batch) < batch
