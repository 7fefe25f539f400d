"""The queues' files: 20-byte entries, written behind, found by number.

In: runs of entries at queue offsets. Out: files of one fixed size, sparse, under
`<topic>/<queue id>/`, each named by the 20 digits of its first byte's place in the queue; entries
read back; what is there; where a log offset falls.

Rules:
1. The files are derived from the log. Names of folders and files are data: what should not be there
   is a fault in an Extent, never an exception.
2. The flush job's thread has descriptors of its own, to write with. Whatever reads here opens by
   path and may run in any thread.
3. Log offsets grow along a queue, so every search is a binary one. Unused space is zeros: it counts
   as not before anything.
4. What `write` and `cut` touched, new names included, is on the disk after the next `sync`.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from orbitmq.core.state import ENTRY, ENTRY_SIZE
from orbitmq.ensure import ensure
from orbitmq.errors import StoreError
from orbitmq.store.layout import (
    QUEUE_ID_MAX,
    Folder,
    can_hold_queue,
    file_name,
    is_file_name,
)
from orbitmq.store.open_files import OPEN_FILES_MAX, FileKey, OpenFiles
from orbitmq.store.queue_ext import ExtraUnits
from orbitmq.world.files import NO_FILE, BigFile, Files

HOLE_SIZE = 0x7FFF_FFFF
"""The size in an entry that stands for no record; the original fills lost beginnings with it."""

NO_QUEUE = -1
"""The queue id of an Extent that only names something that is no queue's folder."""

_PAGE_SIZE = 4_096
_PAGE_COUNT = _PAGE_SIZE // ENTRY_SIZE
_ZEROS = bytes(_PAGE_SIZE)
_SAMPLE_MAX = 256

IsBefore = Callable[[int, int], bool]
"""Says of an entry (log offset, size) whether it lies before what is looked for."""


class Extent(NamedTuple):
    """What lies in one queue's folder. With no faults its files follow each other without gap."""

    topic: str
    queue_id: int
    first_offset: int
    file_count: int
    faults: tuple[str, ...] = ()
    strays: tuple[Path, ...] = ()
    """What the faults name, if it is there: to be set aside."""


class QueueRange(NamedTuple):
    """A part of a queue that its files hold: first_offset up to, not including, end_offset."""

    topic: str
    queue_id: int
    first_offset: int
    end_offset: int


class QueueFiles:
    """Reads and writes the files of all queues."""

    def __init__(
        self, files: Files, folder: Path, file_size: int, open_max: int = OPEN_FILES_MAX
    ) -> None:
        ensure(file_size > 0 and file_size % ENTRY_SIZE == 0, "queue files hold whole entries")
        self._files = files
        self._folder = folder
        self._root = str(folder)
        self.file_size = file_size
        self._per_file = file_size // ENTRY_SIZE
        self._writing = OpenFiles(files, open_max)
        self._unsynced: set[FileKey] = set()
        self._unsynced_folders: dict[Path, None] = {}

    def close(self) -> None:
        """Close all files; nothing may be writing."""
        self._writing.close()

    # --- The flush job's thread; recovery, before there is one ---

    def write(
        self, topic: str, queue_id: int, queue_offset: int, entries: bytes | bytearray | memoryview
    ) -> None:
        """Write whole entries from `queue_offset` on; raises StoreError when a file refuses."""
        start = queue_offset * ENTRY_SIZE
        done = 0
        while done < len(entries):
            number, position = divmod(start + done, self.file_size)
            piece = memoryview(entries)[done : done + self.file_size - position]
            self._writable(topic, queue_id, number).write_at(position, piece)
            done += len(piece)

    def cut(
        self,
        topic: str,
        queue_id: int,
        next_offset: int,
        *,
        known: Extent | None = None,
        is_thorough: bool = False,
    ) -> None:
        """Let a queue end at `next_offset`: zeros behind it, no later files, full length.

        Entries left behind by a killed process lie together, so only the first page is looked at.
        After a power cut they may lie anywhere (`is_thorough`). `known` is what lies in the folder,
        if nothing was written there since.
        """
        number, position = divmod(next_offset * ENTRY_SIZE, self.file_size)
        is_last = known is not None and self._end_of(known) <= (number + 1) * self._per_file
        if not is_last and self._remove_from(topic, queue_id, number + 1):
            # What is cut off here must be found as the last file: see queue_survey.
            self._files.sync([self._queue_folder(topic, queue_id)])
        is_free = self._is_free(topic, queue_id, next_offset, is_thorough=is_thorough)
        if is_free is None or is_free:
            return
        path = self._path(topic, queue_id, number)
        if (self._files.size(path) or 0) > position:
            self._files.resize(path, position)
        self._files.resize(path, self.file_size)
        self._unsynced.add((topic, queue_id, number))

    def _is_free(
        self, topic: str, queue_id: int, queue_offset: int, *, is_thorough: bool
    ) -> bool | None:
        """Whether zeros lie behind an offset, as many as there should be; None: no such file."""
        number, position = divmod(queue_offset * ENTRY_SIZE, self.file_size)
        path, left = self._path_text(topic, queue_id, number), self.file_size - position
        if is_thorough:
            return self._files.is_zeros(path, position, left)
        page = self._files.read_at(path, position, min(_PAGE_SIZE, left))
        return None if page is None else page == _ZEROS[: min(_PAGE_SIZE, left)]

    def sync(self) -> None:
        """Bring what was written or cut, and its names, to the disk; SyncFailed forgets nothing."""
        paths = [self._path(*key) for key in sorted(self._unsynced)]
        paths += self._unsynced_folders
        if paths:
            self._files.sync(paths)
            self._unsynced.clear()
            self._unsynced_folders.clear()

    def remove_topic(self, topic: str) -> None:
        """Unlink everything that a topic has here; its names are gone after a sync of the folder.

        The last file of a queue goes first: what a crash leaves is a row.
        """
        for name in self._files.names(self._folder / _folder_name(topic)):
            if _is_queue_id(name):
                self.remove_queue(topic, int(name))

    def remove_queue(self, topic: str, queue_id: int) -> None:
        """Unlink the files of a queue, and the extra units of its entries."""
        self._writing.forget(topic, queue_id)
        self._unsynced = {key for key in self._unsynced if key[:2] != (topic, queue_id)}
        for folder in (parent / str(queue_id) for parent in self._topic_folders(topic)):
            for name in reversed(self._files.names(folder)):
                self._files.remove(folder / name)
            self._files.remove_folder(folder)
            self._files.remove_folder(folder.parent)

    def _topic_folders(self, topic: str) -> tuple[Path, Path]:
        extras = Folder(self._folder.parent).queue_extras
        return self._folder / _folder_name(topic), extras / _folder_name(topic)

    def _writable(self, topic: str, queue_id: int, number: int) -> BigFile:
        key = (topic, queue_id, number)
        file = self._writing.get(key)
        if file is None:
            path = self._path(topic, queue_id, number)
            if self._files.size(path) is None:
                self._files.make_folder(path.parent)
                self._name_changed(path.parent)
            # A queue is written at its end: what is open of it before is not written any more.
            self._writing.forget(topic, queue_id)
            file = self._writing.open(key, path, self.file_size)
        self._unsynced.add(key)
        return file

    def _remove_from(self, topic: str, queue_id: int, number: int) -> bool:
        """Remove a queue's files, the last first: what is left is a row at any time."""
        text = f"{self._root}/{_folder_name(topic)}/{queue_id}"
        is_any = False
        for name in reversed(self._files.names(text)):
            if is_file_name(name) and int(name) >= number * self.file_size:
                folder = Path(text)
                self._files.remove(folder / name)
                self._unsynced.discard((topic, queue_id, int(name) // self.file_size))
                self._name_changed(folder)
                is_any = True
        return is_any

    def _name_changed(self, folder: Path) -> None:
        """Remember that a name in a queue's folder is new or gone; the folder may be new, too."""
        for changed in (folder, folder.parent, folder.parent.parent):
            self._unsynced_folders[changed] = None

    # --- Any thread ---

    def read_cold(self, topic: str, queue_id: int, queue_offset: int, count: int) -> bytes:
        """Give up to `count` whole entries by path; it stops at a file's end or where none is."""
        number, position = divmod(queue_offset * ENTRY_SIZE, self.file_size)
        size = min(count * ENTRY_SIZE, self.file_size - position)
        data = self._files.read_at(self._path_text(topic, queue_id, number), position, size)
        return _whole(data) if data else b""

    def extents(self) -> Iterator[Extent]:
        """Return what is in every queue's folder, and whatever is no queue's folder as a fault."""
        for topic in self._files.names(self._folder):
            topic_folder = f"{self._root}/{topic}"
            found = self._files.listing(topic_folder)
            if found is None:
                yield _no_queue(topic, topic_folder, "is no folder of a topic")
            elif not _is_text(topic):
                yield _no_queue(topic, topic_folder, "has a name that no topic can have")
            else:
                for name, _ in found:
                    yield self._extent(topic, name, f"{topic_folder}/{name}")

    def of_topic(self, topic: str) -> list[Extent]:
        """Return what is in the folders of a topic's queues."""
        names = self._files.names(f"{self._root}/{_folder_name(topic)}")
        return [self.extent(topic, int(name)) for name in names if _is_queue_id(name)]

    def extent(self, topic: str, queue_id: int) -> Extent:
        """Return what is in one queue's folder."""
        return self._extent(topic, str(queue_id), str(self._queue_folder(topic, queue_id)))

    def extras(self, topic: str, queue_id: int) -> ExtraUnits:
        """Return the extra units of a queue's entries."""
        folder = Folder(self._folder.parent).queue_extras
        return ExtraUnits(self._files, folder / topic / str(queue_id))

    def end_before(self, extent: Extent, log_offset: int) -> int:
        """Return the first queue offset that has no entry of a record before `log_offset`."""
        count, end = self._per_file, self._end_of(extent)
        where = QueueRange(extent.topic, extent.queue_id, extent.first_offset, end)

        def is_before(entry_log_offset: int, size: int) -> bool:
            return size > 0 and entry_log_offset < log_offset

        if extent.file_count > 1:  # most queues end in their last file: look there first
            last = where._replace(first_offset=end - count)
            found = self._first_not(last, is_before)
            if found > last.first_offset:
                return found
            where = where._replace(end_offset=last.first_offset)
        return self._first_not(where, is_before)

    def first_from(self, where: Extent | QueueRange, log_offset: int) -> int:
        """Return the queue offset of the first record at or behind `log_offset`; the end if none.

        Fillers for a lost beginning (log offset 0, no record) are not records.
        """
        if isinstance(where, Extent):
            where = QueueRange(*where[:3], self._end_of(where))

        def is_before(entry_log_offset: int, size: int) -> bool:
            is_filler = entry_log_offset == 0 and size == HOLE_SIZE
            return size > 0 and (entry_log_offset < log_offset or is_filler)

        return self._first_not(where, is_before)

    def expired(self, topic: str, queue_id: int, min_log_offset: int) -> list[Path]:
        """Return the files whose records are all before `min_log_offset`; never the last file."""
        folder = self._queue_folder(topic, queue_id)
        paths = [folder / name for name in self._files.names(folder) if is_file_name(name)]
        gone: list[Path] = []
        for path in paths[:-1]:
            data = self._files.read_at(path, self.file_size - ENTRY_SIZE, ENTRY_SIZE) or b""
            if len(data) < ENTRY_SIZE:
                break
            log_offset, size, _ = ENTRY.unpack(data)
            if size <= 0 or log_offset >= min_log_offset:
                break
            gone.append(path)
        return gone

    def _first_not(self, where: QueueRange, is_before: IsBefore) -> int:
        """Return the first offset whose entry is not before: a page, then in doubling steps."""
        low, high, step = where.first_offset, where.end_offset, _PAGE_COUNT
        while high - low > _PAGE_COUNT:
            found, is_sure = self._first_in_page(where, low, is_before)
            if is_sure:
                return found
            low = found
            probe = min(low + step, high - 1)
            if not self._is_before_at(where, probe, is_before):
                high = probe
                break
            low, step = probe + 1, step * 2
        while high - low > _PAGE_COUNT:
            middle = (low + high) // 2
            if self._is_before_at(where, middle, is_before):
                low = middle + 1
            else:
                high = middle
        return self._first_among(where._replace(first_offset=low, end_offset=high), is_before)

    def _first_among(self, where: QueueRange, is_before: IsBefore) -> int:
        low = where.first_offset
        while low < where.end_offset:
            low, is_sure = self._first_in_page(where, low, is_before)
            if is_sure:
                break
        return min(low, where.end_offset)

    def _first_in_page(self, where: QueueRange, low: int, is_before: IsBefore) -> tuple[int, bool]:
        """Look at the entries of one read from `low` on; sure: the answer lies among them."""
        count = min(
            _PAGE_COUNT,
            where.end_offset - low,
            self._per_file - low % self._per_file,
        )
        page = self.read_cold(where.topic, where.queue_id, low, count)
        first, last = 0, len(page) // ENTRY_SIZE
        while first < last:  # in growing steps: where there are many queues, most are short
            probe = min(first + first // 2, (first + last) // 2)
            log_offset, size, _ = ENTRY.unpack_from(page, probe * ENTRY_SIZE)
            if is_before(log_offset, size):
                first = probe + 1
            else:
                last = probe
        return low + first, first < count

    def _is_before_at(self, where: QueueRange, queue_offset: int, is_before: IsBefore) -> bool:
        data = self.read_cold(where.topic, where.queue_id, queue_offset, 1)
        if not data:
            return False
        log_offset, size, _ = ENTRY.unpack(data)
        return is_before(log_offset, size)

    def _extent(self, topic: str, name: str, folder: str) -> Extent:
        found = self._files.listing(folder)
        if found is None:
            return _no_queue(topic, folder, "is no folder of a queue")
        if not _is_queue_id(name):
            return _no_queue(topic, folder, "has a name that no queue can have")
        wanted = self.file_size
        starts = [
            int(file)
            for file, size in found
            if size == wanted and is_file_name(file) and int(file) % wanted == 0
        ]
        is_row = not starts or starts[-1] == starts[0] + (len(starts) - 1) * wanted
        if not is_row or len(starts) < len(found):
            return self._with_faults(topic, int(name), Path(folder), found)
        first_offset = starts[0] // ENTRY_SIZE if starts else 0
        return Extent(topic, int(name), first_offset, len(starts))

    def _with_faults(
        self, topic: str, queue_id: int, folder: Path, found: list[tuple[str, int]]
    ) -> Extent:
        """Name what is wrong with the files of a queue, if anything is."""
        wanted, last_name = self.file_size, found[-1][0]
        faults: list[str] = []
        strays: list[Path] = []
        starts: list[int] = []
        for name, size in found:
            if not is_file_name(name) or int(name) % wanted:
                what = f"does not belong to the queue: no multiple of {wanted}"
            elif size == wanted or (size == 0 and name == last_name):
                # Killed between making a file and giving it its length: nothing was in it.
                starts.append(int(name))
                continue
            else:
                is_file = size != NO_FILE
                what = f"has {size} bytes instead of {wanted}" if is_file else "is no file"
            faults.append(f"{folder / name} {what}")
            strays.append(folder / name)
        first, count = starts[0] if starts else 0, 0
        while count < len(starts) and starts[count] == first + count * wanted:
            count += 1
        if count < len(starts):
            missing = folder / file_name(first + count * wanted)
            faults.append(f"{missing} is missing: files come behind it")
        first_offset = first // ENTRY_SIZE
        return Extent(topic, queue_id, first_offset, count, tuple(faults), tuple(strays))

    def _end_of(self, extent: Extent) -> int:
        """Return the queue offset behind the last file."""
        return extent.first_offset + extent.file_count * self._per_file

    def _queue_folder(self, topic: str, queue_id: int) -> Path:
        return self._folder.joinpath(_folder_name(topic), str(queue_id))

    def _path(self, topic: str, queue_id: int, number: int) -> Path:
        return Path(self._path_text(topic, queue_id, number))

    def _path_text(self, topic: str, queue_id: int, number: int) -> str:
        name = file_name(number * self.file_size)
        return f"{self._root}/{_folder_name(topic)}/{queue_id}/{name}"


def file_size_in(files: Files, folder: Path) -> int | None:
    """Return the size that most files of the first queues have, or None when there are none.

    Up to 256 files are looked at: the size of a store's files is one setting for all of them.
    """
    sizes = (size for size in _sizes_in(files, folder) if size > 0 and size % ENTRY_SIZE == 0)
    counts = Counter(islice(sizes, _SAMPLE_MAX))
    return max(counts, key=lambda size: (counts[size], size), default=None)


def _sizes_in(files: Files, folder: Path) -> Iterator[int]:
    for queue_folder in _queue_folders(files, folder):
        for name, size in files.listing(queue_folder) or ():
            if is_file_name(name):
                yield size


def _queue_folders(files: Files, folder: Path) -> Iterator[Path]:
    for topic in files.names(folder):
        for queue_id, _ in files.listing(folder / topic) or ():
            yield folder / topic / queue_id


def _folder_name(topic: str) -> str:
    """Return a topic as the name of a folder; raises StoreError when it would lead elsewhere."""
    if not can_hold_queue(topic, 0):
        raise StoreError(f"topic {topic!r} cannot be the name of a folder; rename the topic")
    return topic


def _no_queue(topic: str, path: str, why: str) -> Extent:
    return Extent(topic, NO_QUEUE, 0, 0, (f"{path} {why}",), (Path(path),))


def _is_queue_id(name: str) -> bool:
    is_number = name.isascii() and name.isdigit() and len(name) <= len(str(QUEUE_ID_MAX))
    return is_number and str(int(name)) == name and int(name) <= QUEUE_ID_MAX


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:  # bytes that are not UTF-8 come as half characters
        return False
    return True


def _whole(data: bytes) -> bytes:
    return data[: len(data) - len(data) % ENTRY_SIZE]
