"""A store with small files, for tests: opened, filled, read, closed in one line each.

In: a folder or files of one's own. Out: the real store.
"""

from pathlib import Path

from orbitmq.core import CoreState, Queue, Stamp, append, gather
from orbitmq.core.plain_gather import PullStatus
from orbitmq.store.opening import Outside
from orbitmq.store.options import StoreOptions
from orbitmq.store.reading import gather_cold, snapshot
from orbitmq.store.store import Store
from orbitmq.wire.expression import tag_code
from orbitmq.wire.properties import TAGS, parse_properties
from orbitmq.wire.record import scan_records
from orbitmq.world.clock import Clock, SystemClock
from orbitmq.world.files import Files, SystemFiles
from tests.core.hot import ORIGIN

SMALL = StoreOptions(
    log_file_size=4096, queue_file_size=100, index_slot_count=10, index_entry_count=20
)
BOOT = b"the same machine"


def open_store(
    folder: Path,
    files: Files | None = None,
    options: StoreOptions = SMALL,
    *,
    clock: Clock | None = None,
    boot_id: bytes = BOOT,
) -> Store:
    """Open a store; files are small unless other options are given."""
    outside = Outside(files or SystemFiles(), clock or SystemClock(), boot_id)
    return Store(outside, folder, options)


def stage(
    store: Store, queue_id: int, body: bytes, properties: bytes = b"", *, topic: str = "T"
) -> Queue:
    """Stage one message; it is written by the next `write_staged`."""
    queue = store.queue(topic, queue_id)
    tag = parse_properties(properties).get(TAGS)
    stamp = Stamp(0, 0, 1, 0, 0, tag_code(tag) if tag else 0)
    append(store.tail, queue, ORIGIN, stamp, body, properties)
    return queue


def send(store: Store, queue_id: int, *bodies: bytes) -> None:
    """Stage and write messages, as one turn of a broker's loop."""
    for body in bodies:
        stage(store, queue_id, body)
    store.write_staged()


def sync(store: Store) -> None:
    """Sync the log, as the broker's thread does."""
    job = store.begin_sync()
    if job is not None:
        job.run()
        store.finish_sync(job)


def flush(store: Store, *, is_thorough: bool = False) -> None:
    """Write queue and index entries behind; a thorough flush syncs the log first."""
    job = store.begin_flush(is_thorough=is_thorough)
    if job is None:
        return
    if is_thorough:
        sync(store)
    job.run()
    store.finish_flush(job)


def read_all(store: Store, queue_id: int, *, topic: str = "T") -> list[bytes]:
    """Return the bodies of a queue from its first message on, hot or cold, as a consumer would."""
    state = CoreState(store.tail, "c", "r")
    queue = store.queue(topic, queue_id)
    bodies: list[bytes] = []
    at = queue.min_offset
    while at < queue.readable_offset:
        found = gather(state, queue, at, 32, None)
        if found.status is PullStatus.COLD:
            found = gather_cold(store.reader, snapshot(queue), at, 32)
        assert found.next_offset > at, "a reader gets on"
        bodies += [record.body for record in scan_records(b"".join(found.parts))]
        at = found.next_offset
    return bodies
