"""Where each consumer group stands: `topic@group` to queue to the next offset to consume.

In: offsets that clients commit, alone or with a pull, and those that tools set. Out: stored
offsets, `consumerOffset.json`.

Rules:
1. The table itself is the core's, because a pull on the hot path may commit. The core changes
   values; keys come and go here only.
2. Offsets below zero say "no progress" (Go and Node send them) and are not stored. Lower ones than
   before are, and told in the log: so a reset works.
3. The file is written every few seconds and on stop, never per commit. Looking for changes is done
   in slices: a big table holds up nobody.
4. No offset lies behind its queue's end when a broker starts: after a power cut the file may know
   of messages that the log has lost, and others will get their numbers.
5. With enableLmq lmqConsumerOffset.json holds all of them; it begins with what the other file has.
6. An offset that was reset here stays until a pull has taken note of it: what the group's clients,
   who do not know of it yet, commit meanwhile is not stored.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from orbitmq.broker.table import TableFile
from orbitmq.core import CoreState
from orbitmq.errors import LimitExceeded
from orbitmq.store.store import Store
from orbitmq.wire.light_queues import is_light
from orbitmq.world.files import Files

log = logging.getLogger(__name__)

FILE_NAME = "consumerOffset.json"
LIGHT_FILE_NAME = "lmqConsumerOffset.json"
TOLD_MAX = 100
"""So many offsets that were moved are named in the log."""

KEYS_MAX = 500_000
"""Pairs of a topic and a group; each costs about half a kilobyte."""

LOOK_SLICE = 1_000
"""Pairs that are looked at in one go: a fraction of a millisecond while few have changed."""


class _OffsetTable(msgspec.Struct, frozen=True, kw_only=True):
    offset_table: dict[str, dict[int, int]] = msgspec.field(name="offsetTable", default={})
    light_table: dict[str, int] = msgspec.field(name="lmqOffsetTable", default={})

    def all_offsets(self) -> dict[str, dict[int, int]]:
        """Return both tables as one; a light queue is queue 0."""
        return {**self.offset_table, **{key: {0: at} for key, at in self.light_table.items()}}


class OffsetTable:
    """The consumer offsets of one broker."""

    def __init__(
        self, files: Files, folder: Path, core: CoreState, *, has_light: bool = False
    ) -> None:
        """`has_light`: light groups have offsets, too (enableLmq)."""
        self._core = core
        self._encode = _encode_all if has_light else _encode
        self._topics_of: dict[str, dict[str, None]] = {}
        self._groups_of: dict[str, dict[str, None]] = {}
        self._resets: dict[tuple[str, str], dict[int, int]] = {}
        self._lower_count = 0
        self._seen: dict[str, dict[int, int]] = {}
        """The table as it was last looked at; this is what is saved."""
        name = LIGHT_FILE_NAME if has_light else FILE_NAME
        self.file = TableFile(files, folder / name, self._seen_contents)
        saved = self.file.load(_OffsetTable)
        if saved is None and has_light:
            saved = TableFile(files, folder / FILE_NAME, self._seen_contents).load(_OffsetTable)
        for key, queues in (saved.all_offsets() if saved is not None else {}).items():
            known = {queue_id: offset for queue_id, offset in queues.items() if offset >= 0}
            self._make(*_split(key)).update(known)
        self._seen = self._copy()
        self._removed: set[str] = set()
        """What was removed since the last look began."""

    # --- Offsets of one group ---

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Store the next offset to consume; a negative one is ignored.

        Gives False when it is ignored because the offset was reset and the group has not heard of
        it yet. Raises LimitExceeded when the table is full.
        """
        if self.has_reset(group, topic, queue_id):
            return False
        if offset >= 0:
            queues = self._queues(topic, group)
            before = queues.get(queue_id, 0)
            queues[queue_id] = offset
            if offset < before:
                self._tell_lower(f"{topic}@{group}, queue {queue_id}", before, offset)
        return True

    def find(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the stored offset, or None."""
        return self._core.offsets.get(f"{topic}@{group}", {}).get(queue_id)

    def find_all(self, group: str, topic: str) -> dict[int, int]:
        """Return the stored offsets of a group in a topic, by queue."""
        return dict(self._core.offsets.get(f"{topic}@{group}", {}))

    def topics_of(self, group: str) -> list[str]:
        """Return the topics in which a group has offsets."""
        return list(self._topics_of.get(group, ()))

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have offsets in a topic."""
        return list(self._groups_of.get(topic, ()))

    def clone(self, group: str, to_group: str, topic: str) -> None:
        """Let a group stand where another one does; raises LimitExceeded when the table is full."""
        for queue_id, offset in self.find_all(group, topic).items():
            self.commit(to_group, topic, queue_id, offset)

    def remove_group(self, group: str) -> None:
        """Forget a group's offsets."""
        self._remove_all([(topic, group) for topic in self.topics_of(group)])

    def remove_topic(self, topic: str) -> None:
        """Forget all groups' offsets in a topic."""
        self._remove_all([(topic, group) for group in self.groups_of(topic)])

    def _remove_all(self, pairs: list[tuple[str, str]]) -> None:
        """Forget pairs of a topic and a group; they are gone from the file with its next save."""
        for topic, group in pairs:
            self._remove(topic, group)
        if pairs:
            gone = {f"{topic}@{group}" for topic, group in pairs}
            self._removed |= gone
            self._seen = {key: value for key, value in self._seen.items() if key not in gone}
            self.file.mark()

    def _queues(self, topic: str, group: str) -> dict[int, int]:
        key = f"{topic}@{group}"
        queues = self._core.offsets.get(key)
        if queues is None:
            if len(self._core.offsets) >= KEYS_MAX:
                raise LimitExceeded(
                    f"{KEYS_MAX} pairs of a topic and a group have offsets at this broker already;"
                    " delete groups that are not used any more (mqadmin deleteSubGroup -r true)",
                    KEYS_MAX,
                )
            queues = self._make(topic, group)
        return queues

    def _make(self, topic: str, group: str) -> dict[int, int]:
        self._topics_of.setdefault(group, {})[topic] = None
        self._groups_of.setdefault(topic, {})[group] = None
        return self._core.offsets.setdefault(f"{topic}@{group}", {})

    def _remove(self, topic: str, group: str) -> None:
        del self._core.offsets[f"{topic}@{group}"]
        self._resets.pop((group, topic), None)
        for table, name, other in (
            (self._topics_of, group, topic),
            (self._groups_of, topic, group),
        ):
            del table[name][other]
            if not table[name]:
                del table[name]

    def _tell_lower(self, where: str, before: int, offset: int) -> None:
        self._lower_count += 1
        if self._lower_count & (self._lower_count - 1) == 0:
            log.warning(
                "the consumer offset of %s (topic@group) went back from %d to %d (%d such commits"
                " so far); somebody resets it, or two members consume the queue",
                where,
                before,
                offset,
                self._lower_count,
            )

    # --- Resets at the broker ---

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store an offset that stays until the group has heard of it; raises LimitExceeded."""
        self._queues(topic, group)[queue_id] = offset
        self._resets.setdefault((group, topic), {})[queue_id] = offset

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether an offset was reset and no pull has heard of it."""
        return bool(self._resets) and queue_id in self._resets.get((group, topic), ())

    def has_resets(self, group: str) -> bool:
        """Whether any offset of a group was reset and no pull has heard of it."""
        return any(name == group for name, _ in self._resets)

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset that a queue was reset to, once; None when it was not."""
        if not self.has_reset(group, topic, queue_id):
            return None
        queues = self._resets[group, topic]
        offset = queues.pop(queue_id)
        if not queues:
            del self._resets[group, topic]
        return offset

    # --- The whole table ---

    def set_back(self, store: Store) -> None:
        """Move offsets that lie behind their queue's end there, before anybody is served."""
        moved_count = 0
        for key, queues in self._core.offsets.items():
            for queue_id, offset in queues.items():
                queue = store.find_queue(_split(key)[0], queue_id)
                end_offset = 0 if queue is None else queue.readable_offset
                if offset > end_offset:
                    queues[queue_id] = end_offset
                    moved_count += 1
                    _tell(moved_count, f"{key}, queue {queue_id}", offset, end_offset)
        if moved_count:
            log.warning("consumer offsets that lay behind their queues' ends: %d", moved_count)
            self._seen = self._copy()
            self.file.mark()

    def looking(self) -> Iterator[None]:
        """Look for offsets that moved, and mark the file if any did; yields between slices.

        A save that fails marks the file by itself, so what was seen once need not be seen again.
        """
        seen: dict[str, dict[int, int]] = {}
        self._removed.clear()
        is_changed = len(self._seen) != len(self._core.offsets)
        for number, (key, queues) in enumerate(list(self._core.offsets.items())):
            before = self._seen.get(key)
            if before != queues:
                is_changed = True
                before = dict(queues)
            seen[key] = before
            if number % LOOK_SLICE == LOOK_SLICE - 1:
                yield
        for key in self._removed:  # removed while this was looking
            seen.pop(key, None)
        if is_changed:
            self._seen = seen
            self.file.mark()

    def contents(self) -> Callable[[], bytes]:
        """Return what makes the table as it is now into a body; that may run in a thread."""
        rows = list(self._core.offsets.items())
        return lambda: self._encode((key, dict(queues)) for key, queues in rows)

    def _seen_contents(self) -> Callable[[], bytes]:
        seen = self._seen  # replaced as a whole, never changed: a thread may write it
        return lambda: self._encode(seen.items())

    def _copy(self) -> dict[str, dict[int, int]]:
        return {key: dict(queues) for key, queues in self._core.offsets.items()}


def _encode_all(rows: Iterable[tuple[str, dict[int, int]]]) -> bytes:
    """Write the table and that of light groups, whose light queues have one number each."""
    light, others = [], []
    for key, queues in rows:
        if all(map(is_light, _split(key))) and len(queues) == 1 and 0 in queues:
            light.append(b"%s:%d" % (_quote(key), queues[0]))
        else:
            others.append((key, queues))
    return b'{"lmqOffsetTable":{%s},%s' % (b",".join(light), _encode(others)[1:])


def _encode(rows: Iterable[tuple[str, dict[int, int]]]) -> bytes:
    """Write the table as the original does, queues without quotes."""
    texts = [
        b"%s:{%s}" % (_quote(key), b",".join(b"%d:%d" % pair for pair in queues.items()))
        for key, queues in rows
    ]
    return b'{"offsetTable":{%s}}' % b",".join(texts)


_quote = msgspec.json.Encoder().encode


def _split(key: str) -> tuple[str, str]:
    """Return topic and group; neither has an @ in it."""
    topic, _, group = key.partition("@")
    return topic, group


def _tell(number: int, where: str, offset: int, end_offset: int) -> None:
    if number <= TOLD_MAX:
        log.warning(
            "the consumer offset of %s (topic@group) was %d, but the queue ends at %d: what lay"
            " behind is lost; the group goes on at the end",
            where,
            offset,
            end_offset,
        )
