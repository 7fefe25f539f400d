"""Taking index files in: is a file what its header says, and what to turn back in it.

In: files of a folder and, for the file of a mark, its counts. Out: headers or the reason
why a file cannot be used; slots in memory; the hashes that a last message has already.

Rules:
1. A header is taken when the file has the right size, the counts are possible, the first entry is
   the one the header begins with and the last one that it ends with. Times are not compared: the
   clock may have been set back.
2. A slot that names an entry behind the end ("from the future") was written after that entry was
   synced: following its links leads to the entry that the slot held before.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from orbitmq.core import ROW
from orbitmq.store.index_file import EMPTY, IndexFile
from orbitmq.store.index_shape import HEADER, HEADER_SIZE, Header, Shape
from orbitmq.store.index_slots import Slots, write_runs
from orbitmq.store.log_walk import PIECE_SIZE
from orbitmq.world.files import BigFile, Files

LAST_KEYS_MAX = 32_768
"""A message has at most so many keys: its properties have no more bytes."""


class BadFile(NamedTuple):
    """A file of the index folder that cannot be used."""

    path: Path
    reason: str


class Counts(NamedTuple):
    """What a mark says of its file."""

    next_number: int
    used_slots: int
    end_offset: int
    end_ms: int


def read_header(files: Files, path: Path, shape: Shape, mark: Counts | None) -> Header | str:
    """Return a file's header, with the counts of the mark if there is one; or what is wrong."""
    size = files.size(path)
    if size is None:
        return "the file is missing"
    if size != shape.file_size:
        return (
            f"{size} bytes instead of {shape.file_size}: written with another maxHashSlotNum or "
            "maxIndexNum, or cut off"
        )
    header = Header(*HEADER.unpack(files.read_at(path, 0, HEADER_SIZE) or bytes(HEADER_SIZE)))
    if mark is not None:
        header = header._replace(**mark._asdict())
    header = header._replace(
        next_number=max(header.next_number, 1)
    )  # 0 in a file that was just made
    if header.next_number > shape.entry_count or not 0 <= header.used_slots < header.next_number:
        return f"impossible counts: {header.used_slots} slots, next entry {header.next_number}"
    if header.next_number == 1:
        return header
    return _with_end(header, IndexFile(files, path, shape, header), is_exact=mark is not None)


def _with_end(header: Header, file: IndexFile, *, is_exact: bool) -> Header | str:
    """Compare a header with the entries at both ends.

    The original counts an entry before it notes the entry's offset: killed in between, the last
    entry is newer than the header says.
    """
    first, last = file.entry(1), file.entry(header.next_number - 1)
    if first is None or last is None or first.log_offset != header.begin_offset:
        return f"its first entry is not that of log offset {header.begin_offset}"
    is_behind = not is_exact and last.log_offset > header.end_offset
    if last.log_offset != header.end_offset and not is_behind:
        return f"its last entry is not that of log offset {header.end_offset}"
    if not is_behind:
        return header
    end_ms = max(header.end_ms, header.begin_ms + 1000 * last.age_s)
    return header._replace(end_offset=last.log_offset, end_ms=end_ms)


def wake(
    files: Files,
    file: IndexFile,
    open_file: Callable[[Path], BigFile],
    *,
    is_recounted: bool = False,
) -> str:
    """Make a file ready for rows; turn back slots and header to its count, on the disk as well.

    With `is_recounted` the slots in use are counted instead of believing the header. Gives what is
    wrong when a slot cannot be turned back; the file is unusable then.
    """
    slots = Slots.read(files, file.path, file.shape)
    next_number = file.header.next_number
    for slot, value in slots.beyond(next_number):
        turned = _value_before(file, slot, value)
        if turned is None:
            return f"slot {slot} names an entry behind the last, {next_number}"
        slots.turn_back(slot, turned)
    if is_recounted:
        file.header = file.header._replace(used_slots=slots.used_count())
    changed = slots.freeze()
    file.wake(slots)
    if changed:
        write_runs(open_file(file.path), file.shape, changed)
    header = HEADER.pack(*file.header)
    if files.read_at(file.path, 0, HEADER_SIZE) != header:
        open_file(file.path).write_at(0, header)
    return ""


def zero_rest(files: Files, file: IndexFile, open_file: Callable[[Path], BigFile]) -> None:
    """Write zeros over what lies behind the last entry: of records that a power cut took away.

    No slot on the disk may name any of it.
    """
    start = file.shape.entry_position(file.header.next_number)
    for begin, end in files.data_ranges(file.path, start):
        for position in range(begin, end, PIECE_SIZE):
            data = files.read_at(file.path, position, min(PIECE_SIZE, end - position)) or b""
            if data != bytes(len(data)):
                open_file(file.path).write_at(position, bytes(len(data)))


def _value_before(file: IndexFile, slot: int, value: int) -> int | None:
    """Follow a slot's links to its newest entry that counts; 0 when there is none."""
    while value >= file.header.next_number:
        entry = file.entry(value)
        is_own = (
            entry is not None
            and entry.key_hash % file.shape.slot_count == slot
            and entry.log_offset >= file.header.end_offset
            and 0 <= entry.previous < value
        )
        if entry is None or not is_own:
            return None
        value = entry.previous
    return value


def header_before(file: IndexFile, log_offset: int) -> Header:
    """Return a file's header without the entries of records from `log_offset` on.

    Its slots are to be counted again. The end time is known to the second: it is rounded up.
    """
    low, high = 1, file.header.next_number
    while low < high:
        middle = (low + high) // 2
        entry = file.entry(middle)
        if entry is not None and entry.log_offset < log_offset:
            low = middle + 1
        else:
            high = middle
    last = file.entry(low - 1)
    if low == 1 or last is None:
        return EMPTY
    end_ms = min(file.header.end_ms, file.header.begin_ms + 1000 * last.age_s + 999)
    return file.header._replace(next_number=low, end_offset=last.log_offset, end_ms=end_ms)


def tail_hashes(index_files: Sequence[IndexFile]) -> tuple[int, list[int]]:
    """Return the log offset of the last message that has entries, and their hashes; -1 for none."""
    end_offset = index_files[-1].header.end_offset
    hashes: list[int] = []
    for file in reversed(index_files):
        for number in range(file.header.next_number - 1, 0, -1):
            entry = file.entry(number)
            if entry is None or entry.log_offset != end_offset or len(hashes) >= LAST_KEYS_MAX:
                return end_offset, hashes
            hashes.append(entry.key_hash)
    return (end_offset, hashes) if hashes else (-1, [])


def completed(rows: bytes, hashes: Sequence[int]) -> bytes:
    """Return the rows of a message that its entries do not have yet."""
    known = list(hashes)
    missing = bytearray()
    for at in range(0, len(rows), ROW.size):
        key_hash = ROW.unpack_from(rows, at)[0]
        if key_hash in known:
            known.remove(key_hash)
        else:
            missing += rows[at : at + ROW.size]
    return bytes(missing)
