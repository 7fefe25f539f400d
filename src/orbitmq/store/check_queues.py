"""The check of the queues: each entry is what the log says, none is missing, none is too much.

In: the records of the log in order (`see`), then the log's bounds (`finish`). Out: faults.

Rules:
1. A record's entry holds its log offset, its size and its code, the last perhaps behind an address
   into the queue's extra file. Numbers go up by one; a queue that begins again at 0 belongs to a
   topic that was deleted and made again: what was noted of its first life is dropped.
2. Numbers whose records are damaged are explained by that damage; entries of records whose log file
   was removed are not checked.
3. In a folder that was not stopped cleanly the newest entries may be missing (from the mark on):
   they are counted as behind. Nothing may follow them.
4. What lies behind a queue's last entry is zeros or, in such a folder, points behind the log's end.
5. A live broker writes and removes while this reads: an entry that is not as it should be is read
   anew before it is checked; what it has removed with its part of the log is not checked.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from orbitmq.core import Walked, tag_code_in
from orbitmq.core.state import ENTRY, ENTRY_SIZE
from orbitmq.store.consume_queue import HOLE_SIZE
from orbitmq.store.follow import in_queues
from orbitmq.store.layout import Folder, can_hold_queue, file_name, is_file_name
from orbitmq.store.log_walk import PIECE_SIZE, first_nonzero, usual_size
from orbitmq.store.queue_ext import ExtraUnits, is_address
from orbitmq.store.verdict import READ_TRIES, RECOVERS, REPAIR, RESTORE, SET_ASIDE, Verdict
from orbitmq.world.files import Files

BLOCK_ENTRIES = 256
BLOCKS_MAX = 4_096
"""About 20 MB of entries kept while the log is walked."""

NOTES_MAX = 20
"""How many faults of one queue are listed one by one."""

UNKNOWN_END = 1 << 63
"""The end of a queue of which the log holds no record any more."""

_BLOCK = BLOCK_ENTRIES * ENTRY_SIZE
_PIECE = PIECE_SIZE // ENTRY_SIZE * ENTRY_SIZE


QueueKey = tuple[str, int]


class _QueueEntry(NamedTuple):
    """What a queue's file has of one record, or should have."""

    log_offset: int
    size: int
    code: int


class LogBounds(NamedTuple):
    """What is known of the log when it was walked."""

    first_offset: int
    end_offset: int
    damages: list[tuple[int, int]]
    """[start, end) of damage, in order."""

    def is_damaged(self, log_offset: int) -> bool:
        """Whether a log offset lies in damage."""
        at = bisect_right(self.damages, (log_offset, 1 << 63)) - 1
        return at >= 0 and self.damages[at][0] <= log_offset < self.damages[at][1]


class Topics(NamedTuple):
    """Which topics there are, and which were removed: none of their records before is checked."""

    names: set[str]
    removed: Mapping[str, int]


class _Line:
    """One queue: what the log said of it so far."""

    __slots__ = ("end", "first", "folder", "missing", "next", "notes", "starts", "too_many")

    def __init__(self, folder: Path, starts: list[int]) -> None:
        self.folder = folder
        self.starts = starts
        self.first = -1
        self.next = -1
        self.end = 0
        self.missing: list[int] = []
        """[first, last] number of the entries that are missing since the last that was there."""
        self.notes: list[tuple[Path, int, str]] = []
        self.too_many = 0

    def note(self, path: Path, position: int, text: str) -> None:
        if len(self.notes) < NOTES_MAX:
            self.notes.append((path, position, text))
        else:
            self.too_many += 1

    def begin_anew(self) -> None:
        self.forget()
        self.first = 0

    def forget(self) -> None:
        self.missing = []
        self.notes.clear()
        self.too_many = 0
        self.first = -1


class QueueCheck:
    """Compares queues with the log."""

    def __init__(
        self, files: Files, folder: Folder, verdict: Verdict, mark: int | None, topics: Topics
    ) -> None:
        """`mark`: entries of records from here on may be missing; None: none may."""
        self._files = files
        self._root = folder.queues
        self._extras_root = folder.queue_extras
        self._verdict = verdict
        self._mark = mark
        self._topics = topics.names
        self._removed = topics.removed
        self._extras: dict[Path, ExtraUnits] = {}
        self._lines: dict[tuple[str, int], _Line] = {}
        self._blocks: OrderedDict[tuple[Path, int], bytes] = OrderedDict()
        self._damages: list[tuple[int, int]] = []
        self._behind = 0
        self._file_size = 0
        self._list()

    # --- before: which files are there ---

    def _list(self) -> None:
        sizes: dict[Path, int] = {}
        for topic in self._files.names(self._root):
            for name in self._folder_names(self._root / topic):
                folder = self._root / topic / name
                if not _is_queue_id(name) or not self._files.is_folder(folder):
                    self._stray(folder)
                    continue
                found = self._queue_sizes(folder)
                sizes |= found
                starts = sorted(int(path.name) for path in found)
                self._lines[topic, int(name)] = _Line(folder, starts)
        self._file_size = usual_size(list(sizes.values()))
        self._check_files(sizes)
        self._verdict.counts["queues"] = len(self._lines)

    def _folder_names(self, path: Path) -> list[str]:
        if self._files.is_folder(path):
            return self._files.names(path)
        self._stray(path)
        return []

    def _queue_sizes(self, folder: Path) -> dict[Path, int]:
        sizes = {}
        for name in self._files.names(folder):
            if is_file_name(name):
                sizes[folder / name] = self._files.size(folder / name) or 0
            else:
                self._stray(folder / name)
        return sizes

    def _stray(self, path: Path) -> None:
        self._verdict.damage(path, -1, "this does not belong into a folder of queues", SET_ASIDE)

    def _check_files(self, sizes: dict[Path, int]) -> None:
        for path, size in sizes.items():
            if size == 0 and self._mark is not None:
                continue  # killed while it was made
            if size != self._file_size:
                text = f"has {size} bytes, the queue files of this folder have {self._file_size}"
                self._verdict.damage(path, -1, text)
        for line in self._lines.values():
            for start, following in zip(line.starts, line.starts[1:], strict=False):
                if following != start + self._file_size:
                    path = line.folder / file_name(following)
                    text = f"the file {file_name(start + self._file_size)} before it is missing"
                    self._verdict.damage(path, -1, text)

    # --- during: the log's records ---

    def see_damage(self, start: int, end: int) -> None:
        """Take in that a range of the log is damaged."""
        self._damages.append((start, end))

    def see_removal(self) -> None:
        """Take in that the log up to here was removed by a live broker while it was read."""
        for line in self._lines.values():
            line.forget()
            line.next = -1

    def see(self, walked: Walked, code: int) -> None:
        """Compare the entries of a record; that of its own queue should have this code."""
        places = in_queues(walked)
        for light in places[1:]:
            self._see_entry(light, self._light_code(light, code))
        if walked.log_offset < self._removed.get(walked.topic, 0):
            return
        if not places:
            if walked.queue_offset:
                text = f"the record at log offset {walked.log_offset} is in no queue and yet has "
                text += f"the number {walked.queue_offset}"
                self._verdict.damage(self._root, -1, text, RESTORE)
            return
        if not can_hold_queue(walked.topic, walked.queue_id):
            text = f"the record at log offset {walked.log_offset} says that it is of topic "
            text += f"{walked.topic!r}, queue {walked.queue_id}, which cannot be"
            self._verdict.damage(self._root, -1, text, RESTORE)
            return
        self._see_entry(walked, code)

    def _light_code(self, light: Walked, code: int) -> int:
        """Return the code of a light queue's entry: an original takes a delayed message's time."""
        entry = self._entry(self._line(light.topic, light.queue_id), light.queue_offset)
        is_timed = entry is not None and entry.code == code
        return code if is_timed else tag_code_in(light.properties)

    def _see_entry(self, walked: Walked, code: int) -> None:
        """Compare the entry that a record has in one of its queues."""
        key = (walked.topic, walked.queue_id)
        number, log_offset = walked.queue_offset, walked.log_offset
        if log_offset < self._removed.get(key[0], 0):
            return
        line = self._line(*key)
        self._count_up(line, number, log_offset)
        wanted = _QueueEntry(log_offset, walked.size, code)
        entry = self._entry(line, number)
        for _ in range(READ_TRIES):  # perhaps written since its block was read
            if entry == wanted or (entry is not None and is_address(entry.code)):
                break
            entry = self._entry(line, number, is_fresh=True)
        if entry == wanted:
            self._found(line)
        elif entry == (0, 0, 0) or entry is None:
            self._not_found(line, number, log_offset)
        else:
            self._differs(line, number, entry, wanted)
        self._verdict.counts["queue entries"] += 1

    def _line(self, topic: str, queue_id: int) -> _Line:
        line = self._lines.get((topic, queue_id))
        if line is None:
            line = _Line(self._root / topic / str(queue_id), [])
            self._lines[topic, queue_id] = line
        return line

    def _count_up(self, line: _Line, number: int, log_offset: int) -> None:
        due = line.next
        line.next = line.end = number + 1
        if due < 0:
            line.first = number
        elif number == 0 and due > 0:
            line.begin_anew()
        elif number < due:
            text = f"the record at log offset {log_offset} is number {number}, due was {due}"
            line.note(self._path(line, number), self._position(number), text)
        elif number > due:
            self._skipped(line, due, number)

    def _skipped(self, line: _Line, due: int, number: int) -> None:
        """Check numbers that the log does not have: damage in the log explains them."""
        if not self._damages:
            text = f"the log has no records with the numbers {due} to {number - 1}"
            line.note(self._path(line, due), self._position(due), text)
            return
        holes = 0
        for missing in range(due, min(number, due + BLOCK_ENTRIES)):
            entry = self._entry(line, missing)
            holes += entry is not None and entry.size == HOLE_SIZE
        text = f"the numbers {due} to {number - 1} are lost by damage in the log"
        text += f", {holes} of them marked as holes" if holes else ""
        self._verdict.warning(self._path(line, due), self._position(due), text)

    def _found(self, line: _Line) -> None:
        if not line.missing:
            return
        first, last = line.missing
        line.missing = []
        for number in range(first, last + 1):
            is_there = self._entry(line, number, is_fresh=True) not in (None, (0, 0, 0))
            if not is_there and not self._is_removed(line, number):  # nor grown meanwhile
                text = f"entries {first} to {last} are missing, later ones are there"
                line.note(self._path(line, first), self._position(first), text)
                return

    def _not_found(self, line: _Line, number: int, log_offset: int) -> None:
        path = self._path(line, number)
        if int(path.name) in line.starts and self._is_removed(line, number):
            return
        if self._mark is None or log_offset < self._mark:
            text = f"entry {number} of the record at log offset {log_offset} is missing"
            line.note(path, self._position(number), text)
        elif line.missing:
            line.missing[1] = number
        else:
            line.missing = [number, number]

    def _is_removed(self, line: _Line, number: int) -> bool:
        """Whether a live broker has removed an entry's file since, with its part of the log."""
        path = self._path(line, number)
        was_there = int(path.name) in line.starts or int(path.name) > max(line.starts, default=-1)
        return was_there and self._files.size(path) is None

    def _differs(self, line: _Line, number: int, entry: _QueueEntry, wanted: _QueueEntry) -> None:
        code = self._resolved(line, entry.code)
        if (entry.log_offset, entry.size, code) == wanted:
            self._found(line)
            return
        names = ("log offset", "size", "code")
        shown = (entry.log_offset, entry.size, entry.code if code is None else code)
        parts = [
            f"{name} {has} instead of {due}"
            for name, has, due in zip(names, shown, wanted, strict=True)
            if has != due
        ]
        text = f"entry {number} is not what the log says: {', '.join(parts)}"
        line.note(self._path(line, number), self._position(number), text)

    def _resolved(self, line: _Line, code: int) -> int | None:
        """Return the code that an entry's code stands for; None for an address to nowhere."""
        units = self._extras.get(line.folder)
        if units is None:
            if len(self._extras) >= BLOCKS_MAX:
                self._extras.clear()
            folder = self._extras_root / line.folder.relative_to(self._root)
            units = self._extras[line.folder] = ExtraUnits(self._files, folder)
        return units.tags_code(code)

    # --- after: what the log did not speak of ---

    def finish(self, bounds: LogBounds) -> dict[tuple[str, int], int]:
        """Check the rest of each queue; give where each one ends."""
        gone = 0
        for (topic, queue_id), line in sorted(self._lines.items()):
            is_removed = not line.starts and not self._files.is_folder(self._root / topic)
            if is_removed and topic not in self._topics and line.next >= 0:
                gone += 1  # deleted topics leave their records in the log
                continue
            self._check_ends(line, bounds)
            self._tell(line, topic, queue_id)
        if gone:
            text = f"the log holds records of {gone} queues of topics that were deleted"
            self._verdict.info(self._root, -1, text)
        if self._behind:
            text = f"{self._behind} entries are behind the log, recovery adds them"
            self._verdict.info(self._root, -1, text, RECOVERS)
        return {
            key: UNKNOWN_END if line.starts and not line.end else line.end
            for key, line in self._lines.items()
        }

    def _tell(self, line: _Line, topic: str, queue_id: int) -> None:
        if line.missing:
            self._behind += line.missing[1] - line.missing[0] + 1
        for path, position, text in line.notes:
            self._verdict.damage(path, position, f"topic {topic}, queue {queue_id}: {text}", REPAIR)
        if line.too_many:
            text = f"topic {topic}, queue {queue_id}: {line.too_many} more faults of this kind"
            self._verdict.damage(line.folder, -1, text, REPAIR)

    def _check_ends(self, line: _Line, bounds: LogBounds) -> None:
        size = self._file_size
        for start in line.starts if size else ():
            if start % size:
                text = f"a file with this name cannot be: names are multiples of {size}"
                line.note(line.folder / file_name(start), -1, text)
                continue
            end = (start + size) // ENTRY_SIZE
            if line.first > start // ENTRY_SIZE:
                self._check_old(line, start, min(end, line.first), bounds)
            if max(line.next, 0) < end:
                self._check_new(line, start, bounds)

    def _check_old(self, line: _Line, start: int, end: int, bounds: LogBounds) -> None:
        """Check the entries of one file before the first that the log spoke of."""
        path = line.folder / file_name(start)
        size = end * ENTRY_SIZE - start
        for position in range(0, size, _PIECE):
            data = self._files.read_at(path, position, min(_PIECE, size - position)) or b""
            whole = len(data) // ENTRY_SIZE * ENTRY_SIZE
            entries = map(_QueueEntry._make, ENTRY.iter_unpack(data[:whole]))
            for at, entry in enumerate(entries):
                if not _is_explained(entry, bounds):
                    where = position + at * ENTRY_SIZE
                    self._unexplained(line, start, where, entry)

    def _check_new(self, line: _Line, start: int, bounds: LogBounds) -> None:
        """Check what lies in one file behind the last entry that the log spoke of."""
        path = line.folder / file_name(start)
        position = max(max(line.next, 0) * ENTRY_SIZE - start, 0)
        while (at := first_nonzero(self._files, path, position, self._file_size)) is not None:
            where = at - at % ENTRY_SIZE
            data = self._files.read_at(path, where, ENTRY_SIZE) or b""
            entry = _QueueEntry(*ENTRY.unpack(data.ljust(ENTRY_SIZE, b"\0")))
            is_early = self._mark is not None and entry.log_offset >= bounds.end_offset
            if not is_early and not _is_explained(entry, bounds):
                self._unexplained(line, start, where, entry)
                if line.too_many:
                    return
            position = where + ENTRY_SIZE

    def _unexplained(self, line: _Line, start: int, position: int, entry: _QueueEntry) -> None:
        number = (start + position) // ENTRY_SIZE
        text = (
            f"entry {number} (log offset {entry.log_offset}, size {entry.size}, code {entry.code})"
        )
        text += " belongs to no record of the log"
        line.note(line.folder / file_name(start), position, text)

    # --- entries ---

    def _path(self, line: _Line, number: int) -> Path:
        size = self._file_size or ENTRY_SIZE
        return line.folder / file_name(number * ENTRY_SIZE // size * size)

    def _position(self, number: int) -> int:
        return number * ENTRY_SIZE % (self._file_size or ENTRY_SIZE)

    def _entry(self, line: _Line, number: int, *, is_fresh: bool = False) -> _QueueEntry | None:
        """Return an entry, None when its file is missing or too short; `is_fresh`: read anew."""
        if number < 0 or not self._file_size:
            return None
        position = self._position(number)
        at = position % _BLOCK
        start = number * ENTRY_SIZE - at
        key = (line.folder, start)
        block = self._blocks.get(key)
        if block is None or is_fresh:
            block = self._files.read_at(self._path(line, number), position - at, _BLOCK) or b""
            self._blocks[key] = block
            if len(self._blocks) > BLOCKS_MAX:
                self._blocks.popitem(last=False)
        if at + ENTRY_SIZE > len(block):
            return None
        return _QueueEntry(*ENTRY.unpack_from(block, at))


def _is_queue_id(name: str) -> bool:
    return name.isascii() and name.isdigit() and str(int(name)) == name


def _is_explained(entry: _QueueEntry, bounds: LogBounds) -> bool:
    """Whether an entry may be there although the log has no such record: removed, lost, hole."""
    if entry.size == HOLE_SIZE:
        return True
    return 0 <= entry.log_offset < bounds.first_offset or bounds.is_damaged(entry.log_offset)
