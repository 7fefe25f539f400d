"""Bodies of what a broker tells of itself: runtime info (28) and figures (315).

In: a broker's figures, or a body's bytes. Out: the other one, by `fastjson`.
Rules: every value of the runtime table is text, and tools read it by key; a figure that was never
counted has no body at all, the answer is an error.
"""

import msgspec

from orbitmq.wire.fields import Header


class RuntimeInfo(msgspec.Struct, frozen=True):
    """The answer to 28: everything by name, as text."""

    table: dict[str, str]


class ViewBrokerStats(Header, frozen=True, kw_only=True):
    """315: which figure, and of whom (a topic, `topic@group`, the cluster)."""

    name: str | None = msgspec.field(name="statsName", default=None)
    key: str | None = msgspec.field(name="statsKey", default=None)


class WindowFigures(msgspec.Struct, frozen=True):
    """How much a figure grew over a span of time: in all, a second, and each time it was added to.

    Names as on the wire.
    """

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to 315."""

    stats_minute: WindowFigures = WindowFigures()
    stats_hour: WindowFigures = WindowFigures()
    stats_day: WindowFigures = WindowFigures()
