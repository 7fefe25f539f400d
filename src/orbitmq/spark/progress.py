"""How far streaming queries are: rows, rate, and what lies ahead of them, by topic.

In: what Spark says of a finished batch. Out: figures, a line for people, metrics.

Rules:
1. Offsets are those of the `rocketmq` source: topic, broker, queue, offset. What another source
   has as offsets is left alone: such a query has rows and a rate, but no lag.
2. The lag in messages is the end of all queues less the batch's end. The lag in seconds is how long
   ago the end of the topic was where the query is now; a query that began behind is shown
   as `at least`, for nobody here has seen when those messages came.
3. At most HEADS_MAX moments are remembered of a topic; older ones are thinned out.
"""

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from orbitmq.metrics import Counter, Registry

HEADS_MAX = 512
"""With the older half thinned out again and again, these reach back for days."""

BAR_WIDTH = 12
QUERIES_MAX = 64
"""Ended queries are forgotten beyond this; a program with more at a time shows its newest."""

Queue = tuple[str, str, str]
"""Topic, broker and queue, as they stand in the offsets."""


class BatchFacts(NamedTuple):
    """What Spark says of one batch: the JSON of each source's end, and of all there is."""

    query: str
    batch_id: int
    row_count: int
    rows_per_s: float
    batch_s: float
    offsets: Sequence[tuple[str | None, str | None]]


class TopicLag(NamedTuple):
    """What of a topic a query has not read."""

    topic: str
    messages: int
    seconds: float
    is_at_least: bool


class QueryFigures(NamedTuple):
    """How far a query is."""

    query: str
    batch_count: int
    row_count: int
    rows_per_s: float
    batch_s: float
    done_part: float
    lags: tuple[TopicLag, ...]


def read_offsets(text: str | None) -> dict[Queue, int]:
    """Return the offsets in a source's JSON by queue; nothing for those of another source."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return dict(_leaves(found))


def _leaves(found: object) -> Iterator[tuple[Queue, int]]:
    for topic, brokers in _items(found):
        for broker, queues in _items(brokers):
            offsets = ((queue, at) for queue, at in _items(queues) if isinstance(at, int))
            yield from (((topic, broker, queue), at) for queue, at in offsets)


def _items(found: object) -> Iterator[tuple[str, object]]:
    yield from found.items() if isinstance(found, Mapping) else ()


class _Heads:
    """When the end of a topic was where."""

    def __init__(self) -> None:
        self._times_s: list[float] = []
        self._totals: list[int] = []

    def note(self, now_s: float, total: int) -> None:
        if self._totals and total <= self._totals[-1]:
            return
        self._times_s.append(now_s)
        self._totals.append(total)
        if len(self._totals) > HEADS_MAX:
            half = HEADS_MAX // 2
            self._times_s[:half] = self._times_s[:half:2]
            self._totals[:half] = self._totals[:half:2]

    def since(self, now_s: float, total: int) -> tuple[float, bool]:
        """How long ago the end went past `total`, and whether it was longer ago than that."""
        place = bisect_left(self._totals, total + 1)
        if place == len(self._totals):
            return 0.0, False
        return now_s - self._times_s[place], place == 0


class _Query:
    """What is known of one query."""

    def __init__(self) -> None:
        self.figures: QueryFigures | None = None
        self._begin: dict[Queue, int] = {}
        self._heads: dict[str, _Heads] = {}

    def note(self, facts: BatchFacts, now_s: float) -> QueryFigures:
        before = self.figures
        ends: dict[Queue, int] = {}
        latest: dict[Queue, int] = {}
        for end, newest in facts.offsets:
            ends |= read_offsets(end)
            latest |= read_offsets(newest)
        latest = {queue: max(latest.get(queue, 0), end) for queue, end in ends.items()} | {
            queue: offset for queue, offset in latest.items() if queue not in ends
        }
        self._begin = ends | self._begin
        self.figures = QueryFigures(
            facts.query,
            (before.batch_count if before else 0) + 1,
            (before.row_count if before else 0) + facts.row_count,
            facts.rows_per_s,
            facts.batch_s,
            self._done_part(ends, latest),
            tuple(self._lags(ends, latest, now_s)),
        )
        return self.figures

    def _done_part(self, ends: Mapping[Queue, int], latest: Mapping[Queue, int]) -> float:
        done = max(0, sum(end - self._begin[queue] for queue, end in ends.items()))
        ahead = sum(latest[queue] - end for queue, end in ends.items())
        return 1.0 if not ahead else done / (done + ahead)

    def _lags(
        self, ends: Mapping[Queue, int], latest: Mapping[Queue, int], now_s: float
    ) -> Iterator[TopicLag]:
        for topic in sorted({queue[0] for queue in latest}):
            end = sum(offset for queue, offset in ends.items() if queue[0] == topic)
            head = sum(offset for queue, offset in latest.items() if queue[0] == topic)
            heads = self._heads.setdefault(topic, _Heads())
            heads.note(now_s, head)
            yield TopicLag(topic, head - end, *heads.since(now_s, end))


class ProgressMeter:
    """The figures of all queries that were noted, newest last."""

    def __init__(self) -> None:
        self._queries: dict[str, _Query] = {}

    def note(self, facts: BatchFacts, now_s: float) -> QueryFigures:
        """Take in a batch that ended now; `now_s` never goes back."""
        query = self._queries.pop(facts.query, None) or _Query()
        self._queries[facts.query] = query
        while len(self._queries) > QUERIES_MAX:
            del self._queries[next(iter(self._queries))]
        return query.note(facts, now_s)

    def figures(self) -> list[QueryFigures]:
        """Return the newest figures of every query."""
        queries = list(self._queries.values())
        return [query.figures for query in queries if query.figures is not None]


def show_metrics(meter: ProgressMeter, registry: Registry) -> Counter:
    """Let a registry show the figures of a meter; return the counter of commits that failed."""

    def by_query(name: str) -> Iterator[tuple[tuple[str, ...], float]]:
        return (((one.query,), getattr(one, name)) for one in meter.figures())

    def by_topic(name: str) -> Iterator[tuple[tuple[str, ...], float]]:
        return (
            ((one.query, lag.topic), getattr(lag, name))
            for one in meter.figures()
            for lag in one.lags
        )

    for metric, help_text, kind, field in _BY_QUERY:
        registry.rows(metric, help_text, kind, ["query"], partial(by_query, field))
    for metric, help_text, field in _BY_TOPIC:
        registry.rows(metric, help_text, "gauge", ["query", "topic"], partial(by_topic, field))
    return registry.counter(
        "orbitmq_spark_failed_commits_total", "Commits to a consumer group that failed."
    )


_BY_QUERY = (
    ("orbitmq_spark_rows_total", "Rows that a query has read.", "counter", "row_count"),
    ("orbitmq_spark_batches_total", "Batches that a query has ended.", "counter", "batch_count"),
    ("orbitmq_spark_rows_per_second", "Speed of a query's last batch.", "gauge", "rows_per_s"),
    ("orbitmq_spark_batch_seconds", "Length of a query's last batch.", "gauge", "batch_s"),
)
_BY_TOPIC = (
    ("orbitmq_spark_lag_messages", "Messages of a topic that a query has not read.", "messages"),
    (
        "orbitmq_spark_lag_seconds",
        "How long ago the oldest of them came; at least, when the query began behind.",
        "seconds",
    ),
)


# --- for people ---


def line_of(one: QueryFigures, *, has_bar: bool = False) -> str:
    """Return a line about a query."""
    bar = f" [{_bar(one.done_part)}] {one.done_part:4.0%}" if has_bar else ""
    lags = "".join(f"  {_lag_text(lag)}" for lag in one.lags)
    return f"{one.query}{bar}  {one.row_count:,} rows  {one.rows_per_s:,.0f}/s{lags}"


def _lag_text(lag: TopicLag) -> str:
    if not lag.messages:
        return f"{lag.topic}: no lag"
    least = "more than " if lag.is_at_least else ""
    return f"{lag.topic}: {lag.messages:,} messages behind, {least}{lag.seconds:.1f} s"


def _bar(part: float) -> str:
    full = int(part * BAR_WIDTH)
    return "#" * full + "." * (BAR_WIDTH - full)
