"""Jobs that bring the store's memory to the disk: made on the loop, run in a thread.

In: what was frozen when the job was made. Out: written and synced files, or the error in `error`.

Rules:
1. `run` touches files only, never the store's state; `Store.finish_…` takes the outcome in. It does
   not raise what a disk does: that is in `error`.
2. Order inside a flush: extra units if there are any, queue entries, index entries and their sync,
   the checkpoint's index stamp, index slots and header, then the marks. So whatever a crash cuts
   off, what a mark says is true, and a slot never points to an entry that is not there.
3. Only a thorough flush moves the synced mark. It runs after the log itself is synced that far.
"""

from pathlib import Path
from typing import NamedTuple

import msgspec

from orbitmq.errors import StoreError
from orbitmq.store.checkpoint import FILE_SIZE, Checkpoint, Mark, Stamps, encode_checkpoint
from orbitmq.store.commit_log import Unsynced
from orbitmq.store.consume_queue import QueueFiles
from orbitmq.store.jobs import UnwrittenEntries, error_of
from orbitmq.store.key_index import IndexJob, KeyIndex
from orbitmq.store.log_folders import LogFolders
from orbitmq.store.queue_ext_writing import BitMapOf, UnitWriter
from orbitmq.world.files import BigFile, Files


class LogSync:
    """Brings the log to the disk up to `target`."""

    def __init__(self, unsynced: Unsynced, target: int) -> None:
        self._unsynced = unsynced
        self.target = target
        self.later_since_s: float | None = None
        """When the first byte behind the target was written; that is for the next sync."""
        self.error: StoreError | None = None

    def run(self) -> None:
        """Sync; for a thread."""
        self.error = error_of(self._unsynced.sync)


class CheckpointFile:
    """The checkpoint: one small block that is written as a whole."""

    def __init__(
        self, files: Files, path: Path, value: Checkpoint, log_folders: LogFolders | None = None
    ) -> None:
        """Without `log_folders`, what `value` says of where the log's files are stays."""
        if files.size(path) not in (None, FILE_SIZE):  # cut or lengthened: no reason to stop
            files.resize(path, FILE_SIZE)
        self._file: BigFile = files.open_big(path, FILE_SIZE, is_mapped=False)
        self._old = files.read_at(path, 0, FILE_SIZE)
        self.value = value
        self._log_folders = log_folders

    def save(self, value: Checkpoint) -> None:
        """Write the checkpoint, and where the log's files are now; the kernel has it."""
        folders = self._log_folders
        if value.sizes is not None and folders is not None and folders.is_spread:
            log_start, holding_count = folders.extent()
            sizes = value.sizes._replace(log_start=log_start, holding_count=holding_count)
            value = msgspec.structs.replace(value, sizes=sizes)
        self._file.write_at(0, encode_checkpoint(value, self._old))
        self.value = value

    def sync(self) -> None:
        """Bring it to the disk."""
        self._file.sync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class FlushTargets(NamedTuple):
    """Where a flush writes to."""

    queue_files: QueueFiles
    key_index: KeyIndex
    checkpoint: CheckpointFile
    units: UnitWriter | None = None
    """If queue entries get extra units."""
    bit_map_of: BitMapOf | None = None


class FlushJob:
    """Writes queue and index entries behind and moves the marks of the checkpoint."""

    def __init__(
        self,
        targets: FlushTargets,
        runs: list[UnwrittenEntries],
        index_job: IndexJob | None,
        mark: Mark,
        store_ms: int,
        *,
        is_thorough: bool,
    ) -> None:
        self._targets = targets
        self.runs = runs
        self.index_job = index_job
        self.mark = mark
        self._store_ms = store_ms
        self.is_thorough = is_thorough
        self.error: StoreError | None = None

    def run(self) -> None:
        """Write, and sync when thorough; for a thread."""
        self.error = error_of(self._run)

    def _run(self) -> None:
        queue_files, units = self._targets.queue_files, self._targets.units
        if units is None:
            for queue, queue_offset, entries in self.runs:
                queue_files.write(queue.topic, queue.queue_id, queue_offset, entries)
        else:
            self._write_extended(units)
        self._write_index()
        if self.is_thorough:
            if units is not None:
                units.sync()
            queue_files.sync()
            self._targets.key_index.sync()
        self._save_marks()

    def _write_extended(self, units: UnitWriter) -> None:
        changed = units.addressed(self.runs, self._targets.bit_map_of)
        for (queue, queue_offset, _), entries in zip(self.runs, changed, strict=True):
            write = self._targets.queue_files.write
            write(queue.topic, queue.queue_id, queue_offset, entries)
        units.confirm()

    def _write_index(self) -> None:
        job, checkpoint = self.index_job, self._targets.checkpoint
        if job is None:
            return
        for piece in job.by_file():
            piece.write_entries()
            piece.sync()
            now = checkpoint.value
            stamps = now.stamps._replace(index_ms=max(now.stamps.index_ms, piece.end_ms))
            checkpoint.save(msgspec.structs.replace(now, stamps=stamps))
            piece.write_slots()

    def _save_marks(self) -> None:
        checkpoint = self._targets.checkpoint
        now = checkpoint.value
        stamps, synced = now.stamps, now.synced
        if self.is_thorough:
            stamps, synced = Stamps(self._store_ms, self._store_ms, stamps.index_ms), self.mark
        value = msgspec.structs.replace(now, stamps=stamps, written=self.mark, synced=synced)
        checkpoint.save(value)
        if self.is_thorough:
            checkpoint.sync()
