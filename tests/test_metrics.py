"""Metrics: what is counted is shown, in text that any Prometheus can read."""

import re

import pytest

from orbitmq.ensure import BrokenInvariant
from orbitmq.errors import LimitExceeded
from orbitmq.metrics import LABEL_VALUES_MAX, ROWS_MAX, SERIES_MAX, Histogram, Registry

_SAMPLE = re.compile(
    r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)"
    r'(?:\{(?P<labels>[a-zA-Z_]\w*="(?:[^"\\\n]|\\.)*"(?:,[a-zA-Z_]\w*="(?:[^"\\\n]|\\.)*")*)\})?'
    r" (?P<value>-?[0-9.]+(?:e[+-]?[0-9]+)?|\+Inf|NaN)"
)


def parse(text: str) -> dict[str, float]:
    """Read the text format 0.0.4 strictly: help and type before samples, no sample twice."""
    assert text.endswith("\n")
    samples: dict[str, float] = {}
    kinds: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds
            kinds[name] = kind
            continue
        if line.startswith("# HELP "):
            continue
        found = _SAMPLE.fullmatch(line)
        assert found, line
        family = re.sub(r"_(bucket|sum|count)$", "", found["name"])
        assert found["name"] in kinds or kinds[family] == "histogram"
        key = line.rpartition(" ")[0]
        assert key not in samples
        samples[key] = float(found["value"])
    return samples


def test_counters_levels_and_gauges_show_their_values() -> None:
    registry = Registry()
    registry.counter("a_total", "A.").value += 3
    level = registry.level("open", "Open.")
    level.value += 5
    level.value -= 1
    registry.gauge("age_seconds", "Age.", lambda: 1.5)
    assert parse(registry.render()) == {"a_total": 3, "open": 4, "age_seconds": 1.5}


def test_the_same_name_and_labels_give_the_same_metric() -> None:
    registry = Registry()
    first = registry.counter("a_total", "A.", {"server": "x"})
    assert registry.counter("a_total", "A.", {"server": "x"}) is first
    other = registry.counter("a_total", "A.", {"server": "y"})
    assert other is not first
    other.value = 2
    assert parse(registry.render()) == {'a_total{server="x"}': 0, 'a_total{server="y"}': 2}


def test_a_label_tells_counters_apart() -> None:
    registry = Registry()
    closes = registry.counters("closes_total", "Closes.", "reason", {"server": "x"})
    closes.add("idle")
    closes.add("idle", 2)
    closes.add(310)
    assert (closes.value("idle"), closes.value("nothing"), closes.total()) == (3, 0, 4)
    assert parse(registry.render()) == {
        'closes_total{server="x",reason="idle"}': 3,
        'closes_total{server="x",reason="310"}': 1,
    }


def test_label_values_are_bounded_and_the_rest_counts_as_other() -> None:
    registry = Registry()
    codes = registry.counters("codes_total", "Codes.", "code")
    for code in range(LABEL_VALUES_MAX + 100):
        codes.add(code)
    codes.add(0)
    samples = parse(registry.render())
    assert len(samples) == LABEL_VALUES_MAX + 1
    assert samples['codes_total{code="other"}'] == 100
    assert samples['codes_total{code="0"}'] == 2


def test_a_histogram_counts_in_doubling_buckets() -> None:
    registry = Registry()
    sizes = registry.histogram("size_bytes", "Sizes.", bits=3)
    for value in (0, 1, 2, 3, 4, 7, 8, 1000, -5):
        sizes.observe(value)
    assert (sizes.count, sizes.sum) == (9, 1025)
    assert parse(registry.render()) == {
        'size_bytes_bucket{le="0"}': 2,
        'size_bytes_bucket{le="1"}': 3,
        'size_bytes_bucket{le="3"}': 5,
        'size_bytes_bucket{le="7"}': 7,
        'size_bytes_bucket{le="+Inf"}': 9,
        "size_bytes_sum": 1025,
        "size_bytes_count": 9,
    }


def test_a_histogram_shows_another_unit_than_it_observes() -> None:
    registry = Registry()
    registry.histogram("wait_seconds", "Waits.", {"queue": "q"}, bits=2, scale=1e-6).observe(3)
    samples = parse(registry.render())
    assert samples['wait_seconds_bucket{queue="q",le="3e-06"}'] == 1
    assert samples['wait_seconds_sum{queue="q"}'] == pytest.approx(3e-6)


def test_text_from_outside_cannot_break_the_format() -> None:
    registry = Registry()
    registry.counters("odd_total", 'Back\\slash\nand "quotes".', "name").add('a"b\\c\nd{}')
    text = registry.render()
    assert '# HELP odd_total Back\\\\slash\\nand "quotes".\n' in text
    assert 'odd_total{name="a\\"b\\\\c\\nd{}"} 1\n' in text
    parse(text)


def test_wrong_uses_are_told_at_once() -> None:
    registry = Registry()
    registry.counter("a_total", "A.")
    with pytest.raises(BrokenInvariant, match="a_total is a counter"):
        registry.level("a_total", "A.")
    with pytest.raises(BrokenInvariant, match="in use as Counter"):
        registry.counters("a_total", "A.", "label")
    with pytest.raises(BrokenInvariant, match="cannot name a metric"):
        registry.counter("a-b", "A.")
    with pytest.raises(BrokenInvariant, match="cannot name a label"):
        registry.counter("b_total", "B.", {"a-b": "c"})
    with pytest.raises(BrokenInvariant, match="1 to 62 bits"):
        Histogram(bits=63)


def test_the_number_of_metrics_is_bounded() -> None:
    registry = Registry()
    for number in range(SERIES_MAX):
        registry.counter("a_total", "A.", {"n": str(number)})
    with pytest.raises(LimitExceeded, match="one too many"):
        registry.counter("a_total", "A.", {"n": "last"})


def test_rows_are_asked_for_when_shown_and_bounded() -> None:
    registry = Registry()
    rows: list[tuple[tuple[str, ...], float]] = [(('a"b', "g"), 3), (("c", "h"), 0.5)]
    registry.rows("orbitmq_got_total", "Got.", "counter", ("topic", "group"), lambda: rows)
    shown = parse(registry.render())
    assert shown['orbitmq_got_total{topic="a\\"b",group="g"}'] == 3
    assert shown['orbitmq_got_total{topic="c",group="h"}'] == 0.5
    assert "# TYPE orbitmq_got_total counter" in registry.render()
    rows[:] = [((str(number), "g"), 1) for number in range(ROWS_MAX + 5)]
    assert len(parse(registry.render())) == ROWS_MAX
