"""T10 and T11 at the store: disks that fail at any call, once or for ever, and disks that are full.

One workload is run for every call site: the n-th operation of a kind fails, in each way it can. The
store goes on or refuses, and what it says must be true of what is found afterwards:
1. reading goes on, and gives what was acknowledged;
2. what was refused is not there, and does not come back;
3. after a failed sync nothing more is acknowledged or called durable, on the word of no later sync;
4. after a restart everything is there, and what the restarted store calls durable is so.
"""

import errno
import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from orbitmq.errors import DiskFull, ReadFailed, StoreError, SyncFailed, WriteFailed
from orbitmq.store.options import StoreOptions
from orbitmq.store.store import KeyQuery, Store
from tests.store.crash_programme import blobs_of, judge_derived, recovered_model
from tests.store.driven import ROOT, Driven, HandClock
from tests.store.model import Model, Sent, demand, judge_queues
from tests.store.opened import flush, open_store, read_all, stage
from tests.store.refusing import RefusingFiles
from tests.store.slow_store import files_in
from tests.store.workloads import ASYNC, SYNC, Sender
from tests.world.crash_images import Chooser, nothing, some
from tests.world.memory_disk import Trouble
from tests.world.memory_files import MemoryFiles

IS_LONG = os.environ.get("ORBITMQ_TORTURE") == "long"
STRIDE = 1 if IS_LONG else 5
"""Every n-th call site in the short form."""

NEXT_BOOT = b"the next start!!"
TABLE = ROOT / "config" / "topics.json"


class Endurance:
    """A broker's day on a disk that fails."""

    def __init__(self, options: StoreOptions, seed: int) -> None:
        self.options = options
        self.files = MemoryFiles(ROOT)
        self.clock = HandClock()
        self.sender = Sender(seed)
        self.errors: list[StoreError] = []
        self.driven = self._opened(Model(options.log_file_size))
        for _ in range(4):
            self.sender.turn(self.driven)
        self.driven.flush(is_thorough=True)
        self.table = b""
        self._halted: tuple[int, int] | None = None

    def _opened(self, model: Model) -> Driven:
        return Driven(self.files, self.options, model, clock=self.clock)

    def run(self) -> None:
        """Do the work; what fails is noted, and the next thing is done."""
        for number in range(5):
            self._attempt(lambda: self.sender.turn(self.driven))
            self._attempt(self.driven.sync)
            self._attempt(lambda: self.sender.turn(self.driven))
            self._attempt(self.driven.reserve)
            self._attempt(partial(self.driven.flush, is_thorough=number % 2 == 1))
            self._attempt(partial(self._save_table, number))
            if number % 2:
                self._attempt(self.driven.clean)

    def _save_table(self, value: int) -> None:
        data = b'{"number":%d}' % value
        try:
            self.files.replace(TABLE, data, keep_backup=True)
        finally:
            found = self.files.contents().get(TABLE, b"")
            demand(found in (self.table, data), "P7 a table is the old one or the new one", found)
            self.table = found

    def _attempt(self, action: Callable[[], None]) -> None:
        driven = self.driven
        try:
            action()
        except StoreError as error:
            self.errors.append(error)
            if isinstance(error, ReadFailed):
                return
        driven.model = driven.model.prefix(driven.store.tail.written_offset)
        driven.model.first_offset = driven.store.first_offset
        self._judge_halt()
        with suppress(ReadFailed):
            judge_queues(driven.store, driven.model)
        if any(op.kind.endswith("_failed") for op in self.files.ops):
            self._judge_power_cut(driven.model, driven.store.durable_offset, [nothing()])

    def _judge_halt(self) -> None:
        store = self.driven.store
        standing = (
            store.durable_offset,
            store.tail.visible_offset if self.options.is_sync_flush else 0,
        )
        if self._halted is not None:
            demand(store.is_halted, "a halt lasts until the restart")
            demand(standing == self._halted, "nothing is durable after a failed sync", standing)
        elif store.is_halted:
            self._halted = standing
            demand("restart the broker" in store.tail.refusal, "a refusal says what to do")
            with pytest.raises(StoreError, match="takes no more messages"):
                self.sender.turn(self.driven)
            self.driven.model = self.driven.model.prefix(store.tail.written_offset)
            self.driven.model.first_offset = store.first_offset

    # --- How it ends ---

    def judge_ends(self) -> None:
        """Look what a power cut would leave, then restart and look what that one would leave."""
        self.files.heal()
        driven = self.driven
        if "could not be taken back" in driven.store.tail.refusal:
            self._judge_spoiled()
            return
        self._judge_power_cut(driven.model, driven.store.durable_offset)
        if not driven.store.is_halted:
            self.sender.turn(driven)
            driven.flush(is_thorough=True)
            judge_queues(driven.store, driven.model)
        with suppress(StoreError):
            driven.store.close()
        again = self._opened(driven.model)
        end_offset, wanted = again.store.tail.end_offset, len(driven.model.log)
        demand(end_offset == wanted, "P1 nothing is lost by a restart", end_offset, wanted)
        again.model = recovered_model(again, driven.model)
        judge_queues(again.store, again.model)
        judge_derived(blobs_of(self.files), self.options.index_slot_count)
        self._judge_power_cut(again.model, again.store.tail.end_offset)

    def _judge_spoiled(self) -> None:
        """Even zeros were refused: of what was refused before, the outcome is unknown."""
        wanted = self.driven.model.log
        self.driven.store.close()
        self._opened(Model(self.options.log_file_size))
        for start, data in files_in(blobs_of(self.files), "commitlog"):
            kept = bytes(wanted[start : start + len(data)])
            demand(data.startswith(kept), "P1 nothing is lost by a restart", start)

    def _judge_power_cut(
        self, model: Model, durable_offset: int, choosers: Sequence[Chooser] = ()
    ) -> None:
        for choose in choosers or (nothing(), some(len(self.files.ops))):
            image = self.files.image(len(self.files.ops), choose)
            driven = Driven(image, self.options, clock=self.clock, boot_id=NEXT_BOOT)
            end_offset = driven.store.tail.end_offset
            demand(end_offset >= durable_offset, "P1 nothing is lost", end_offset, durable_offset)
            driven.model = recovered_model(driven, model)
            judge_queues(driven.store, driven.model)


TROUBLES: dict[str, tuple[str, Trouble, int | None]] = {
    "a sync fails once": ("sync", errno.EIO, 1),
    "every sync fails": ("sync", errno.EIO, None),
    "a write is refused": ("write", errno.EIO, 1),
    "a write finds the disk full": ("write", errno.ENOSPC, 1),
    "every write finds the disk full": ("write", errno.ENOSPC, None),
    "a write is short": ("write", "short", 1),
    "a file cannot be made": ("create", errno.ENOSPC, 1),
    "no file can be made": ("create", errno.ENOSPC, None),
    "a file gets no length": ("resize", errno.ENOSPC, 1),
    "a rename fails": ("rename", errno.EIO, 1),
    "a link fails": ("link", errno.EIO, 1),
    "a removal fails": ("remove", errno.EIO, 1),
    "a folder cannot be made": ("make_folder", errno.ENOSPC, 1),
    "a read fails": ("read", errno.EIO, 1),
    "every read fails": ("read", errno.EIO, None),
}


def call_sites(options: StoreOptions, kind: str) -> int:
    """Count the operations of a kind that the work does when nothing fails."""
    seen = Counter[str]()

    def count(name: str) -> bool:
        seen[name] += 1
        return False

    work = Endurance(options, 7)
    work.files.fail(kind, lambda op: count(kind), errno.EIO, times=None)
    work.run()
    assert not work.errors
    return seen[kind]


@pytest.mark.nightly("torture", short=True)
@pytest.mark.timeout(0 if IS_LONG else 120)
@pytest.mark.parametrize("options", [ASYNC, SYNC], ids=["asynchronous", "synchronous"])
@pytest.mark.parametrize("name", TROUBLES)
def test_nothing_acknowledged_is_lost_wherever_the_disk_fails(
    name: str, options: StoreOptions
) -> None:
    kind, trouble, times = TROUBLES[name]
    sites = call_sites(options, kind)
    failures = 0
    for site in range(1, sites + 1, STRIDE):
        work = Endurance(options, 7)
        work.files.fail(kind, site, trouble, times=times)
        try:
            work.run()
            work.judge_ends()
        except Exception as error:
            raise AssertionError(f"{name}, call {site}: {error}") from error
        failures += bool(work.errors)
    print(f"T11 {name}: {sites} call sites, {-(-sites // STRIDE)} runs, {failures} with errors")
    assert failures or not sites


# ---- a full disk, again and again ----------------------------------------------------------------

CYCLES = 100
LARGE = StoreOptions(
    log_file_size=65_536, queue_file_size=2_000, index_slot_count=50, index_entry_count=400
)


def fill(store: Store) -> int:
    """Send until the disk refuses; return how many messages were taken."""
    for count in range(100_000):
        try:
            stage(store, count % 3, b"%06d " % count * 60, b"KEYS\1k%d\2" % (count % 5))
            store.write_staged()
            if count % 20 == 19:
                flush(store, is_thorough=count % 40 == 39)
        except DiskFull:
            return count
    raise AssertionError("the disk is never full")


def counts_of(store: Store) -> list[int]:
    return [store.queue("T", queue_id).readable_offset for queue_id in range(3)]


def test_a_full_disk_that_has_room_again_takes_messages_again_a_hundred_times(
    tmp_path: Path,
) -> None:
    files = RefusingFiles()
    store = open_store(tmp_path, files, LARGE)
    taken = 0
    for cycle in range(CYCLES):
        files.room[0] = 4_000 + 37 * cycle
        before = taken
        taken += fill(store)
        assert sum(counts_of(store)) in (taken, taken + 1)
        taken = sum(counts_of(store))
        files.room[0] = 1 << 40
        flush(store, is_thorough=cycle % 2 == 0)
        assert taken > before, "it goes on by itself when there is room"
    bodies = [read_all(store, queue_id) for queue_id in range(3)]
    store.close()
    reopened = open_store(tmp_path, options=LARGE)
    assert [read_all(reopened, queue_id) for queue_id in range(3)] == bodies
    assert sum(map(len, bodies)) == taken
    print(f"T10 {CYCLES} times filled and freed: {taken} messages taken, none lost")
    reopened.close()


def test_a_disk_that_others_fill_and_free_is_used_to_its_end_and_nothing_is_lost(
    small_disk: Path,
) -> None:
    store = open_store(small_disk / "store", options=LARGE)
    ballast = small_disk / "ballast"
    for _ in range(CYCLES):
        with ballast.open("wb") as file, suppress(OSError):
            file.write(bytes(1 << 20))
        taken = sum(counts_of(store))
        fill(store)
        assert store.refusal_kind is None, store.tail.refusal
        ballast.unlink()
        stage(store, 0, b"goes on")
        store.write_staged()
        assert sum(counts_of(store)) > taken
    bodies = [read_all(store, queue_id) for queue_id in range(3)]
    assert all(bodies)
    store.close()
    reopened = open_store(small_disk / "store", options=LARGE)
    assert [read_all(reopened, queue_id) for queue_id in range(3)] == bodies
    reopened.close()


# ---- single cases --------------------------------------------------------------------------------


def test_a_log_file_that_cannot_be_made_ahead_is_made_by_the_writer() -> None:
    files = MemoryFiles(ROOT)
    driven = Driven(files, ASYNC)
    driven.send(Sent(("A", 0), bytes(1_200)))
    files.fail("create", 1, errno.ENOSPC)
    with pytest.raises(DiskFull, match="free space"):
        driven.reserve()
    driven.send(Sent(("A", 0), bytes(1_200)))
    judge_queues(driven.store, driven.model)
    assert driven.store.begin_reserve() == 2, "the next one is due, and tried again"
    driven.store.reserve_failed(2, DiskFull("no room"))
    driven.close()


def test_a_second_sync_is_not_believed_after_one_that_failed() -> None:
    """A kernel marks pages clean after a failed sync: the next one says yes and writes nothing."""
    files = MemoryFiles(ROOT)
    driven = Driven(files, SYNC)
    driven.send(Sent(("A", 0), b"one"))
    files.fail("sync", 1, errno.EIO)
    with pytest.raises(SyncFailed, match="check the disk and restart"):
        driven.sync()
    assert driven.store.begin_sync() is None
    assert driven.store.begin_flush(is_thorough=True) is None
    assert (driven.store.durable_offset, driven.store.tail.visible_offset) == (0, 0)
    assert driven.store.queue("A", 0).readable_offset == 0, "nobody was told of it"
    with pytest.raises(StoreError, match="takes no more messages"):
        driven.send(Sent(("A", 0), b"two"))
    driven.store.close()
    assert files.size(ROOT / "abort") is not None, "the next start must recover"


def test_a_look_up_that_the_disk_refuses_is_told_and_works_again_later() -> None:
    files = MemoryFiles(ROOT)
    driven = Driven(files, ASYNC)
    for number in range(30):
        driven.send(Sent(("A", 0), b"%d" % number, b"KEYS\1k\2"))
    driven.flush(is_thorough=True)
    look = driven.store.lookup(KeyQuery("A", "k", 0, 1 << 60, 100))
    files.fail("read", 1, errno.EIO)
    with pytest.raises(ReadFailed, match="cannot read"):
        look()
    assert len(look()) == 30
    driven.close()


def test_a_table_whose_rename_fails_is_the_old_one() -> None:
    files = MemoryFiles(TABLE.parent)
    files.replace(TABLE, b"old", keep_backup=True)
    files.fail("rename", 1, errno.EIO)
    with pytest.raises(WriteFailed, match="cannot replace"):
        files.replace(TABLE, b"new")
    assert files.read(TABLE) == b"old"
