"""The check of the key index: every record is found by each of its keys, and nothing else is.

In: the records of the log in order (`see`), then the log's bounds (`finish`). Out: faults.

Rules:
1. Index entries lie in the order of the log, so one pass over both compares them: hash, log offset,
   seconds since the file's first entry. The original indexes one record twice after a kill: entries
   that repeat those of the same record are fine.
2. Each entry's link leads to the last entry before it with the same slot, each slot to the last of
   all; header counts and bounds are those of the entries. All of it is recomputed and compared.
3. Entries of records that were removed or are damaged are not checked against the log.
4. In a folder that was not stopped cleanly records from the mark on may have no entries yet, slots
   may lead to entries that the header does not count yet, and entries may lie behind the last.
5. How many slots a file has does not stand in it: the settings say so, or the file's entries.
6. What a live broker removes while this reads is not checked: files that are gone, and records that
   are older than the log is by then.
7. Brokers of 5.x index a record's tag as well, under a text of its own; a record may have that.
"""

import sys
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from orbitmq.core import Walked
from orbitmq.core.record_keys import WORDS_MAX, keys_of_record
from orbitmq.store.check_queues import LogBounds
from orbitmq.store.index_shape import (
    ENTRY,
    HEADER,
    HEADER_SIZE,
    SLOT_SIZE,
    Header,
    Shape,
    find_shape,
    is_index_name,
)
from orbitmq.store.log_walk import PIECE_SIZE, first_nonzero
from orbitmq.store.verdict import READ_TRIES, RECOVERS, REPAIR, SET_ASIDE, Verdict
from orbitmq.wire.java import index_hash
from orbitmq.wire.properties import TAGS, parse_properties
from orbitmq.world.files import Files

LOOK_AHEAD = 64
"""How many entries ahead a record's own are looked for when something is in between."""

CHAIN_MAX = 1_000_000
"""How many entries that the header does not count yet a slot is followed through."""

_PIECE = PIECE_SIZE // ENTRY.size * ENTRY.size


class _FileEntry(NamedTuple):
    file: "_File"
    number: int
    key_hash: int
    log_offset: int
    seconds: int

    @property
    def position(self) -> int:
        return self.file.shape.entry_position(self.number)


class _File(NamedTuple):
    path: Path
    shape: Shape
    header: Header


class _Run:
    """Records without entries, one after the other."""

    def __init__(self, first: int, *, is_behind: bool) -> None:
        self.first = self.last = first
        self.count = 0
        self.is_behind = is_behind
        """They may lack their entries, as long as no later record has any."""


def key_hashes(record: Walked) -> list[int]:
    """Return the hashes under which a record is indexed, in the order of its entries."""
    keys = keys_of_record(record.sys_flag, record.properties)
    return [index_hash(f"{record.topic}#{key}") for key in (*keys.filed, *keys.left_out)]


def _tag_hash(record: Walked) -> int:
    """Return the hash under which a broker of 5.x indexes a record's tag."""
    tag = parse_properties(record.properties).get(TAGS, "")
    return index_hash(f"{record.topic}#T#{tag}")


class IndexCheck:
    """Compares the index with the log."""

    def __init__(
        self,
        files: Files,
        folder: Path,
        verdict: Verdict,
        mark: int | None,
        shape: Shape,
        log_start: Callable[[], int],
    ) -> None:
        """`mark`: records from here on may have no entries; None: all have.

        `log_start` gives where the log begins now.
        """
        self._files = files
        self._folder = folder
        self._verdict = verdict
        self._mark = mark
        self._damages: list[tuple[int, int]] = []
        self._log_start = log_start
        self._run: _Run | None = None
        self._present = self._list(shape)
        self._stream = self._entries()
        self._ahead: deque[_FileEntry] = deque()

    def _list(self, shape: Shape) -> list[_File]:
        names = self._files.names(self._folder)
        for name in names:
            if not is_index_name(name):
                text = "this does not belong into the folder of the index"
                self._verdict.damage(self._folder / name, -1, text, SET_ASIDE)
        paths = [self._folder / name for name in names if is_index_name(name)]
        found = find_shape(self._files, paths, shape)
        present = []
        for path in paths:
            size = self._files.size(path) or 0
            if size == 0 and self._mark is not None:
                continue  # killed while it was made
            if size != found.file_size:
                text = f"has {size} bytes instead of {found.file_size} ({found.slot_count} slots, "
                text += f"{found.entry_count} entries); if the broker had other settings, give them"
                text += ": -D maxHashSlotNum=... -D maxIndexNum=..."
                self._verdict.damage(path, -1, text)
                continue
            header = self._header(path)
            if any(header):  # all zeros: just made, nothing in it yet
                present.append(_File(path, found, header))
        self._verdict.counts["index files"] = len(paths)
        return present

    def _header(self, path: Path) -> Header:
        """Read a header, again when it is being written."""
        data = b""
        for _ in range(READ_TRIES):
            before, data = data, self._files.read_at(path, 0, HEADER_SIZE) or b""
            if before == data:
                break
        return Header(*HEADER.unpack(data.ljust(HEADER_SIZE, b"\0")))

    def _is_removed(self, file: _File) -> bool:
        return self._files.size(file.path) is None

    # --- the log's records ---

    def see_damage(self, start: int, end: int) -> None:
        """Take in that a range of the log is damaged."""
        self._damages.append((start, end))

    def see(self, record: Walked) -> None:
        """Compare the entries of a record."""
        hashes = key_hashes(record)
        log_offset = record.log_offset
        if hashes:
            self._skip_to(log_offset)
        found = set()
        while (entry := self._peek()) is not None and entry.log_offset == log_offset:
            self._ahead.popleft()
            self._compare(entry, record, hashes)
            found.add(entry.key_hash)
        missing_count = len(set(hashes[:WORDS_MAX]) - found)  # further ones may be left out
        if missing_count and (not found or self._may_lack(log_offset)):
            self._not_found(log_offset)
        elif missing_count and log_offset >= self._log_start():
            text = f"the record at log offset {log_offset} has {len(set(hashes))} keys, "
            text += f"{missing_count} of them are not in the index"
            self._verdict.damage(self._folder, -1, text)

    def _skip_to(self, log_offset: int) -> None:
        """Pass over entries before those of a record, if it has any near by."""
        while (entry := self._peek()) is not None and entry.log_offset < log_offset:
            self._check_unexplained(self._ahead.popleft())
        for at in range(LOOK_AHEAD):
            entry = self._peek(at)
            if entry is None:
                return
            if entry.log_offset == log_offset:
                for _ in range(at):
                    self._check_unexplained(self._ahead.popleft())
                self._close_run(is_last=False)
                return

    def _may_lack(self, log_offset: int) -> bool:
        """Whether entries of a record may still have to be written."""
        return self._mark is not None and log_offset >= self._mark

    def _not_found(self, log_offset: int) -> None:
        is_behind = self._may_lack(log_offset)
        if self._run and self._run.is_behind != is_behind:
            self._close_run(is_last=is_behind)
        if self._run is None:
            self._run = _Run(log_offset, is_behind=is_behind)
        self._run.last, self._run.count = log_offset, self._run.count + 1

    def _close_run(self, *, is_last: bool) -> None:
        """Tell of the records without entries that were met one after the other."""
        run, self._run = self._run, None
        if run is None:
            return
        if run.is_behind and is_last:
            text = f"{run.count} records are not in the index yet, recovery adds them"
            self._verdict.info(self._folder, -1, text, RECOVERS)
            return
        if run.first < self._log_start():
            return
        text = f"the record at log offset {run.first} is"
        if run.count > 1:
            text = f"{run.count} records at log offsets {run.first} to {run.last} are"
        self._verdict.damage(self._folder, -1, f"{text} not in the index")

    def _compare(self, entry: _FileEntry, record: Walked, hashes: list[int]) -> None:
        header, store_ms = entry.file.header, record.store_ms
        seconds = min(max((store_ms - header.begin_ms) // 1000, 0), 2**31 - 1)
        if entry.key_hash not in hashes and entry.key_hash != _tag_hash(record):
            text = f"entry {entry.number} has hash {entry.key_hash}, which no key of the record at "
            text += f"log offset {entry.log_offset} has"
            self._verdict.damage(entry.file.path, entry.position, text)
        if entry.seconds != seconds:
            text = f"entry {entry.number} says {entry.seconds} s after the file's begin, the "
            text += f"record at log offset {entry.log_offset} says {seconds} s"
            self._verdict.damage(entry.file.path, entry.position, text)
        if entry.number == 1 and header.begin_ms != store_ms:
            self._bad_header(entry.file, "begin time", header.begin_ms, store_ms)
        is_last = entry.number == header.next_number - 1 and header.end_offset == entry.log_offset
        if is_last and header.end_ms != store_ms:
            self._bad_header(entry.file, "end time", header.end_ms, store_ms)

    def _check_unexplained(self, entry: _FileEntry) -> None:
        if LogBounds(0, 0, self._damages).is_damaged(entry.log_offset):
            return
        if 0 <= entry.log_offset < self._log_start():
            return
        text = f"entry {entry.number} points to log offset {entry.log_offset}, where no record "
        text += "with keys is"
        self._verdict.damage(entry.file.path, entry.position, text)

    def finish(self, bounds: LogBounds) -> None:
        """Check the entries behind those of the log's last record."""
        while (entry := self._peek()) is not None:
            self._ahead.popleft()
            if self._mark is None or entry.log_offset < bounds.end_offset:
                self._check_unexplained(entry)
        self._close_run(is_last=True)

    # --- the files' entries, each checked on its way ---

    def _peek(self, at: int = 0) -> _FileEntry | None:
        while len(self._ahead) <= at:
            entry = next(self._stream, None)
            if entry is None:
                return None
            self._ahead.append(entry)
        return self._ahead[at]

    def _entries(self) -> Iterator[_FileEntry]:
        for file in self._present:
            if not 1 <= file.header.next_number <= file.shape.entry_count:
                self._bad_header(file, "number of entries", file.header.next_number, "1 or more")
                continue
            yield from self._entries_of(file)

    def _entries_of(self, file: _File) -> Iterator[_FileEntry]:
        shape, count = file.shape, file.header.next_number
        newest = array("i", bytes(SLOT_SIZE * shape.slot_count))
        used = 0
        entry = None
        for number, fields in self._read(file):
            key_hash, log_offset, seconds, previous = fields
            entry = _FileEntry(file, number, key_hash, log_offset, seconds)
            if key_hash < 0:
                self._verdict.damage(file.path, entry.position, f"entry {number}: negative hash")
                yield entry
                continue
            slot = key_hash % shape.slot_count
            if previous != newest[slot]:
                text = f"entry {number} is linked to {previous} instead of {newest[slot]}"
                self._verdict.damage(file.path, entry.position, text)
            if number == 1 and file.header.begin_offset != log_offset:
                self._bad_header(file, "begin offset", file.header.begin_offset, log_offset)
            used += newest[slot] == 0
            newest[slot] = number
            yield entry
        if self._is_removed(file):
            return
        self._verdict.counts["index entries"] += count - 1
        if self._mark is None or entry is None:
            lag = 0
        else:  # the original counts an entry before it notes the rest; a kill may lie in between
            lag = entry.log_offset > file.header.end_offset
        if entry is not None and file.header.end_offset != entry.log_offset and not lag:
            self._bad_header(file, "end offset", file.header.end_offset, entry.log_offset)
        if not 0 <= used - file.header.used_slots <= lag:
            self._bad_header(file, "number of used slots", file.header.used_slots, used)
        self._check_slots(file, newest)
        self._check_rest(file)

    def _read(self, file: _File) -> Iterator[tuple[int, tuple[int, int, int, int]]]:
        start = file.shape.entry_position(1)
        end = file.shape.entry_position(file.header.next_number)
        number = 1
        for position in range(start, end, _PIECE):
            data = self._files.read_at(file.path, position, min(_PIECE, end - position)) or b""
            data = data[: len(data) // ENTRY.size * ENTRY.size]
            for fields in ENTRY.iter_unpack(data):
                yield number, fields
                number += 1

    def _check_slots(self, file: _File, newest: "array[int]") -> None:
        if sys.byteorder == "little":
            newest.byteswap()
        wanted = newest.tobytes()
        for start in range(0, len(wanted), PIECE_SIZE):
            due = wanted[start : start + PIECE_SIZE]
            data = self._files.read_at(file.path, HEADER_SIZE + start, len(due)) or b""
            if data == due:
                continue
            if self._is_removed(file):
                return
            for at in range(0, len(due), SLOT_SIZE):
                if data[at : at + SLOT_SIZE] != due[at : at + SLOT_SIZE]:
                    has = int.from_bytes(data[at : at + SLOT_SIZE], "big", signed=True)
                    first = int.from_bytes(due[at : at + SLOT_SIZE], "big")
                    self._check_slot(file, (start + at) // SLOT_SIZE, has, first)

    def _check_slot(self, file: _File, slot: int, has: int, due: int) -> None:
        followed = has
        if self._mark is not None:  # slots are written before the header counts their entries
            followed = self._before(file, has)
        if followed != due and not self._is_removed(file):
            text = f"slot {slot} leads to entry {has} instead of {due}"
            self._verdict.damage(file.path, HEADER_SIZE + slot * SLOT_SIZE, text)

    def _before(self, file: _File, number: int) -> int:
        """Return the newest entry of a chain that the header counts."""
        for _ in range(CHAIN_MAX):
            if not file.header.next_number <= number < file.shape.entry_count:
                break
            data = self._files.read_at(file.path, file.shape.entry_position(number), ENTRY.size)
            if data is None or len(data) < ENTRY.size:
                break
            number = ENTRY.unpack(data)[3]
        return number

    def _check_rest(self, file: _File) -> None:
        """Check what is no header, slot or entry: entry 0, and what lies behind the last."""
        shape = file.shape
        zero, first = shape.entry_position(0), shape.entry_position(1)
        at = first_nonzero(self._files, file.path, zero, first)
        if at is None and self._mark is None:
            behind = shape.entry_position(file.header.next_number)
            at = first_nonzero(self._files, file.path, behind, shape.file_size)
        if at is not None:
            text = (
                f"bytes that are not zero where no entry is ({file.header.next_number - 1} entries)"
            )
            self._verdict.damage(file.path, at, text)

    def _bad_header(self, file: _File, field: str, has: object, due: object) -> None:
        text = f"the header's {field} is {has} instead of {due}"
        self._verdict.damage(file.path, 0, text, REPAIR)
