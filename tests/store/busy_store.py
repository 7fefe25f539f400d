"""A store at work in a process of its own: load, rolls, flushes, retention.

Run as `python -m tests.store.busy_store FOLDER`; it works until its standard input ends, then stops
cleanly and prints the log's bounds.
"""

import select
import sys
from pathlib import Path
from random import Random

from orbitmq.store.opening import Outside
from orbitmq.store.options import StoreOptions
from orbitmq.store.retention import RetentionSettings
from orbitmq.store.store import Store
from orbitmq.world.clock import SystemClock
from orbitmq.world.files import SystemFiles
from orbitmq.world.machine import boot_id
from tests.store.opened import flush, stage

OPTIONS = StoreOptions(
    log_file_size=1 << 18, queue_file_size=2_000, index_slot_count=100, index_entry_count=500
)
RETENTION = RetentionSettings(
    reserved_ms=300, delete_hours=";".join(f"{hour:02d}" for hour in range(24))
)
PER_TURN = 20
PAUSE_S = 0.002
FLUSH_TURNS = 12
THOROUGH_TURNS = 60


def work(store: Store) -> None:
    """Take turns until standard input ends."""
    chance, number, turn = Random(7), 0, 0
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        turn += 1
        for _ in range(PER_TURN):
            number += 1
            properties = b"TAGS\x01t\x02KEYS\x01k%d\x02UNIQ_KEY\x01u%d\x02" % (number, number)
            stage(store, number % 5, bytes(chance.randrange(1, 400)), properties)
        store.write_staged()
        if (reserved := store.begin_reserve()) is not None:
            store.reserve(reserved)
        if turn % FLUSH_TURNS == 0:
            flush(store, is_thorough=turn % THOROUGH_TURNS == 0)
        if turn % THOROUGH_TURNS == 0:
            remove_old(store)


def remove_old(store: Store) -> None:
    """Let retention do its work."""
    job = store.cleaner.begin()
    job.run()
    store.cleaner.finish(job)
    while (trim := store.cleaner.begin_trim()) is not None:
        trim.run()
        store.cleaner.finish_trim(trim)
    while (remove := store.cleaner.begin_remove()) is not None:
        remove.run()
        store.cleaner.finish_remove(remove)


if __name__ == "__main__":
    opened = Store(
        Outside(SystemFiles(), SystemClock(), boot_id()), Path(sys.argv[1]), OPTIONS, RETENTION
    )
    print("ready", flush=True)
    work(opened)
    opened.close()
    print(opened.first_offset, opened.tail.end_offset, flush=True)
