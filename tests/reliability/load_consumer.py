"""The consumer of the kill loop: a group of one that pulls every queue and commits, as push does.

In: where the broker is, a seed. Out: a history of what came, what was committed, what was given
back. Run as `python -m tests.reliability.load_consumer`; it ends by SIGTERM.

Rules:
1. One held pull per queue. After a reconnect it goes on where the broker says that the group is.
2. Offsets are committed several times a second. They may never point behind a queue's end: an
   answer that moves the offset ends this process with an error.
3. Some messages are given back, up to twice, and come again in the retry topic.
"""

from __future__ import annotations

import random
import sys
import time
from typing import NamedTuple

from orbitmq.wire.command import Command
from orbitmq.wire.record import Record, scan_records
from tests.behaviour.consumers import heartbeat
from tests.behaviour.requests import pull_request
from tests.reliability.audit import Queue
from tests.reliability.load_client import (
    GONE,
    GROUP,
    QUEUE_COUNT,
    RETRY_TOPIC,
    TOPICS,
    Client,
    client_arguments,
    hash_of,
    id_of,
)
from tests.wire_client import WireClient

QUEUES: list[Queue] = [(topic, queue_id) for topic in TOPICS for queue_id in range(QUEUE_COUNT)]
QUEUES.append((RETRY_TOPIC, 0))
HOLD_MS = 300
PULL_COUNT = 200
COMMIT_S = 0.1
HEARTBEAT_S = 5.0
ANSWER_LIMIT_S = 30.0
GIVEN_BACK = 0.01
BACK_COUNT_MAX = 2
FOUND, NOT_FOUND, RETRY_AT_ONCE = 0, 19, 20


class Asked(NamedTuple):
    """A request that is under way: a pull, a commit, or a message given back."""

    op: str
    queue: Queue
    offset: int
    name: str = ""
    body_hash: str = ""


class Consumer(Client):
    """Consumes until it is to end."""

    def __init__(self, arguments: list[str]) -> None:
        parsed = client_arguments(arguments)
        self._is_giving_back = not parsed.keeps_all
        super().__init__(parsed)
        self._chance = random.Random(parsed.seed)
        self._next: dict[Queue, int] = {}
        self._committed: dict[Queue, int] = {}
        self._asked: dict[int, Asked] = {}
        self._commit_s = self._heartbeat_s = 0.0

    def run(self) -> None:
        """Consume over one connection after the other."""
        while (client := self.connect()) is not None:
            with client:
                try:
                    self._join(client)
                    self._consume(client)
                except GONE:
                    pass  # killed; what was under way is unknown, which no line says as well
            self._asked.clear()
            self.log.flush()

    def _join(self, client: WireClient) -> None:
        """Ask where the group stands."""
        self._beat(client)
        for topic, queue_id in QUEUES:
            answer = client.ask(14, consumerGroup=GROUP, topic=topic, queueId=queue_id)
            assert answer.code == 0, f"{topic}, {queue_id}: {answer.remark}"
            offset = int(answer.fields["offset"])
            self.log.add("ok", "stored", topic, queue_id, offset, GROUP)
            self._next[topic, queue_id] = self._committed[topic, queue_id] = offset
        self.log.flush()

    def _heartbeat(self) -> bytes:
        return heartbeat(self.log.process, GROUP, *TOPICS, RETRY_TOPIC)

    def _beat(self, client: WireClient) -> None:
        answer = client.ask(34, self._heartbeat())
        assert answer.code == 0, answer.remark
        self._heartbeat_s = time.monotonic()

    def _consume(self, client: WireClient) -> None:
        for queue in QUEUES:
            self._pull(client, queue)
        while not self.is_ending:
            self._take(client, client.receive(ANSWER_LIMIT_S))
            while (arrived := client.arrived()) is not None:
                self._take(client, arrived)
            now_s = time.monotonic()
            if now_s - self._commit_s >= COMMIT_S:
                self._commit_s = now_s
                self._commit(client)
            if now_s - self._heartbeat_s >= HEARTBEAT_S:
                self._heartbeat_s = now_s
                client.send(Command(34, body=self._heartbeat()))

    def _pull(self, client: WireClient, queue: Queue) -> None:
        topic, queue_id = queue
        waits = {"queueId": queue_id, "sysFlag": 6, "suspendTimeoutMillis": HOLD_MS}
        request = pull_request(topic, GROUP, self._next[queue], maxMsgNums=PULL_COUNT, **waits)
        opaque = client.send(request)
        self._asked[opaque] = Asked("pull", queue, self._next[queue])

    def _commit(self, client: WireClient) -> None:
        for queue, offset in self._next.items():
            if offset == self._committed[queue]:
                continue
            topic, queue_id = queue
            fields = {"consumerGroup": GROUP, "topic": topic, "queueId": str(queue_id)}
            opaque = client.send(Command(15, fields={**fields, "commitOffset": str(offset)}))
            self._asked[opaque] = Asked("commit", queue, offset)
            self._committed[queue] = offset

    def _take(self, client: WireClient, answer: Command) -> None:
        asked = self._asked.pop(answer.opaque, None) if answer.is_response else None
        if asked is None:
            return
        if asked.op == "pull":
            self._take_pull(client, asked, answer)
        elif asked.op == "commit":
            assert answer.code == 0, answer.remark
            self.log.add("ok", "commit", *asked.queue, asked.offset, GROUP)
            self.log.flush()
        else:
            kind = "ok" if answer.code == 0 else "unknown"
            self.log.add(kind, "send", RETRY_TOPIC, -1, -1, asked.name, asked.body_hash)

    def _take_pull(self, client: WireClient, asked: Asked, answer: Command) -> None:
        known = (FOUND, NOT_FOUND, RETRY_AT_ONCE)
        assert answer.code in known, f"{asked}: {answer.code} {answer.remark} {answer.fields}"
        if answer.code == FOUND:
            records = list(scan_records(answer.body))
            for record in records:
                self._note(record)
            self.log.flush()  # before the commit that follows from it
            for record in records:
                self._give_back(client, record)
            self._next[asked.queue] = int(answer.fields["nextBeginOffset"])
        self._pull(client, asked.queue)

    def _note(self, record: Record) -> None:
        place = record.topic, record.queue_id, record.queue_offset
        self.log.add("ok", "pull", *place, id_of(record), hash_of(record.body))

    def _give_back(self, client: WireClient, record: Record) -> None:
        times = record.reconsume_times
        if not self._is_giving_back or times >= BACK_COUNT_MAX:
            return
        if self._chance.random() >= GIVEN_BACK * (1 + 20 * times):
            return
        name = f"{id_of(record).partition('#')[0]}#{times + 1}"
        body_hash = hash_of(record.body)
        self.log.add("invoke", "send", RETRY_TOPIC, -1, -1, name, body_hash)
        self.log.flush()
        fields = {"offset": str(record.log_offset), "group": GROUP, "delayLevel": "1"}
        opaque = client.send(Command(36, fields=fields))
        self._asked[opaque] = Asked("back", (RETRY_TOPIC, -1), -1, name, body_hash)


if __name__ == "__main__":
    Consumer(sys.argv[1:]).run()
