"""Threads for work that waits: the disk's.

In: functions that may block. Out: their outcome as a future of the running loop.
Rule: threads are made in `world` only, few and with a name; what runs in them touches no state of
the loop.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def new_lock() -> "threading.RLock":
    """Return a lock that the thread which has it may take again."""
    return threading.RLock()


def new_event() -> "threading.Event":
    """Return what one thread waits for and another one sets."""
    return threading.Event()


class Threads:
    """A few threads of one kind; with one, functions run one after the other."""

    def __init__(self, count: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(count, f"orbitmq-{name}")

    def run(self, action: Callable[[], T]) -> "asyncio.Future[T]":
        """Run a function in one of the threads."""
        return asyncio.get_running_loop().run_in_executor(self._pool, action)

    def close(self) -> None:
        """End the threads; what they are at is finished first."""
        self._pool.shutdown()
