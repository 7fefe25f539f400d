"""Whether queue files know every record of a range of the log, by the entries themselves.

In: a store folder, a log file, and a range of it. Out: yes or no.

Rules:
1. Entries know everything when each record that they name begins where the one before it ends: from
   the beginning of the range, or a record that reaches into it, up to its end or the file's.
2. That is asked where no topic is: a topic that was removed, or made anew, has records in the log
   without entries, and no folder tells of it.
"""

from typing import NamedTuple

import numpy as np

from orbitmq.arrow.starts import Positions
from orbitmq.core import is_end_of_file
from orbitmq.spark.log_entries import (
    Entries,
    are_possible,
    entries_of,
    first_at_or_behind,
    queues_of,
    topics_in,
    written_count,
)
from orbitmq.store.layout import Folder
from orbitmq.world.files import Files


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
