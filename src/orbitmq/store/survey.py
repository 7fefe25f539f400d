"""Before anything is read: which files the log has, how long log and queue files are.

In: a store folder, ours or the original's. Out: sizes, numbers of the log's files, findings.

Rules:
1. Sizes are those that our checkpoint says, if the names of the files are multiples of them, and
   no file has records behind that size. Otherwise they are read from the files: the size most of
   them have, and that their names are multiples of. Settings count only where these do not tell.
2. What is no log file by its name is set aside. What a crash left half made is removed: it held
   nothing; and so is an empty file that log_folders.py leaves out, where that is possible.
3. A log file that is too short is copied aside and lengthened with zeros; one that is too long is
   copied aside and cut. Afterwards every file of the log has the same size.
4. Two files of one number that both hold something: nobody knows which is the log's, and nothing
   is opened. The same where files are missing in a log that is or was in several folders: one may
   be forgotten, or its disk not mounted. Only repair, told of all folders, goes on without them.
"""

from collections import Counter
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from orbitmq.core.state import ENTRY_SIZE
from orbitmq.errors import StoreError, WriteFailed
from orbitmq.store.checkpoint import Checkpoint, FileSizes
from orbitmq.store.consume_queue import file_size_in
from orbitmq.store.findings import Aside, Finding, FindingKind
from orbitmq.store.layout import Folder, file_name
from orbitmq.store.log_folders import LogFolders
from orbitmq.store.log_source import Gap, LogFiles
from orbitmq.store.options import StoreOptions
from orbitmq.store.places import is_unfinished
from orbitmq.store.scan import Scan
from orbitmq.wire.record import BLANK_SIZE, RECORD_SIZE_MIN
from orbitmq.world.files import Files

_MISSING_NAMED_MAX = 100


class Survey(NamedTuple):
    """What is there."""

    log_file_size: int
    queue_file_size: int
    log_numbers: list[int]
    """First offset // file size of each log file, in order."""
    findings: list[Finding]


def survey(
    files: Files,
    folder: Folder,
    log_folders: LogFolders,
    options: StoreOptions,
    known: FileSizes | None = None,
) -> Survey:
    """Look at the folder and bring its log files into shape; needs the lock.

    `known` is what the checkpoint says, if it is ours.
    """
    findings: list[Finding] = []
    aside = Aside(files, folder)
    sizes = {
        path: files.size(path) or 0 for path in _log_paths(files, log_folders, aside, findings)
    }
    file_size = known.log_file_size if known is not None else 0
    if not sizes or not _is_credible(files, log_folders, sizes, file_size):
        file_size = _log_file_size(files, log_folders, sizes, options)
    numbers = []
    for path, size in sizes.items():
        if int(path.name) % file_size:
            _set_aside(path, aside, findings, f"its name is no multiple of {file_size}")
            continue
        if size != file_size:
            _give_size(files, path, size, file_size, aside, findings)
        numbers.append(int(path.name) // file_size)
    _name_missing(log_folders, numbers, file_size, findings)
    return Survey(file_size, _queue_file_size(files, folder, options, known), numbers, findings)


def _log_paths(
    files: Files, log_folders: LogFolders, aside: Aside, findings: list[Finding]
) -> list[Path]:
    found = log_folders.find()
    for path in found.doubles:
        other = log_folders.path(int(path.name))
        raise StoreError(
            f"{other} and {path} are the same file of the log, and both hold something; move the"
            " one that is not this log's out of there, and start again"
        )
    for path in found.strays:
        if is_unfinished(path.name):
            _remove(files, log_folders, path)
        else:
            _set_aside(path, aside, findings, "it is no log file by its name")
    for path in found.empty:
        _remove(files, log_folders, path)
    return found.files


def _remove(files: Files, log_folders: LogFolders, path: Path) -> None:
    """Remove a file that holds nothing; where its disk is read-only indeed, pass over it."""
    with suppress(*([WriteFailed] if log_folders.is_read_only(path) else [])):
        files.remove(path)


def _log_file_size(
    files: Files, log_folders: LogFolders, sizes: dict[Path, int], options: StoreOptions
) -> int:
    """Return the size that explains most files: it is theirs and divides their names."""
    setting = options.log_file_size
    counts = Counter(
        size
        for size in sizes.values()
        if size >= RECORD_SIZE_MIN and _multiples(sizes, size) * 2 > len(sizes)
    )
    if not counts:
        return setting
    best = max(counts, key=lambda size: (counts[size], size == setting, size))
    if len(sizes) > 1:
        return best if counts[best] > 1 else _spacing(sizes, best)
    (start,) = _starts(sizes)
    if best == setting or start % setting:
        return best
    log = LogFiles(files, log_folders, best, [start // best])
    return best if start % best == 0 and _is_whole_file(log, setting) else setting


def _starts(sizes: dict[Path, int]) -> list[int]:
    return [int(path.name) for path in sizes]


def _multiples(sizes: dict[Path, int], size: int) -> int:
    return sum(start % size == 0 for start in _starts(sizes))


def _spacing(sizes: dict[Path, int], size: int) -> int:
    """No two files have the same size: then the distance between their names tells."""
    starts = _starts(sizes)
    steps = Counter(later - earlier for earlier, later in pairwise(starts))
    step, _ = max(steps.items(), key=lambda item: (item[1], -item[0]))
    return step if _multiples(sizes, step) == len(sizes) else size


def _is_whole_file(log: LogFiles, setting: int) -> bool:
    """Whether a lone file of an unusual size is as long as files of this log are.

    Then it ends as files end, with zeros or a blank record, whatever damage lies before that. And
    when it has records behind the size that is set, it was not written with that size.
    """
    scan, last_end = _scanned(log)
    left = log.files_end - scan.end_offset
    is_ended = not left or (left >= BLANK_SIZE and log.is_free(scan.end_offset))
    return is_ended or last_end > log.first_offset + setting


def _is_credible(files: Files, log_folders: LogFolders, sizes: dict[Path, int], size: int) -> bool:
    """Whether files can be of a size: by their names, and none has records behind it."""
    if size < RECORD_SIZE_MIN or _multiples(sizes, size) * 2 <= len(sizes):
        return False
    for path, present in sizes.items():
        start = int(path.name)
        if present > size and start % present == 0:
            log = LogFiles(files, log_folders, present, [start // present])
            if _scanned(log)[1] > start + size:
                return False
    return True


def _scanned(log: LogFiles) -> tuple[Scan, int]:
    """Read a lone file, past damage; return the walk, and where its last record ends."""
    scan = Scan(log, log.first_offset, log.first_offset, is_prefix_only=False)
    last_end = log.first_offset
    for item in scan.walk():
        if not isinstance(item, Gap):
            last_end = item.log_offset + item.size
    return scan, last_end


def _give_size(
    files: Files, path: Path, present: int, wanted: int, aside: Aside, findings: list[Finding]
) -> None:
    if present:  # an empty one is what a crash leaves between making a file and giving it a length
        copy = aside.copy(path)
        done = "lengthened with zeros" if present < wanted else "cut"
        text = (
            f"{path} has {present} bytes where the log's files have {wanted}; it was copied to "
            f"{copy} and {done}"
        )
        findings.append(Finding(FindingKind.WRONG_SIZE, path, int(path.name), present, text))
    files.resize(path, wanted)
    files.sync([path])


def _set_aside(path: Path, aside: Aside, findings: list[Finding], why: str) -> None:
    text = f"{path} does not belong to the log: {why}; it was moved to {aside.move(path)}"
    findings.append(Finding(FindingKind.STRAY_FILE, path, -1, 0, text))


def _name_missing(
    log_folders: LogFolders, numbers: list[int], file_size: int, findings: list[Finding]
) -> None:
    for before, after in pairwise(numbers):
        if after == before + 1 or len(findings) >= _MISSING_NAMED_MAX:
            continue
        start, size = (before + 1) * file_size, (after - before - 1) * file_size
        path = log_folders.path(start)
        text = (
            f"{log_folders.describe(start)} is missing: log offsets {start} to {start + size}"
            " cannot be read, what comes behind them can; bring the file back from a copy before"
            " the next start"
        )
        findings.append(Finding(FindingKind.MISSING_FILE, path, start, size, text))


def refuse_missing(log_folders: LogFolders, found: Survey, checkpoint: Checkpoint | None) -> None:
    """Raise StoreError when one of several folders seems to be left out (rule 4).

    Behind the synced mark files may be missing: a power cut keeps the names of some folders only.
    Before the first file there may be none: they were old. But where a folder holds nothing that
    held something, they are rather on its disk.
    """
    known = checkpoint.sizes if checkpoint is not None else None
    was_spread = known is not None and known.log_folder_count > 1
    if not found.log_numbers or not (log_folders.is_spread or was_spread):
        return
    size, synced = found.log_file_size, checkpoint.synced if checkpoint is not None else None
    numbers = set(found.log_numbers)
    end = max(numbers) + 1 if synced is None else -(-synced.log_offset // size)
    first = min(numbers)
    if known is not None and _holding_count(log_folders) < known.holding_count:
        first = min(first, known.log_start // size)
    missing = next((each for each in range(first, end) if each not in numbers), None)
    if missing is not None:
        raise StoreError(
            f"log file {file_name(missing * size)} is in none of {log_folders}, but the log goes on"
            " behind it: mount the disk that has it, or name its folder in storePathCommitLog or"
            " readOnlyCommitLogStorePaths; if it is lost, `orbitmq store repair`, told of all"
            " folders with --log, goes on without it"
        )


def _holding_count(log_folders: LogFolders) -> int:
    """Return how many folders have files of the log."""
    return len({log_folders.path(start).parent for start in log_folders.starts()})


def _queue_file_size(
    files: Files, folder: Folder, options: StoreOptions, known: FileSizes | None
) -> int:
    if options.queue_file_size <= 0:
        raise StoreError("mapedFileSizeConsumeQueue must be above 0")
    rounded = -(-options.queue_file_size // ENTRY_SIZE) * ENTRY_SIZE
    found = file_size_in(files, folder.queues)
    if found is None:
        return rounded
    is_known = known is not None and known.queue_file_size % ENTRY_SIZE == 0
    return known.queue_file_size if known is not None and is_known else found
