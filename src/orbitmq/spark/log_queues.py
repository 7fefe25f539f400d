"""Records of some topics, queues or tags, found through the queue files instead of the whole log.

In: a store folder, topics, queues and tags, and a range of the log. Out: where their records begin.

Rules:
1. Only entries of the range are read (log_entries.py); those of a span of times, too, as ranges are
   cut to it before (log_times.py).
2. Tag codes are a first filter only, and none where entries hold something else there (times of
   scheduled messages, addresses of extra units): whoever reads compares the tag itself.
3. Queues are derived from the log and may be behind it. They count for a range only when the
   checkpoint says that they were on the disk. A folder without the file `abort` was stopped well,
   or it is a copy that somebody made without it: the checkpoint tells these apart as well.
"""

from collections.abc import Collection

import numpy as np

from orbitmq.arrow.starts import Positions
from orbitmq.spark.log_ends import last_store_ms
from orbitmq.spark.log_entries import (
    Entries,
    are_possible,
    entries_of,
    first_at_or_behind,
    queues_of,
    topics_in,
    written_count,
)
from orbitmq.spark.log_files import Log, first_store_ms
from orbitmq.store.checkpoint import read_checkpoint
from orbitmq.store.layout import Folder
from orbitmq.store.queue_ext import ADDRESS_MAX
from orbitmq.wire.expression import TagFilter
from orbitmq.wire.names import SCHEDULE_TOPIC
from orbitmq.world.files import Files

EVERYTHING = 1 << 63
STAMP_MARGIN_MS = 3_000
"""What the original's recovery allows for stamps that are ahead of what is on the disk."""

QUEUES_MAX = 2_000
"""More are not looked through for what may be in any of them."""

_OTHER_CODES = (SCHEDULE_TOPIC, "rmq_sys_")
"""How topics begin whose entries hold no tag codes."""


def complete_below(files: Files, log: Log) -> int:
    """Return the log offset below which the queue files surely have everything (rule 3)."""
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


def has_queues(files: Files, folder: Folder, topics: Collection[str]) -> bool:
    """Whether every topic has queue files: a removed one has none, but the log may hold it.

    Without topics it is whether there are some, and not so many that the log is read sooner.
    """
    if topics:
        return all(files.names(folder.queues / topic) for topic in topics)
    return 0 < len(queues_of(files, folder, topics_in(files, folder))) <= QUEUES_MAX


class QueueSearch:
    """Finds the records of some topics, or of all."""

    def __init__(
        self, files: Files, folder: Folder, topics: Collection[str], queues: frozenset[int]
    ) -> None:
        self._files = files
        self._queues = queues_of(files, folder, topics or topics_in(files, folder), queues)

    def log_offsets(self, begin: int, end: int, tags: TagFilter) -> Positions:
        """Give, in order, where their records begin in [begin, end) of the log."""
        found = [
            _chosen(entries, begin, end, TagFilter() if topic.startswith(_OTHER_CODES) else tags)
            for topic, queue in self._queues
            for entries in entries_of(self._files, queue)
        ]
        if not found:
            return np.empty(0, dtype=np.int64)
        return np.unique(np.concatenate(found))


def _chosen(entries: Entries, begin: int, end: int, tags: TagFilter) -> Positions:
    written = written_count(entries)
    first = first_at_or_behind(entries, begin, written)
    last = first_at_or_behind(entries, end, written)
    found = entries[first:last]
    is_chosen = are_possible(found)
    if tags.codes:
        codes = found["code"].astype(np.int64)
        is_chosen &= np.isin(codes, list(tags.codes)) | (codes <= ADDRESS_MAX)
    return found["log_offset"][is_chosen].astype(np.int64)
