"""Requests as a Java client writes them, for the benchmarks in process.

In: a number that makes each of them another one. Out: the bytes of a frame.
Rule: what differs between messages of a real producer differs here, too: id, opaque, queue.
"""

import json

TOPIC, GROUP = "BenchmarkTest", "benchmark_consumer"
QUEUE_COUNT = 4
PULL_COUNT = 32
NOW_MS = 1_700_000_000_000


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
