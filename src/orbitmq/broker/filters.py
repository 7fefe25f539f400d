"""The filters of groups that select by expression: `consumerFilter.json`.

In: the file, ours or the original's. Out: for each topic and group its expression, since when it
counts, and the bits it sets in extra units of queue entries.

Rules:
1. Only groups that filter by SQL92 have an entry.
2. A filter whose group has been away for 24 hours is forgotten, as in the original.
"""

from pathlib import Path

import msgspec

from orbitmq.broker.table import TableFile
from orbitmq.world.clock import Clock
from orbitmq.world.files import Files

DEAD_MS_MAX = 24 * 3_600_000


class BloomBits(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The bits that stand for one filter."""

    bit_num: int = 0
    bit_pos: tuple[int, ...] = ()


class FilterData(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The filter of one group on one topic."""

    consumer_group: str
    topic: str
    expression: str
    expression_type: str
    born_ms: int = msgspec.field(name="bornTime", default=0)
    dead_ms: int = msgspec.field(name="deadTime", default=0)
    is_dead: bool = msgspec.field(name="dead", default=False)
    client_version: int = 0
    bloom_bits: BloomBits | None = msgspec.field(name="bloomFilterData", default=None)


class _TopicFilters(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    group_filter_data: dict[str, FilterData] = {}
    topic: str = ""


class _FilterTable(msgspec.Struct, frozen=True, kw_only=True):
    by_topic: dict[str, _TopicFilters] = msgspec.field(name="filterDataByTopic", default={})


class FilterTable:
    """All filters of one broker."""

    def __init__(self, files: Files, folder: Path, clock: Clock) -> None:
        self._filters: dict[tuple[str, str], FilterData] = {}
        self.file = TableFile(files, folder / "consumerFilter.json", self.snapshot)
        saved = self.file.load(_FilterTable)
        now_ms = clock.wall_ms()
        for topic, filters in (saved.by_topic if saved is not None else {}).items():
            for group, data in filters.group_filter_data.items():
                if data.is_dead and now_ms - data.dead_ms > DEAD_MS_MAX:
                    self.file.mark()
                else:
                    self._filters[topic, group] = data

    def __len__(self) -> int:
        """How many filters there are."""
        return len(self._filters)

    def find(self, topic: str, group: str) -> FilterData | None:
        """Give the filter of a group on a topic."""
        return self._filters.get((topic, group))

    def snapshot(self) -> _FilterTable:
        """Give the whole table as it is saved."""
        by_topic: dict[str, dict[str, FilterData]] = {}
        for (topic, group), data in self._filters.items():
            by_topic.setdefault(topic, {})[group] = data
        return _FilterTable(
            by_topic={
                topic: _TopicFilters(group_filter_data=filters, topic=topic)
                for topic, filters in by_topic.items()
            }
        )
