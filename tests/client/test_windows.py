"""The client where the system is Windows: without POSIX's modules, calls and constants, no uvloop.

Method: a process in which all that Windows lacks is taken away sends to a broker of ours, consumes
in a group, and consumes as a broadcasting consumer, which keeps its offsets in a file.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

from orbitmq.testing import EmbeddedBroker

PROGRAM = """
import asyncio, concurrent.futures, ctypes, json, logging, os, pathlib, signal, socket, ssl, stat
import subprocess, sys, tempfile, threading

for missing in ("fcntl", "resource", "pwd", "grp", "termios", "uvloop"):
    sys.modules[missing] = None
for module, names in {
    os: (
        "O_CLOEXEC O_DIRECTORY O_TMPFILE O_NOFOLLOW SEEK_DATA SEEK_HOLE fchmod fchown fdatasync "
        "fork getuid posix_fallocate pread preadv pwrite pwritev register_at_fork "
        "sched_getaffinity statvfs sysconf uname"
    ),
    socket: "TCP_INFO TCP_USER_TIMEOUT TCP_CORK SO_REUSEPORT",
    signal: "SIGPIPE SIGHUP SIGKILL SIGUSR1 SIGCHLD pthread_sigmask",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)


class NoLibraryOfAll(ctypes.CDLL):
    def __init__(self, name, *args, **options):
        if name is None:
            raise TypeError("bad argument type for built-in operation")
        super().__init__(name, *args, **options)


ctypes.CDLL = NoLibraryOfAll
really_open = os.open


def open_no_folder(path, *args, **options):
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", path)
    return really_open(path, *args, **options)


os.open = open_no_folder

import orbitmq.aio
from orbitmq import Message, Producer, PushConsumer
from orbitmq.wire.bodies_client import ConsumeFromWhere, MessageModel

namesrv = sys.argv[1]
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
EVERYTHING = {"subscriptions": {"orders": "*"}, "from_where": FIRST}
came = {}


def consume(group, **options):
    everything = threading.Event()

    def handle(message):
        came.setdefault(group, []).append(message.body.decode())
        if len(came[group]) == 3:
            everything.set()

    with PushConsumer(namesrv=namesrv, group=group, handler=handle, **EVERYTHING, **options):
        assert everything.wait(30), came


with Producer(namesrv=namesrv, group="shop") as producer:
    for number in range(3):
        producer.send(Message("orders", b"%d" % number))
consume("bills")
consume("screens", message_model=MessageModel.BROADCASTING)
print(json.dumps({group: sorted(bodies) for group, bodies in came.items()}))
"""


def test_a_client_runs_where_the_system_has_no_posix_calls(tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, broker.namesrv],
            env={"HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"bills": ["0", "1", "2"], "screens": ["0", "1", "2"]}
    (offsets,) = tmp_path.rglob("offsets.json")
    assert sum(map(int, re.findall(r"\}:(\d+)", offsets.read_text()))) == 3
