"""Opening a folder: take the locks, put in order what the last run left, say that we are running.

In: a folder, ours or the original's, after a clean stop, a kill or a power cut, or nothing at all.
Out: all parts of the store, standing at the end of the log.

Rules:
1. Nothing is read before the locks are held (see `places`), and nothing is changed before `abort`
   is there.
2. What recovery found is given out, never swallowed.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec

from orbitmq.core import LogTail, Queue
from orbitmq.errors import StoreError, WriteFailed
from orbitmq.store.checkpoint import Checkpoint, FileSizes, Mark, Stamps, read_checkpoint
from orbitmq.store.consume_queue import QueueFiles
from orbitmq.store.flush import CheckpointFile
from orbitmq.store.key_index import KeyIndex
from orbitmq.store.layout import Folder
from orbitmq.store.log_folders import LogFolders
from orbitmq.store.options import StoreOptions
from orbitmq.store.places import folder_of, take_places
from orbitmq.store.queue_ext_writing import UnitWriter
from orbitmq.store.reading import ColdReader
from orbitmq.store.recovery import Finding, Parts, Recovered, recover
from orbitmq.store.survey import refuse_missing, survey
from orbitmq.store.topic_removal import Notes, find_removed, save_notes, still_needed
from orbitmq.world.clock import Clock
from orbitmq.world.files import Files, FolderLock

Progress = Callable[[int, int], None]


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of an open store."""

    folder: Folder
    log_folders: LogFolders
    lock: FolderLock
    tail: LogTail
    first_offset: int
    queues: dict[tuple[str, int], Queue]
    queue_files: QueueFiles
    index: KeyIndex
    checkpoint: CheckpointFile
    units: UnitWriter | None
    """If queue entries get extra units."""
    findings: list[Finding]
    removed: Notes
    was_clean: bool

    def close(self) -> None:
        """Close the files of queues, index and checkpoint, whatever of it fails."""
        with ExitStack() as steps:
            steps.callback(self.checkpoint.close)
            steps.callback(self.index.close)
            steps.callback(self.queue_files.close)
            if self.units is not None:
                steps.callback(self.units.close)


class Outside(NamedTuple):
    """The machine a store lives on."""

    files: Files
    clock: Clock
    boot_id: bytes = bytes(16)
    """Equal as long as the machine runs; zeros when that is not known."""


def open_folder(
    outside: Outside,
    root: Path,
    options: StoreOptions,
    *,
    is_full_rebuild: bool = False,
    progress: Progress | None = None,
) -> Opened:
    """Open a folder; raises StoreError when it is taken or cannot be used."""
    files, folder = outside.files, folder_of(root, options)
    log_folders = LogFolders.of(files, folder)
    with ExitStack() as undo:
        lock = take_places(files, folder)
        undo.callback(lock.release)
        is_clean = files.size(folder.abort) is None
        for path in (folder.queues, folder.index, folder.config):
            files.make_folder(path)
        if is_clean:
            files.open_big(folder.abort, 0, is_mapped=False).close()
            files.sync([root])
        before = read_checkpoint(files, folder.checkpoint)
        sizes = before.sizes if before is not None else None
        found = survey(files, folder, log_folders, options, sizes)
        if not is_full_rebuild:
            refuse_missing(log_folders, found, before)
        queue_files = QueueFiles(files, folder.queues, found.queue_file_size)
        undo.callback(queue_files.close)
        index = KeyIndex(
            files,
            folder.index,
            outside.clock,
            slot_count=options.index_slot_count,
            entry_count=options.index_entry_count,
            is_on=options.is_indexed,
        )
        undo.callback(index.close)
        parts = Parts(
            files=files,
            folder=folder,
            log_folders=log_folders,
            options=options,
            survey=found,
            queue_files=queue_files,
            index=index,
            checkpoint=before,
            is_clean=is_clean,
            boot_id=outside.boot_id,
            is_full_rebuild=is_full_rebuild,
            removed=find_removed(files, folder, before, is_clean=is_clean),
        )
        recovered = _recovered(parts, progress)
        removed = _keep_removed(parts, recovered)
        checkpoint = _save_checkpoint(parts, recovered)
        undo.pop_all()
    return Opened(
        folder=folder,
        log_folders=log_folders,
        lock=lock,
        tail=_tail(found.log_file_size, recovered),
        first_offset=recovered.first_offset,
        queues=recovered.queues,
        queue_files=queue_files,
        index=index,
        checkpoint=checkpoint,
        units=_unit_writer(parts) if options.is_extended else None,
        findings=[*found.findings, *recovered.findings],
        removed=removed,
        was_clean=is_clean,
    )


def _recovered(parts: Parts, progress: Progress | None) -> Recovered:
    """Recover; raises StoreError when the log must go on where nothing can be written."""
    file_size, log_folders = parts.survey.log_file_size, parts.log_folders
    try:
        recovered = recover(parts, progress)
        number, position = divmod(recovered.end_offset, file_size)
        path = log_folders.path(number * file_size)
        if position and log_folders.is_read_only(path):
            parts.files.open_big(path, file_size, is_mapped=False).close()
    except WriteFailed as error:
        if not log_folders.is_read_only(Path(str(error.path))):
            raise
        raise StoreError(
            f"{error}: the log goes on in this file until it is full, or must be put in order"
            f" there; move it to {log_folders.writable[0]}, or let its disk be written to once more"
        ) from error
    return recovered


def _tail(file_size: int, recovered: Recovered) -> LogTail:
    tail = LogTail(file_size, recovered.end_offset)
    tail.hot_offset = recovered.checked_from
    tail.advance_clock(recovered.store_ms)
    return tail


def _unit_writer(parts: Parts) -> UnitWriter:
    reader = ColdReader(
        parts.files,
        parts.folder,
        parts.log_folders,
        parts.survey.log_file_size,
        parts.queue_files,
    )
    return UnitWriter(
        parts.files,
        parts.folder.queue_extras,
        parts.options.extra_file_size,
        parts.queue_files,
        reader.log_bytes,
    )


def _keep_removed(parts: Parts, recovered: Recovered) -> Notes:
    """Keep the notes of removed topics that are still needed, before an offset is given again."""
    needed = still_needed(parts.removed.notes, recovered.first_offset, recovered.end_offset)
    files, path = parts.files, parts.folder.removed_topics
    if not needed and files.size(path) is not None:
        files.remove(path)
        files.sync([parts.folder.config])
    elif needed != parts.removed.notes:
        save_notes(files, path, needed)
    return needed


def _save_checkpoint(parts: Parts, recovered: Recovered) -> CheckpointFile:
    """Recovery has written and synced everything: both marks stand at the log's end."""
    files, folder = parts.files, parts.folder
    queues = recovered.queues.values()
    mark = Mark(
        recovered.end_offset,
        sum(queue.readable_offset > 0 for queue in queues),
        sum(queue.readable_offset for queue in queues),
        *parts.index.state(),
    )
    stamps = Stamps(recovered.store_ms, recovered.store_ms, mark.index_end_ms)
    found, folder_count = parts.survey, len(parts.log_folders.all)
    sizes = FileSizes(found.log_file_size, found.queue_file_size, folder_count)
    value = Checkpoint(stamps, mark, mark, parts.boot_id, sizes)
    checkpoint = CheckpointFile(files, folder.checkpoint, value, parts.log_folders)
    checkpoint.save(value)
    checkpoint.sync()
    files.sync([folder.root])
    return checkpoint
