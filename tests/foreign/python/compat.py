"""What programs do with PyPI's rocketmq 0.4.4 (the C++ client 1.x): one scenario a process.

    compat.py NAMESRV PREFIX SCENARIO

In: a scenario. It has a topic with four queues (rebalance: 16) and a group with its retry topic,
made beforehand: PREFIX_SCENARIO_t and PREFIX_SCENARIO_g. Out: one JSON object a line, as the Java
program Compat prints them: "fact", "measure", "done", "error". Every wait has a limit. Several
scenarios cannot share a process: the library ends it by a segmentation fault.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

# Not in the project's environment, but in one of its own in the cache: see compat_clients.
from rocketmq.client import (  # type: ignore[import-not-found]  # see above
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    RecvMessage,
)
from rocketmq.ffi import MessageModel  # type: ignore[import-not-found]  # see above

LIMIT_S = 60.0
LOOK_AGAIN_S = 0.02
# Time for what should not come (another tag, one retry too many) to come.
COMMIT_S = 6.0  # the client commits every 5 s; what it commits at its end can be lost
QUIET_S = 1.5
SHARED_QUEUE_COUNT = 16
PAUSE_S = 0.01
STEADY_ROUNDS = 5
PROPERTIES = ("color", "DELAY", "RETRY_TOPIC", "REAL_TOPIC", "CLUSTER", "WAIT")


class Seen(NamedTuple):
    """A message as a callback saw it; the client frees its own copy afterwards."""

    topic: str
    body: str
    tags: str
    keys: str
    id: str
    queue_id: int
    queue_offset: int
    reconsume_times: int
    born_ms: int
    at_ms: float
    properties: dict[str, str]

    @classmethod
    def copy(cls, message: RecvMessage) -> Seen:
        """Take what a message says."""
        pairs = {name: message.get_property(name) for name in PROPERTIES}
        return cls(
            topic=message.topic,
            body=_text(message.body),
            tags=_text(message.tags),
            keys=_text(message.keys),
            id=message.id,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
            reconsume_times=message.reconsume_times,
            born_ms=message.born_timestamp,
            at_ms=time.time() * 1000,
            properties={name: _text(value) for name, value in pairs.items() if value},
        )


def _text(value: bytes | str | None) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""


class Stage:
    """What one scenario holds: its names, its printer and makers of clients."""

    def __init__(self, namesrv: str, prefix: str, scenario: str) -> None:
        self.namesrv = namesrv
        self.prefix = prefix
        self.scenario = scenario
        self.topic = f"{prefix}_{scenario}_t"
        self.group = f"{prefix}_{scenario}_g"
        self._client_count = 0

    def print(self, **line: Any) -> None:
        """Print a line of this scenario."""
        sys.stdout.write(json.dumps({**line, "scenario": self.scenario}) + "\n")
        sys.stdout.flush()

    def fact(self, name: str, value: Any) -> None:
        """State an outcome that is the same wherever brokers behave the same."""
        self.print(event="fact", name=name, value=value)

    def measure(self, name: str, value: float) -> None:
        """State a number of this run."""
        self.print(event="measure", name=name, value=value)

    def described(self, seen: Seen) -> dict[str, Any]:
        """Return what a message says that does not differ from run to run."""
        pairs = seen.properties.items()
        return {
            "topic": self._plain(seen.topic),
            "body": seen.body,
            "tags": seen.tags,
            "keys": seen.keys,
            "reconsumeTimes": seen.reconsume_times,
            "properties": {name: self._plain(value) for name, value in pairs},
        }

    def _plain(self, text: str) -> str:
        return text.replace(self.prefix, "P")

    @contextmanager
    def producer(self) -> Iterator[Producer]:
        """Return a running producer."""
        client = Producer(f"{self.group}_p", timeout=15_000)
        client.set_namesrv_addr(self.namesrv)
        client.start()
        try:
            yield client
        finally:
            client.shutdown()

    @contextmanager
    def consumer(
        self,
        handle: Callable[[RecvMessage], None],
        expression: str = "*",
        *,
        orderly: bool = False,
        model: MessageModel = MessageModel.CLUSTERING,
    ) -> Iterator[None]:
        """Let a push consumer run for the length of the block."""
        self._client_count += 1
        client = PushConsumer(self.group, orderly=orderly, message_model=model)
        client.set_namesrv_addr(self.namesrv)
        client.set_instance_name(f"{self.scenario}-{os.getpid()}-{self._client_count}")
        client.subscribe(self.topic, handle, expression)
        client.start()
        try:
            yield
        finally:
            client.shutdown()

    def message(self, body: str, tags: str = "TagA") -> Message:
        """Return a message to send."""
        message = Message(self.topic)
        message.set_body(body)
        message.set_tags(tags)
        return message


class Inbox:
    """Messages in the order of their coming; an inbox is a callback that is content with all."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []

    def __call__(self, message: RecvMessage) -> None:
        self.seen.append(Seen.copy(message))

    def until(self, count: int) -> None:
        """Return when this many came, doubled ones included."""
        until(f"{count} messages", lambda: len(self.seen) >= count)

    def bodies(self) -> list[str]:
        """Return the bodies, sorted; a message that came twice is there twice."""
        return sorted(seen.body for seen in self.seen)


def until(what: str, claim: Callable[[], bool]) -> None:
    """Return when the claim is true; it is asked again and again."""
    deadline = time.monotonic() + LIMIT_S
    while not claim():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not so after {LIMIT_S} s")
        time.sleep(LOOK_AGAIN_S)


# ---- sending -------------------------------------------------------------------------------------


def sync(stage: Stage) -> None:
    inbox = Inbox()
    ids = set()
    with stage.producer() as producer, stage.consumer(inbox):
        for i in range(8):
            message = stage.message(f"bödy-{i}")
            message.set_keys(f"key-{i} shared")
            message.set_property("color", f"blue-{i}")
            result = producer.send_sync(message)
            assert result.status == 0, result
            ids.add(result.msg_id)
        inbox.until(8)
    inbox.seen.sort(key=lambda seen: seen.body)
    stage.fact("messages", [stage.described(seen) for seen in inbox.seen])
    stage.fact("ids", {seen.id for seen in inbox.seen} == ids)


def asynchronous(stage: Stage) -> None:
    answers: list[str] = []
    inbox = Inbox()
    with stage.producer() as producer, stage.consumer(inbox):
        for i in range(30):
            message = stage.message(f"m-{i:02}")
            producer.send_async(
                message,
                lambda result: answers.append(result.status.name),
                lambda error: answers.append(str(error)),
            )
        until("30 answers", lambda: len(answers) == 30)
        inbox.until(30)
    stage.fact("statuses", Counter(answers))
    stage.fact("messages", inbox.bodies())


def oneway(stage: Stage) -> None:
    inbox = Inbox()
    with stage.producer() as producer, stage.consumer(inbox):
        for i in range(20):
            producer.send_oneway(stage.message(f"m-{i:02}"))
        inbox.until(20)
    stage.fact("messages", inbox.bodies())


def batch(stage: Stage) -> None:
    """Send a batch; this client marks it in a way that no broker reads, see originals.md."""
    inbox = Inbox()
    with stage.producer() as producer, stage.consumer(inbox):
        result = producer.send_batch([stage.message(f"batch-{i}") for i in range(3)])
        inbox.until(1)
        time.sleep(QUIET_S)
    stage.fact("answer", f"{result.status.name} {result.offset}")
    stage.fact("messages", len(inbox.seen))


def compressed(stage: Stage) -> None:
    inbox = Inbox()
    with stage.producer() as producer, stage.consumer(inbox):
        producer.send_sync(stage.message("x" * 20_000))
        inbox.until(1)
    stage.fact("body comes back", inbox.seen[0].body == "x" * 20_000)


def delayed(stage: Stage) -> None:
    inbox = Inbox()
    with stage.producer() as producer, stage.consumer(inbox):
        for level in (0, 1, 2, 99):
            message = stage.message(f"level-{level}")
            message.set_delay_time_level(level)
            producer.send_sync(message)
        inbox.until(4)
    stage.fact("messages", {seen.body: stage.described(seen) for seen in inbox.seen})
    for seen in inbox.seen:
        stage.measure(seen.body, seen.at_ms - seen.born_ms)


def new_topic(stage: Stage) -> None:
    """Send to a topic that does not exist, which makes it."""
    with stage.producer() as producer:
        message = Message(f"{stage.topic}_new")
        message.set_body("first")
        stage.fact("first send", producer.send_sync(message).status.name)


# ---- consuming -----------------------------------------------------------------------------------


def orderly(stage: Stage) -> None:
    """Send to queues chosen by a number, and consume each queue in order."""
    inbox = Inbox()
    with stage.producer() as producer:
        for step in range(5):
            for order in range(4):
                producer.send_orderly(stage.message(f"order-{order}-step-{step}"), order)
        with stage.consumer(inbox, orderly=True):
            inbox.until(20)
    per_queue: dict[int, list[str]] = {}
    for seen in inbox.seen:
        per_queue.setdefault(seen.queue_id, []).append(seen.body)
    stage.fact("queues", sorted(per_queue.values()))


def restart(stage: Stage) -> None:
    first, again = Inbox(), Inbox()
    with stage.producer() as producer:
        for i in range(40):
            producer.send_sync(stage.message(f"m-{i:02}"))
        with stage.consumer(first):
            first.until(40)
            time.sleep(COMMIT_S)
        for i in range(8):
            producer.send_sync(stage.message(f"later-{i}"))
        with stage.consumer(again):
            again.until(8)
            time.sleep(QUIET_S)
    stage.fact("first", first.bodies())
    stage.fact("after a restart", again.bodies())


def broadcast(stage: Stage) -> None:
    inboxes = Inbox(), Inbox()
    model = MessageModel.BROADCASTING
    with (
        stage.consumer(inboxes[0], model=model),
        stage.consumer(inboxes[1], model=model),
        stage.producer() as producer,
    ):
        # It begins at the end of each queue, so it must have asked for the end before.
        time.sleep(QUIET_S)
        for i in range(12):
            producer.send_sync(stage.message(f"m-{i:02}"))
        for inbox in inboxes:
            inbox.until(12)
    stage.fact("got", [inbox.bodies() for inbox in inboxes])


def tags(stage: Stage) -> None:
    inbox = Inbox()
    with stage.producer() as producer, stage.consumer(inbox, "A || B"):
        for tag in ("A", "B", "C", "D", "A"):
            producer.send_sync(stage.message(f"tag-{tag}", tag))
        inbox.until(3)
        time.sleep(QUIET_S)
    stage.fact("got", inbox.bodies())


def pull(stage: Stage) -> None:
    with stage.producer() as producer:
        for i in range(40):
            producer.send_sync(stage.message(f"m-{i:02}", "AB"[i % 2]))
    client = PullConsumer(stage.group)
    client.set_namesrv_addr(stage.namesrv)
    client.start()
    found: set[str] = set()
    # An original fills its queues a moment after the answer.
    deadline = time.monotonic() + LIMIT_S
    while len(found) < 40 and time.monotonic() < deadline:
        found |= {_text(message.body) for message in client.pull(stage.topic)}
    stage.fact("all", sorted(found))
    client.shutdown()


class Rounds:
    """Numbered messages in rounds, one to each queue, and which members of a group got them.

    Who has a queue is told by who gets the queue's message of a round: this client does not say
    what it has. Queues are shared when some rounds in a row came like that, each message to one.
    """

    def __init__(self) -> None:
        self.sent_count = 0
        self.takes: list[int] = []
        self.came: dict[int, set[tuple[int, int]]] = {}

    def taker(self, member: int) -> Callable[[RecvMessage], None]:
        """Return a callback for the member's messages."""

        def take(message: RecvMessage) -> None:
            number = int(message.body)
            self.takes.append(number)
            self.came.setdefault(number, set()).add((message.queue_id, member))

        return take

    @contextmanager
    def flowing(self, stage: Stage, producer: Producer) -> Iterator[None]:
        """Send for the length of the block."""
        is_over = threading.Event()

        def flow() -> None:
            while not is_over.wait(PAUSE_S):
                producer.send_orderly(stage.message(str(self.sent_count)), self.sent_count)
                self.sent_count += 1

        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(flow)
            try:
                yield
            finally:
                is_over.set()
                sending.result()  # fails with what ended it

    def share(self, stage: Stage, name: str, wanted: list[int]) -> None:
        """Return when the queues are shared like that, and state it."""
        begin = time.monotonic()
        first = self._next()
        until(f"shares {wanted}", lambda: self._are_shares(first, wanted, 1))
        stage.measure(name, (time.monotonic() - begin) * 1000)
        until(f"steady shares {wanted}", lambda: self._are_shares(first, wanted, STEADY_ROUNDS))
        stage.fact(name, wanted)

    def _next(self) -> int:
        return -(-self.sent_count // SHARED_QUEUE_COUNT)

    def _are_shares(self, first: int, wanted: list[int], count: int) -> bool:
        """Whether so many rounds in a row, of this one and later ones, are shared like that."""
        in_row = 0
        for number in range(first, self._next()):
            in_row = in_row + 1 if self._shares(number) == wanted else 0
            if in_row == count:
                return True
        return False

    def _shares(self, number: int) -> list[int]:
        """How many queues each member has by a round; none if one has no owner or several."""
        begin = number * SHARED_QUEUE_COUNT
        came = [self.came.get(i, set()).copy() for i in range(begin, begin + SHARED_QUEUE_COUNT)]
        owners = set().union(*came)
        is_whole = all(came) and len(owners) == len(dict(owners)) == SHARED_QUEUE_COUNT
        return sorted(Counter(member for _, member in owners).values()) if is_whole else []


def rebalance(stage: Stage) -> None:
    """Let a group grow from one consumer to three and shrink to two while messages flow."""
    rounds = Rounds()
    with stage.producer() as producer, ExitStack() as others:
        with rounds.flowing(stage, producer):
            with stage.consumer(rounds.taker(0)):
                rounds.share(stage, "of one", [16])
                for member in (1, 2):
                    others.enter_context(stage.consumer(rounds.taker(member)))
                rounds.share(stage, "of three", [5, 5, 6])
            rounds.share(stage, "of two", [8, 8])
        until("all messages came", lambda: len(rounds.came) == rounds.sent_count)
        time.sleep(COMMIT_S)
    stage.fact("lost", rounds.sent_count - len(rounds.came))
    stage.measure("sent", rounds.sent_count)
    stage.measure("came again", len(rounds.takes) - len(rounds.came))


def retry(stage: Stage) -> None:
    inbox = Inbox()

    def handle(message: RecvMessage) -> None:
        inbox(message)
        if message.reconsume_times < 2:
            raise ValueError("later")

    with stage.producer() as producer, stage.consumer(handle):
        message = stage.message("stubborn")
        message.set_keys("key-1")
        message.set_property("color", "blue")
        producer.send_sync(message)
        inbox.until(3)
    stage.fact("seen", [stage.described(seen) for seen in inbox.seen])
    stage.measure("first retry", inbox.seen[1].at_ms - inbox.seen[0].at_ms)
    stage.measure("second retry", inbox.seen[2].at_ms - inbox.seen[1].at_ms)


def dead(stage: Stage) -> None:
    """Fail always; the group's settings allow one retry."""
    inbox = Inbox()

    def handle(message: RecvMessage) -> None:
        inbox(message)
        raise ValueError("never")

    with stage.producer() as producer, stage.consumer(handle):
        producer.send_sync(stage.message("hopeless"))
        inbox.until(2)
        time.sleep(QUIET_S + 1)
    stage.fact("times seen", len(inbox.seen))


SCENARIOS: dict[str, Callable[[Stage], None]] = {
    "sync": sync,
    "async": asynchronous,
    "oneway": oneway,
    "batch": batch,
    "compressed": compressed,
    "delayed": delayed,
    "newtopic": new_topic,
    "orderly": orderly,
    "restart": restart,
    "broadcast": broadcast,
    "tags": tags,
    "pull": pull,
    "rebalance": rebalance,
    "retry": retry,
    "dead": dead,
}


def play(stage: Stage) -> None:
    """Play a scenario; what ends it is printed."""
    begin = time.monotonic()
    try:
        SCENARIOS[stage.scenario](stage)
    except Exception as error:
        traceback.print_exc()
        stage.print(event="error", error=repr(error))
    stage.print(event="done", elapsedMs=int((time.monotonic() - begin) * 1000))


if __name__ == "__main__":
    play(Stage(*sys.argv[1:4]))
