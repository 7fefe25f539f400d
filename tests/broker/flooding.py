"""A flood: many connections with hundreds of sends in flight each, and an account of them.

In: an address, a topic, a duration. Out: which queue offsets were acknowledged, how many sends were
refused, with which remarks.

Rules:
1. It reads answers as fast as they come, so only the broker is slow.
2. What is in flight is bounded. Sends without end would wait in the kernel's buffers, 5 MB of a
   connection, and a flood of seconds would go on for a minute after its end.
"""

import asyncio
import re
import time
from array import array
from typing import cast

from orbitmq.wire.command import encode_command
from tests.behaviour.requests import send_request

CHUNK_COUNT = 400
"""Messages of one write."""
IN_FLIGHT_MAX = CHUNK_COUNT
"""Of one connection."""

_STORED = re.compile(rb'"queueOffset":"(\d+)"')
_REFUSED = re.compile(rb'"code":2,[^\x00]*?"remark":"([^"]*)"')
_FAILED = re.compile(rb'"code":(?!0,|2,)\d+')


class Account:
    """What a flood was told."""

    def __init__(self) -> None:
        self.sent = 0
        self.stored = array("q")
        self.refused: dict[str, int] = {}
        self.failed: set[bytes] = set()
        self.lost = 0
        """Connections that the broker ended."""
        self.ended_s = 0.0
        """When the last was sent."""

    @property
    def refused_count(self) -> int:
        return sum(self.refused.values())

    @property
    def answered(self) -> int:
        return len(self.stored) + self.refused_count

    def take(self, answers: bytes) -> None:
        """Count whole answers."""
        self.stored.extend(map(int, _STORED.findall(answers)))
        for remark in _REFUSED.findall(answers):
            cause = re.sub(r"\d+", "#", remark.decode())
            self.refused[cause] = self.refused.get(cause, 0) + 1
        self.failed.update(_FAILED.findall(answers))


class Sender(asyncio.Protocol):
    """One connection of a flood."""

    _transport: asyncio.Transport

    def __init__(self, account: Account, chunk: bytes) -> None:
        self._account = account
        self._chunk = chunk
        self._held = bytearray()
        self._in_flight = 0
        self._is_going = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop has its own kind

    def begin(self) -> None:
        self._is_going = True
        self._send()

    def _send(self) -> None:
        while self._is_going and self._in_flight + CHUNK_COUNT <= IN_FLIGHT_MAX:
            self._transport.write(self._chunk)
            self._in_flight += CHUNK_COUNT
            self._account.sent += CHUNK_COUNT

    def data_received(self, data: bytes) -> None:
        held = self._held
        held += data
        end = count = 0
        while len(held) - end >= 4:
            size = 4 + int.from_bytes(held[end : end + 4], "big")
            if end + size > len(held):
                break
            end, count = end + size, count + 1
        self._account.take(bytes(held[:end]))
        del held[:end]
        self._in_flight -= count
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        self._account.lost += self._is_going

    def stop_sending(self) -> None:
        self._is_going = False

    def close(self) -> None:
        self._transport.close()


async def flood(address: str, topic: str, connections: int, duration_s: float) -> Account:
    """Send for so long, then wait until every send was answered."""
    host, _, port = address.rpartition(":")
    account = Account()
    chunk = encode_command(send_request(topic, bytes(100))) * CHUNK_COUNT
    loop = asyncio.get_running_loop()
    senders = []
    for _ in range(connections):
        _, sender = await loop.create_connection(lambda: Sender(account, chunk), host, int(port))
        senders.append(sender)
    for sender in senders:  # not before: a broker under a flood takes in one of them a turn
        sender.begin()
    await asyncio.sleep(duration_s)
    for sender in senders:
        sender.stop_sending()
    account.ended_s = time.monotonic()
    async with asyncio.timeout(60):
        while account.answered < account.sent and not account.lost and not account.failed:
            await asyncio.sleep(0.05)
    for sender in senders:
        sender.close()
    return account
