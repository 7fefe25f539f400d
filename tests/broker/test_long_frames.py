"""How long one peer's input holds the loop: the greatest frames and reads, in processor time.

Method: a whole broker in the test's loop and a peer with a real socket. Every piece of the loop's
work that handles input or ends a turn is timed by the thread's own processor time, so that what
else runs on the machine does not count; of three tries the best one counts. Limits are three to
five times what was measured.
"""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbitmq.config import BrokerSettings
from orbitmq.core import BATCH_COUNT_MAX, CHOSEN
from orbitmq.net.connection import Connection
from orbitmq.net.turn import Turn
from orbitmq.wire.batch import BatchMessage, encode_batch
from orbitmq.wire.command import Command, encode_command
from orbitmq.wire.frame import FRAME_SIZE_MAX, encode_frame
from orbitmq.world.net import run
from tests.behaviour.requests import send_request
from tests.broker.running import running
from tests.net.running import connected

SETTINGS = BrokerSettings(listen_port=0, wait_time_mills_in_send_queue=20_000)
UNKNOWN = 9_999
COPIED = b"CLUSTER\x01c\x02A\x01a"


def heartbeat() -> bytes:
    """The most groups and subscriptions that one heartbeat may bring."""
    groups = [
        {
            "groupName": f"G{group}",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [
                {"topic": f"T{topic}", "subString": "a || b", "subVersion": 1, "tagsSet": ["a"]}
                for topic in range(4)
            ],
        }
        for group in range(500)
    ]
    return json.dumps({"clientID": "c", "consumerDataSet": groups}).encode()


def batch(count: int, properties: bytes = b"TAGS\x01t") -> bytes:
    body = encode_batch([BatchMessage(b"a", properties)] * count)
    return encode_command(send_request("B", body, m="true"))


def batch_of_ids(count: int) -> bytes:
    """Messages as Java clients write them."""
    ids = (b"UNIQ_KEY\x01%032X\x02WAIT\x01true\x02TAGS\x01t\x02" % n for n in range(count))
    body = encode_batch([BatchMessage(b"a", properties) for properties in ids])
    return encode_command(send_request("B", body, m="true"))


def nested(depth: int) -> bytes:
    header = b'{"code":9999,"extFields":{"a":%s%s}}' % (b"[" * depth, b"]" * depth)
    return encode_frame(0, header, b"")


CASES: dict[str, tuple[bytes, float]] = {
    "250 KB of unknown requests": (encode_command(Command(UNKNOWN, flag=2)) * 2_500, 0.015),
    "1 MB of sends": (encode_command(send_request("T", flag=2)) * 3_600, 0.06),
    "a header of the limit": (
        encode_command(Command(UNKNOWN, flag=2, fields={"a": "x" * 260_000})),
        0.02,
    ),
    "JSON nested 10^5 deep": (nested(100_000), 0.02),
    "a frame of the limit": (
        encode_command(Command(UNKNOWN, flag=2, body=bytes(FRAME_SIZE_MAX - 1_000))),
        0.08,
    ),
    "a heartbeat of the limit": (encode_command(Command(34, body=heartbeat())), 0.15),
    "a batch of 1,000": (batch(1_000), 0.04),
    "the greatest batch": (batch(BATCH_COUNT_MAX), 0.15),
    "the greatest batch, each message with an id": (batch_of_ids(BATCH_COUNT_MAX), 0.15),
    "the greatest batch, sent again": (batch(BATCH_COUNT_MAX, COPIED), 0.2),
    "the greatest batch, each message odd": (batch(BATCH_COUNT_MAX, b"A\x01\xff"), 0.3),
}
"""What is sent, and how long it may hold the loop. Batches are stored in one piece."""


class Longest:
    """The longest piece of work since it was asked last."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._longest_s = 0.0
        for owner, name in (
            (Connection, "data_received"),
            (Connection, "_go_on"),
            (Turn, "finish"),
        ):
            monkeypatch.setattr(owner, name, self._timed(getattr(owner, name)))

    def _timed(self, work: Callable[..., Any]) -> Callable[..., None]:
        def timed(*arguments: object) -> None:
            begin_s = time.thread_time()
            work(*arguments)
            self._longest_s = max(self._longest_s, time.thread_time() - begin_s)

        return timed

    def take_s(self) -> float:
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s


@pytest.mark.parametrize("name", CASES)
def test_what_one_peer_sends_holds_the_loop_no_longer_than_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    data, limit_s = CASES[name]
    if CHOSEN.compiled is None:
        limit_s *= 2
    longest, found_s = Longest(monkeypatch), list[float]()

    async def scenario() -> None:
        async with running(tmp_path, Turn(asyncio.get_running_loop()), SETTINGS) as site:
            assert (await site.call(send_request("T"))).code == 0
            port = int(site.broker.address.rpartition(":")[2])
            for _ in range(3):
                longest.take_s()
                async with connected(port) as client:
                    client.write(data)
                    client.writer.write_eof()
                    await client.ended()  # all was handled and answered, or refused
                found_s.append(longest.take_s())

    run(scenario())
    print(f"{name}: {min(found_s) * 1000:.1f} ms")
    assert min(found_s) < limit_s
