"""Sends that come one by one: the whole way through a broker, one frame a read, without sockets.

In: frames as a Java client writes them, one each for 64 connections of a real broker. Out: CPU per
message, from `data_received` to the transport's `write`, the write of the log included.

Rules:
1. Everything but the transport is the broker's own: connections, turn, core, store.
2. Only turns are measured. What a broker does in between (syncs, queue and index files) is waited
   for after each stretch of turns.
"""

import asyncio
import socket
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.frames import send_frame
from orbitmq.broker.broker import Broker
from orbitmq.config import BrokerSettings
from orbitmq.metrics import Registry
from orbitmq.net.connection import Connection
from orbitmq.net.turn import Turn
from orbitmq.world.net import run

CONNECTIONS = 64
BODY_SIZE = 1024
NAME = f"send, 1 KB, one frame a read, {CONNECTIONS} connections"
STRETCH_S = 0.03
LEARNING_TURNS = 20
"""Before anything is measured: the topic is made, and headers become known."""
UNWRITTEN_BYTES_MAX = 1 << 20
SETTINGS = BrokerSettings(listen_port=0, wait_time_mills_in_send_queue=20_000)


class StaleBenchmark(Exception):
    """A message was not stored and answered by the way that is to be measured."""


class CountingTransport(asyncio.Transport):
    """A transport that takes everything at once, and counts the writes."""

    def __init__(self, tuned: socket.socket) -> None:
        """`tuned` gets the options of an accepted socket, and nothing else."""
        names = {"peername": ("127.0.0.1", 4660), "sockname": ("127.0.0.1", 10911)}
        super().__init__({**names, "socket": tuned})
        self.writes = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes += 1

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass


def least_us(repetitions: int, repetition_s: float) -> float:
    """CPU microseconds per message: the least of all stretches."""
    stretches = int(repetitions * repetition_s / STRETCH_S) + 1
    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-") as folder, socket.socket() as tuned:
        return run(_least_us(Path(folder), tuned, stretches))


async def _least_us(folder: Path, tuned: socket.socket, stretches: int) -> float:
    registry = Registry()
    broker = Broker(SETTINGS, folder, Turn(asyncio.get_running_loop()), registry)
    await broker.start()
    transports = [CountingTransport(tuned) for _ in range(CONNECTIONS)]
    server = broker._server  # noqa: SLF001 - what it makes of an accepted socket is measured
    connections = [server._accept() for _ in transports]  # noqa: SLF001 - as above
    for connection, transport in zip(connections, transports, strict=True):
        connection.connection_made(transport)
    try:
        return await _measure(registry, connections, transports, stretches)
    finally:
        for connection in connections:
            connection.connection_lost(None)
        await broker.stop()


async def _measure(
    registry: Registry,
    connections: Sequence[Connection],
    transports: Sequence[CountingTransport],
    stretches: int,
) -> float:
    reads = [(one, send_frame(number, BODY_SIZE)) for number, one in enumerate(connections)]
    await _turns(reads, 1)
    while not all(transport.writes for transport in transports):
        await asyncio.sleep(0.001)  # the first answers wait until their topic is saved
    least_s = await _turns(reads, LEARNING_TURNS) / LEARNING_TURNS
    done = 1 + LEARNING_TURNS
    for _ in range(stretches):
        turns = max(4, int(STRETCH_S / least_s))
        least_s = min(least_s, await _turns(reads, turns) / turns)
        done += turns
        while _metric(registry, "orbitmq_store_unwritten_bytes") > UNWRITTEN_BYTES_MAX:
            await asyncio.sleep(0.01)
    writes = sum(transport.writes for transport in transports)
    hot = _metric(registry, 'orbitmq_broker_hot_requests_total{kind="send"}')
    if writes != done * CONNECTIONS or hot < writes - CONNECTIONS:
        raise StaleBenchmark(f"{done * CONNECTIONS} sends, {writes} answers, {hot} by the core")
    return least_s / CONNECTIONS * 1e6


async def _turns(reads: Sequence[tuple[Connection, bytes]], count: int) -> float:
    """Let each connection read its frame, and the turn end; return the CPU seconds of it all."""
    begin_s = time.process_time()
    for _ in range(count):
        for connection, data in reads:
            connection.data_received(data)
        await asyncio.sleep(0)
    return time.process_time() - begin_s


def _metric(registry: Registry, name: str) -> float:
    lines = registry.render().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(name + " "))
