"""Messages sent to a broker as fast as it answers, until there are enough or until it is killed.

In: a broker's address and a word that makes the messages of this load unlike all others. Out: what
the broker has acknowledged, with the place it named. Rules:

1. Many sends are under way at once on one connection, as a busy producer has them.
2. Message n of a load has a body, a tag and three keys that follow from the word and n: a unique
   key, a key of its own and one that it shares with others. It goes to topic n modulo 3.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from orbitmq.wire.command import Command
from tests.behaviour.requests import send_request
from tests.wire_client import WireClient

TOPICS = ("Exchange_A", "Exchange_B", "Exchange_C")
QUEUE_COUNT = 4
IN_FLIGHT = 128
IN_FLIGHT_BEFORE_KILL = 16  # fewer, for the load lasts seconds and all of it is read back
SHARED_KEYS = 15  # few enough that each has more messages than an answer may hold


class Sent(NamedTuple):
    """A message that a broker has acknowledged."""

    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    unique_key: str
    own_key: str


def message(word: str, number: int) -> Sent:
    """Message `number` of a load, not sent yet."""
    own_key = f"{word}-{number}"
    unique_key = hashlib.sha256(own_key.encode()).hexdigest()[:32].upper()
    body = own_key.encode() + b"." * (number * 37 % 700)
    topic, turn = TOPICS[number % len(TOPICS)], number // len(TOPICS)
    return Sent(topic, turn % QUEUE_COUNT, -1, body, unique_key, own_key)


def request_of(word: str, number: int) -> Command:
    """The request that sends message `number` of a load."""
    made = message(word, number)
    keys = f"{made.own_key} {word}-shared-{number % SHARED_KEYS}"
    properties = f"TAGS\x01Tag{number % 5}\x02KEYS\x01{keys}\x02UNIQ_KEY\x01{made.unique_key}\x02"
    return send_request(made.topic, made.body, e=made.queue_id, i=properties)


def send_load(address: str, word: str, count: int) -> list[Sent]:
    """Send `count` messages; every one must be taken."""
    with WireClient(address) as client:
        sent = list(_acknowledged(client, word, range(count), IN_FLIGHT))
    assert len(sent) == count
    return sent


def send_until_killed(
    address: str, word: str, kill: Callable[[], None], after_s: float
) -> list[Sent]:
    """Send without end, kill the broker after a while, and return what it had acknowledged."""
    deadline = time.monotonic() + after_s
    sent: list[Sent] = []
    with WireClient(address) as client:
        acknowledged = _acknowledged(client, word, itertools.count(), IN_FLIGHT_BEFORE_KILL)
        while time.monotonic() < deadline:
            sent.append(next(acknowledged))
        kill()
        with contextlib.suppress(ConnectionError):
            sent.extend(acknowledged)
    return sent


def _acknowledged(
    client: WireClient, word: str, numbers: Iterable[int], in_flight: int
) -> Iterator[Sent]:
    """Send messages, so many at once, and give each that was acknowledged."""
    under_way: dict[int, Sent] = {}
    left = iter(numbers)
    while True:
        for number in itertools.islice(left, in_flight - len(under_way)):
            under_way[client.send(request_of(word, number))] = message(word, number)
        if not under_way:
            return
        answer = client.receive()
        assert answer.code == 0, answer.remark
        made = under_way.pop(answer.opaque)
        yield made._replace(queue_offset=int(answer.fields["queueOffset"]))
