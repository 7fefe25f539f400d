"""The rest between tasks is short in Spark's workers, and nobody else's memory is touched."""

import gc
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from pyspark import TaskContext

from orbitmq.spark import worker_rest


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker_rest, "_times", iter(range(worker_rest.TIMES)))
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_in_a_worker_the_collector_leaves_alone_what_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Symptom: each task cost 23 ms beside its rows, for a collection of all that is imported."""
    monkeypatch.setattr(TaskContext, "get", object)
    assert worker_rest.shorten_rest()
    count = gc.get_freeze_count()
    assert count > 1_000
    imported: list[list[int]] = [[] for _ in range(1_000)]
    assert not worker_rest.shorten_rest()
    assert gc.get_freeze_count() >= count + len(imported)


def test_what_comes_into_a_workers_memory_later_is_collected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TaskContext, "get", object)
    for _ in range(worker_rest.TIMES):
        worker_rest.shorten_rest()
    count = gc.get_freeze_count()
    kept: list[list[int]] = [[] for _ in range(1_000)]
    worker_rest.shorten_rest()
    assert gc.get_freeze_count() <= count
    assert len(kept) == 1_000


@pytest.mark.parametrize("name", [worker_rest.DAEMON, "pyspark.worker", ""])
def test_what_plans_and_commits_is_a_worker_if_spark_uses_it_again(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Symptom: each write cost twice 60 ms for collections where nothing but a plan was made."""
    spec = SimpleNamespace(name=name) if name else None
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)
    worker_rest.shorten_rest()
    assert (gc.get_freeze_count() > 0) == (name == worker_rest.DAEMON)


def test_a_program_of_its_own_keeps_its_collector() -> None:
    worker_rest.shorten_rest()
    assert gc.get_freeze_count() == 0
