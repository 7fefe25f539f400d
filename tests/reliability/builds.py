"""Brokers that differ from the good one in one thing: a failpoint, or a promise that is broken.

In: `python -m tests.reliability.builds NAME[:VALUE] ... -- ARGUMENTS OF orbitmq`. Out: that
command, run in this process after the named parts were changed.

Rules:
1. A broken build breaks one promise (reliability-tests.md 2). The programme must notice each.
2. `forgets` is the disk of a power cut: a journal beside the store says, per log file, from where
   on this process has written and up to where it has synced. Who ends the process by SIGKILL may
   then blot out what lies between, which is what `cut_power` does.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq.broker import store_opening
from orbitmq.broker.answers import SentWhenTrue
from orbitmq.cli.main import main
from orbitmq.core import Queue
from orbitmq.core.state import ENTRY, ENTRY_SIZE
from orbitmq.store.commit_log import CommitLog, Unsynced
from orbitmq.store.store import Store
from orbitmq.world.big_file import SystemBigFile
from tests.store import broken_builds as of_store

DROP_EVERY = 1_000
"""One message in so many is dropped; a run of the broken builds has several thousand."""

SWAP_EVERY = 300
QUEUE_OFFSET_POSITION = 20
"""Where a record has its queue offset."""

ROLL_POINTS = 3

Patch = pytest.MonkeyPatch
Build = Callable[[Patch, str], None]


def _kill_own_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# --- Failpoints -----------------------------------------------------------------------------------


def kill_at_roll(patch: Patch, value: str) -> None:
    """End by SIGKILL at the first write that goes over two files: before, in the middle, behind."""
    point, write = int(value), CommitLog._write

    def write_or_die(log: CommitLog, log_offset: int, data: bytes | bytearray) -> None:
        left = log._tail.file_size - log_offset % log._tail.file_size
        if len(data) < left:
            write(log, log_offset, data)
            return
        if point > 0:
            write(log, log_offset, data[:left] if point == 1 else data)
        _kill_own_process()

    patch.setattr(CommitLog, "_write", write_or_die)


def forgets(patch: Patch, value: str) -> None:
    """Keep a journal of what of the log is on the disk; this boot is not the one before."""
    journal = os.open(value, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    ends: dict[Path, int] = {}
    write_at, sync = SystemBigFile.write_at, SystemBigFile.sync

    def note(kind: str, path: Path, position: int) -> None:
        os.write(journal, f"{kind} {position} {path}\n".encode())

    def write_noted(
        file: SystemBigFile, position: int, data: bytes | bytearray | memoryview
    ) -> None:
        path = file._path
        if path.parent.name == "commitlog":
            if path not in ends:
                note("from", path, position)
            ends[path] = max(ends.get(path, 0), position + len(data))
        write_at(file, position, data)

    def sync_noted(file: SystemBigFile) -> None:
        end = ends.get(file._path)
        sync(file)
        if end is not None:
            note("synced", file._path, end)

    boot_id = hashlib.blake2b(value.encode(), digest_size=16).digest()
    patch.setattr(SystemBigFile, "write_at", write_noted)
    patch.setattr(SystemBigFile, "sync", sync_noted)
    patch.setattr(store_opening, "boot_id", lambda: boot_id)


def slow_sync(patch: Patch, value: str) -> None:
    """Let every third sync of the log take so many seconds more."""
    sync, more_s, number = Unsynced.sync, float(value), itertools.count(1)

    def sync_late(unsynced: Unsynced) -> None:
        if next(number) % 3 == 0:
            time.sleep(more_s)
        sync(unsynced)

    patch.setattr(Unsynced, "sync", sync_late)


def cut_power(journal: Path) -> int:
    """Blot out what a killed process had written and not synced; return how many bytes."""
    if not journal.exists():  # it did not live long enough to write anything
        return 0
    begins: dict[str, int] = {}
    for line in journal.read_text().splitlines():
        _, position, path = line.split(" ", 2)
        begins[path] = max(begins.get(path, 0), int(position))
    blotted = 0
    for path, begin in begins.items():
        with Path(path).open("r+b") as file:
            file.seek(begin)
            left = file.read().rstrip(b"\0")
            file.seek(begin)
            file.write(bytes(len(left)))
            blotted += len(left)
    return blotted


# --- Broken promises ------------------------------------------------------------------------------


def drop_one_record(patch: Patch, _value: str) -> None:
    """Now and then one acknowledged record is written as zeros."""
    write_staged = Store.write_staged
    due = DROP_EVERY

    def write_most(store: Store) -> set[Queue]:
        nonlocal due
        tail = store.tail
        if tail.grown and store.message_count >= due:
            due += DROP_EVERY
            log_offset, size, _ = ENTRY.unpack(next(iter(tail.grown)).entries[-ENTRY_SIZE:])
            start = log_offset - tail.written_offset
            tail.staged[start : start + size] = bytes(size)
        return write_staged(store)

    patch.setattr(Store, "write_staged", write_most)


def swap_two_records(patch: Patch, _value: str) -> None:
    """Now and then the last two messages of a queue change places, after they were answered."""
    write_staged = Store.write_staged
    due = SWAP_EVERY

    def write_swapped(store: Store) -> set[Queue]:
        nonlocal due
        pairs = [one for one in store.tail.grown if one.next_offset - one.readable_offset >= 2]
        if pairs and store.message_count >= due:
            due += SWAP_EVERY
            _swap(store, pairs[0])
        return write_staged(store)

    patch.setattr(Store, "write_staged", write_swapped)


def _swap(store: Store, queue: Queue) -> None:
    before, last = queue.entries[-2 * ENTRY_SIZE : -ENTRY_SIZE], queue.entries[-ENTRY_SIZE:]
    queue.entries[-2 * ENTRY_SIZE :] = last + before
    for entry, queue_offset in ((before, queue.next_offset - 1), (last, queue.next_offset - 2)):
        start = ENTRY.unpack(entry)[0] - store.tail.written_offset + QUEUE_OFFSET_POSITION
        store.tail.staged[start : start + 8] = queue_offset.to_bytes(8, "big")


def answer_a_timeout_as_success(patch: Patch, _value: str) -> None:
    """Who waited too long for the disk is told "stored"."""

    patch.setattr(SentWhenTrue, "late", SentWhenTrue.reached)


def _of_store(build: of_store.Build) -> Build:
    return lambda patch, _value: build(patch)


BUILDS: dict[str, Build] = {
    "kill_at_roll": kill_at_roll,
    "forgets": forgets,
    "slow_sync": slow_sync,
    "acknowledge_before_writing": _of_store(of_store.acknowledge_before_writing),
    "skip_the_sync": _of_store(of_store.skip_the_sync),
    "drop_one_record": drop_one_record,
    "swap_two_records": swap_two_records,
    "answer_a_timeout_as_success": answer_a_timeout_as_success,
    "reuse_a_queue_offset": _of_store(of_store.reuse_a_queue_offset),
}


def run(arguments: list[str]) -> int:
    """Change what is named before the `--`, run what stands behind it."""
    end = arguments.index("--")
    for word in arguments[:end]:
        name, _, value = word.partition(":")
        BUILDS[name](Patch(), value)
    return main(arguments[end + 1 :])


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
