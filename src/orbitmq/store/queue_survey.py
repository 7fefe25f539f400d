"""What the queues' folders hold when a folder is opened, and what of it must go aside.

In: the extents of all queues. Out: those that can be gone on with, by topic and queue id.

Rules:
1. What does not belong there by its name is set aside; the queues beside it stay.
2. A queue whose files are no row of equal files cannot be used: everything is made anew then. Its
   files go aside, and the number that was its next one is remembered: no number is given twice.
3. A file that is too short is given its length again, without a word, when that is what a power cut
   leaves: of files made since the synced mark, or of a recovery that was cutting the last one
   (QueueFiles.cut). Whether entries are missing, the mark tells. Without a mark it is a fault.
"""

from pathlib import Path

from orbitmq.core.state import ENTRY, ENTRY_SIZE
from orbitmq.store.consume_queue import NO_QUEUE, Extent, QueueFiles
from orbitmq.store.findings import Aside, Finding, FindingKind
from orbitmq.store.layout import is_file_name
from orbitmq.store.replay import QueueKey
from orbitmq.world.files import Files


class QueueSurvey:
    """The queues' files of one folder."""

    def __init__(
        self,
        files: Files,
        folder: Path,
        queue_files: QueueFiles,
        aside: Aside,
        synced_offset: int | None,
    ) -> None:
        """`synced_offset` is the log offset of the synced mark."""
        self._files = files
        self._folder = folder
        self._queue_files = queue_files
        self._aside = aside
        self.extents: dict[QueueKey, Extent] = {}
        self.last_numbers: dict[QueueKey, int] = {}
        """The next numbers of queues whose files went aside."""
        self.findings: list[Finding] = []
        self.fault = ""
        """Why queues must be made anew, or nothing."""
        for extent in queue_files.extents():
            is_mendable = extent.faults and synced_offset is not None
            self._take(self._lengthened(extent, synced_offset or 0) if is_mendable else extent)

    def _take(self, extent: Extent) -> None:
        if extent.faults and (extent.queue_id == NO_QUEUE or not _is_broken(extent)):
            for path, fault in zip(extent.strays, extent.faults, strict=True):
                text = f"{fault}; it was moved to {self._aside.move(path)}"
                self.findings.append(Finding(FindingKind.STRAY_FILE, path, -1, 0, text))
        elif extent.faults:
            self.fault = self.fault or extent.faults[0]
        if extent.queue_id != NO_QUEUE:
            self.extents[extent.topic, extent.queue_id] = extent

    def _lengthened(self, extent: Extent, synced_offset: int) -> Extent:
        """Short files their length when a power cut explains them; return what is there then."""
        strays, wanted = extent.strays, self._queue_files.file_size
        if extent.queue_id == NO_QUEUE or not strays:
            return extent
        paths = [strays[0].parent / name for name in self._files.names(strays[0].parent)]
        sizes = [self._files.size(path) for path in strays]
        are_short = all(is_file_name(path.name) for path in strays) and all(
            size is not None and size < wanted and size % ENTRY_SIZE == 0 for size in sizes
        )
        behind = paths[paths.index(strays[0]) :]
        is_explained = behind == [strays[0]] or all(
            self._is_behind(path, synced_offset) for path in behind
        )
        if not are_short or not is_explained:
            return extent
        for path in strays:
            self._files.resize(path, wanted)
        return self._queue_files.extent(extent.topic, extent.queue_id)

    def _is_behind(self, path: Path, log_offset: int) -> bool:
        """Whether a file holds no entry of a record before a log offset."""
        data = self._files.read_at(path, 0, self._queue_files.file_size) or b""
        whole = data[: len(data) - len(data) % ENTRY_SIZE]
        return all(size <= 0 or at >= log_offset for at, size, _ in ENTRY.iter_unpack(whole))

    def set_broken_aside(self) -> None:
        """Take queues out of the way whose files are no row."""
        for key, extent in list(self.extents.items()):
            if extent.faults and _is_broken(extent):
                self.last_numbers[key] = self._next_number(key)
                self.set_aside(key)

    def set_aside(self, key: QueueKey) -> None:
        """Take a queue's files out of the way, if there are any."""
        extent = self.extents.pop(key, None)
        folder = self._folder / key[0] / str(key[1])
        if extent is None or not self._files.names(folder):
            return
        self._queue_files.close()  # what is open would go on under the new name
        why = "; ".join(extent.faults) or "its numbers have nothing to do with those of the log"
        text = f"queue {folder}: {why}; it was moved to {self._aside.move(folder)}"
        self.findings.append(Finding(FindingKind.QUEUES_SET_ASIDE, folder, -1, 0, text))

    def set_all_aside(self, why: str) -> None:
        """Take all queues out of the way."""
        if any(extent.file_count or extent.faults for extent in self.extents.values()):
            self._queue_files.close()
            text = f"{why}: the queues in {self._folder} were moved to "
            text += str(self._aside.move(self._folder))
            self._files.make_folder(self._folder)
            self._files.sync([self._folder.parent])
            self.findings.append(Finding(FindingKind.QUEUES_SET_ASIDE, self._folder, -1, 0, text))
        self.extents.clear()

    def _next_number(self, key: QueueKey) -> int:
        """Return a queue's next number by the last entry in the last of its files that has one."""
        folder = self._folder / key[0] / str(key[1])
        for name in reversed(self._files.names(folder)):
            if not is_file_name(name) or int(name) % ENTRY_SIZE:
                continue
            size = min(self._files.size(folder / name) or 0, self._queue_files.file_size)
            data = self._files.read_at(folder / name, 0, size) or b""
            used = len(data[: size - size % ENTRY_SIZE].rstrip(b"\0"))
            if used:
                return (int(name) + used + ENTRY_SIZE - 1) // ENTRY_SIZE
        return 0


def _is_broken(extent: Extent) -> bool:
    """Whether a file of the queue is missing or has another size; other strays do no harm."""
    is_gap = len(extent.faults) > len(extent.strays)
    return is_gap or any(is_file_name(path.name) for path in extent.strays)
