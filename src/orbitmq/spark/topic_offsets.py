"""Where reading begins and ends in each queue, and where a stream's start is kept.

In: options, and what queues hold. Out: one offset for each queue; for a stream's start the same
again after a restart.

Rules:
1. Numbers that are given count as they are; whether they are still there is for `topic_loss`.
2. A time is the first message that was stored then or later. In a queue without any a start is what
   `startingOffsetsByTimestampStrategy` says, an end is the queue's end.
3. Offsets, times and queues that are listed must be of queues that are read.
4. Spark asks for a stream's start until the first batch is done. From the moment that batch is
   planned its plan has the start in it (`offsets.STARTS`). Before that "latest" means the moment of
   asking, unless `initialOffsetStore` keeps it: as the group's offsets, or in a file.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from orbitmq.errors import SettingError
from orbitmq.spark.cluster import Cluster
from orbitmq.spark.data_loss import name_of
from orbitmq.spark.offsets import Offsets, nested, read_offsets
from orbitmq.spark.options import read_time_ms
from orbitmq.spark.topic_choice import queues_to_read
from orbitmq.spark.topic_looks import first_since
from orbitmq.spark.topic_options import CHECKPOINT, EARLIEST, FORMAT, GROUP, LATEST, TopicOptions
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.world.files import Files, SystemFiles

EARLIEST_NUMBER, LATEST_NUMBER = -2, -1

Queues = Collection[MessageQueue]


class Bounds:
    """Offsets of queues by the options; asks the cluster for what it needs, once."""

    def __init__(self, cluster: Cluster, options: TopicOptions, queues: Queues) -> None:
        self._cluster = cluster
        self._options = options
        self._queues = list(queues)
        self._first: Offsets | None = None
        self._last: Offsets | None = None
        self.unreached: set[MessageQueue] = set()
        """Queues that had no message at or behind the time of their end, when `ends` asked."""

    @property
    def first(self) -> Offsets:
        """The offsets of the oldest messages."""
        if self._first is None:
            self._first = self._cluster.min_offsets(self._queues, self._options.retries)
        return self._first

    @property
    def last(self) -> Offsets:
        """The offsets behind the newest messages."""
        if self._last is None:
            self._last = self._cluster.max_offsets(self._queues, self._options.retries)
        return self._last

    # --- where to begin ---

    def starts(self, default: str) -> Offsets:
        """Return where to begin in each queue; `default` counts if no option says it."""
        options = self._options
        if options.starting_timestamp:
            time_ms = read_time_ms("startingTimestamp", options.starting_timestamp, FORMAT)
            return self._starts_by_time("startingTimestamp", dict.fromkeys(self._queues, time_ms))
        if options.starting_offsets_by_timestamp:
            name, text = "startingOffsetsByTimestamp", options.starting_offsets_by_timestamp
            times_ms = self._listed(name, text)
            unlisted = [queue for queue in self._queues if queue not in times_ms]
            return self._named(options.starting_offsets_default, unlisted) | self._starts_by_time(
                name, times_ms
            )
        where = options.starting_offsets or default
        if where in (EARLIEST, LATEST):
            return self._named(where, self._queues)
        if where == GROUP:
            return self._group(options.starting_offsets_default)
        return self._numbers("startingOffsets", where, options.starting_offsets_default)

    def _starts_by_time(self, option: str, times_ms: Mapping[MessageQueue, int]) -> Offsets:
        found = self._by_time(times_ms)
        for queue, offset in found.items():
            is_none = offset >= self.last[queue]
            if is_none and self._options.starting_offsets_by_timestamp_strategy == "error":
                raise SettingError(
                    f"{FORMAT}: option {option!r}: {name_of(queue)} has no message that was stored "
                    f"at {times_ms[queue]} ms or later; give an earlier time, or "
                    "'startingOffsetsByTimestampStrategy' as 'latest'"
                )
        return found

    # --- where to end ---

    def ends(self) -> Offsets:
        """Return where to end in each queue."""
        options = self._options
        if options.ending_timestamp:
            time_ms = read_time_ms("endingTimestamp", options.ending_timestamp, FORMAT)
            return self._ends_by_time(dict.fromkeys(self._queues, time_ms))
        if options.ending_offsets_by_timestamp:
            name, text = "endingOffsetsByTimestamp", options.ending_offsets_by_timestamp
            times_ms = self._listed(name, text)
            unlisted = [queue for queue in self._queues if queue not in times_ms]
            return self._named(LATEST, unlisted) | self._ends_by_time(times_ms)
        where = options.ending_offsets or LATEST
        if where == LATEST:
            return self._named(LATEST, self._queues)
        if where == GROUP:
            return self._group(LATEST)
        listed = self._listed("endingOffsets", where)
        if EARLIEST_NUMBER in listed.values():
            raise SettingError(f"{FORMAT}: option 'endingOffsets': -2, earliest, is no end")
        return self._numbers("endingOffsets", where, LATEST)

    def _ends_by_time(self, times_ms: Mapping[MessageQueue, int]) -> Offsets:
        found = self._by_time(times_ms)
        self.unreached = {queue for queue, end in found.items() if end >= self.last[queue]}
        return found

    # --- both ---

    def _named(self, where: str, queues: Queues) -> Offsets:
        if not queues:
            return {}
        known = self.first if where == EARLIEST else self.last
        return {queue: known[queue] for queue in queues}

    def _group(self, otherwise: str) -> Offsets:
        options = self._options
        stored = self._cluster.group_offsets(options.group, self._queues, options.retries)
        known = {queue: offset for queue, offset in stored.items() if offset is not None}
        return self._named(otherwise, [each for each in self._queues if each not in known]) | known

    def _numbers(self, option: str, text: str, otherwise: str) -> Offsets:
        listed = self._listed(option, text)
        found = self._named(otherwise, [each for each in self._queues if each not in listed])
        for queue, offset in listed.items():
            if offset < EARLIEST_NUMBER:
                raise SettingError(
                    f"{FORMAT}: option {option!r}: {offset} of {name_of(queue)} is no offset; "
                    "-2 is earliest, -1 is latest"
                )
            found[queue] = offset
            if offset < 0:
                where = EARLIEST if offset == EARLIEST_NUMBER else LATEST
                found |= self._named(where, [queue])
        return found

    def _listed(self, option: str, text: str) -> Offsets:
        """Return what an option's JSON lists (rule 3)."""
        if not text.lstrip().startswith("{"):
            words = "" if "Timestamp" in option else f"none of {EARLIEST}, {LATEST}, {GROUP} and "
            raise SettingError(
                f"{FORMAT}: option {option!r}: {text!r} is {words}"
                'no JSON of the form {"topic": {"broker": {"0": 17}}}'
            )
        listed = read_offsets(option, text)
        known = set(self._queues)
        for queue in listed:
            if queue not in known:
                there = sorted({f"{each.topic} at {each.broker_name}" for each in known})
                raise SettingError(
                    f"{FORMAT}: option {option!r}: {name_of(queue)} is not among the queues that "
                    f"are read; there are queues of {', '.join(there) or 'nothing'}"
                )
        return listed

    def _by_time(self, times_ms: Mapping[MessageQueue, int]) -> Offsets:
        """Return the first messages that were stored then or later, or the ends (rule 2)."""
        if not times_ms:
            return {}
        spans = {queue: range(self.first[queue], self.last[queue]) for queue in times_ms}
        return first_since(self._cluster, self._options, times_ms, spans)


def start_of(cluster: Cluster, options: TopicOptions, files: Files | None = None) -> Offsets:
    """Return where a stream begins; raises MQError that names option, topic, broker and queue."""
    store = options.initial_offset_store
    if store == CHECKPOINT:
        return _resolved(cluster, options)
    if store == GROUP:
        return _of_group(cluster, options)
    return _of_file(cluster, options, Path(store), files if files is not None else SystemFiles())


def forget_start(options: TopicOptions, files: Files | None = None) -> None:
    """Remove the file of the start: the first batch is done."""
    if options.initial_offset_store not in (CHECKPOINT, GROUP):
        files = files if files is not None else SystemFiles()
        path = Path(options.initial_offset_store)
        if files.size(path) is not None:
            files.remove(path)


def _resolved(cluster: Cluster, options: TopicOptions) -> Offsets:
    queues = queues_to_read(cluster, options)
    return Bounds(cluster, options, queues).starts(LATEST)


def _of_group(cluster: Cluster, options: TopicOptions) -> Offsets:
    queues = queues_to_read(cluster, options)
    stored = cluster.group_offsets(options.group, queues, options.retries)
    known = {queue: offset for queue, offset in stored.items() if offset is not None}
    if len(known) == len(queues):
        return known
    start = Bounds(cluster, options, queues).starts(LATEST) | known
    cluster.store_group_offsets(options.group, start, options.retries)
    return start


def _of_file(cluster: Cluster, options: TopicOptions, path: Path, files: Files) -> Offsets:
    if (kept := files.read(path)) is not None:
        return read_offsets("initialOffsetStore", kept.decode())
    start = _resolved(cluster, options)
    files.make_folder(path.parent)
    files.replace(path, msgspec.json.encode(nested(start)))
    return start
