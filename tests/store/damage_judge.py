"""Judging a damaged folder (T5): what `check`, the store and `repair` make of it.

In: a healthy folder and one damage. Out: violations of what is promised, as texts, and counts.

What is promised:
1. `check` finds damage and names the file; excepted are the fields that nothing else knows.
2. The store opens (P8). What it gives was sent to that queue with that number and that body (P2,
   P3), in order; only records that the damage touched are missing (P7). What it passed over in the
   log is among its findings. New messages get new numbers and new places.
3. Opening once more finds nothing and changes nothing.
4. After `repair` only the log and the tables are still damaged, and only records are missing whose
   bytes in the log were touched.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from orbitmq.core import CoreState, PullStatus, Queue, Stamp, append, gather
from orbitmq.errors import MQError
from orbitmq.store.check import check
from orbitmq.store.opening import Outside
from orbitmq.store.reading import gather_cold, record_by_offset, snapshot
from orbitmq.store.repair import repair
from orbitmq.store.store import KeyQuery, Store
from orbitmq.store.verdict import Level
from orbitmq.wire.record import Record, decode_record
from orbitmq.world.clock import SystemClock
from tests.core.hot import ORIGIN
from tests.store.damage import (
    OPTIONS,
    ROOT,
    Damage,
    Flip,
    Healthy,
    QueueKey,
    flip,
    made,
    put_damage,
)
from tests.store.opened import BOOT, open_store
from tests.store.slow_store import keys_of
from tests.store.test_check_damage import PARTLY, UNPROTECTED, WHERE

UNCHECKED = UNPROTECTED | PARTLY
"""Fields of a record in which `check` cannot see each flip."""
PLACING = {"topic", "queue_id", "queue_offset", "sys_flag"}
"""Fields that say where a record belongs; nothing in the record itself protects them."""
REPAIR_EVERY = 16
FIRST_REMOVED = f"commitlog/{0:020d} removed"
NEW_BODY = b"sent after the damage"
FAR_MS = 2**62


class Judgement(NamedTuple):
    """What came of one damage."""

    violations: list[str]
    counts: Counter[str]


def judge(healthy: Healthy, damage: Damage, *, is_deep: bool = True) -> Judgement:
    """Judge one damage; `is_deep`: repair as well."""
    judging = _Judging(healthy, damage)
    try:
        judging.check()
        judging.open()
        judging.open_again()
        if is_deep:
            judging.repair()
    except MQError as error:
        judging.blame(f"{type(error).__name__}: {error}")
    return Judgement(judging.violations, judging.counts)


def judge_flips(is_clean: bool, flips: list[Flip]) -> Judgement:
    """Judge many flips, of some a repair as well; for another process."""
    healthy = made()[0 if is_clean else 1]
    counts: Counter[str] = Counter()
    violations = []
    for number, one in enumerate(flips):
        judgement = judge(healthy, flip(healthy, *one), is_deep=number % REPAIR_EVERY == 0)
        counts += judgement.counts
        violations += judgement.violations
    return Judgement(violations, counts)


class _Judging:
    def __init__(self, healthy: Healthy, damage: Damage) -> None:
        self._healthy = healthy
        self._damage = damage
        self._damaged = put_damage(healthy, damage)
        self._opened = self._damaged
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter(damages=1)

    def blame(self, text: str) -> None:
        self.violations.append(f"{self._damage.name}: {text}")

    # --- 1: check ---

    def check(self) -> None:
        verdict = check(self._damaged, ROOT, OPTIONS, BOOT)
        damages = [fault for fault in verdict.faults if fault.level is Level.DAMAGE]
        self.counts["named by check"] += bool(damages)
        if not damages:
            if self._must_be_seen():
                self.blame("check finds nothing")
            return
        path = self._damage.path
        is_named = any(
            path.startswith(fault.path) or fault.path.startswith(path) for fault in damages
        )
        if not is_named and not self._may_be_named_elsewhere():
            self.blame(f"check names {[fault.path for fault in damages[:3]]} only")

    def _may_be_named_elsewhere(self) -> bool:
        """Whether the record is whole and only differs from what queue and index say of it."""
        is_sector = self._damage.name.startswith("sector")
        return self._damage.field in PLACING | UNCHECKED or (is_sector and bool(self._damage.cost))

    def _must_be_seen(self) -> bool:
        if not self._healthy.is_clean:
            return False  # what a running broker leaves is not judged so severely
        if self._damage.name == FIRST_REMOVED:
            return False  # retention removes the first file as well
        field, records = self._damage.field, self._healthy.records
        if self._damage.path == "checkpoint":
            return field not in ("unused", "stamps")
        is_queued = all(records[at].is_queued for at in self._damage.cost)
        return field not in (UNCHECKED if is_queued else UNCHECKED | WHERE)

    # --- 2: the store ---

    def open(self) -> None:
        files = self._damaged.kill_image(0)
        store = open_store(ROOT, files, OPTIONS)
        missing = self._read(store)
        lost = missing - self._cost() - self._damage.cost_for_now
        if lost:
            self.blame(f"lost without need: log offsets {sorted(lost)}")
        if missing and not store.findings and not store.reader.damaged:
            self.blame(f"nothing says that log offsets {sorted(missing)} are missing")
        self.counts["records lost"] += len(missing & self._damage.cost)
        self.counts["records missing until repair"] += len(missing - self._damage.cost)
        self.counts["findings"] += len(store.findings)
        self.counts["with findings"] += bool(store.findings)
        self._look_up(store)
        store.close()
        files.forget_ops()
        self._opened = files

    def _cost(self) -> frozenset[int]:
        """Return what may be lost.

        A record that lost its way leaves its number open. When only one more of its queue follows
        and has no entry either, nothing tells whether that one has the right number.
        """
        is_astray = self._damage.field in PLACING
        return self._damage.cost | (self._healthy.unfiled if is_astray else frozenset())

    def _read(self, store: Store) -> set[int]:
        """Read every queue; return the log offsets of records that none gave."""
        missing = {at for at, truth in self._healthy.records.items() if truth.is_queued}
        known = {truth.queue for truth in self._healthy.records.values() if truth.is_queued}
        for key in {*known, *store._queues}:
            queue = store.queue(*key)
            last = -1
            for first, end, record, data in _pulled(store, queue):
                if record.body == NEW_BODY:
                    continue
                self._judge_record(key, record, data)
                truth = self._healthy.records.get(record.log_offset)
                if truth is None or truth.queue != key:
                    continue
                number = truth.record.queue_offset
                if not max(first, last + 1) <= number < end:
                    self.blame(f"{key} gives number {number} between {first} and {end}")
                last = number
                missing.discard(record.log_offset)
        return missing

    def _judge_record(self, key: QueueKey, record: Record, data: bytes) -> None:
        truth = self._healthy.records.get(record.log_offset)
        if truth is None:
            self.blame(f"{key} gives a record at {record.log_offset}, where none was written")
            return
        if record.body != truth.record.body:
            self.blame(f"{key} gives another body at {record.log_offset}")
        is_flipped = record.log_offset in self._damage.cost
        if truth.queue != key and not (is_flipped and self._damage.field in PLACING):
            self.blame(f"{key} gives what was sent to {truth.queue} at {record.log_offset}")
        if data != truth.data and not is_flipped:
            self.blame(f"{key} gives changed bytes at {record.log_offset}")
        self.counts["records read"] += 1
        self.counts["records read changed outside the body"] += data != truth.data

    def _look_up(self, store: Store) -> None:
        """Look keys up: it ends, and leads to whole records or nowhere."""
        for truth in list(self._healthy.records.values())[::9]:
            for key in keys_of(truth.record)[:2]:
                query = KeyQuery(truth.record.topic, key.partition("#")[2], 0, FAR_MS, 32)
                for log_offset in store.lookup(query)():
                    data = record_by_offset(store.reader, log_offset, store.tail.visible_offset)
                    if data is not None:
                        record, _ = decode_record(data)
                        self._judge_record((record.topic, record.queue_id), record, data)

    # --- 3: once more, and going on ---

    def open_again(self) -> None:
        before = self._opened.contents()
        files = self._opened.kill_image(0)
        store = open_store(ROOT, files, OPTIONS)
        if store.findings:
            self.blame(f"found at the second open: {[one.text for one in store.findings[:2]]}")
        after = files.contents()
        after.pop(ROOT / "abort", None)
        if after != before:
            changed = [str(path) for path in before | after if before.get(path) != after.get(path)]
            self.blame(f"the second open changes {changed}")
        self._send(store)
        store.close()

    def _send(self, store: Store) -> None:
        ends: dict[QueueKey, int] = {}
        for truth in self._healthy.records.values():
            if truth.is_queued:
                ends[truth.queue] = max(ends.get(truth.queue, 0), truth.record.queue_offset + 1)
        for (topic, queue_id), end in ends.items():
            queue = store.queue(topic, queue_id)
            if queue.next_offset < end and self._is_surely_given(
                topic, queue_id, queue.next_offset
            ):
                self.blame(f"{topic} {queue_id} gives number {queue.next_offset} again")
            stamp = Stamp(0, 0, 1, 0, 0, 0)
            log_offset = append(store.tail, queue, ORIGIN, stamp, NEW_BODY, b"")
            if log_offset < self._healthy.end_offset and self._healthy.is_clean:
                self.blame(f"a new record is put at {log_offset}, inside the old log")
        store.write_staged()
        for topic, queue_id in ends:
            queue = store.queue(topic, queue_id)
            new = list(_pulled(store, queue, queue.next_offset - 1))
            if [record.body for _, _, record, _ in new] != [NEW_BODY]:
                self.blame(f"what was sent to {topic} {queue_id} is not given")

    def _is_surely_given(self, topic: str, queue_id: int, number: int) -> bool:
        """After a kill, a damaged last record cannot be told from one that was being written."""
        if self._healthy.is_clean:
            return True
        return not any(
            truth.queue == (topic, queue_id)
            and truth.record.queue_offset == number
            and truth.record.log_offset in self._damage.cost
            for truth in self._healthy.records.values()
        )

    # --- 4: repair ---

    def repair(self) -> None:
        files = self._damaged.kill_image(0)
        repair(Outside(files, SystemClock(), BOOT), ROOT, OPTIONS)
        files.forget_ops()
        verdict = check(files, ROOT, OPTIONS, BOOT)
        left = {fault.path for fault in verdict.faults if fault.level is Level.DAMAGE}
        self.counts["healthy after repair"] += not left
        for path in left:
            is_kept = path.startswith(("commitlog", "config"))
            if not is_kept and self._damage.field not in PLACING:
                texts = [fault.text for fault in verdict.faults if fault.path == path]
                self.blame(f"after repair {path} is damaged: {texts[:2]}")
        store = open_store(ROOT, files, OPTIONS)
        lost = self._read(store) - self._cost()
        if lost:
            self.blame(f"lost after repair: log offsets {sorted(lost)}")
        store.close()


def _pulled(
    store: Store, queue: Queue, at: int | None = None
) -> Iterator[tuple[int, int, Record, bytes]]:
    """Return every record of a queue, with the offsets between which it was found."""
    state = CoreState(store.tail, "c", "r")
    at = queue.min_offset if at is None else at
    while at < queue.readable_offset:
        found = gather(state, queue, at, 32, None)
        if found.status is PullStatus.COLD:
            found = gather_cold(store.reader, snapshot(queue), at, 32)
        assert found.next_offset > at, "a reader gets on"
        data = b"".join(found.parts)
        position = 0
        while position < len(data):
            record, size = decode_record(data, position)
            yield at, found.next_offset, record, data[position : position + size]
            position += size
        at = found.next_offset
