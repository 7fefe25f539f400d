"""SIGTERM and Ctrl-C as a wish to stop, for programs that run until somebody ends them.

In: what to call. Out: it is called, once for each signal, while the block lasts.
Rule: Python allows it in the main thread only; elsewhere signals stay what they are.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Have `stop` called by signals; what they did before they do again behind the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop()

    before = {number: signal.signal(number, on_signal) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
