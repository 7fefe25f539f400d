"""A small blocking client, for what the load generator does not do: prepare, join, ask, hold.

In: a server's port. Out: answers. Rules:

1. An answer with another code than 0 raises LoadFailed: what is not prepared is not measured. Only
   a pull may find nothing.
2. Requests may be sent many at once; then only the codes of their answers are looked at.
"""

import json
import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from benchmarks.loads import LoadFailed
from orbitmq.wire.command import Command, decode_command, encode_command
from orbitmq.wire.frame import FrameDecoder
from orbitmq.wire.record import Record, scan_records

LIMIT_S = 30.0
READ_SIZE = 1 << 18
HEARTBEAT, MAX_OFFSET, PULL = 34, 30, 11
GROUP = "benchmark_consumer"
HOLD_MS = 5_000
GOOD = frozenset({0})
PULLED = frozenset({0, 19, 20})
"""Found; nothing there; nothing of it to be had."""


class Client:
    """One connection to a broker."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
        self._decoder = FrameDecoder()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def ask(self, code: int, body: bytes = b"", **fields: str | int) -> Command:
        """Send one request and give its answer."""
        texts = {name: str(value) for name, value in fields.items()}
        self.send(encode_command(Command(code, opaque=1, fields=texts, body=body)))
        return self.take_answers(1)[0]

    def send(self, data: bytes) -> None:
        """Send requests as they are."""
        self._socket.sendall(data)

    def take_answers(self, count: int, good: frozenset[int] = GOOD) -> Sequence[Command]:
        """Wait for so many answers, all of them good; what else arrives is passed over."""
        answers: list[Command] = []
        while len(answers) < count:
            data = self._socket.recv(READ_SIZE)
            if not data:
                raise LoadFailed("the server closed a connection of the benchmark")
            arrived = map(decode_command, self._decoder.feed(data))
            answers += (command for command in arrived if command.is_response)
        for answer in answers:
            if answer.code not in good:
                raise LoadFailed(f"the server answered {answer.code}: {answer.remark}")
        return answers

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return how many messages a queue has had."""
        answer = self.ask(MAX_OFFSET, topic=topic, queueId=queue_id)
        return int(answer.fields["offset"])

    def pull(self, topic: str, queue_id: int, offset: int, count: int) -> list[Record]:
        """Return records of a queue from an offset on; waits for one, but not for ever."""
        fields = {"consumerGroup": GROUP, "topic": topic, "queueId": str(queue_id)}
        fields |= {"queueOffset": str(offset), "maxMsgNums": str(count), "sysFlag": "6"}
        fields |= {"commitOffset": "0", "suspendTimeoutMillis": str(HOLD_MS), "subscription": "*"}
        fields |= {"subVersion": "1", "expressionType": "TAG"}
        self.send(encode_command(Command(PULL, opaque=1, fields=fields)))
        answer = self.take_answers(1, PULLED)[0]
        return list(scan_records(answer.body))


def producer_heartbeat(client_id: str) -> bytes:
    """Return the body of a producer's heartbeat."""
    producers = [{"groupName": "benchmark_producer"}]
    body = {"clientID": client_id, "consumerDataSet": [], "producerDataSet": producers}
    return json.dumps(body).encode()


def consumer_heartbeat(group: str, topic: str, expression: str) -> bytes:
    """Return the body of the heartbeat of a push consumer that filters by an expression."""
    subscription = {"topic": topic, "subString": expression, "subVersion": 1_700_000_000_000}
    subscription |= {"expressionType": "SQL92", "classFilterMode": False}
    consumer = {"groupName": group, "consumeType": "CONSUME_PASSIVELY"}
    consumer |= {"messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}
    whole = {**consumer, "subscriptionDataSet": [{**subscription, "codeSet": [], "tagsSet": []}]}
    body = {"clientID": f"{group}@1", "consumerDataSet": [whole], "producerDataSet": []}
    return json.dumps(body).encode()
