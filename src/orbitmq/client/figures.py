"""How a consumer is doing, topic by topic: pulls and calls of the handler, by time.

In: what was pulled and consumed. Out: rates of the last minute, failures of the last hour.
Rule: counting costs next to nothing: one row of counters for each topic and ten seconds.
"""

from collections import deque

import msgspec

from orbitmq.client.process_queue import Job
from orbitmq.world.clock import Clock

ROW_S = 10
MINUTE_ROWS = 6
HOUR_ROWS = 360


class ConsumeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one topic; names as on the wire, times in ms."""

    pull_rt: float = msgspec.field(name="pullRT")
    pull_tps: float = msgspec.field(name="pullTPS")
    consume_rt: float = msgspec.field(name="consumeRT")
    consume_ok_tps: float = msgspec.field(name="consumeOKTPS")
    consume_failed_tps: float = msgspec.field(name="consumeFailedTPS")
    consume_failed_msgs: int = msgspec.field(name="consumeFailedMsgs")


class _Row:
    __slots__ = (
        *("calls", "end_s", "failed", "handler_s", "number", "ok", "pull_s", "pulled", "pulls"),
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.end_s = (number + 1) * ROW_S
        self.ok = self.failed = self.calls = self.pulled = self.pulls = 0
        self.handler_s = self.pull_s = 0.0


class Figures:
    """The figures of one consumer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rows: dict[str, deque[_Row]] = {}
        self._newest: dict[str, _Row] = {}
        self.failed_count = 0
        self.consumed_count = 0

    def consumed(self, job: Job, ok: int, failed: int) -> None:
        """Count one call of the handler."""
        topic, ended_s = job.process_queue.queue.topic, job.ended_s
        row = self._newest.get(topic)
        if row is None or ended_s >= row.end_s:
            row = self._row(topic, ended_s)
        row.ok += ok
        row.calls += 1
        row.handler_s += ended_s - (job.started_s or ended_s)
        self.consumed_count += ok
        if failed:
            row.failed += failed
            self.failed_count += failed

    def pulled(self, topic: str, count: int, took_s: float) -> None:
        """Count one pull that found messages."""
        row = self._row(topic, self._clock.monotonic_s())
        row.pulled += count
        row.pulls += 1
        row.pull_s += took_s

    def _row(self, topic: str, now_s: float) -> _Row:
        number = int(now_s // ROW_S)
        rows = self._rows.get(topic)
        if rows is None:
            rows = self._rows[topic] = deque(maxlen=HOUR_ROWS)
        if not rows or rows[-1].number < number:
            rows.append(_Row(number))
        self._newest[topic] = rows[-1]
        return rows[-1]

    def status(self, topic: str) -> ConsumeStatus:
        """Return a topic's figures."""
        now = int(self._clock.monotonic_s() // ROW_S)
        rows = self._rows.get(topic, ())
        minute = [row for row in rows if row.number > now - MINUTE_ROWS]
        span_s = MINUTE_ROWS * ROW_S
        pulls = sum(row.pulls for row in minute)
        calls = sum(row.calls for row in minute)
        return ConsumeStatus(
            pull_rt=sum(row.pull_s for row in minute) * 1000 / pulls if pulls else 0.0,
            pull_tps=sum(row.pulled for row in minute) / span_s,
            consume_rt=sum(row.handler_s for row in minute) * 1000 / calls if calls else 0.0,
            consume_ok_tps=sum(row.ok for row in minute) / span_s,
            consume_failed_tps=sum(row.failed for row in minute) / span_s,
            consume_failed_msgs=sum(row.failed for row in rows if row.number > now - HOUR_ROWS),
        )
