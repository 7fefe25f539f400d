"""Locks of queues: who holds one, for how long, and how many there can be."""

import pytest

from orbitmq.broker import queue_locks
from orbitmq.broker.queue_locks import QueueLocks
from orbitmq.errors import LimitExceeded
from orbitmq.wire.bodies_client import MessageQueue

ONE, TWO = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)


def test_a_lock_is_its_clients_for_60_s_after_it_was_last_asked_for() -> None:
    locks = QueueLocks()
    assert locks.lock("G", "c1", [ONE], 0.0) == [ONE]
    assert locks.lock("G", "c2", [ONE, TWO], 1.0) == [TWO]
    assert locks.lock("G", "c1", [ONE], 40.0) == [ONE]
    assert locks.lock("G", "c2", [ONE], 100.0) == []
    assert locks.lock("G", "c2", [ONE], 100.1) == [ONE]
    assert locks.lock("G", "c1", [ONE], 101.0) == []


def test_locks_of_different_groups_do_not_meet() -> None:
    locks = QueueLocks()
    assert locks.lock("G", "c1", [ONE], 0.0) == [ONE]
    assert locks.lock("H", "c2", [ONE], 0.0) == [ONE]


def test_only_the_holder_gives_up_a_lock() -> None:
    locks = QueueLocks()
    locks.lock("G", "c1", [ONE, TWO], 0.0)
    locks.unlock("G", "c2", [ONE, TWO])
    assert locks.lock("G", "c2", [ONE, TWO], 1.0) == []
    locks.unlock("G", "c1", [ONE])
    assert locks.lock("G", "c2", [ONE, TWO], 2.0) == [ONE]


def test_locks_that_have_run_out_are_forgotten() -> None:
    locks = QueueLocks()
    queues = [MessageQueue("T", "b", number) for number in range(3_000)]
    locks.lock("G", "c1", queues, 0.0)
    for at_s in (61.0, 62.0, 63.0):
        locks.lock("G", "c2", [ONE], at_s)
    assert len(locks) == 1


def test_there_is_a_limit_and_holders_keep_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_locks, "LOCKS_MAX", 1)
    locks = QueueLocks()
    locks.lock("G", "c1", [ONE], 0.0)
    with pytest.raises(LimitExceeded, match="1 queues are locked"):
        locks.lock("G", "c2", [TWO], 1.0)
    assert locks.lock("G", "c1", [ONE], 2.0) == [ONE]
