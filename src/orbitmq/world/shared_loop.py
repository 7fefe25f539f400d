"""One event loop in a thread for all who need one, as long as somebody does.

In: those who join and leave. Out: a LoopThread that they share.

Rules:
1. It begins with the first who joins and ends with the last who leaves: no thread is left over.
2. A fork does not copy threads: a child begins with no loop and nobody joined, whatever its parent
   had. `born_in` tells a user of the parent's loop that it is not the child's.
"""

import os
import threading

from orbitmq.world.loop_thread import LoopThread


class SharedLoop:
    """A loop thread that is counted."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._count = 0

    def join(self) -> LoopThread:
        """Return the loop's thread; every call needs a `leave`."""
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread(self._name)
            self._count += 1
            return self._thread

    def leave(self, joined: LoopThread) -> None:
        """Give it back; returns when the thread has ended if nobody else uses it."""
        with self._lock:
            if joined is not self._thread:  # of a process that was forked since
                return
            self._count -= 1
            if self._count:
                return
            thread, self._thread = self._thread, None
        thread.close()
