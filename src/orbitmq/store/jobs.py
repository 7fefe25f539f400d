"""What all jobs have in common: they run in a thread and do not raise what a disk does.

In: the work of a job. Out: its error, for whoever finishes the job on the loop.
Rule: a bug of ours is an error as well: it must not count as done.
"""

from collections.abc import Callable
from typing import NamedTuple

from orbitmq.core import Queue
from orbitmq.errors import StoreError


class UnwrittenEntries(NamedTuple):
    """Entries of one queue that memory alone holds."""

    queue: Queue
    queue_offset: int
    entries: bytes | bytearray


def error_of(action: Callable[[], None]) -> StoreError | None:
    """Run an action; return what went wrong, or None."""
    try:
        action()
    except StoreError as error:
        return error
    except Exception as error:
        failed = StoreError(f"a job of the store failed: {error!r}")
        failed.__cause__ = error
        return failed
    return None
