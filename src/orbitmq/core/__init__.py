"""The hot core: the send and pull paths, and the small state they share with everybody.

Three entry points: append, gather, and handle_one_read, the last made of the first two; and walk,
which reads back what append wrote. Today there is one implementation, `plain`; its compiled twin
will be chosen here and pass the same tests.
"""

from orbitmq.core.plain import (
    ID_END,
    BatchColumns,
    BatchStamp,
    Gathered,
    PullStatus,
    ReadResult,
    Stamp,
    append,
    append_batch,
    append_copies,
    gather,
    handle_one_read,
    leading_ids,
    stored_properties,
)
from orbitmq.core.plain_walk import Walked, is_end_of_file, record_at, walk_records
from orbitmq.core.state import (
    CoreState,
    Got,
    LogTail,
    Origin,
    Queue,
    Subscription,
    Topic,
)

__all__ = [
    "ID_END",
    "BatchColumns",
    "BatchStamp",
    "CoreState",
    "Gathered",
    "Got",
    "LogTail",
    "Origin",
    "PullStatus",
    "Queue",
    "ReadResult",
    "Stamp",
    "Subscription",
    "Topic",
    "Walked",
    "append",
    "append_batch",
    "append_copies",
    "gather",
    "handle_one_read",
    "is_end_of_file",
    "leading_ids",
    "record_at",
    "stored_properties",
    "walk_records",
]
