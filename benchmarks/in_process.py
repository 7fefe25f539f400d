"""The hot core without sockets and files: CPU per message of handle_one_read, 16 frames a call.

In: frames as a Java client writes them. Out: microseconds per message for sends and pulls, the
least of several repetitions by `process_time`, which other processes disturb little: the check to
run before and after a change (`python -m benchmarks.in_process`). The last figure is the whole way
through a broker, one frame a read: see whole_turns.py.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import whole_turns
from benchmarks.frames import (
    GROUP,
    NOW_MS,
    PULL_COUNT,
    QUEUE_COUNT,
    TOPIC,
    pull_frame,
    send_frame,
)
from orbitmq.core import CoreState, LogTail, Origin, Queue, Topic, handle_one_read
from orbitmq.world.machine import keep_freed_memory

FRAMES_PER_CALL = 16
REPETITIONS = 7
REPETITION_S = 0.25
ORIGIN = Origin(b"\x7f\0\0\1\0\0\x12\x34", b"\x7f\0\0\1\0\0\x2a\x9f")


@dataclass(frozen=True, slots=True)
class CoreFigures:
    """CPU of one kind of request in the core."""

    name: str
    us_per_message: float
    us_per_request: float


def new_state() -> CoreState:
    """A broker's state with one topic of four empty queues and one group."""
    state = CoreState(LogTail(1 << 30, 0), "DefaultCluster", "DefaultRegion")
    state.set_store_id(b"7F00000100002A9F")
    state.groups.add(GROUP)
    topic = state.topics[TOPIC] = Topic(TOPIC, QUEUE_COUNT, is_plain=True, is_readable=True)
    for queue_id in range(QUEUE_COUNT):
        topic.queues[queue_id] = Queue(TOPIC, queue_id, 0)
    return state


def send_call(body_size: int) -> Callable[[], int]:
    """A call that sends 16 messages and drops what the store would write."""
    state = new_state()
    data = b"".join(send_frame(number, body_size) for number in range(FRAMES_PER_CALL))
    tail = state.tail

    def call() -> int:
        result = handle_one_read(state, data, 0, ORIGIN, NOW_MS)
        for queue, _ in tail.take().grown:
            queue.take_back(0)
        b"".join(result.answers)
        return FRAMES_PER_CALL if result.used == len(data) and result.unknown is None else 0

    return call


def pull_call(body_size: int) -> Callable[[], int]:
    """A call that pulls 16 times from queues of 32 messages."""
    state = new_state()
    sends = [send_frame(number, body_size) for number in range(PULL_COUNT * QUEUE_COUNT)]
    handle_one_read(state, b"".join(sends), 0, ORIGIN, NOW_MS)
    state.tail.views[0] = memoryview(bytes(state.tail.take().data))
    for queue in state.topics[TOPIC].queues.values():
        queue.readable_offset = queue.next_offset
    data = b"".join(pull_frame(number) for number in range(FRAMES_PER_CALL))

    def call() -> int:
        result = handle_one_read(state, data, 0, ORIGIN, NOW_MS)
        is_whole = result.used == len(data) and result.unknown is None
        return FRAMES_PER_CALL * PULL_COUNT if is_whole else 0

    return call


def least_us(call: Callable[[], int], repetitions: int, repetition_s: float) -> float:
    """CPU microseconds of one call: the least of several repetitions."""
    count, least = 16, float("inf")
    for _ in range(repetitions):
        begin = time.process_time()
        for _ in range(count):
            call()
        used_s = max(time.process_time() - begin, 1e-6)
        least = min(least, used_s / count)
        count = max(16, int(repetition_s / least))
    return least * 1e6


def measure(
    repetitions: int = REPETITIONS, repetition_s: float = REPETITION_S
) -> list[CoreFigures]:
    """Sends and pulls with bodies of 1 KB and 100 B, and sends that come one by one."""
    keep_freed_memory()  # as a broker does
    figures = []
    for kind, make_call in (("send", send_call), (f"pull of {PULL_COUNT}", pull_call)):
        for size, name in ((1024, "1 KB"), (100, "100 B")):
            call = make_call(size)
            messages = call()
            if not messages:
                raise RuntimeError(f"the core leaves a {kind} to others; the benchmark is stale")
            us = least_us(call, repetitions, repetition_s)
            figures.append(CoreFigures(f"{kind}, {name}", us / messages, us / FRAMES_PER_CALL))
    us = whole_turns.least_us(repetitions, repetition_s)
    figures.append(CoreFigures(whole_turns.NAME, us, us))
    return figures


if __name__ == "__main__":
    for found in measure():
        print(
            f"{found.name:<50} {found.us_per_message:7.3f} us/message "
            f"{found.us_per_request:7.2f} us/request"
        )
