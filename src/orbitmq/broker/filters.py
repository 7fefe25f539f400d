"""The filters of groups that select by expression: `consumerFilter.json`.

In: the subscriptions of heartbeats, the groups that left, the file, ours or the original's. Out: by
topic and group its expression, since when it counts, and its bits in extra units of queue entries.

Rules:
1. Only SQL92 subscriptions have an entry, and only those whose expression compiles: to a pull
   without one the broker says so (27).
2. A subscription counts when its version is greater than the one that is known. A new expression is
   a new filter, born now; one that no longer compiles takes its old filter along.
3. A filter dies when its group's last member leaves or no longer subscribes to its topic; the same
   version brings it back. Dead for `filterDataCleanTimeSpan` (24 hours), it is forgotten.
4. After a start every filter is dead until its group comes back, as in the original. Bits that
   another setting made are made anew, where the original forgets all filters.
5. Of messages stored before a filter, or these bits of it, was born no bit map speaks. So no birth
   lies before the store time of a message that is there, also when the clock was set back.
6. What a heartbeat brings of new text above COMPILED_CHARS_MAX is left to the client's next one.
"""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from orbitmq.broker.table import TableFile, written
from orbitmq.errors import SqlError
from orbitmq.sql import EXPRESSION_CHARS_MAX, compile_expression
from orbitmq.store.bloom import Bloom
from orbitmq.wire.bodies_client import SQL92, SubscriptionData
from orbitmq.world.clock import Clock
from orbitmq.world.files import Files

log = logging.getLogger(__name__)

DEAD_MS_MAX = 24 * 3_600_000
RESTART_MS = 30_000
"""So long before a start its filters count as dead: the original's allowance."""

FILTER_COUNT_MAX = 4_096

COMPILED_CHARS_MAX = 32_768
"""New expressions of one heartbeat, in characters: compiling them takes some 40 ms of the loop. One
expression may have half of it."""


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

    def died(self, now_ms: int) -> "FilterData":
        """Return the filter of a group that left."""
        dead_ms = max(now_ms, self.born_ms)
        return msgspec.structs.replace(self, dead_ms=dead_ms, is_dead=True)

    def alive(self, client_version: int) -> "FilterData":
        """Return the filter of a group that is there."""
        return msgspec.structs.replace(
            self, dead_ms=0, is_dead=False, client_version=client_version
        )


class _TopicFilters(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    group_filter_data: dict[str, FilterData] = {}
    topic: str = ""


class _FilterTable(msgspec.Struct, frozen=True, kw_only=True):
    by_topic: dict[str, _TopicFilters] = msgspec.field(name="filterDataByTopic", default={})


class FilterTable:
    """All filters of one broker."""

    def __init__(
        self,
        files: Files,
        folder: Path,
        clock: Clock,
        *,
        bloom: Bloom | None = None,
        dead_ms_max: int = DEAD_MS_MAX,
        stored_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """`stored_ms` gives the store time of the newest message: see rule 5."""
        self._clock = clock
        self._stored_ms = stored_ms
        self.version = 0
        """Another one after each change."""
        self.on_change: Callable[[str, str], None] = lambda _group, _topic: None
        """Told of each filter that comes, changes or goes, by its group and topic."""
        self.bloom = bloom or Bloom()
        self._dead_ms_max = dead_ms_max
        self._by_topic: dict[str, dict[str, FilterData]] = {}
        self._topics_of: dict[str, set[str]] = {}
        self.file = TableFile(files, folder / "consumerFilter.json", written(self.snapshot))
        self._load()

    def __len__(self) -> int:
        """How many filters there are."""
        return sum(map(len, self._by_topic.values()))

    def find(self, topic: str, group: str) -> FilterData | None:
        """Return the filter of a group on a topic, also a dead one."""
        return self._by_topic.get(topic, {}).get(group)

    def of_topic(self, topic: str) -> list[FilterData]:
        """Return all filters on a topic, dead ones too: their groups may come back."""
        return list(self._by_topic.get(topic, {}).values())

    def of_group(self, group: str) -> list[FilterData]:
        """Return all filters of a group."""
        return [self._by_topic[topic][group] for topic in self._topics_of.get(group, ())]

    def register(
        self,
        group: str,
        subscriptions: Iterable[SubscriptionData],
        chars_max: int = COMPILED_CHARS_MAX,
    ) -> int:
        """Take in all subscriptions of a group that is there; return the rest of `chars_max`."""
        wanted = {data.topic: data for data in subscriptions}
        chars_left, late_count = chars_max, 0
        for data in wanted.values():
            if data.expression_type != SQL92 or not data.sub_string:
                continue
            size = min(len(data.sub_string), EXPRESSION_CHARS_MAX)  # longer ones are refused
            cost = size if self._is_new(group, data) else 0
            if cost > chars_left:
                late_count += 1
                continue
            chars_left -= cost
            self._register(group, data)
        if late_count:
            log.warning(
                "group %s brings more new expressions than a heartbeat may (%d characters): %d of"
                " them wait for its next one",
                group,
                COMPILED_CHARS_MAX,
                late_count,
            )
        self._let_die(group, self._topics_of.get(group, set()) - wanted.keys())
        return chars_left

    def _is_new(self, group: str, data: SubscriptionData) -> bool:
        """Whether a subscription's expression is to be compiled."""
        known = self.find(data.topic, group)
        if known is None:
            return True
        is_same = (data.sub_string, data.expression_type) == (
            known.expression,
            known.expression_type,
        )
        return data.sub_version > known.client_version and not is_same

    def unregister(self, group: str) -> None:
        """Take note that the last member of a group has left."""
        self._let_die(group, self._topics_of.get(group, set()))

    def expire(self) -> None:
        """Forget filters that have been dead for too long."""
        now_ms = self._clock.wall_ms()
        for data in [one for groups in self._by_topic.values() for one in groups.values()]:
            if data.is_dead and now_ms - data.dead_ms > self._dead_ms_max:
                self._remove(data)

    def snapshot(self) -> _FilterTable:
        """Return the whole table as it is saved."""
        return _FilterTable(
            by_topic={
                topic: _TopicFilters(group_filter_data=dict(groups), topic=topic)
                for topic, groups in self._by_topic.items()
            }
        )

    def _register(self, group: str, data: SubscriptionData) -> None:
        known = self.find(data.topic, group)
        if known is None:
            self._build(group, data)
        elif data.sub_version <= known.client_version:
            if data.sub_version == known.client_version and known.is_dead:
                self._put(known.alive(known.client_version))
        elif self._is_new(group, data):
            self._remove(known)
            self._build(group, data)
        else:
            self._put(known.alive(data.sub_version))

    def _build(self, group: str, data: SubscriptionData) -> None:
        if not self._is_usable(group, data.topic, data.sub_string):
            return
        self._put(
            FilterData(
                consumer_group=group,
                topic=data.topic,
                expression=data.sub_string,
                expression_type=data.expression_type,
                born_ms=self._birth_ms(),
                client_version=data.sub_version,
                bloom_bits=self._bits(group, data.topic),
            )
        )

    def _is_usable(self, group: str, topic: str, expression: str) -> bool:
        if len(self) >= FILTER_COUNT_MAX:
            log.warning("more than %d filters; group %s gets none", FILTER_COUNT_MAX, group)
            return False
        try:
            compile_expression(expression)
        except SqlError as error:
            log.info("group %s cannot filter topic %s: %s", group, topic, error)
            return False
        return True

    def _bits(self, group: str, topic: str) -> BloomBits:
        bloom = self.bloom
        return BloomBits(bit_num=bloom.bit_count, bit_pos=bloom.positions(group, topic))

    def _let_die(self, group: str, topics: Iterable[str]) -> None:
        now_ms = self._clock.wall_ms()
        for topic in topics:
            data = self._by_topic[topic][group]
            if not data.is_dead:
                self._put(data.died(now_ms))

    def _put(self, data: FilterData) -> None:
        self._keep(data)
        self.file.mark()

    def _birth_ms(self) -> int:
        return max(self._clock.wall_ms(), self._stored_ms())

    def _keep(self, data: FilterData) -> None:
        self._note_change(data)
        self._by_topic.setdefault(data.topic, {})[data.consumer_group] = data
        self._topics_of.setdefault(data.consumer_group, set()).add(data.topic)

    def _note_change(self, data: FilterData) -> None:
        self.version += 1
        self.on_change(data.consumer_group, data.topic)

    def _remove(self, data: FilterData) -> None:
        self._note_change(data)
        groups, topics = self._by_topic[data.topic], self._topics_of[data.consumer_group]
        del groups[data.consumer_group]
        topics.discard(data.topic)
        if not groups:
            del self._by_topic[data.topic]
        if not topics:
            del self._topics_of[data.consumer_group]
        self.file.mark()

    def _load(self) -> None:
        saved = self.file.load(_FilterTable)
        began_ms = self._clock.wall_ms() - RESTART_MS
        for topic, filters in (saved.by_topic if saved is not None else {}).items():
            for group, found in filters.group_filter_data.items():
                data = msgspec.structs.replace(found, topic=topic, consumer_group=group)
                if self._is_usable(group, topic, data.expression):
                    self._keep(self._as_started(data, began_ms))
        self.expire()

    def _as_started(self, data: FilterData, began_ms: int) -> FilterData:
        if not data.is_dead:
            data = data.died(began_ms)
        bits = self._bits(data.consumer_group, data.topic)
        if data.bloom_bits == bits:
            return data
        return msgspec.structs.replace(data, bloom_bits=bits, born_ms=self._birth_ms())
