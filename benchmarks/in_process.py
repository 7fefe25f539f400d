"""The hot core without sockets and files: CPU per message of handle_one_read, 16 frames a call.

In: frames as a Java client writes them. Out: microseconds per message for sends and pulls, the
least of several repetitions by `process_time`, which other processes disturb little: the check to
run before and after a change (`python -m benchmarks.in_process`).
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from orbitmq.core import CoreState, LogTail, Origin, Queue, Topic, handle_one_read

TOPIC, GROUP = "BenchmarkTest", "benchmark_consumer"
QUEUE_COUNT = 4
FRAMES_PER_CALL = 16
PULL_COUNT = 32
REPETITIONS = 7
REPETITION_S = 0.25
NOW_MS = 1_700_000_000_000
ORIGIN = Origin(b"\x7f\0\0\1\0\0\x12\x34", b"\x7f\0\0\1\0\0\x2a\x9f")


@dataclass(frozen=True, slots=True)
class CoreFigures:
    """CPU of one kind of request in the core."""

    name: str
    us_per_message: float
    us_per_request: float


def frame(code: int, fields: dict[str, str], body: bytes, opaque: int) -> bytes:
    """A request as the Java client writes it: JSON header, keys in its order."""
    command = {"code": code, "extFields": fields, "flag": 0, "language": "JAVA"}
    command |= {"opaque": opaque, "serializeTypeCurrentRPC": "JSON", "version": 431}
    header = json.dumps(command, separators=(",", ":")).encode()
    length = 4 + len(header) + len(body)
    return length.to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + body


def send_frame(number: int, body_size: int) -> bytes:
    """Send of one message to the queues in turn, under the short names of code 310."""
    key = f"7F00000100002A139A550001E240{number:04X}"
    fields = {"a": "benchmark_producer", "b": TOPIC, "c": "TBW102", "d": "4"}
    fields |= {"e": str(number % QUEUE_COUNT), "f": "0", "g": str(NOW_MS), "h": "0"}
    fields["i"] = f"UNIQ_KEY\x01{key}\x02WAIT\x01true\x02TAGS\x01TagA\x02"
    fields |= {"j": "0", "k": "false", "l": "0", "m": "false", "n": "broker-a"}
    return frame(310, fields, b"x" * body_size, 1_000_000_000 + number)


def pull_frame(number: int) -> bytes:
    """Pull of 32 messages from the beginning of a queue, everything subscribed."""
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(number % QUEUE_COUNT)}
    fields |= {"queueOffset": "0", "maxMsgNums": str(PULL_COUNT), "sysFlag": "6"}
    fields |= {"commitOffset": "0", "suspendTimeoutMillis": "15000", "subscription": "*"}
    fields |= {"subVersion": str(NOW_MS), "expressionType": "TAG"}
    return frame(11, fields, b"", 1_000_000_000 + number)


def new_state() -> CoreState:
    """A broker's state with one topic of four empty queues and one group."""
    state = CoreState(LogTail(1 << 30, 0), "DefaultCluster", "DefaultRegion")
    state.store_id = b"7F00000100002A9F"
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
        tail.staged = bytearray()
        tail.keyed.clear()
        for queue in result.grown:
            queue.entries.clear()
        b"".join(result.answers)
        return FRAMES_PER_CALL if result.used == len(data) and result.unknown is None else 0

    return call


def pull_call(body_size: int) -> Callable[[], int]:
    """A call that pulls 16 times from queues of 32 messages."""
    state = new_state()
    sends = [send_frame(number, body_size) for number in range(PULL_COUNT * QUEUE_COUNT)]
    handle_one_read(state, b"".join(sends), 0, ORIGIN, NOW_MS)
    state.tail.views[0] = memoryview(bytes(state.tail.staged))
    state.tail.staged.clear()
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
    """Sends and pulls with bodies of 1 KB and 100 B."""
    figures = []
    for kind, make_call in (("send", send_call), (f"pull of {PULL_COUNT}", pull_call)):
        for size, name in ((1024, "1 KB"), (100, "100 B")):
            call = make_call(size)
            messages = call()
            if not messages:
                raise RuntimeError(f"the core leaves a {kind} to others; the benchmark is stale")
            us = least_us(call, repetitions, repetition_s)
            figures.append(CoreFigures(f"{kind}, {name}", us / messages, us / FRAMES_PER_CALL))
    return figures


if __name__ == "__main__":
    for found in measure():
        print(
            f"{found.name:<20} {found.us_per_message:7.3f} us/message "
            f"{found.us_per_request:7.2f} us/request"
        )
