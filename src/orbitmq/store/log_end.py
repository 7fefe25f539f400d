"""Putting the log's files in order once it is known where the log ends.

In: the log's end as the scan found it. Out: files that hold the log and zeros behind it, synced.

Rules:
1. Behind the end there are zeros: otherwise what lies there would come back as records when the
   log has grown up to it. What is more than one record that was cut off is copied aside first.
2. Later files that hold anything are moved aside. An empty one right behind the end stays, made
   ahead; others are removed.
3. A missing file inside the log is made anew with one blank record, so that the files are a row
   again, for the original as well.
4. After a stop that was not clean the tail is written again as it is, and synced: a sync that
   failed may have left pages in memory that look clean and are on no disk.
"""

from pathlib import Path

from orbitmq.errors import ReadFailed
from orbitmq.store.findings import Aside, Finding, FindingKind
from orbitmq.store.log_source import PIECE_SIZE, LogFiles
from orbitmq.wire.record import BLANK_MAGIC, BLANK_SIZE, MAGIC_V1, MAGIC_V2, PREFIX, encode_blank
from orbitmq.world.files import Files

REWRITE_MAX = 1 << 30
BLANK_SIZE_MAX = (1 << 31) - 1
"""A record says its size in 31 bits."""
_ZEROS = bytes(1 << 20)
_MAGICS = (MAGIC_V1, MAGIC_V2, BLANK_MAGIC)


def fill_missing(files: Files, log: LogFiles, end: int) -> tuple[int, list[Finding]]:
    """Make the missing files up to the log's end; return the end, moved to a file that is there.

    Of those inside the log the survey has told; the findings are of those at its end.
    """
    present = set(log.numbers)
    findings = []
    last, position = divmod(end, log.file_size)
    if position and last not in present:
        last += 1
        end = last * log.file_size
    missing = [number for number in range(log.numbers[0], last) if number not in present]
    for number in missing:
        start = number * log.file_size
        path = log.folders.give(number, start)
        if number > log.numbers[-1]:
            text = (
                f"{path}, at the end of the log, is missing, and what was written there with it;"
                " the log goes on behind it. Bring the file back from a copy before the next start"
            )
            findings.append(Finding(FindingKind.MISSING_FILE, path, start, log.file_size, text))
        file = files.open_big(path, log.file_size, is_mapped=False)
        try:
            if log.file_size <= BLANK_SIZE_MAX:  # otherwise zeros: damage, at each full reading
                file.write_at(0, encode_blank(log.file_size))
            file.sync()
        finally:
            file.close()
    if missing:
        files.sync(log.folders.writable)
        log.numbers[:] = sorted(present.union(missing))
    return end, findings


def tidy_end(
    files: Files, log: LogFiles, aside: Aside, end: int, following: int | None
) -> list[Finding]:
    """Clear everything behind the end; `following` is where the first whole record lies there."""
    findings = []
    if end // log.file_size in log.numbers:
        finding = _clear_rest(files, log, aside, end, is_cut=following is not None)
        if finding is not None:
            findings.append(finding)
    kept = [number for number in log.numbers if number * log.file_size <= end]
    changed: set[Path] = set()
    for number in reversed(log.numbers[len(kept) :]):  # what a crash leaves of this is a row
        start = number * log.file_size
        path = log.path(start)
        if log.first_nonzero(start, start + log.file_size) is not None:
            text = (
                f"the log ends at {end}; {path} lies behind it and was moved to {aside.move(path)}"
            )
            findings.append(Finding(FindingKind.CUT_BEHIND, path, start, log.file_size, text))
        elif start <= log.file_end(end):
            kept.append(number)
        else:
            files.remove(path)
        if number not in kept:
            log.folders.forget(start)
            changed.add(path.parent)
    if changed:
        files.sync(sorted(changed))
    log.numbers[:] = kept
    return findings


def _clear_rest(
    files: Files, log: LogFiles, aside: Aside, end: int, *, is_cut: bool
) -> Finding | None:
    """Write zeros behind the end in its file, as far as there is anything else."""
    last = log.last_nonzero(end, log.file_end(end))
    if last is None:
        return None
    path, position, size = log.path(end), end % log.file_size, last + 1 - end
    text = f"the last write to {path} was cut off at log offset {end}: {size} bytes are no record"
    kind = FindingKind.TORN_TAIL
    if is_cut or not _is_torn_record(log, end, size):
        copy = aside.copy(path, position, size)
        kind = FindingKind.CUT_BEHIND
        text = (
            f"the log ends at {end}: what lies behind it is not whole; {size} bytes of {path} were"
            f" copied to {copy}"
        )
    file = files.open_big(path, log.file_size, is_mapped=False)
    try:
        for at in range(position, position + size, len(_ZEROS)):
            file.write_at(at, _ZEROS[: position + size - at])
        file.sync()
    finally:
        file.close()
    return Finding(kind, path, end, size, text)


def _is_torn_record(log: LogFiles, end: int, size: int) -> bool:
    """Whether so many bytes can be the beginning of the one record that was being written."""
    head = log.read(end, BLANK_SIZE)
    record_size, magic = PREFIX.unpack(head)
    return size <= BLANK_SIZE or (magic in _MAGICS and size <= record_size)


def write_again(files: Files, log: LogFiles, start: int, end: int) -> None:
    """Write [start, end) of the log over itself and sync it."""
    start = max(start, end - REWRITE_MAX, log.first_offset)
    folders = set(log.folders.writable)
    while start < end:
        stop = min(end, log.file_end(start))
        if start // log.file_size in log.numbers:
            _write_file_again(files, log, start, stop)
            folders.add(log.path(start).parent)
        start = stop
    files.sync(sorted(folders))


def _write_file_again(files: Files, log: LogFiles, start: int, stop: int) -> None:
    path = log.path(start)
    file = files.open_big(path, log.file_size, is_mapped=False)
    try:
        for at in range(start, stop, PIECE_SIZE):
            position = at % log.file_size
            try:
                data = files.read_at(path, position, min(PIECE_SIZE, stop - at))
            except ReadFailed:
                continue  # what the disk cannot give must not be written over
            file.write_at(position, data or b"")
        file.sync()
    finally:
        file.close()
