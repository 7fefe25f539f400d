"""The standard workloads whose every crash state is judged (T4) and whose disk is made to fail.

In: nothing; the same operations each time. Out: recordings.

Each is a broker's day in small: turns of the loop that send to several queues, with keys and tags,
in batches, prepared and rolled back; between them what its threads do. Files are so small that log,
queues and index roll.
"""

from collections.abc import Callable
from random import Random

from orbitmq.store.options import StoreOptions
from tests.store.crash_programme import Recording
from tests.store.driven import ROOT, Driven
from tests.store.model import Sent
from tests.world.memory_files import MemoryFiles

ASYNC = StoreOptions(
    log_file_size=2048, queue_file_size=100, index_slot_count=5, index_entry_count=8
)
SYNC = StoreOptions(
    log_file_size=4096,
    queue_file_size=1_020,
    index_slot_count=7,
    index_entry_count=40,
    is_sync_flush=True,
)
PLACES = (("A", 0), ("A", 1), ("B", 3))


class Sender:
    """Makes messages, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)
        self._number = 0

    def one(self, place: tuple[str, int] | None = None) -> Sent:
        """Return the next message."""
        chance = self._chance
        self._number += 1
        properties = b""
        if chance.random() < 0.7:
            properties = b"KEYS\1k%d k%d\2" % (chance.randrange(6), chance.randrange(6))
        if chance.random() < 0.4:
            properties += b"TAGS\1t%d\2" % chance.randrange(3)
        body = b"%d " % self._number + bytes(chance.randrange(1, 9)) * chance.randrange(40)
        sys_flag = chance.choice((0, 0, 0, 0, 0, 4, 8, 12))
        return Sent(place or chance.choice(PLACES), body, properties, sys_flag)

    def batch(self) -> list[Sent]:
        """Return two to four messages for one queue."""
        place = self._chance.choice(PLACES)
        batch = [self.one(place) for _ in range(self._chance.randrange(2, 5))]
        return [sent._replace(sys_flag=0) for sent in batch]

    def turn(self, driven: Driven) -> None:
        """One turn of the loop: a few messages, one write."""
        for _ in range(self._chance.randrange(1, 4)):
            if self._chance.random() < 0.2:
                driven.stage(*self.batch())
            else:
                driven.stage(self.one())
        driven.write()
        driven.clock.now_ms += self._chance.choice((0, 1, 700))


def async_flush(seed: int) -> Recording:
    """Asynchronous flush: light and thorough flushes, syncs, files made ahead, a clean restart."""
    recording = _filled("asynchronous flush", ASYNC, seed)
    sender = Sender(seed + 1)
    for _ in range(2):
        driven = recording.open()
        for number in range(9):
            sender.turn(driven)
            if number % 3 == 1:
                driven.flush(is_thorough=number % 2 == 0)
            if number == 5:
                driven.sync()
            if number % 2:
                driven.reserve()
        driven.close()
        recording.done(driven)
    return recording


def sync_flush(seed: int) -> Recording:
    """Synchronous flush: one sync serves several turns, and the next turn fills meanwhile."""
    recording = _filled("synchronous flush", SYNC, seed)
    sender = Sender(seed + 1)
    driven = recording.open()
    for number in range(12):
        sender.turn(driven)
        job = driven.store.begin_sync()
        if number % 3:
            sender.turn(driven)
        if job is not None:
            job.run()
        sender.turn(driven)
        if job is not None:
            driven.finish_sync(job)
        if number % 4 == 3:
            driven.flush(is_thorough=number % 8 == 7)
    recording.done(driven)
    return recording


def from_nothing(seed: int) -> Recording:
    """From an empty disk: folders, first files, and the tables that a broker keeps beside them."""
    recording = Recording("from nothing", ASYNC, MemoryFiles(ROOT.parent))
    sender = Sender(seed)
    driven = recording.open()
    for number in range(6):
        recording.save_table(driven.store.folder.config / "topics.json", b'{"t":%d}' % number)
        sender.turn(driven)
        recording.save_table(driven.store.folder.config / "groups.json", b"[%d]" % number * 90)
        driven.flush(is_thorough=number % 2 == 1)
    driven.close()
    recording.done(driven)
    return recording


def retention(seed: int) -> Recording:
    """Old files go while new ones come."""
    recording = _filled("retention", ASYNC, seed, turn_count=10)
    sender = Sender(seed + 1)
    driven = recording.open()
    for number in range(10):
        sender.turn(driven)
        if number % 2:
            driven.flush(is_thorough=number % 4 == 3)
        if number % 3 == 2:
            driven.clean()
    recording.done(driven)
    return recording


Workload = Callable[[int], Recording]

WORKLOADS: tuple[Workload, ...] = (
    async_flush,
    sync_flush,
    from_nothing,
    retention,
)


def _filled(name: str, options: StoreOptions, seed: int, turn_count: int = 4) -> Recording:
    """Return a recording that begins with a store that was filled and stopped cleanly."""
    recording = Recording(name, options, MemoryFiles(ROOT))
    sender = Sender(seed)
    driven = recording.open()
    for _ in range(turn_count):
        sender.turn(driven)
    driven.close()
    recording.files.forget_ops()
    end = driven.events[-1]._replace(op_count=0)
    recording.events.append(end)
    return recording
