"""`orbitmq store repair`: queues and index made anew from the whole log, if they need it.

In: a folder that no broker has open. Out: what was found and done, and a check of the result.

Rules:
1. The lock is held while anything is changed; a running broker, ours or the original's, keeps
   repair out.
2. A folder whose queues and index are what the log says is left as it is: a second run changes
   nothing. Damage in the log itself cannot be repaired; it is named again each time.
3. Repairing is recovery's full rebuild and nothing else: what cannot be made anew from the log is
   set aside, never deleted.
4. Everything is on the disk before the mark of an unclean stop is taken away.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec

from orbitmq.store.check import check
from orbitmq.store.findings import Finding
from orbitmq.store.index_shape import Shape, find_shape, is_index_name
from orbitmq.store.layout import Folder
from orbitmq.store.opening import Outside, open_folder
from orbitmq.store.options import StoreOptions
from orbitmq.store.places import ensure_log, folder_of, take_places
from orbitmq.store.verdict import RECOVERS, RESTORE, Level, Progress, Verdict, no_progress
from orbitmq.world.files import Files


class Repaired(NamedTuple):
    """What was done, and how the folder is now."""

    findings: list[Finding]
    verdict: Verdict


def repair(
    outside: Outside, root: Path, options: StoreOptions, progress: Progress = no_progress
) -> Repaired:
    """Repair a folder; raises StoreError when it is no store folder or somebody has it open."""
    files, folder = outside.files, folder_of(root, options)
    ensure_log(files, folder)
    take_places(files, folder).release()  # says at once that somebody has it open
    verdict = check(files, root, options, outside.boot_id, progress)
    if not needs_repair(verdict):
        return Repaired([], verdict)
    findings = _rebuild(outside, folder, _as_written(files, folder, options), progress)
    return Repaired(findings, check(files, root, options, outside.boot_id, progress))


def needs_repair(verdict: Verdict) -> bool:
    """Whether there is anything that a rebuild changes: damage in the log itself is not."""
    return any(
        fault.advice == RECOVERS or (fault.level is Level.DAMAGE and fault.advice != RESTORE)
        for fault in verdict.faults
    )


def _rebuild(
    outside: Outside, folder: Folder, options: StoreOptions, progress: Progress
) -> list[Finding]:
    opened = open_folder(
        outside,
        folder.root,
        options,
        is_full_rebuild=True,
        progress=lambda done, total: progress("rebuilding", done, total),
    )
    with ExitStack() as steps:
        steps.callback(opened.lock.release)
        steps.callback(opened.checkpoint.close)
        steps.callback(opened.index.close)
        steps.callback(opened.queue_files.close)
        outside.files.remove(folder.abort)
        outside.files.sync([folder.root])
    return opened.findings


def _as_written(files: Files, folder: Folder, options: StoreOptions) -> StoreOptions:
    """Return the options with the shape that the folder's index files have."""
    paths = [folder.index / name for name in files.names(folder.index) if is_index_name(name)]
    shape = find_shape(files, paths, Shape(options.index_slot_count, options.index_entry_count))
    return msgspec.structs.replace(
        options, index_slot_count=shape.slot_count, index_entry_count=shape.entry_count
    )
