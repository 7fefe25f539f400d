"""Counters, levels and histograms that cost next to nothing, shown as Prometheus text 0.0.4.

In: `counter.value += n` and the like on the hot path. Out: `Registry.render()`, on request only.

Rules:
1. A metric is looked up once, at start; the hot path touches plain integers of the kept object.
2. The same name and labels give the same object, so several parts may share one metric.
3. Label values that come from outside are bounded: past the limit they are counted as `other`.
4. Names end in their unit; counters end in `_total`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from orbitmq.ensure import BrokenInvariant, ensure
from orbitmq.errors import LimitExceeded

LABEL_VALUES_MAX = 512
"""More than all request codes of 4.9 and 5.x together."""

SERIES_MAX = 4096
"""Metrics of one registry. They are made by code, not by peers: more of them is a leak."""

ROWS_MAX = 1_024
"""Rows of one name that are made when they are shown; the last may stand for all others."""

HISTOGRAM_BITS_MAX = 62
OTHER = "other"

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

Labels = Mapping[str, str]
ReadRows = Callable[[], Iterable[tuple[tuple[str, ...], float]]]
"""Gives label values, in the order of the labels, and a number for each."""

_NO_LABELS: Labels = {}


class Counter:
    """A number that only grows: `counter.value += n`."""

    __slots__ = ("value",)
    kind = "counter"

    def __init__(self) -> None:
        self.value = 0

    def lines(self, name: str, labels: str) -> list[str]:
        """Return the lines that show it."""
        return [f"{name}{_braces(labels)} {self.value}"]


class Level:
    """A number that grows and shrinks: `level.value -= n`."""

    __slots__ = ("value",)
    kind = "gauge"

    def __init__(self) -> None:
        self.value = 0

    def lines(self, name: str, labels: str) -> list[str]:
        """Return the lines that show it."""
        return [f"{name}{_braces(labels)} {self.value}"]


class Gauge:
    """A number that is asked for when the metrics are shown."""

    __slots__ = ("kind", "read")

    def __init__(self, read: Callable[[], float], kind: str = "gauge") -> None:
        self.read = read
        self.kind = kind

    def lines(self, name: str, labels: str) -> list[str]:
        """Return the lines that show it."""
        return [f"{name}{_braces(labels)} {_number(self.read())}"]


class LabelledCounter:
    """Counters told apart by one label with a bounded number of values."""

    __slots__ = ("_label", "_values")
    kind = "counter"

    def __init__(self, label: str) -> None:
        self._label = label
        self._values: dict[str | int, int] = {}

    def add(self, label_value: str | int, n: int = 1) -> None:
        """Count `n` for this label value, or for `other` when there are too many values."""
        values = self._values
        if label_value in values:
            values[label_value] += n
        elif len(values) < LABEL_VALUES_MAX:
            values[label_value] = n
        else:
            values[OTHER] = values.get(OTHER, 0) + n

    def value(self, label_value: str | int) -> int:
        """Return what was counted for this label value."""
        return self._values.get(label_value, 0)

    def total(self) -> int:
        """Return what was counted for all label values together."""
        return sum(self._values.values())

    def lines(self, name: str, labels: str) -> list[str]:
        """Return the lines that show it."""
        ordered = sorted((str(key), count) for key, count in self._values.items())
        return [
            f"{name}{_braces(_joined(labels, _pair(self._label, key)))} {count}"
            for key, count in ordered
        ]


class Histogram:
    """Whole numbers counted in buckets that double: bucket k holds values below 2 ** k.

    `scale` turns the observed unit into the shown one (observe µs, show seconds: 1e-6).

    >>> sizes = Histogram(bits=4)
    >>> sizes.observe(5)
    >>> sizes.count, sizes.sum
    (1, 5)
    """

    __slots__ = ("_bits", "_buckets", "_scale", "sum")
    kind = "histogram"

    def __init__(self, *, bits: int = 32, scale: float = 1.0) -> None:
        ensure(0 < bits <= HISTOGRAM_BITS_MAX, f"a histogram has 1 to {HISTOGRAM_BITS_MAX} bits")
        self._bits = bits
        self._scale = scale
        self._buckets = [0] * (bits + 2)
        self.sum = 0

    def observe(self, value: int) -> None:
        """Count one value; a negative one counts as 0."""
        if value < 0:
            value = 0
        bits = value.bit_length()
        self._buckets[bits if bits <= self._bits else -1] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many values were observed."""
        return sum(self._buckets)

    def lines(self, name: str, labels: str) -> list[str]:
        """Return the lines that show it."""
        lines = []
        below = 0
        for bits in range(self._bits + 1):
            below += self._buckets[bits]
            bound = _number(((1 << bits) - 1) * self._scale)
            lines.append(f"{name}_bucket{_braces(_joined(labels, _pair('le', bound)))} {below}")
        count = below + self._buckets[-1]
        lines.append(f"{name}_bucket{_braces(_joined(labels, _pair('le', '+Inf')))} {count}")
        lines.append(f"{name}_sum{_braces(labels)} {_number(self.sum * self._scale)}")
        lines.append(f"{name}_count{_braces(labels)} {count}")
        return lines


class Rows:
    """Numbers told apart by labels, that are asked for when the metrics are shown.

    Whoever gives them sees to it that there are not more than ROWS_MAX; what is more is not shown.
    """

    __slots__ = ("_labels", "kind", "read")

    def __init__(self, kind: str, labels: Sequence[str], read: ReadRows) -> None:
        self.kind = kind
        self._labels = labels
        self.read = read

    def lines(self, name: str, labels: str) -> list[str]:
        """Return the lines that show them."""
        lines = []
        for values, number in islice(self.read(), ROWS_MAX):
            pairs = ",".join(map(_pair, self._labels, values))
            lines.append(f"{name}{_braces(_joined(labels, pairs))} {_number(number)}")
        return lines


Metric = Counter | Level | Gauge | LabelledCounter | Histogram | Rows
M = TypeVar("M", Counter, Level, Gauge, LabelledCounter, Histogram, Rows)


class _Family:
    """All series of one name."""

    def __init__(self, kind: str, help_text: str) -> None:
        self.kind = kind
        self.help_text = help_text
        self.series: dict[str, Metric] = {}


class Registry:
    """Every metric of a process."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}
        self._series_count = 0

    def counter(self, name: str, help_text: str, labels: Labels = _NO_LABELS) -> Counter:
        """Return the counter of this name and these labels."""
        return self._series(name, help_text, labels, Counter())

    def counters(
        self, name: str, help_text: str, label: str, labels: Labels = _NO_LABELS
    ) -> LabelledCounter:
        """Return the counters of this name that `label` tells apart; all of them have `labels`."""
        ensure(_LABEL.fullmatch(label), f"{label!r} cannot name a label")
        return self._series(name, help_text, labels, LabelledCounter(label))

    def level(self, name: str, help_text: str, labels: Labels = _NO_LABELS) -> Level:
        """Return the level of this name and these labels."""
        return self._series(name, help_text, labels, Level())

    def gauge(
        self, name: str, help_text: str, read: Callable[[], float], labels: Labels = _NO_LABELS
    ) -> None:
        """Show what `read` gives whenever the metrics are shown; a later `read` replaces it."""
        self._series(name, help_text, labels, Gauge(read)).read = read

    def total(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """Show a counter that somebody else keeps; a later `read` replaces it."""
        self._series(name, help_text, _NO_LABELS, Gauge(read, "counter")).read = read

    def rows(
        self, name: str, help_text: str, kind: str, labels: Sequence[str], read: ReadRows
    ) -> None:
        """Show the rows that `read` gives whenever the metrics are shown; a later one replaces it.

        `kind` is counter or gauge.
        """
        for label in labels:
            ensure(_LABEL.fullmatch(label), f"{label!r} cannot name a label")
        self._series(name, help_text, _NO_LABELS, Rows(kind, labels, read)).read = read

    def histogram(
        self,
        name: str,
        help_text: str,
        labels: Labels = _NO_LABELS,
        *,
        bits: int = 32,
        scale: float = 1.0,
    ) -> Histogram:
        """Return the histogram of this name and these labels."""
        return self._series(name, help_text, labels, Histogram(bits=bits, scale=scale))

    def _series(self, name: str, help_text: str, labels: Labels, fresh: M) -> M:
        """Return the metric that has this name and these labels already, or keep `fresh` as it."""
        family = self._families.get(name)
        if family is None:
            ensure(_NAME.fullmatch(name), f"{name!r} cannot name a metric")
            family = self._families[name] = _Family(fresh.kind, help_text)
        ensure(family.kind == fresh.kind, f"{name} is a {family.kind}")
        for label in labels:
            ensure(_LABEL.fullmatch(label), f"{label!r} cannot name a label")
        key = ",".join(_pair(label, value) for label, value in sorted(labels.items()))
        present = family.series.get(key)
        if present is None:
            if self._series_count >= SERIES_MAX:
                text = f"more than {SERIES_MAX} metrics; {name} is one too many"
                raise LimitExceeded(text, SERIES_MAX)
            self._series_count += 1
            family.series[key] = fresh
            return fresh
        if type(present) is not type(fresh):
            raise BrokenInvariant(f"{name} is in use as {type(present).__name__}")
        return present

    def render(self) -> str:
        """Return all metrics in Prometheus' text format 0.0.4."""
        lines: list[str] = []
        for name, family in sorted(self._families.items()):
            lines.append(f"# HELP {name} {_escaped_help(family.help_text)}")
            lines.append(f"# TYPE {name} {family.kind}")
            for labels, metric in sorted(family.series.items()):
                lines.extend(metric.lines(name, labels))
        lines.append("")
        return "\n".join(lines)


# --- the text ---


def _pair(label: str, value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return f'{label}="{escaped}"'


def _joined(labels: str, pair: str) -> str:
    return f"{labels},{pair}" if labels else pair


def _braces(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.12g}"
