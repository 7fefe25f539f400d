"""Where a log ends that nobody has closed: as far as its files tell.

In: a log's files. Out: the log offset behind its last record, and when that one was stored.

Rules:
1. Files that hold no record yet are passed over from the end: brokers make the next one ahead.
2. Only the last written file is walked, from near the end of what is not zeros in it. The file
   system tells holes; of a copy that has none the zeros are read, which is quick. Nothing is read
   ahead: what the system has read of a hole it does not call one any more, and each look would
   make the next one slower.
"""

from pathlib import Path

from orbitmq.arrow.starts import walk
from orbitmq.spark.log_damage import last_not_zero, written_end
from orbitmq.spark.log_files import LogFile
from orbitmq.store.record_search import next_record
from orbitmq.wire.record import RECORD_SIZE_MAX, decode_record
from orbitmq.world.files import Files
from orbitmq.world.mapped import mapped

LOOK_BACK_BYTES = 8 << 20
"""Where no record begins within so much, there are few: then all of the file is walked."""

LOOK_AHEAD_BYTES = RECORD_SIZE_MAX
"""How far records are looked for behind zeros where the log is followed: it costs each time."""

_PREFIX_SIZE = 8


def log_end(files: Files, log_files: list[LogFile], known_end: int = 0) -> int:
    """Where the log ends, not before `known_end`, up to which it is known; 0 without files."""
    for log_file in reversed(log_files):
        if log_file.end <= known_end:
            return known_end
        end = _file_end(files, log_file, known_end)
        if end > log_file.base:
            return end
    return max(known_end, log_files[0].base if log_files else 0)


def has_grown(files: Files, log_files: list[LogFile], known_end: int) -> bool:
    """Whether something was written behind the known end; one look into one file."""
    for log_file in log_files:
        if log_file.base <= known_end < log_file.end:
            head = files.read_at(log_file.path, known_end - log_file.base, _PREFIX_SIZE)
            return any(head or b"")
    return any(log_file.base >= known_end for log_file in log_files)


def last_store_ms(files: Files, log_files: list[LogFile]) -> int | None:
    """Return when the log's last record was stored; None when damage hides it, or there is none."""
    end = log_end(files, log_files)
    for log_file in reversed(log_files):
        is_written = log_file.base < end
        view = mapped(Path(log_file.path), is_read_ahead=False) if is_written else None
        if view is None:
            continue
        written = view[: end - log_file.base]
        found = walk(written, _near_end(written, log_file.base), base=log_file.base)
        if found.stop not in ("end", "blank"):
            return None
        if len(found.positions):
            at = int(found.positions[-1])
            return decode_record(view, at, is_crc_checked=False)[0].store_ms
    return None


def _file_end(files: Files, log_file: LogFile, known_end: int) -> int:
    view = mapped(Path(log_file.path), is_read_ahead=False)
    if view is None:
        return log_file.base
    ranges = files.data_ranges(Path(log_file.path), 0)
    data_end = ranges[-1][1] if ranges else 0
    begin = known_end - log_file.base
    if begin > 0:
        data_end = min(data_end, begin + LOOK_AHEAD_BYTES)
    else:
        data_end = last_not_zero(view, data_end)
        begin = _near_end(view[:data_end], log_file.base)
    return log_file.base + written_end(view, log_file.base, begin, data_end)


def _near_end(written: memoryview, base: int) -> int:
    """Return where a whole record begins near the end of what may be written, or 0."""
    look_from = len(written) - LOOK_BACK_BYTES
    return (next_record(written, look_from, base) or 0) if look_from > 0 else 0
