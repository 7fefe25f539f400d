"""A client whose connection is cut, stalled or garbled at one byte of its exchange with a broker.

In: an address, where to cut (how many bytes of which direction pass) and what happens then. Out:
the answers that came through; what was asked and not answered is `unknown`, what never left whole
is `unsent`. The link stands where a proxy would: broker and client see what they would see
behind one.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from orbitmq.wire.command import Command, decode_command, encode_command
from orbitmq.wire.frame import FrameDecoder

ANSWER_S = 20.0
STALL_S = 0.05
"""How long the client of a stalled link waits before it gives up."""

DELAY_S = 0.02
"""How long the rest of a delayed piece is on its way."""

REPEATED = 40
"""Bytes of a piece that comes twice."""

Direction = Literal["out", "in"]
Mode = Literal["close", "reset", "stall", "repeat", "delay"]


class LinkCut(Exception):
    """Nothing more will come through."""


@dataclass
class Cut:
    """Where a link is cut: after so many bytes of one direction."""

    direction: Direction
    passed: int
    mode: Mode = "close"


@dataclass
class Link:
    """One connection that passes its bytes until it is cut."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    cut: Cut | None
    is_cut: bool = False
    is_last_whole: bool = False
    """Whether the request that was sent last has left whole."""
    sent: int = 0
    received: int = 0
    _decoder: FrameDecoder = field(default_factory=FrameDecoder)
    _arrived: list[Command] = field(default_factory=list)

    @classmethod
    async def open(cls, address: str, cut: Cut | None = None) -> "Link":
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)), cut)

    async def send(self, request: Command) -> None:
        """Pass a request, as far as the cut lets it; raises LinkCut at the cut."""
        if self.is_cut:
            self.is_last_whole = False
            raise LinkCut
        data = encode_command(request)
        left = self._left("out", self.sent)
        self.is_last_whole = left is None or left >= len(data) - self._repeated()
        self.sent += len(data)
        if left is not None and self.cut is not None and self.cut.mode == "delay":
            self.is_last_whole = True
            await self._delay(data, left)
            return
        self.writer.write(data[:left])
        if left is not None and left <= len(data):
            await self._sever(data[left:])

    async def receive(self) -> Command:
        """Return the next command that comes through whole; raises LinkCut when none does."""
        while not self._arrived:
            if self.is_cut:
                raise LinkCut
            async with asyncio.timeout(ANSWER_S):
                try:
                    data = await self.reader.read(65_536)
                except ConnectionError:
                    data = b""
            if not data:
                raise LinkCut
            left = self._left("in", self.received)
            self.received += len(data)
            if left is not None and self.cut is not None and self.cut.mode == "delay":
                await asyncio.sleep(DELAY_S if 0 <= left < len(data) else 0)
                left = None
            passed = data if left is None else data[:left]
            self._arrived += map(decode_command, self._decoder.feed(passed))
            if left is not None and left <= len(data):
                await self._sever(b"")
        return self._arrived.pop(0)

    async def ask(self, request: Command) -> Command:
        """Send a request and give its answer."""
        await self.send(request)
        return await self.answer(request.opaque)

    async def answer(self, opaque: int) -> Command:
        """Return the answer to one request; what the broker says by itself is passed over."""
        while True:
            command = await self.receive()
            if command.is_response and command.opaque == opaque:
                return command

    def _left(self, direction: Direction, count: int) -> int | None:
        """How many bytes of a direction still pass; None when it is not the one that is cut."""
        if self.cut is None or self.cut.direction != direction:
            return None
        return self.cut.passed - count

    def _repeated(self) -> int:
        """How long an end of a request is repeated as a whole: its first copy completes it."""
        return REPEATED if self.cut is not None and self.cut.mode == "repeat" else 0

    async def _delay(self, data: bytes, left: int) -> None:
        """Pass a request in two pieces, the second one late, if it is this one's turn."""
        if 0 <= left < len(data):
            self.writer.write(data[:left])
            await self.writer.drain()
            await asyncio.sleep(DELAY_S)
            data = data[left:]
        self.writer.write(data)

    async def _sever(self, rest: bytes) -> None:
        self.is_cut = True
        assert self.cut is not None
        if self.cut.mode == "reset":
            self.writer.transport.abort()
        elif self.cut.mode == "stall":
            await self.writer.drain()
            await asyncio.sleep(STALL_S)
        elif self.cut.mode == "repeat":  # a piece comes twice: what follows is garbage to the peer
            self.writer.write(rest[:REPEATED] + rest)
            await self.writer.drain()
        self.writer.close()
        if not self._arrived:
            raise LinkCut

    async def close(self) -> None:
        """End the connection."""
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()
