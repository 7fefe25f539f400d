"""Programme T4, every crash state: what a kill or a power cut leaves is opened and judged.

In: a `Recording`, the operations of one workload with what had been promised after each. Out: how
many images were judged, or a Violation that names the workload, the prefix and the choice.

For every prefix of the operations: what a kill leaves; what a power cut leaves when it takes all
that was not synced, nothing of it, each piece alone, all but one piece, random parts. Judged is:
1. P1: what was acknowledged before the prefix, at its level, is there.
2. P2: the log is a prefix of what was written, byte for byte, with zeros behind it.
3. P3, P4: queues hold exactly the messages of that prefix; queues and index equal a slow rebuild.
4. Nothing is called damaged, and nothing has to be made anew from the whole log.
5. Recovering again, after a kill or after a clean stop, finds nothing and changes no file but the
   checkpoint. A recovery that is itself cut off anywhere ends just as well.
6. Sending goes on where the log ends, and a further kill does not take it away.
7. Tables are the old one or a newer one, never empty and never half.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from orbitmq.store.findings import FindingKind
from orbitmq.store.options import StoreOptions
from tests.store import slow_store
from tests.store.driven import BOOT, ROOT, Driven, Event, HandClock
from tests.store.model import Model, Sent, Violation, demand, judge_queues
from tests.world.crash_images import Chooser, all_but_one, everything, nothing, only_one, some
from tests.world.memory_files import MemoryFiles

HARMLESS = frozenset({FindingKind.TORN_TAIL, FindingKind.CUT_BEHIND})
"""What a crash may leave; everything else is damage that no crash makes."""

OF_AN_EMPTY_LOG = frozenset({FindingKind.QUEUES_SET_ASIDE})
"""Queues were found on the disk and nothing of the log: their entries are entries of nothing."""

CHANGING = frozenset({"checkpoint"})
"""A recovery writes when it took place; all other files must stay as they are."""

PAGE = 512
"""A kernel takes a write page by page; real pages are longer, but so are real records."""

NEXT_BOOT = b"the next start!!"
LAST_BOOT = b"the last start!!"

Blobs = dict[str, bytes]


class TableSave(NamedTuple):
    """One save of a table: it begins after and is done before so many operations."""

    begin: int
    end: int
    path: Path
    data: bytes


class Recording:
    """A workload that was run once: its operations and what was promised on the way."""

    def __init__(self, name: str, options: StoreOptions, files: MemoryFiles) -> None:
        self.name = name
        self.options = options
        self.files = files
        self.model = Model(options.log_file_size)
        self.clock = HandClock()
        self.events: list[Event] = []
        self.tables: list[TableSave] = []

    def open(self) -> Driven:
        """Open the store; call `done` when its run is over."""
        return Driven(self.files, self.options, self.model, clock=self.clock)

    def done(self, driven: Driven) -> None:
        """Take in what a run promised."""
        self.events += driven.events

    def save_table(self, path: Path, data: bytes) -> None:
        """Save a table as the broker does."""
        begin = len(self.files.ops)
        self.files.replace(path, data, keep_backup=True)
        self.tables.append(TableSave(begin, len(self.files.ops), path, data))

    def promised(self, upto: int) -> Event:
        """Return what held after so many operations."""
        first = Event(0, 0, 0, 0, 0)
        return max((event for event in self.events if event.op_count <= upto), default=first)


class Outcome(NamedTuple):
    """What a recovery gave; the same image always gives the same."""

    first_offset: int
    end_offset: int
    tables: dict[Path, bytes | None]


class Sampling(NamedTuple):
    """How much of everything is looked at; `None` means all."""

    pieces: int | None
    """How many pieces are taken away, and kept, alone, for each prefix."""
    seeds: int
    """How many random parts for each prefix."""
    again_every: int
    """Every n-th new image: is its recovery cut off, and does sending go on."""
    again_count: int
    """At how many places its recovery is cut off."""


class CrashProgramme:
    """Judges the images of one recording."""

    def __init__(self, recording: Recording, sampling: Sampling, seed: int = 0) -> None:
        self._recording = recording
        self._sampling = sampling
        self._chance = Random(f"{recording.name} {seed}")
        self._outcomes: dict[object, Outcome] = {}
        self._derived: set[object] = set()
        self.counts: Counter[str] = Counter()

    def run(self, prefixes: range | None = None) -> Counter[str]:
        """Judge every prefix, or those given; raises Violation."""
        files = self._recording.files
        for upto in prefixes or range(len(files.ops) + 1):
            self.counts["prefixes"] += 1
            promised = self._recording.promised(upto)
            self._judge(files.kill_image(upto), upto, "kill", BOOT, promised.written_offset)
            for name, image in self._half_written(upto):
                self._judge(image, upto, name, BOOT, promised.written_offset)
            for name, choose in self._choices(len(files.units(upto))):
                image = files.image(upto, choose)
                self._judge(image, upto, name, NEXT_BOOT, promised.durable_offset)
        return self.counts

    def _half_written(self, upto: int) -> Iterator[tuple[str, MemoryFiles]]:
        """Kill while the next write is under way: the kernel has taken the pages before a place."""
        ops = self._recording.files.ops
        op = ops[upto] if upto < len(ops) else None
        if op is None or op.kind != "write":
            return
        first = PAGE - op.position % PAGE
        for size in range(first, len(op.data), PAGE):
            image = self._recording.files.kill_image(upto)
            before = image.read(op.path) or b""
            behind = before[op.position + size :]
            image.put(op.path, before[: op.position] + op.data[:size] + behind)
            yield f"killed after {size} bytes of a write", image

    def _choices(self, unit_count: int) -> Iterator[tuple[str, Chooser]]:
        yield "nothing", nothing()
        yield "everything", everything()
        pieces = range(unit_count)
        limit, below = self._sampling.pieces, self._chance.randrange
        for number in pieces if limit is None else self._few(pieces, limit):
            yield f"all but {number}", all_but_one(number)
        for number in pieces if limit is None else self._few(pieces, limit):
            yield f"only {number}", only_one(number)
        for _ in range(self._sampling.seeds if unit_count else 0):
            seed = below(1 << 32)
            yield f"some {seed}", some(seed)

    def _few(self, numbers: range, limit: int) -> list[int]:
        return self._chance.sample(numbers, min(limit, len(numbers)))

    def _judge(
        self, image: MemoryFiles, upto: int, choice: str, boot_id: bytes, kept_offset: int
    ) -> None:
        recording = self._recording
        try:
            outcome = self._outcome(image, boot_id)
            promised = recording.promised(upto)
            demand(outcome.end_offset >= kept_offset, "P1 nothing is lost", outcome, kept_offset)
            is_early = outcome.first_offset <= promised.first_offset or not outcome.end_offset
            demand(is_early, "P7 nothing is removed that was not to go", outcome, promised)
            for path, found in outcome.tables.items():
                self._judge_table(path, found, upto)
        except Exception as error:
            where = f"{recording.name}, prefix {upto}, {choice}, boot {boot_id!r}"
            raise Violation(f"{error} [{where}]") from error

    def _outcome(self, image: MemoryFiles, boot_id: bytes) -> Outcome:
        self.counts["images"] += 1
        key = (boot_id, signature(image))
        outcome = self._outcomes.get(key)
        if outcome is None:
            self.counts["different"] += 1
            is_again = self.counts["different"] % self._sampling.again_every == 0
            outcome = self._outcomes[key] = self._recover(image, boot_id, is_deep=is_again)
        return outcome

    # --- One image ---

    def _recover(self, image: MemoryFiles, boot_id: bytes, *, is_deep: bool) -> Outcome:
        driven = self._open(image, boot_id)
        outcome = Outcome(
            driven.store.first_offset,
            driven.store.tail.end_offset,
            {path: image.read(path) for path in self._table_paths()},
        )
        op_count = len(image.ops)
        self._judge_again(image, boot_id, is_killed=bool(self.counts["different"] % 2))
        if is_deep:
            for _ in range(self._sampling.again_count):
                self._cut_recovery(image, self._chance.randrange(op_count + 1), outcome)
            self._go_on(driven)
        return outcome

    def _open(self, image: MemoryFiles, boot_id: bytes) -> Driven:
        """Recover and judge everything but the level of what was promised."""
        self.counts["recoveries"] += 1
        recording = self._recording
        driven = Driven(image, recording.options, clock=recording.clock, boot_id=boot_id)
        store = driven.store
        harmless = HARMLESS if store.tail.end_offset else HARMLESS | OF_AN_EMPTY_LOG
        odd = [found for found in store.findings if found.kind not in harmless]
        demand(not odd, "P7 no damage is seen where there is none", odd)
        driven.model = recovered_model(driven, recording.model)
        judge_queues(store, driven.model)
        self._judge_derived(driven)
        return driven

    def _judge_derived(self, driven: Driven) -> None:
        blobs = blobs_of(driven.files)
        key = frozenset(item for item in blobs.items() if item[0] not in CHANGING)
        if key not in self._derived:
            judge_derived(blobs, self._recording.options.index_slot_count)
            self._derived.add(key)

    def _judge_again(self, image: MemoryFiles, boot_id: bytes, *, is_killed: bool) -> None:
        """Recover once more, after a kill or a clean stop."""
        again = image.kill_image(len(image.ops))
        before = blobs_of(again)
        if not is_killed:
            self._reopened(again, boot_id).close()
        driven = self._reopened(again, boot_id)
        demand(not driven.store.findings, "recovering twice finds nothing", driven.store.findings)
        after = blobs_of(again)
        changed = {path for path in before | after if before.get(path) != after.get(path)}
        demand(changed <= CHANGING, "recovering twice changes nothing", sorted(changed))

    def _reopened(self, image: MemoryFiles, boot_id: bytes) -> Driven:
        recording = self._recording
        return Driven(image, recording.options, clock=recording.clock, boot_id=boot_id)

    def _cut_recovery(self, image: MemoryFiles, upto: int, outcome: Outcome) -> None:
        """Cut a recovery off after so many of its operations, by a kill and by a power cut."""
        self.counts["cut recoveries"] += 2
        seed = self._chance.randrange(1 << 32)
        for again, boot_id in (
            (image.kill_image(upto), NEXT_BOOT),
            (image.image(upto, some(seed)), LAST_BOOT),
        ):
            driven = self._open(again, boot_id)
            found = (driven.store.first_offset, driven.store.tail.end_offset)
            is_same = found == (outcome.first_offset, outcome.end_offset)
            demand(is_same, "a recovery cut off ends as one that was not", upto, seed, found)

    def _go_on(self, driven: Driven) -> None:
        """Send behind what was recovered, kill, and look again."""
        self.counts["went on"] += 1
        for number in range(3):
            driven.send(Sent(("A", number % 2), b"behind %d" % number, b"KEYS\1behind\2"))
        judge_queues(driven.store, driven.model)
        driven.flush(is_thorough=bool(self.counts["went on"] % 2))
        driven.send(Sent(("A", 0), b"last"))
        files = driven.files
        again = self._reopened(files.kill_image(len(files.ops)), driven.boot_id)
        demand(
            again.store.tail.end_offset == len(driven.model.log),
            "P1 nothing is lost that was sent after a recovery",
            again.store.tail.end_offset,
            len(driven.model.log),
        )
        again.model = recovered_model(again, driven.model)
        judge_queues(again.store, again.model)
        judge_derived(blobs_of(again.files), self._recording.options.index_slot_count)

    def _table_paths(self) -> set[Path]:
        paths = {save.path for save in self._recording.tables}
        return paths | {backup_of(path) for path in paths}

    def _judge_table(self, path: Path, found: bytes | None, upto: int) -> None:
        tables = self._recording.tables
        if path.suffix == ".bak":
            older = [save.data for save in tables if backup_of(save.path) == path]
            demand(found is None or found in older, "P7 a backup is an older one", path, found)
            return
        saves = [save for save in tables if save.path == path]
        done = [save.data for save in saves if save.end <= upto][-1:]
        begun = [save.data for save in saves if save.begin < upto < save.end]
        allowed: list[bytes | None] = [*done, *begun] if done else [None, *begun]
        demand(found in allowed, "P7 a table is the old one or a newer one", path, found, allowed)


def backup_of(path: Path) -> Path:
    """Return where the table before the present one is kept."""
    return path.with_name(path.name + ".bak")


# --- What T3 judges in the same way ---


def recovered_model(driven: Driven, model: Model) -> Model:
    """Return the model of what was recovered: it must be a prefix of what was written."""
    store, log_file_size = driven.store, driven.options.log_file_size
    first_offset, end_offset = store.first_offset, store.tail.end_offset
    demand(end_offset <= len(model.log), "P2 nothing is there that was not sent", end_offset)
    blobs = blobs_of(driven.files)
    for start, data in slow_store.files_in(blobs, "commitlog"):
        wanted = bytes(model.log[start : min(start + log_file_size, end_offset)])
        is_same = data == wanted.ljust(log_file_size, b"\0")
        demand(is_same, "P2 the log is a prefix of what was written, then zeros", start, end_offset)
    recovered = model.prefix(end_offset)
    recovered.first_offset = first_offset
    return recovered


def judge_derived(blobs: Blobs, slot_count: int) -> None:
    """Compare queues and index with those that a slow program makes of the log."""
    try:
        slow_store.assert_derived(blobs, slot_count)
    except AssertionError as error:
        raise Violation(f"queues and index are what the log says: {error}") from error


def blobs_of(files: MemoryFiles) -> Blobs:
    """Return every file of the store by its path inside."""
    return {path.relative_to(ROOT).as_posix(): data for path, data in files.contents().items()}


def signature(image: MemoryFiles) -> object:
    """Return something that is equal for equal images."""
    return frozenset(image.contents().items())
