"""What a store can be told when it is opened; defaults are the original's unless a comment says so.

In: values from the broker's settings, or from a test that wants small files. Out: one frozen value.
Rule: sizes count for new folders only. A folder that has files keeps the sizes it was written with.
"""

from pathlib import Path

import msgspec

from orbitmq.store.kept_entries import KEPT_BYTES_MAX

LOG_FILE_SIZE = 1_073_741_824
QUEUE_FILE_SIZE = 6_000_000
EXTRA_FILE_SIZE = 50_331_648
INDEX_SLOT_COUNT = 5_000_000
INDEX_ENTRY_COUNT = 20_000_000
DELAYS_MS = tuple(
    1000 * seconds
    for seconds in (1, 5, 10, 30, *(60 * minute for minute in (*range(1, 11), 20, 30, 60, 120)))
)
"""How long a message of level 1, 2, 3 … waits: 1s 5s 10s 30s 1m … 10m 20m 30m 1h 2h."""

_MIB = 1_048_576


class StoreOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a store is laid out and when it gives up."""

    log_folders: tuple[Path, ...] = ()
    """Where the log is; none: in the store folder."""
    read_only_log_folders: tuple[Path, ...] = ()
    """Where files of it are that were written before; none is made there."""
    log_file_size: int = LOG_FILE_SIZE
    queue_file_size: int = QUEUE_FILE_SIZE
    index_slot_count: int = INDEX_SLOT_COUNT
    index_entry_count: int = INDEX_ENTRY_COUNT
    is_indexed: bool = True
    delays_ms: tuple[int, ...] = DELAYS_MS
    is_extended: bool = False
    """Whether queue entries get extra units; those that are there are read in any case."""
    extra_file_size: int = EXTRA_FILE_SIZE

    is_sync_flush: bool = False
    """What may be seen is what is synced, and an acknowledgement waits for it."""
    unsynced_bytes_max: int = 256 * _MIB
    unsynced_ms_max: int = 10_000
    """At either limit of the unsynced tail sends are refused until it is shorter."""
    hot_bytes: int = 1 << 33
    """Records this near to the log's end are served from mapped files."""
    unwritten_bytes_max: int = 64 * _MIB
    """Queue and index entries that only memory holds; above it sends are refused."""
    kept_bytes_max: int = KEPT_BYTES_MAX
    """Queue entries that stay in memory after they were written."""
