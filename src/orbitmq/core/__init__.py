"""The hot core: the send and pull paths, and the small state they share with everybody.

Three entry points: append, gather, and handle_one_read, the last made of the first two; and walk,
which reads back what append wrote. There are two implementations: `plain`, the one to read first,
and its twin `compiled`, which takes its place where it is built (`chosen`). Both have the names of
TWINS and pass the same tests; all else is there once.
"""

from orbitmq.core import chosen
from orbitmq.core.admit import Admitted, Refusal, Way, admit, parse_level, with_entries
from orbitmq.core.admit_batch import AdmittedBatch, admit_batch
from orbitmq.core.plain import (
    BatchColumns,
    BatchStamp,
    Gathered,
    PullStatus,
    ReadResult,
    SqlFilter,
    Stamp,
    append,
    append_batch,
    append_copies,
    file_rows,
    gather,
    handle_one_read,
)
from orbitmq.core.plain_batch import BATCH_COUNT_MAX
from orbitmq.core.plain_rows import INDEX_ENTRY, ROW, Filing, rows_of
from orbitmq.core.plain_walk import Walked, is_end_of_file, record_at, walk_records
from orbitmq.core.record_keys import RecordKeys, keys_in, keys_of_record, may_have_keys
from orbitmq.core.state import (
    CoreState,
    Got,
    LogTail,
    Origin,
    Queue,
    RecordFilter,
    Subscription,
    Topic,
)
from orbitmq.core.tag_codes import tag_code_in

__all__ = [
    "BATCH_COUNT_MAX",
    "CHOSEN",
    "INDEX_ENTRY",
    "ROW",
    "TWINS",
    "Admitted",
    "AdmittedBatch",
    "BatchColumns",
    "BatchStamp",
    "CoreState",
    "Filing",
    "Gathered",
    "Got",
    "LogTail",
    "Origin",
    "PullStatus",
    "Queue",
    "ReadResult",
    "RecordFilter",
    "RecordKeys",
    "Refusal",
    "SqlFilter",
    "Stamp",
    "Subscription",
    "Topic",
    "Walked",
    "Way",
    "admit",
    "admit_batch",
    "append",
    "append_batch",
    "append_copies",
    "file_rows",
    "gather",
    "handle_one_read",
    "is_end_of_file",
    "keys_in",
    "keys_of_record",
    "may_have_keys",
    "parse_level",
    "record_at",
    "rows_of",
    "tag_code_in",
    "walk_records",
    "with_entries",
]

TWINS = (
    "CoreState",
    "LogTail",
    "Origin",
    "Queue",
    "SqlFilter",
    "Topic",
    "append",
    "append_batch",
    "append_copies",
    "file_rows",
    "gather",
    "handle_one_read",
)
"""What each core has of its own."""

CHOSEN = chosen.from_environment()
"""The core of this process."""

if CHOSEN.compiled is not None:
    globals().update({name: getattr(CHOSEN.compiled, name) for name in TWINS})
