"""Before anything is read: which files the log has, how long log and queue files are.

In: a store folder, ours or the original's. Out: sizes, numbers of the log's files, findings.

Rules:
1. Sizes are those that our checkpoint says, if the names of the files are multiples of them, and
   no file has records behind that size. Otherwise they are read from the files: the size most of
   them have, and that their names are multiples of. Settings count only where these do not tell.
2. What is no log file by its name is set aside. What a crash left half made is removed: it held
   nothing.
3. A log file that is too short is copied aside and lengthened with zeros; one that is too long is
   copied aside and cut. Afterwards every file of the log has the same size.
"""

from collections import Counter
from itertools import pairwise
from typing import NamedTuple

from orbitmq.core.state import ENTRY_SIZE
from orbitmq.errors import StoreError
from orbitmq.store.checkpoint import FileSizes
from orbitmq.store.consume_queue import file_size_in
from orbitmq.store.findings import Aside, Finding, FindingKind
from orbitmq.store.layout import Folder, file_name, is_file_name
from orbitmq.store.options import StoreOptions
from orbitmq.store.places import is_unfinished
from orbitmq.store.scan import Gap, LogFiles, Scan
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
    files: Files, folder: Folder, options: StoreOptions, known: FileSizes | None = None
) -> Survey:
    """Look at the folder and bring its log files into shape; needs the lock.

    `known` is what the checkpoint says, if it is ours.
    """
    findings: list[Finding] = []
    aside = Aside(files, folder)
    names = _log_names(files, folder, aside, findings)
    sizes = {name: files.size(folder.log / name) or 0 for name in names}
    file_size = known.log_file_size if known is not None else 0
    if not sizes or not _is_credible(files, folder, sizes, file_size):
        file_size = _log_file_size(files, folder, sizes, options)
    numbers = []
    for name, size in sizes.items():
        if int(name) % file_size:
            _set_aside(folder, name, aside, findings, f"its name is no multiple of {file_size}")
            continue
        if size != file_size:
            _give_size(files, folder, name, (size, file_size), aside, findings)
        numbers.append(int(name) // file_size)
    _name_missing(folder, numbers, file_size, findings)
    return Survey(file_size, _queue_file_size(files, folder, options, known), numbers, findings)


def _log_names(files: Files, folder: Folder, aside: Aside, findings: list[Finding]) -> list[str]:
    names = []
    for name in files.names(folder.log):
        path = folder.log / name
        if is_unfinished(name):
            files.remove(path)
        elif is_file_name(name) and not files.is_folder(path):
            names.append(name)
        else:
            _set_aside(folder, name, aside, findings, "it is no log file by its name")
    return names


def _log_file_size(
    files: Files, folder: Folder, sizes: dict[str, int], options: StoreOptions
) -> int:
    """Give the size that explains most files: it is theirs and divides their names."""
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
    (name,) = sizes
    is_cut = best != setting and not _is_whole_file(files, folder, name, (best, setting))
    return setting if is_cut and int(name) % setting == 0 else best


def _multiples(sizes: dict[str, int], size: int) -> int:
    return sum(int(name) % size == 0 for name in sizes)


def _spacing(sizes: dict[str, int], size: int) -> int:
    """No two files have the same size: then the distance between their names tells."""
    starts = sorted(map(int, sizes))
    steps = Counter(later - earlier for earlier, later in pairwise(starts))
    step, _ = max(steps.items(), key=lambda item: (item[1], -item[0]))
    return step if _multiples(sizes, step) == len(sizes) else size


def _is_whole_file(files: Files, folder: Folder, name: str, sizes: tuple[int, int]) -> bool:
    """Whether a lone file of an unusual size is as long as files of this log are.

    Then it ends as files end, with zeros or a blank record, whatever damage lies before that. And
    when it has records behind the size that is set, it was not written with that size.
    """
    size, setting = sizes
    start = int(name)
    if start % size:
        return False
    log = LogFiles(files, folder.log, size, [start // size])
    scan, last_end = _scanned(log)
    left = start + size - scan.end_offset
    is_ended = not left or (left >= BLANK_SIZE and log.is_free(scan.end_offset))
    return is_ended or last_end > start + setting


def _is_credible(files: Files, folder: Folder, sizes: dict[str, int], size: int) -> bool:
    """Whether files can be of a size: by their names, and none has records behind it."""
    if size < RECORD_SIZE_MIN or _multiples(sizes, size) * 2 <= len(sizes):
        return False
    for name, present in sizes.items():
        if present > size and int(name) % present == 0:
            log = LogFiles(files, folder.log, present, [int(name) // present])
            if _scanned(log)[1] > int(name) + size:
                return False
    return True


def _scanned(log: LogFiles) -> tuple[Scan, int]:
    """Read a lone file, past damage; give the walk, and where its last record ends."""
    scan = Scan(log, log.first_offset, log.first_offset, is_prefix_only=False)
    last_end = log.first_offset
    for item in scan.walk():
        if not isinstance(item, Gap):
            last_end = item.log_offset + item.size
    return scan, last_end


def _give_size(
    files: Files,
    folder: Folder,
    name: str,
    sizes: tuple[int, int],
    aside: Aside,
    findings: list[Finding],
) -> None:
    present, wanted = sizes
    path = folder.log / name
    if present:  # an empty one is what a crash leaves between making a file and giving it a length
        copy = aside.copy(path)
        done = "lengthened with zeros" if present < wanted else "cut"
        text = (
            f"{path} has {present} bytes where the log's files have {wanted}; it was copied to "
            f"{copy} and {done}"
        )
        findings.append(Finding(FindingKind.WRONG_SIZE, path, int(name), present, text))
    files.resize(path, wanted)
    files.sync([path])


def _set_aside(folder: Folder, name: str, aside: Aside, findings: list[Finding], why: str) -> None:
    path = folder.log / name
    text = f"{path} does not belong to the log: {why}; it was moved to {aside.move(path)}"
    findings.append(Finding(FindingKind.STRAY_FILE, path, -1, 0, text))


def _name_missing(
    folder: Folder, numbers: list[int], file_size: int, findings: list[Finding]
) -> None:
    for before, after in pairwise(numbers):
        if after == before + 1 or len(findings) >= _MISSING_NAMED_MAX:
            continue
        start, size = (before + 1) * file_size, (after - before - 1) * file_size
        path = folder.log / file_name(start)
        text = (
            f"{path} is missing: log offsets {start} to {start + size} cannot be read, what comes"
            " behind them can; bring the file back from a copy before the next start"
        )
        findings.append(Finding(FindingKind.MISSING_FILE, path, start, size, text))


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
