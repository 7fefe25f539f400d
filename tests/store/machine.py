"""Programme T3: a state machine that drives the real store beside its model, step by step.

In: steps that hypothesis chooses. Out: nothing, or the shortest row of steps after which the store
disagrees with the model.

After every step everything that may be seen is read, hot and cold, and equals the model (P1 to P4).
After every stop, clean or not, the log is a prefix of what was written that holds all that was
promised, and queues and index equal those that a slow program makes of the log.
"""

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from orbitmq.store.flush import FlushJob, LogSync
from orbitmq.store.options import StoreOptions
from tests.store.crash_programme import HARMLESS, blobs_of, judge_derived, recovered_model
from tests.store.driven import ROOT, Driven, HandClock
from tests.store.model import Place, Sent, demand, judge_key, judge_queues, judge_time
from tests.world.crash_images import Chooser, all_but_one, everything, nothing, only_one, some
from tests.world.memory_files import MemoryFiles

PLACES = st.sampled_from([("A", 0), ("A", 1), ("B", 0), ("SCHEDULE_TOPIC_" + "X" * 4, 2)])
KEYS = st.sampled_from(["", "k0", "k1", "k2 k3", "k0 k1 k2"])
SIZES = st.integers(0, 250)
FLAGS = st.sampled_from([0, 0, 0, 4, 8, 12])
TAGS = st.sampled_from(["", "a", "b"])
CHOOSERS: st.SearchStrategy[Chooser] = st.one_of(
    st.builds(nothing),
    st.builds(everything),
    st.builds(all_but_one, st.integers(0, 30)),
    st.builds(only_one, st.integers(0, 30)),
    st.builds(some, st.integers(0, 1 << 20)),
)
OPTIONS = st.builds(
    StoreOptions,
    log_file_size=st.sampled_from([1_536, 4_096]),
    queue_file_size=st.sampled_from([60, 100, 1_020]),
    index_slot_count=st.sampled_from([1, 7]),
    index_entry_count=st.sampled_from([4, 25]),
    is_sync_flush=st.booleans(),
    hot_bytes=st.sampled_from([0, 2_000, 1 << 30]),
    is_extended=st.booleans(),
    extra_file_size=st.sampled_from([60, 700]),
)


def sent(place: Place, size: int, keys: str, tag: str, sys_flag: int) -> Sent:
    """Return a message whose body nobody takes for another's."""
    level = b"DELAY\1%d\2" % (size % 20) if place[0].startswith("SCHEDULE") else b""
    properties = b"KEYS\1%b\2" % keys.encode() if keys else b""
    properties += b"TAGS\1%b\2" % tag.encode() if tag and not level else level
    return Sent(place, bytes([size]) * size, properties, sys_flag)


SENT = st.builds(sent, PLACES, SIZES, KEYS, TAGS, FLAGS)


class StoreMachine(RuleBasedStateMachine):
    """One life of a folder: runs of a store with crashes and stops between them."""

    counts: ClassVar[Counter[str]] = Counter()

    driven: Driven

    @initialize(options=OPTIONS)
    def begin(self, options: StoreOptions) -> None:
        self.counts["runs"] += 1
        self.boots = 0
        self.clock = HandClock()
        self.sync_job: LogSync | None = None
        self.flush_job: FlushJob | None = None
        self.driven = self.open(MemoryFiles(ROOT), options)

    def open(self, files: MemoryFiles, options: StoreOptions) -> Driven:
        boot_id = b"boot".ljust(12) + self.boots.to_bytes(4, "big")
        return Driven(files, options, clock=self.clock, boot_id=boot_id)

    # --- The loop ---

    @rule(message=SENT)
    def append(self, message: Sent) -> None:
        self.driven.stage(message)

    @rule(place=PLACES, batch=st.lists(SENT, min_size=2, max_size=3))
    def append_batch(self, place: Place, batch: list[Sent]) -> None:
        self.driven.stage(*(sent._replace(place=place, sys_flag=0) for sent in batch))

    @rule()
    def write(self) -> None:
        self.driven.write()

    @rule(message=SENT)
    def send(self, message: Sent) -> None:
        self.driven.send(message)

    @rule(passed_ms=st.sampled_from([1, 999, 1_000, 60_000]))
    def pass_time(self, passed_ms: int) -> None:
        self.clock.now_ms += passed_ms

    # --- The threads: a job runs while the loop goes on ---

    @precondition(lambda self: self.sync_job is None)
    @rule()
    def begin_sync(self) -> None:
        self.sync_job = self.driven.store.begin_sync()

    @precondition(lambda self: self.sync_job is not None)
    @rule(is_turn_between=st.booleans())
    def end_sync(self, is_turn_between: bool) -> None:
        job, self.sync_job = self.sync_job, None
        if job is not None:
            job.run()
            if is_turn_between:
                self.driven.write()
            self.driven.finish_sync(job)

    @precondition(lambda self: self.flush_job is None)
    @rule(is_thorough=st.booleans())
    def begin_flush(self, is_thorough: bool) -> None:
        self.flush_job = self.driven.store.begin_flush(is_thorough=is_thorough)

    @precondition(lambda self: self.flush_job is not None)
    @rule(is_turn_between=st.booleans())
    def end_flush(self, is_turn_between: bool) -> None:
        job, self.flush_job = self.flush_job, None
        if job is None:
            return
        if job.is_thorough and self.driven.store.durable_offset < job.mark.log_offset:
            self.driven.store.cancel_flush(job)
            return
        job.run()
        if is_turn_between:
            self.driven.write()
        self.driven.finish_flush(job)

    @precondition(lambda self: self.flush_job is None and self.sync_job is None)
    @rule(is_thorough=st.booleans())
    def flush(self, is_thorough: bool) -> None:
        self.driven.flush(is_thorough=is_thorough)

    @rule()
    def reserve(self) -> None:
        self.driven.reserve()

    @rule()
    def remove_old(self) -> None:
        self.driven.clean()
        self.counts["removals"] += 1

    # --- Another broker's log ---

    @rule(messages=st.lists(SENT, min_size=1, max_size=4), piece=st.sampled_from([7, 100, 1 << 20]))
    def append_raw(self, messages: list[Sent], piece: int) -> None:
        for data in self.pieces(messages, piece):
            self.driven.append_raw(data)

    @rule(
        messages=st.lists(SENT, min_size=1, max_size=3),
        piece=st.sampled_from([7, 40, 100]),
        choose=st.none() | CHOOSERS,
    )
    def crash_in_raw(self, messages: list[Sent], piece: int, choose: Chooser | None) -> None:
        """Stop in the middle of a record that came in pieces."""
        pieces = self.pieces(messages, piece)
        for data in pieces[: len(pieces) // 2]:
            self.driven.append_raw(data)
        if choose is None:
            self.kill()
        else:
            self.cut_power(choose)

    def pieces(self, messages: list[Sent], piece: int) -> list[bytes]:
        """Let a copy of the folder take messages; return the bytes of its log that are new."""
        driven = self.driven
        driven.write()
        start = driven.store.tail.end_offset
        copy = self.open(driven.files.kill_image(len(driven.files.ops)), driven.options)
        copy.model = driven.model
        copy.send(*(message._replace(place=messages[0].place, sys_flag=0) for message in messages))
        copy.sync()
        log, found = copy.store.log, []
        while data := bytes(log.raw(start, piece)):
            found.append(data)
            start += len(data)
        return found

    # --- Stops ---

    @rule()
    def kill(self) -> None:
        self.counts["kills"] += 1
        files = self.driven.files
        self.reopen(files.kill_image(len(files.ops)), self.driven.store.tail.written_offset)

    @rule(choose=CHOOSERS)
    def cut_power(self, choose: Chooser) -> None:
        self.counts["power cuts"] += 1
        files = self.driven.files
        self.boots += 1
        self.reopen(files.image(len(files.ops), choose), self.driven.store.durable_offset)

    @rule()
    def restart(self) -> None:
        self.counts["restarts"] += 1
        self.stop()
        findings = self.reopen(self.driven.files, len(self.driven.model.log))
        demand(not findings, "a clean stop leaves nothing to find", findings)

    def stop(self) -> None:
        """Stop cleanly, as a broker does: jobs end first."""
        if self.sync_job is not None:
            self.end_sync(is_turn_between=False)
        if self.flush_job is not None:
            self.end_flush(is_turn_between=False)
        self.driven.write()
        self.driven.close()

    def reopen(self, files: MemoryFiles, kept_offset: int) -> Sequence[object]:
        """Open what is left; the log must reach `kept_offset` or the last record before it."""
        self.sync_job = self.flush_job = None
        model = self.driven.model
        ends = [message.log_offset + len(message.data) for message in model.messages]
        kept = max((end for end in ends if end <= kept_offset), default=0)
        driven = self.driven = self.open(files, self.driven.options)
        findings = driven.store.findings
        odd = [
            found
            for found in findings
            if driven.store.tail.end_offset and found.kind not in HARMLESS
        ]
        demand(not odd, "P7 no damage is seen where there is none", odd)
        end, first = driven.store.tail.end_offset, driven.store.first_offset
        demand(end >= kept, "P1 nothing is lost", end, kept)
        demand(first == model.first_offset, "P7 the log begins where it began", first)
        driven.model = recovered_model(driven, model)
        driven.removing_to = driven.model.first_offset
        judge_derived(blobs_of(files), driven.options.index_slot_count)
        return findings

    # --- Judging ---

    @rule(
        place=PLACES,
        key=st.sampled_from(["k0", "k1", "k2", "k3", "none"]),
        ago_ms=st.integers(0, 9),
    )
    def look_up(self, place: Place, key: str, ago_ms: int) -> None:
        at_ms = self.clock.now_ms - ago_ms * 500
        judge_key(self.driven.store, self.driven.model, place, key, (at_ms - 1_500, at_ms))
        judge_time(self.driven.store, self.driven.model, place, at_ms)

    @invariant()
    def reads_equal_the_model(self) -> None:
        if hasattr(self, "driven"):
            self.counts["steps"] += 1
            judge_queues(self.driven.store, self.driven.model)

    def teardown(self) -> None:
        if hasattr(self, "driven"):
            self.restart()
            judge_queues(self.driven.store, self.driven.model)
