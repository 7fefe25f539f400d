"""Which client may consume which queue in order: one lock per group and queue.

In: a client's wish to hold or to give up queues, and the time. Out: the queues it holds now.

Rules:
1. A lock is its client's for 60 s after it was last asked for; asking again renews it. It ends by
   being given up or by that time, never because a connection ended: the client may still be at work
   on what it had pulled.
2. The clock is one that never goes back, so no clock change frees a lock or keeps one.
3. The table is in the order of renewal: what has run out is at its front and leaves when somebody
   asks. Above LOCKS_MAX nobody gets another lock, and who holds one keeps it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from orbitmq.errors import LimitExceeded
from orbitmq.wire.bodies_client import MessageQueue

LOCK_S = 60.0
LOCKS_MAX = 200_000
EXPIRE_SLICE = 1_000
"""Locks that one call forgets at most: some hundred microseconds."""


class _Key(NamedTuple):
    group: str
    queue: MessageQueue


class _Lock(NamedTuple):
    client_id: str
    renewed_s: float


class QueueLocks:
    """All locks of one broker."""

    def __init__(self) -> None:
        self._locks: dict[_Key, _Lock] = {}

    def __len__(self) -> int:
        """How many locks are kept, with those that have run out and were not looked at since."""
        return len(self._locks)

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue], now_s: float
    ) -> list[MessageQueue]:
        """Take or renew what is free or the client's already; return the queues it holds now.

        Raises LimitExceeded, with what it has got so far kept, when there are too many locks.
        """
        self._expire(now_s)
        return [queue for queue in queues if self._lock(_Key(group, queue), client_id, now_s)]

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give up those of the queues that the client holds."""
        for queue in queues:
            key = _Key(group, queue)
            lock = self._locks.get(key)
            if lock is not None and lock.client_id == client_id:
                del self._locks[key]

    def _lock(self, key: _Key, client_id: str, now_s: float) -> bool:
        lock = self._locks.get(key)
        if lock is None:
            if len(self._locks) >= LOCKS_MAX:
                text = f"{LOCKS_MAX} queues are locked at this broker already"
                raise LimitExceeded(text, LOCKS_MAX)
        elif lock.client_id != client_id and now_s - lock.renewed_s <= LOCK_S:
            return False
        else:
            del self._locks[key]  # it goes to the end of the order
        self._locks[key] = _Lock(client_id, now_s)
        return True

    def _expire(self, now_s: float) -> None:
        for _ in range(EXPIRE_SLICE):
            key = next(iter(self._locks), None)
            if key is None or now_s - self._locks[key].renewed_s <= LOCK_S:
                return
            del self._locks[key]
