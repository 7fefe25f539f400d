"""Queue files of a store folder: which records of a range of the log they name, and whether all.

In: a store folder, topics, queues and tags, and a range of the log. Out: where records begin.

Rules:
1. Entries of a queue ascend in the log: a range of it is found by halves, without reading them all.
   Behind the last entry of a file are zeros.
2. Tag codes are a first filter only, and none where entries hold something else there (times of
   scheduled messages, addresses of extra units): whoever reads compares the tag itself.
3. Queues are derived from the log and may be behind it: they count for a range only when the
   checkpoint says that they were on the disk.
4. Entries know every record when each that they name begins where the one before it ends. That is
   asked where no topic is: one that was removed has records in the log without entries.
"""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orbitmq.arrow.starts import Positions
from orbitmq.core import is_end_of_file
from orbitmq.spark.log_files import Log, first_store_ms, last_store_ms
from orbitmq.store.checkpoint import read_checkpoint
from orbitmq.store.layout import Folder, is_file_name
from orbitmq.store.queue_ext import ADDRESS_MAX
from orbitmq.wire.expression import TagFilter
from orbitmq.wire.names import SCHEDULE_TOPIC
from orbitmq.wire.record import RECORD_SIZE_MAX
from orbitmq.world.files import Files
from orbitmq.world.mapped import mapped

ENTRY = np.dtype([("log_offset", ">i8"), ("size", ">i4"), ("code", ">i8")])
Entries = NDArray[Any]


def topics_in(files: Files, folder: Folder) -> list[str]:
    """Return the topics that have queues."""
    return files.names(folder.queues)


def queues_of(
    files: Files, folder: Folder, topics: Iterable[str], numbers: frozenset[int] = frozenset()
) -> list[tuple[str, Path]]:
    """Return the queues of topics, each with its topic; without numbers all of them."""
    return [
        (topic, folder.queues / topic / name)
        for topic in sorted(topics)
        for name in files.names(folder.queues / topic)
        if name.isdecimal() and (not numbers or int(name) in numbers)
    ]


def entries_of(files: Files, queue: Path) -> Iterator[Entries]:
    """Return the entries of each file of a queue, those that were not written as well."""
    for name in files.names(queue):
        view = mapped(queue / name) if is_file_name(name) else None
        if view is not None:
            whole = len(view) - len(view) % ENTRY.itemsize
            yield np.frombuffer(view[:whole], dtype=ENTRY)


def are_possible(entries: Entries) -> NDArray[np.bool_]:
    """Say of each entry whether it can be one (rule 2)."""
    is_possible: NDArray[np.bool_] = (entries["size"] > 0) & (entries["size"] <= RECORD_SIZE_MAX)
    return is_possible


def written_count(entries: Entries) -> int:
    """Return how many entries of a file were written."""
    low, high = 0, len(entries)
    while low < high:
        middle = (low + high) // 2
        if entries[middle]["size"] > 0:
            low = middle + 1
        else:
            high = middle
    return low


def first_at_or_behind(entries: Entries, log_offset: int, count: int) -> int:
    """Return the first of `count` entries that is not before a log offset, or `count`."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if entries[middle]["log_offset"] < log_offset:
            low = middle + 1
        else:
            high = middle
    return low


class FilePart(NamedTuple):
    """[begin, end) of the log, in a file whose bytes and first log offset are these."""

    view: memoryview
    base: int
    begin: int
    end: int


def knows_all(files: Files, folder: Folder, part: FilePart) -> bool:
    """Whether the queue files have an entry for every record of a part of the log."""
    found = [
        _around(entries, part)
        for _, queue in queues_of(files, folder, topics_in(files, folder))
        for entries in entries_of(files, queue)
    ]
    entries = np.concatenate(found) if found else np.empty((0, 2), dtype=np.int64)
    _, places = np.unique(entries[:, 0], return_index=True)
    return _is_closed(entries[places], part)


def _around(entries: Entries, part: FilePart) -> Positions:
    """Return where the records of the range begin and end, and the one before them."""
    written = written_count(entries)
    first = max(first_at_or_behind(entries, part.begin, written) - 1, 0)
    found = entries[first : first_at_or_behind(entries, part.end, written)]
    found = found[are_possible(found) & (found["log_offset"] >= part.base)]
    begins = found["log_offset"].astype(np.int64)
    return np.stack((begins, begins + found["size"]), axis=1)


def _is_closed(records: Positions, part: FilePart) -> bool:
    begins, ends = records[:, 0], records[:, 1]
    first = max(int(np.searchsorted(begins, part.begin)) - 1, 0)
    if part.begin == part.base:
        expected = part.base
    elif len(begins) and begins[first] < part.begin:
        expected = int(begins[first])
    else:
        return False
    reached = np.concatenate(([expected], ends[first:]))
    is_joined = bool((begins[first:] == reached[:-1]).all())
    last = int(reached[-1])
    return is_joined and (last >= part.end or is_end_of_file(part.view, last - part.base))


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
