"""Every event is counted once: windows, the runtime table and Prometheus show the same figures."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.broker.shown_metrics import add_traffic_metrics
from orbitmq.metrics import Registry
from tests.broker.figures import Figures
from tests.test_metrics import parse

BROKER = Path(__file__).parents[2] / "src" / "orbitmq" / "broker"

Shown = tuple[Figures, Registry]


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[Shown]:
    figures, registry = Figures(tmp_path), Registry()
    add_traffic_metrics(registry, figures.counts, figures.core, figures.store)
    yield figures, registry
    figures.store.close()


def total(registry: Registry, name: str) -> float:
    """The sum of a metric's rows."""
    rows = parse(registry.render())
    return sum(number for row, number in rows.items() if row.startswith(name + "{"))


def assert_agreed(figures: Figures, registry: Registry) -> None:
    """Compare what each shows of all that was put and got."""
    figures.sample()
    moment = figures.stats.totals(figures.now_s)
    assert total(registry, "orbitmq_broker_put_messages_total") == moment.put
    assert total(registry, "orbitmq_broker_got_messages_total") == moment.got
    assert figures.counts.writes.put_count == moment.put
    for topic, put in figures.counts.puts():
        assert (figures.sums("TOPIC_PUT_NUMS", topic.name) or (0,))[0] == put.messages
    for (topic_name, group), got in figures.counts.gots():
        window = figures.sums("GROUP_GET_NUMS", f"{topic_name}@{group}")
        assert (window or (0,))[0] == got.messages


def test_all_that_is_shown_agrees_at_every_step(shown: Shown) -> None:
    figures, registry = shown
    assert_agreed(figures, registry)
    figures.put("A", 3)
    figures.put("A", 2, queue_id=1)
    figures.put("B", 1)
    figures.counts.note_got("A", "G", 32, 3_200)
    assert_agreed(figures, registry)
    figures.counts.note_got("A", "H", 8, 800)
    figures.counts.note_sent_back("A", "G")
    assert_agreed(figures, registry)


def test_what_is_forgotten_is_missing_nowhere(shown: Shown) -> None:
    """Symptom: the sum over Prometheus' rows shrank when a group was forgotten, the runtime table's
    total did not."""
    figures, registry = shown
    figures.put("A", 3)
    figures.counts.note_got("A", "G", 5, 500)
    figures.counts.note_got("A", "gone", 7, 700)
    assert_agreed(figures, registry)
    figures.sample(is_forgetful=True)
    assert [pair for pair, _ in figures.counts.gots()] == [("A", "G")]
    assert total(registry, "orbitmq_broker_got_messages_total") == 12
    assert total(registry, "orbitmq_broker_got_bytes_total") == 1_200
    assert_agreed(figures, registry)


def attributes(path: Path) -> set[str]:
    """The names of all attributes that a module touches."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)}


@pytest.mark.parametrize("name", ["got_other", "put_bytes", "_forgotten"])
def test_what_the_core_counts_is_read_in_one_place(name: str) -> None:
    """Others ask `Counts`. The store's own total of bytes is shown as it is."""
    found = {path.name for path in BROKER.rglob("*.py") if name in attributes(path)}
    shows_bytes = {"runtime_info.py", "shown_metrics.py"} if name == "put_bytes" else set()
    assert found == {"counts.py"} | shows_bytes


@pytest.mark.parametrize("module", ["stats.py", "shown_metrics.py", "runtime_info.py"])
def test_who_shows_figures_counts_none(module: str) -> None:
    nodes = ast.walk(ast.parse((BROKER / module).read_text()))
    added = [node.target for node in nodes if isinstance(node, ast.AugAssign)]
    own = {target.attr for target in added if isinstance(target, ast.Attribute)}
    assert own <= {"_number"}, "the number of the sampling is no figure"
