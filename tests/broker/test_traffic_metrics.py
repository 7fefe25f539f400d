"""What goes in and out of a broker by topic and group, and lags, as Prometheus reads them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.broker import shown_metrics
from orbitmq.broker.shown_metrics import add_traffic_metrics
from orbitmq.metrics import Registry
from tests.broker.figures import Figures
from tests.test_metrics import parse


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[tuple[Figures, Registry]]:
    figures, registry = Figures(tmp_path), Registry()
    add_traffic_metrics(registry, figures.counts, figures.core, figures.store)
    yield figures, registry
    figures.store.close()


def test_puts_and_gets_are_shown_by_topic_and_group(shown: tuple[Figures, Registry]) -> None:
    figures, registry = shown
    figures.put("A", 3)
    figures.counts.note_got("A", "G", 2, 200)
    rows = parse(registry.render())
    assert rows['orbitmq_broker_put_messages_total{topic="A"}'] == 3
    assert rows['orbitmq_broker_put_bytes_total{topic="A"}'] == figures.store.stats.put_bytes
    assert rows['orbitmq_broker_got_messages_total{topic="A",group="G"}'] == 2
    assert rows['orbitmq_broker_got_bytes_total{topic="A",group="G"}'] == 200
    assert not any("other" in row for row in rows)


def test_lag_is_what_is_readable_behind_the_stored_offsets(
    shown: tuple[Figures, Registry],
) -> None:
    figures, registry = shown
    figures.put("A", 5)
    figures.put("A", 4, queue_id=1)
    figures.core.offsets["A@G"] = {0: 2, 1: 4, 9: 0}
    figures.core.offsets["A@late"] = {0: 7}
    rows = parse(registry.render())
    assert rows['orbitmq_broker_lag_messages{topic="A",group="G"}'] == 3
    assert rows['orbitmq_broker_lag_messages{topic="A",group="late"}'] == 0
    figures.store.queue("A", 0).min_offset = 4  # what is gone cannot be consumed
    assert parse(registry.render())['orbitmq_broker_lag_messages{topic="A",group="G"}'] == 1


def test_more_topics_and_groups_than_are_shown_become_one_row(
    shown: tuple[Figures, Registry], monkeypatch: pytest.MonkeyPatch
) -> None:
    figures, registry = shown
    monkeypatch.setattr(shown_metrics, "SHOWN_MAX", 2)
    for number in range(5):
        figures.put(f"T{number}", number + 1)
        figures.counts.note_got(f"T{number}", "G", 10, 100)
    rows = parse(registry.render())
    assert rows['orbitmq_broker_put_messages_total{topic="T1"}'] == 2
    assert rows['orbitmq_broker_put_messages_total{topic="other"}'] == 3 + 4 + 5
    assert rows['orbitmq_broker_got_messages_total{topic="other",group="other"}'] == 30
    assert rows['orbitmq_broker_got_bytes_total{topic="other",group="other"}'] == 300
    sizes = [size for row, size in rows.items() if row.startswith("orbitmq_broker_put_bytes")]
    assert sum(sizes) == figures.store.stats.put_bytes


def test_lags_are_looked_up_for_a_bounded_number_of_queues(
    shown: tuple[Figures, Registry], monkeypatch: pytest.MonkeyPatch
) -> None:
    figures, registry = shown
    monkeypatch.setattr(shown_metrics, "LAG_QUEUES_MAX", 3)
    for number in range(4):
        figures.core.offsets[f"A@G{number}"] = {0: 0, 1: 0}
    assert sum("lag_messages" in row for row in parse(registry.render())) == 1
