"""The rest between tasks is short in Spark's workers, and nobody else's memory is touched."""

import gc
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

import pytest
from pyspark import TaskContext

from orbitmq.spark import internals


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(internals._Worker, "module_count", 0)
    monkeypatch.setenv(internals.MARK, "1")
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_in_a_worker_the_collector_leaves_alone_what_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Symptom: each task cost 23 ms beside its rows, for a collection of all that is imported."""
    monkeypatch.setattr(TaskContext, "get", object)
    internals.shorten_rest()
    assert gc.get_freeze_count() > 1_000


def test_what_a_worker_imports_for_other_tasks_is_left_alone_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Symptom: workers that had read a topic took 7 to 30 ms more for each task of a log."""
    monkeypatch.setattr(TaskContext, "get", object)
    internals.shorten_rest()
    count = gc.get_freeze_count()
    imported: list[list[int]] = []
    for number in range(5):
        imported += ([] for _ in range(1_000))
        monkeypatch.setitem(sys.modules, f"imported_{number}", ModuleType("imported"))
        internals.shorten_rest()
        assert gc.get_freeze_count() >= count + len(imported)


def test_what_comes_into_a_workers_memory_later_is_collected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TaskContext, "get", object)
    internals.shorten_rest()
    count = gc.get_freeze_count()
    kept: list[list[int]] = [[] for _ in range(1_000)]
    internals.shorten_rest()
    assert gc.get_freeze_count() <= count
    assert len(kept) == 1_000


@pytest.mark.parametrize("name", [internals.DAEMON, "pyspark.worker", ""])
def test_what_plans_and_commits_is_a_worker_if_spark_uses_it_again(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Symptom: each write cost twice 60 ms for collections where nothing but a plan was made."""
    spec = SimpleNamespace(name=name) if name else None
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)
    internals.shorten_rest()
    assert (gc.get_freeze_count() > 0) == (name == internals.DAEMON)


def test_a_worker_of_a_session_that_did_not_ask_keeps_its_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(internals.MARK)
    monkeypatch.setattr(TaskContext, "get", object)
    internals.shorten_rest()
    assert gc.get_freeze_count() == 0


def test_a_program_of_its_own_keeps_its_collector() -> None:
    internals.shorten_rest()
    assert gc.get_freeze_count() == 0
