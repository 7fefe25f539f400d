"""The files of a log: found below what the user gave as `path`, and where their records end.

In: a store folder, a log's folder, or single files. Out: the log's files in order, the store folder
they belong to if there is one, and the log offset behind the last record.

Rules:
1. A log's file is called by the log offset of its first byte, in 20 digits; others are passed over
   in folders, and refused when they are named.
2. Files of a folder are a whole log: what is missing between them is missing. Files that were named
   one by one were chosen.
3. Of several folders, a file of zeros is left out where another has one of that name: it was made
   ahead, before the settings changed (see store/log_folders.py).
4. For the end only the last written file is walked, from near the end of what is not zeros in it.
   Nothing is read ahead: a hole that the system has read is none any more, and slower to look at.
"""

import difflib
import logging
from collections.abc import Collection
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from orbitmq.arrow.starts import is_own, walk
from orbitmq.errors import CorruptRecord, SettingError
from orbitmq.spark.log_damage import last_not_zero, written_end
from orbitmq.spark.log_options import FORMAT
from orbitmq.store.layout import Folder, is_file_name
from orbitmq.store.log_folders import LogFolders
from orbitmq.store.record_search import next_record
from orbitmq.wire.record import FIELD, RECORD_SIZE_MAX, RECORD_SIZE_MIN, decode_record
from orbitmq.world.files import Files
from orbitmq.world.mapped import mapped

STORE = "store"
"""The store in a data folder."""
log = logging.getLogger(__name__)


class LogFile(NamedTuple):
    """A file of the log: its path, the log offset of its first byte, and how long it is."""

    path: str
    base: int
    size: int

    @property
    def end(self) -> int:
        """The log offset behind it."""
        return self.base + self.size


class Log(NamedTuple):
    """A log's files, in order."""

    files: list[LogFile]
    folder: Folder | None
    """The store folder, if the path leads to one: it has the queues."""
    is_whole: bool
    """Whether nothing may be missing between the files."""


def find_log(files: Files, path: str) -> Log:
    """Return the log that the option `path` names; raises SettingError when there is none."""
    paths = [Path(each.strip().removeprefix("file://")) for each in path.split(",") if each.strip()]
    found = [_found(files, each) for each in paths]
    needless = _empty_doubles(files, found) if len(found) > 1 else set()
    chosen = {each for log in found for each in log.files if each.path not in needless}
    log_files = sorted(chosen, key=lambda each: each.base)
    for before, after in pairwise(log_files):
        if before.end > after.base:
            raise SettingError(
                f"{FORMAT}: option 'path': {before.path} and {after.path} are not of one log: "
                "the first reaches into the second; read each store by itself"
            )
    folder = found[0].folder if len(found) == 1 else None
    return Log(log_files, folder, is_whole=all(each.is_whole for each in found))


def warn_of_missing_topics(files: Files, found: Log, topics: Collection[str]) -> None:
    """Log a warning for topics that a store has no queues of: a typo gives no rows."""
    if found.folder is None or not files.is_folder(found.folder.queues):
        return
    there = set(files.names(found.folder.queues))
    for topic in sorted(set(topics) - there):
        near = difflib.get_close_matches(topic, there, 1)
        advice = f"; did you mean {near[0]}?" if near else ""
        log.warning("%s: %s has no topic %s%s", FORMAT, found.folder.root, topic, advice)


def _empty_doubles(files: Files, logs: list[Log]) -> set[str]:
    """Return the files of zeros that lie beside another of that name in another folder."""
    folders = {Path(each.path).parent: None for log in logs if log.is_whole for each in log.files}
    if len(folders) < 2:
        return set()
    return set(map(str, LogFolders(files, tuple(folders)).find().empty))


def _found(files: Files, path: Path) -> Log:
    if files.size(path) is not None:
        return Log([_named(files, path)], None, is_whole=False)
    folder = Folder(path)
    if not files.is_folder(folder.log_in_root) and files.is_folder(
        Folder(path / STORE).log_in_root
    ):
        folder = Folder(path / STORE)  # a data folder of `orbitmq up`
    if files.is_folder(folder.log_in_root):
        return Log(_in_folder(files, folder.log_in_root), folder, is_whole=True)
    log_files = _in_folder(files, path)
    if not log_files and not files.is_folder(path):
        raise SettingError(f"{FORMAT}: option 'path': there is no {path}")
    if not log_files and path.name != folder.log_in_root.name:
        raise SettingError(
            f"{FORMAT}: option 'path': {path} is no store folder: it has neither a folder "
            f"{folder.log_in_root.name} nor files of a log"
        )
    root = Folder(path.parent)
    has_queues = path.name == folder.log_in_root.name and files.is_folder(root.queues)
    return Log(log_files, root if has_queues else None, is_whole=True)


def _in_folder(files: Files, folder: Path) -> list[LogFile]:
    listed = files.listing(folder) or []
    return [
        LogFile(str(folder / name), int(name), size)
        for name, size in listed
        if is_file_name(name) and size > 0
    ]


def _named(files: Files, path: Path) -> LogFile:
    if not is_file_name(path.name):
        raise SettingError(
            f"{FORMAT}: option 'path': {path} is no file of a log: its name is not a log offset of "
            "20 digits, by which records are known to be whole; give it the name it had"
        )
    return LogFile(str(path), int(path.name), files.size(path) or 0)


def first_store_ms(files: Files, log_file: LogFile) -> int | None:
    """Return when the first record of a file was stored; None when there is none to be seen."""
    data = files.read_at(log_file.path, 0, RECORD_SIZE_MIN)
    if data is None or not is_own(data, 0, log_file.base):
        return None
    whole = files.read_at(log_file.path, 0, FIELD["total_size"].of(data)) or b""
    try:
        return decode_record(whole, is_crc_checked=False)[0].store_ms
    except CorruptRecord:
        return None


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
