"""Watch streaming queries: a line in the terminal, metrics, and offsets stored at the brokers.

In: a session, and what to do. Out: lines, a metrics port, committed offsets of a consumer group.

Rules:
1. Spark tells a source of the end of a batch only when it plans the next one, and never of the
   last. So the listener commits: at most once in COMMIT_INTERVAL_S, and when a query is idle or
   ends.
2. A commit that fails stops nothing: it is counted and logged, and made again with the next one.
   What a query reads next is in its checkpoint; the group's offsets are for tools that show lag.
3. In a terminal one line is written again and again; elsewhere a line comes at most once in
   LINE_INTERVAL_S.
"""

import json
import logging
import sys
from asyncio import AbstractServer
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from orbitmq.errors import MQError, SettingError
from orbitmq.metrics import Registry
from orbitmq.net.scrape import start_metrics
from orbitmq.spark.offsets import offsets_in
from orbitmq.spark.progress import (
    BatchFacts,
    ProgressMeter,
    QueryFigures,
    line_of,
    read_offsets,
    show_metrics,
)
from orbitmq.spark.topic_choice import is_chosen
from orbitmq.spark.topic_commits import store_progress
from orbitmq.spark.topic_options import topic_options
from orbitmq.world.clock import Clock, SystemClock
from orbitmq.world.loop_thread import LoopThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMIT_INTERVAL_S = 1.0
LINE_INTERVAL_S = 1.0
TOLD_MS = 10_000
"""So long the end of a watch waits for what Spark has not reported yet."""
_ERASE_TO_END = "\x1b[K"

log = logging.getLogger(__name__)

Commit = Callable[[str], None]
"""Tells brokers the offsets that a source's JSON holds; raises MQError."""


class ProgressListener(StreamingQueryListener):
    """What happens when Spark tells of a query. Use `watch`."""

    def __init__(
        self,
        output: TextIO | None,
        registry: Registry,
        commit: Commit | None = None,
        query_name: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._output = output
        self._commit = commit
        self._query_name = query_name
        self._clock = clock or SystemClock()
        self._meter = ProgressMeter()
        self._names: dict[str, str] = {}
        self._pending: dict[str, list[str]] = {}
        self._committed_s = self._told_s = float("-inf")
        self._failures = show_metrics(self._meter, registry)

    # --- what Spark calls ---

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Remember what the query is called."""
        self._names[str(event.id)] = event.name or str(event.id)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Take in a batch that has ended."""
        progress = event.progress
        if self._is_other(progress.name):
            return
        facts = facts_of(progress)
        now_s = self._clock.monotonic_s()
        figures = self._meter.note(facts, now_s)
        ends = [end for end, _ in facts.offsets if end]
        if ends:
            self._pending[str(progress.id)] = ends
        if now_s - self._committed_s >= COMMIT_INTERVAL_S:
            self.commit_pending()
        self._tell(figures, now_s)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing new came: commit how far the query is."""
        self.commit_pending()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Commit the last batch, and end the line."""
        self.commit_pending()
        self._pending.pop(str(event.id), None)
        name = self._names.pop(str(event.id), str(event.id))
        figures = [one for one in self._meter.figures() if one.query == name]
        if figures and self._output is not None:
            end = "" if event.exception is None else "  failed"
            self._write(f"{line_of(figures[0])}  ended{end}", is_last=True)

    # --- steps ---

    def _is_other(self, name: str | None) -> bool:
        return self._query_name is not None and name != self._query_name

    def commit_pending(self) -> None:
        """Commit what was not committed yet."""
        self._committed_s = self._clock.monotonic_s()
        pending, self._pending = self._pending, {}
        if self._commit is None:
            return
        each = [(query, ends, one) for query, ends in pending.items() for one in ends]
        for query, ends, text in each:
            if not read_offsets(text):
                continue
            try:
                self._commit(text)
            except MQError as error:
                self._pending.setdefault(query, ends)
                self._failures.value += 1
                self._write(f"offsets are not committed: {error}", is_last=True)

    def _tell(self, figures: QueryFigures, now_s: float) -> None:
        if self._output is None:
            return
        if self._output.isatty():
            self._write(line_of(figures, has_bar=True), is_last=False)
        elif now_s - self._told_s >= LINE_INTERVAL_S:
            self._told_s = now_s
            self._write(line_of(figures), is_last=True)

    def _write(self, line: str, *, is_last: bool) -> None:
        if self._output is None:
            return
        if self._output.isatty():
            line = f"\r{line}{_ERASE_TO_END}"
        self._output.write(line + "\n" * is_last)
        self._output.flush()


def facts_of(progress: StreamingQueryProgress) -> BatchFacts:
    """Return what we use of Spark's account of a batch."""
    return BatchFacts(
        progress.name or str(progress.id),
        progress.batchId,
        progress.numInputRows,
        progress.processedRowsPerSecond or 0.0,
        progress.batchDuration / 1_000,
        [(_text(one.endOffset), _text(one.latestOffset)) for one in progress.sources],
    )


def _text(offset: Any) -> str | None:
    return offset if isinstance(offset, str) and offset not in ("", "null") else None


# --- for users ---


async def _end(server: AbstractServer) -> None:
    server.close()
    await server.wait_closed()


class Watch:
    """A session that is watched. `close`, or the end of a `with` block, ends it."""

    def __init__(self, spark: "SparkSession", listener: ProgressListener) -> None:
        self._spark = spark
        self._listener = listener
        self._served: tuple[LoopThread, AbstractServer] | None = None
        self.metrics_port = 0
        """Where `GET /metrics` is answered; 0 without metrics."""

    def serve(self, registry: Registry, host: str, port: int) -> None:
        """Answer scrapes; raises SettingError when the port is taken."""
        thread = LoopThread("spark-metrics")
        try:
            starting = thread.submit(start_metrics(registry, host, port))
            server, self.metrics_port = starting.result()
        except BaseException:
            thread.close()
            raise
        self._served = (thread, server)

    def close(self) -> None:
        """End it: the last offsets are committed, no more lines, no more metrics."""
        self._wait_told()
        self._spark.streams.removeListener(self._listener)
        self._listener.commit_pending()
        if self._served is not None:
            thread, server = self._served
            self._served = None
            thread.submit(_end(server)).result()
            thread.close()

    def _wait_told(self) -> None:
        """Let Spark tell what has happened already: it does so in a thread of its own."""
        context: Any = self._spark.sparkContext
        try:
            context._jsc.sc().listenerBus().waitUntilEmpty(TOLD_MS)  # noqa: SLF001 - no other way
        except Exception:  # of Spark or its gateway: the session has ended, or is slow
            log.debug("Spark has not reported everything of its queries")

    def __enter__(self) -> "Watch":
        """Return the watch."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it."""
        self.close()


def watch(
    spark: "SparkSession",
    *,
    query_name: str | None = None,
    commit: Mapping[str, str] | None = None,
    output: TextIO | bool = True,
    metrics_port: int | None = None,
    registry: Registry | None = None,
) -> Watch:
    """Watch the streaming queries of a session, or the one called `query_name`.

    `commit` are options of a `rocketmq` source: its `consumerGroup` then shows how far the query is
    to every tool that shows lag. `output` gets the lines: True is standard error, False nobody.
    `metrics_port` answers Prometheus on this machine (0: any free port); `registry` adds the
    metrics to your own.

    Raises SettingError when an option is wrong or the port is taken.
    """
    shown = registry if registry is not None else Registry()
    stream = (sys.stderr if output else None) if isinstance(output, bool) else output
    listener = ProgressListener(stream, shown, _committer(commit), query_name)
    watching = Watch(spark, listener)
    if metrics_port is not None:
        watching.serve(shown, "127.0.0.1", metrics_port)
    spark.streams.addListener(listener)
    return watching


def _committer(given: Mapping[str, str] | None) -> Commit | None:
    if given is None:
        return None
    options = topic_options(given, is_stream=True)
    if not options.consumer_group:
        raise SettingError(
            "watch(commit=...) needs the option 'consumerGroup': whose progress it is"
        )

    def commit(text: str) -> None:
        offsets = offsets_in(json.loads(text))
        chosen = {queue: at for queue, at in offsets.items() if is_chosen(options, queue)}
        store_progress(options, chosen)

    return commit
