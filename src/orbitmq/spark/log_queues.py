"""Records of some topics, found through the queue files instead of the whole log.

In: a store folder, topics, queues and tags, and a range of the log. Out: where their records begin.

Rules:
1. Entries of a queue ascend in the log: a range of it is found by halves, without reading them all.
2. Tag codes are a first filter only, and none where entries hold something else there (times of
   scheduled messages, addresses of extra units): whoever reads compares the tag itself.
3. Queues are derived from the log and may be behind it. They count for a range only when the
   checkpoint says that they were on the disk. A folder without the file `abort` was stopped well,
   or it is a copy that somebody made without it: the checkpoint tells these apart as well.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orbitmq.arrow.starts import RECORD_BYTES_MAX, Positions
from orbitmq.spark.log_ends import last_store_ms
from orbitmq.spark.log_files import Log, first_store_ms
from orbitmq.store.checkpoint import read_checkpoint
from orbitmq.store.layout import Folder, is_file_name
from orbitmq.store.queue_ext import ADDRESS_MAX
from orbitmq.wire.expression import TagFilter
from orbitmq.wire.names import SCHEDULE_TOPIC
from orbitmq.world.files import Files
from orbitmq.world.mapped import mapped

ENTRY = np.dtype([("log_offset", ">i8"), ("size", ">i4"), ("code", ">i8")])
EVERYTHING = 1 << 63
STAMP_MARGIN_MS = 3_000
"""What the original's recovery allows for stamps that are ahead of what is on the disk."""

_OTHER_CODES = (SCHEDULE_TOPIC, "rmq_sys_")
"""How topics begin whose entries hold no tag codes."""


def complete_below(files: Files, log: Log) -> int:
    """Give the log offset below which the queue files surely have everything (rule 3)."""
    if log.folder is None or not files.is_folder(log.folder.queues):
        return 0
    checkpoint = read_checkpoint(files, log.folder.checkpoint)
    if checkpoint is None:
        return 0
    if checkpoint.synced is not None:
        return checkpoint.synced.log_offset
    if files.size(log.folder.abort) is None:
        last_ms = last_store_ms(files, log.files)
        if last_ms is not None and last_ms <= checkpoint.stamps.logics_ms:
            return EVERYTHING
    sure_ms = min(checkpoint.stamps.physic_ms, checkpoint.stamps.logics_ms) - STAMP_MARGIN_MS
    for log_file in reversed(log.files):
        first_ms = first_store_ms(files, log_file)
        if first_ms is not None and first_ms <= sure_ms:
            return log_file.base
    return 0


def has_queues(files: Files, folder: Folder, topics: Iterable[str]) -> bool:
    """Whether every topic has queue files: a removed one has none, but the log may hold it."""
    return all(files.names(folder.queues / topic) for topic in topics)


class QueueSearch:
    """Finds the records of some topics."""

    def __init__(
        self, files: Files, folder: Folder, topics: Iterable[str], queues: frozenset[int]
    ) -> None:
        self._files = files
        self._queues = [
            (topic, folder.queues / topic / name)
            for topic in sorted(topics)
            for name in files.names(folder.queues / topic)
            if name.isdecimal() and (not queues or int(name) in queues)
        ]

    def log_offsets(self, begin: int, end: int, tags: TagFilter) -> Positions:
        """Give, in order, where their records begin in [begin, end) of the log."""
        found = [
            _chosen(entries, begin, end, TagFilter() if topic.startswith(_OTHER_CODES) else tags)
            for topic, queue in self._queues
            for entries in self._entries(queue)
        ]
        if not found:
            return np.empty(0, dtype=np.int64)
        return np.unique(np.concatenate(found))

    def _entries(self, queue: Path) -> Iterable[NDArray[Any]]:
        for name in self._files.names(queue):
            view = mapped(queue / name) if is_file_name(name) else None
            if view is not None:
                whole = len(view) - len(view) % ENTRY.itemsize
                yield np.frombuffer(view[:whole], dtype=ENTRY)


def _chosen(entries: NDArray[Any], begin: int, end: int, tags: TagFilter) -> Positions:
    written = _written_count(entries)
    first = _first_at_or_behind(entries, begin, written)
    last = _first_at_or_behind(entries, end, written)
    found = entries[first:last]
    is_chosen = (found["size"] > 0) & (found["size"] <= RECORD_BYTES_MAX)
    if tags.codes:
        codes = found["code"].astype(np.int64)
        is_chosen &= np.isin(codes, list(tags.codes)) | (codes <= ADDRESS_MAX)
    return found["log_offset"][is_chosen].astype(np.int64)


def _written_count(entries: NDArray[Any]) -> int:
    """Give how many entries of a file were written: behind them are zeros."""
    low, high = 0, len(entries)
    while low < high:
        middle = (low + high) // 2
        if entries[middle]["size"] > 0:
            low = middle + 1
        else:
            high = middle
    return low


def _first_at_or_behind(entries: NDArray[Any], log_offset: int, count: int) -> int:
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if entries[middle]["log_offset"] < log_offset:
            low = middle + 1
        else:
            high = middle
    return low
