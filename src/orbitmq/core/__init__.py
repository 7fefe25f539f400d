"""The hot core: the send and pull paths, and the small state they share with everybody.

Three entry points: append, gather, and handle_one_read, the last made of the first two. Today there
is one implementation, `plain`; its compiled twin will be chosen here and pass the same tests.
"""

from orbitmq.core.plain import (
    Gathered,
    PullStatus,
    ReadResult,
    Stamp,
    append,
    gather,
    handle_one_read,
    stored_properties,
)
from orbitmq.core.state import (
    CoreState,
    LogTail,
    OldEntries,
    Origin,
    Queue,
    Subscription,
    Topic,
)

__all__ = [
    "CoreState",
    "Gathered",
    "LogTail",
    "OldEntries",
    "Origin",
    "PullStatus",
    "Queue",
    "ReadResult",
    "Stamp",
    "Subscription",
    "Topic",
    "append",
    "gather",
    "handle_one_read",
    "stored_properties",
]
