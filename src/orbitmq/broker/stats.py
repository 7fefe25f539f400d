"""The figures of a broker over time: windows by name, as tools ask for them (315), and rates.

In: totals (`counts`), sampled at even intervals. Out: growth in the last minute, hour and day, and
what was done a second.

Rules:
1. Nothing is counted here. Sampling is done in slices that hold up nobody.
2. Tables are bounded: SERIES_MAX topics and as many pairs of topic and group. Above half of it the
   figures of what is gone, or idle for a day, are forgotten; else with autoDeleteUnusedStats only.
3. Of the original's names these are kept: puts by topic, gets and messages sent back by topic and
   group, puts and gets of the broker, puts and gets by queue of the delay levels, whose consumer is
   SCHEDULE_CONSUMER. Fallen behind and accounting answer "not exist", as there.
4. GROUP_GET_LATENCY, in whole ms, is that of pulls which the hot path leaves to the handlers. Its
   own take less than one each: they add nothing to the sum, and the average leaves them out.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from orbitmq.broker.counts import ZERO, Counts, Totals, put_into, sum_of
from orbitmq.broker.stats_windows import SAMPLE_S, Series
from orbitmq.core import CoreState
from orbitmq.wire.bodies_runtime import BrokerStatsData
from orbitmq.wire.names import SCHEDULE_CONSUMER, SCHEDULE_TOPIC

SERIES_MAX = 10_000
SLICE = 500
"""Topics or groups that are sampled in one go: less than a millisecond's work."""

RATE_SPANS_S = (10, 60, 600)
_RATES_LENGTH = RATE_SPANS_S[-1] // SAMPLE_S + 2

_COUNT, _SIZE = 0, 1
_NAMES = {
    "TOPIC_PUT_NUMS": ("topic", _COUNT),
    "TOPIC_PUT_SIZE": ("topic", _SIZE),
    "GROUP_GET_NUMS": ("group", _COUNT),
    "GROUP_GET_SIZE": ("group", _SIZE),
    "SNDBCK_PUT_NUMS": ("sent_back", _COUNT),
    "BROKER_PUT_NUMS": ("broker_put", _COUNT),
    "BROKER_GET_NUMS": ("broker_get", _COUNT),
    "QUEUE_PUT_NUMS": ("queue", _COUNT),
    "QUEUE_PUT_SIZE": ("queue", _SIZE),
    "QUEUE_GET_NUMS": ("queue_got", _COUNT),
    "QUEUE_GET_SIZE": ("queue_got", _SIZE),
    "GROUP_GET_LATENCY": ("latency", _COUNT),
}
"""The original's names: which table, and which of its totals."""

_DELAYED = (SCHEDULE_TOPIC, SCHEDULE_CONSUMER)


class Moment(NamedTuple):
    """The broker's totals at one time."""

    at_s: float
    put: int = 0
    got: int = 0
    """Messages that pulls got."""
    found: int = 0
    """Pulls that got any."""
    missed: int = 0


class Rate(NamedTuple):
    """What was done a second, over some time; the names are those of Moment."""

    put: float
    got: float
    found: float
    missed: float


class BrokerStats:
    """The figures of one broker."""

    def __init__(
        self,
        counts: Counts,
        core: CoreState,
        cluster: str,
        now_s: float,
        *,
        has_queues: bool = True,
    ) -> None:
        """`has_queues`: whether there are figures by queue, too (enableDetailStat)."""
        self._has_queues = has_queues
        self._counts = counts
        self._core = core
        self._cluster = cluster
        self._tables: dict[str, dict[str, Series]] = {table: {} for table, _ in _NAMES.values()}
        self._number = 0
        self._moments = deque([Moment(now_s)], maxlen=_RATES_LENGTH)
        self._put_counts_us = list(counts.writes.put_counts_us)
        self.put_ms_percentiles = (0.0, 0.0)
        """How long 99 and 99.9 % of the puts of the last whole minute took at most."""
        self._day = 0
        self.put_mornings = (0, 0)
        """What was put until yesterday's and until this morning."""
        self.got_mornings = (0, 0)

    # --- Totals and rates ---

    def totals(self, now_s: float) -> Moment:
        """Return the broker's totals now."""
        counts = self._counts
        got = counts.got_in_all()
        return Moment(now_s, counts.put_count, got.messages, got.times, counts.missed)

    def rates(self, now_s: float) -> list[Rate]:
        """Return the rates of the last 10 s, minute and 10 minutes, or of the time since the start.

        The time looked at is up to 10 s longer: it begins with a sampling.
        """
        now = self.totals(now_s)
        return [_rate(self._before(now_s - span_s), now) for span_s in RATE_SPANS_S]

    def _before(self, at_s: float) -> Moment:
        """Return the last moment that is not after `at_s`, or the first one there is."""
        return next((one for one in reversed(self._moments) if one.at_s <= at_s), self._moments[0])

    # --- Figures by name ---

    def view(self, name: str | None, key: str | None) -> BrokerStatsData | None:
        """Return a figure of the original's name, or None when nothing was counted under it."""
        if name not in _NAMES or key is None:
            return None
        table, place = _NAMES[name]
        series = self._tables[table].get(key)
        if series is not None:
            return series.view(place)
        return BrokerStatsData() if self._is_counted(table, key) else None

    def _is_counted(self, table: str, key: str) -> bool:
        """Whether there is something that the next sampling will show."""
        counts = self._counts
        if table == "topic":
            return counts.put(key).messages > 0
        topic, _, group = key.rpartition("@")
        if table == "group":
            return counts.got(topic, group) is not None or self._is_delayed(topic, group)
        if table == "latency":
            queue_id, _, pair = key.partition("@")
            return queue_id.isascii() and queue_id.isdecimal() and self._is_got(int(queue_id), pair)
        if table == "sent_back":
            return (topic, group) in counts.sent_back
        return table.startswith("broker") and key == self._cluster

    def _is_delayed(self, topic: str, group: str) -> bool:
        return bool(self._counts.delivered) and (topic, group) == _DELAYED

    def _is_got(self, queue_id: int, pair: str) -> bool:
        """Whether a group, `topic@group`, got something of a topic that has this queue."""
        name, _, group = pair.rpartition("@")
        topic = self._core.topics.get(name)
        is_known = topic is not None and queue_id in topic.queues
        return is_known and self._counts.got(name, group) is not None

    # --- Sampling ---

    def sampling(self, now_s: float, now_ms: int, *, is_forgetful: bool) -> Iterator[None]:
        """Sample everything; yields between slices, so that others get their turn.

        `is_forgetful` forgets topics and groups that are gone. Call it each SAMPLE_S seconds.
        """
        self._number += 1
        self._moments.append(moment := self.totals(now_s))
        # 36 puts a message that its delivery puts again: the original counts the latter only.
        put = Totals(moment.put - self._counts.sent_back_count)
        self._sample("broker_put", self._cluster, now_ms, put)
        self._sample("broker_get", self._cluster, now_ms, Totals(moment.got))
        for (topic, group), count in list(self._counts.sent_back.items()):
            self._sample("sent_back", f"{topic}@{group}", now_ms, Totals(count, 0, count))
        yield
        for table, rows in self._by_key():
            for number, (key, totals) in enumerate(rows):
                self._sample(table, key, now_ms, totals)
                if number % SLICE == SLICE - 1:
                    yield
        self._sample_delivered(now_ms)
        if self._has_queues:
            self._sample_delay_levels(now_ms)
        if self._number % (60 // SAMPLE_S) == 0:
            self._note_put_times()
        yield
        self._forget(is_forgetful=is_forgetful)

    def _by_key(self) -> Iterator[tuple[str, Iterator[tuple[str, Totals]]]]:
        """Return the totals of each table, by the original's keys; looked up one by one."""
        counts = self._counts
        yield "topic", ((topic.name, put) for topic, put in counts.puts())
        yield "group", (("@".join(pair), got) for pair, got in counts.gots() if pair != _DELAYED)
        latencies = list(counts.latencies.items())
        yield "latency", ((f"{key[0]}@{key[1]}@{key[2]}", took) for key, took in latencies)

    def _sample(self, table: str, key: str, now_ms: int, totals: Totals) -> None:
        rows = self._tables[table]
        series = rows.get(key)
        if series is None:
            if totals == ZERO or len(rows) >= SERIES_MAX:
                return
            series = rows[key] = Series()
        series.sample(self._number, now_ms, totals)

    def _sample_delay_levels(self, now_ms: int) -> None:
        topic = self._core.topics.get(SCHEDULE_TOPIC)
        for queue in list(topic.queues.values()) if topic is not None else ():
            key = f"{SCHEDULE_TOPIC}@{queue.queue_id}"
            self._sample("queue", key, now_ms, put_into([queue]))
        for queue_id, totals in self._counts.delivered.items():
            key = f"{SCHEDULE_TOPIC}@{queue_id}@{SCHEDULE_CONSUMER}"
            self._sample("queue_got", key, now_ms, totals)

    def _sample_delivered(self, now_ms: int) -> None:
        """Sample what the delay levels' consumer got, with what a client got in its name."""
        counts = self._counts
        totals = sum_of(counts.got(*_DELAYED) or ZERO, counts.delivered_in_all())
        self._sample("group", "@".join(_DELAYED), now_ms, totals)

    def _note_put_times(self) -> None:
        counts = list(self._counts.writes.put_counts_us)
        grown = [after - before for before, after in zip(self._put_counts_us, counts, strict=True)]
        self._put_counts_us = counts
        self.put_ms_percentiles = (_percentile_ms(grown, 0.99), _percentile_ms(grown, 0.999))

    def _forget(self, *, is_forgetful: bool) -> None:
        topics = self._tables["topic"]
        is_tight = len(topics) * 2 > SERIES_MAX
        for key in list(topics) if is_forgetful or is_tight else ():
            if key not in self._core.topics:
                del topics[key]
        pairs = [pair for pair, _ in self._counts.gots()]
        is_tight = len(pairs) * 2 > SERIES_MAX
        for topic, group in pairs if is_forgetful or is_tight else ():
            is_gone = topic not in self._core.topics or group not in self._core.groups
            if is_gone or (is_tight and self._is_idle("group", f"{topic}@{group}")):
                self._counts.forget(topic, group)
                self._tables["group"].pop(f"{topic}@{group}", None)
                self._tables["sent_back"].pop(f"{topic}@{group}", None)
        latencies = self._counts.latencies
        is_tight = len(latencies) * 2 > SERIES_MAX
        for row in list(latencies) if is_forgetful or is_tight else ():
            queue_id, topic, group = row
            key = f"{queue_id}@{topic}@{group}"
            is_gone = self._counts.got(topic, group) is None
            if is_gone or (is_tight and self._is_idle("latency", key)):
                del latencies[row]
                self._tables["latency"].pop(key, None)

    def _is_idle(self, table: str, key: str) -> bool:
        series = self._tables[table].get(key)
        return series is not None and series.is_idle

    def note_day(self, day: int) -> None:
        """Keep the totals of a morning when `day`, a date as a number, is another one."""
        if self._day and day != self._day:
            now = self.totals(0.0)
            self.put_mornings = (self.put_mornings[1], now.put)
            self.got_mornings = (self.got_mornings[1], now.got)
        self._day = day


def _percentile_ms(counts: list[int], part: float) -> float:
    """Return an upper bound of what `part` of the values is below; `counts` is by bits of them."""
    wanted, seen = sum(counts) * part, 0
    for bits, count in enumerate(counts):
        seen += count
        if count and seen >= wanted:
            return float(1 << bits) / 1000
    return 0.0


def _rate(first: Moment, last: Moment) -> Rate:
    took_s = max(last.at_s - first.at_s, 1e-3)
    return Rate(
        put=(last.put - first.put) / took_s,
        got=(last.got - first.got) / took_s,
        found=(last.found - first.found) / took_s,
        missed=(last.missed - first.missed) / took_s,
    )
