"""The entries of queue files: where a queue's records begin in the log.

In: a store folder. Out: its queues, their entries file by file, and places in those.

Rules:
1. Entries of a queue ascend in the log: a range of it is found by halves, without reading them all.
2. Behind the last entry of a file are zeros. What fills a queue that lost its beginning has a size
   that no record has.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orbitmq.store.layout import Folder, is_file_name
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
