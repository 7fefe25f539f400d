"""Where each consumer group stands: `topic@group` to queue to the next offset to consume.

In: offsets that clients commit, alone or with a pull. Out: stored offsets, `consumerOffset.json`.

Rules:
1. The table itself is the core's, because a pull on the hot path may commit.
2. Offsets below zero say "no progress" (Go and Node send them) and are not stored.
3. The file is written every few seconds and on stop, never per commit.
4. No offset lies behind its queue's end when a broker starts: after a power cut the file may know
   of messages that the log has lost, and others will get their numbers.
"""

import logging
from pathlib import Path

import msgspec

from orbitmq.broker.table import TableFile
from orbitmq.core import CoreState
from orbitmq.store.store import Store
from orbitmq.world.files import Files

log = logging.getLogger(__name__)

TOLD_MAX = 100
"""So many offsets that were moved are named in the log."""


class _OffsetTable(msgspec.Struct, frozen=True, kw_only=True):
    offset_table: dict[str, dict[int, int]] = msgspec.field(name="offsetTable", default={})


class OffsetTable:
    """The consumer offsets of one broker."""

    def __init__(self, files: Files, folder: Path, core: CoreState) -> None:
        self._core = core
        self.file = TableFile(files, folder / "consumerOffset.json", self.snapshot)
        saved = self.file.load(_OffsetTable)
        if saved is not None:
            core.offsets.update(saved.offset_table)
        self._seen = self._copy()

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store the next offset to consume; a negative one is ignored."""
        if offset >= 0:
            self._core.offsets.setdefault(f"{topic}@{group}", {})[queue_id] = offset

    def set_back(self, store: Store) -> None:
        """Move offsets that lie behind their queue's end there, before anybody is served."""
        moved_count = 0
        for key, queues in self._core.offsets.items():
            for queue_id, offset in queues.items():
                queue = store.find_queue(key.partition("@")[0], queue_id)
                end_offset = 0 if queue is None else queue.readable_offset
                if offset > end_offset:
                    queues[queue_id] = end_offset
                    moved_count += 1
                    _tell(moved_count, f"{key}, queue {queue_id}", (offset, end_offset))
        if moved_count:
            log.warning("consumer offsets that lay behind their queues' ends: %d", moved_count)
            self._seen = self._copy()
            self.file.mark()

    def find(self, group: str, topic: str, queue_id: int) -> int | None:
        """Give the stored offset, or None."""
        return self._core.offsets.get(f"{topic}@{group}", {}).get(queue_id)

    def mark_if_changed(self) -> None:
        """Mark the file for saving when any offset moved since the last time.

        A save that fails marks the file by itself, so what was seen once need not be seen again.
        """
        offsets = self._copy()
        if offsets != self._seen:
            self._seen = offsets
            self.file.mark()

    def snapshot(self) -> _OffsetTable:
        """Give the whole table as it is saved."""
        return _OffsetTable(offset_table=self._copy())

    def _copy(self) -> dict[str, dict[int, int]]:
        return {key: dict(queues) for key, queues in self._core.offsets.items()}


def _tell(number: int, where: str, offsets: tuple[int, int]) -> None:
    if number <= TOLD_MAX:
        log.warning(
            "the consumer offset of %s (topic@group) was %d, but the queue ends at %d: what lay"
            " behind is lost; the group goes on at the end",
            where,
            *offsets,
        )
