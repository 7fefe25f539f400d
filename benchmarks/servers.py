"""The servers that are compared: started, found by their ready line, stopped.

In: a folder for their files. Out: a `Server` (name, port, process ids) for the length of a block.
Rules:

1. A server that does not become ready raises with the end of its standard error.
2. All servers but the original are bound to one core. The original uses all cores, as it is meant
   to; its figure of merit, CPU per message, counts them together.
3. OrbitMQ runs on the core (`orbitmq.core`) that it chooses itself; PLAIN is the plain one forced.
4. A process is stopped by SIGTERM to its own id, and killed only if it does not listen.
"""

import os
import random
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.c_programs import build
from benchmarks.machine import pin

ROOT = Path(__file__).parent.parent
ORIGINAL_VERSION = "4.9.7"
ORIGINAL_SCRIPT = ROOT / "tests" / "originals" / "original"
ORIGINAL_HEAP = "-Xms2g -Xmx2g"
READY_LIMIT_S = 30
ORIGINAL_READY_LIMIT_S = 900  # the first start fetches the jars
STOP_LIMIT_S = 30
TAIL_CHARS = 4000
# Below the ports that the operating system gives to outgoing connections (from 32768).
PORT_MIN, PORT_MAX = 10_240, 32_000

# What the original's start script sets as well: a busy machine must not turn sends away.
AS_ORIGINAL = (
    "enablePropertyFilter=true",
    "waitTimeMillsInSendQueue=20000",
    "diskMaxUsedSpaceRatio=95",
)
# A limit that the original lacks: ours refuses sends while the disk is far behind.
WITHOUT_SYNC_LIMIT = ("unsyncedBytesMax=17179869184", "unsyncedMillisMax=120000")
SYNC_SETTING = "flushDiskType=SYNC_FLUSH"
BARE, OURS, PLAIN = "bare C server", "OrbitMQ", "OrbitMQ, plain core"
REDIS, NATS, ORIGINAL = "Redis", "NATS", f"original {ORIGINAL_VERSION}"
CORE_SETTING = "ORBITMQ_CORE"


class ServerFailed(Exception):
    """A server did not become ready."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server; `ready_s` is the time from its start to its ready line.

    `namesrv` is the address of its name server, empty when it has none; `send_mode` is what the
    generator calls a send to it.
    """

    name: str
    port: int
    pids: tuple[int, ...]
    ready_s: float
    namesrv: str = ""
    send_mode: str = "send"


@contextmanager
def bare(folder: Path, cpu: int | None) -> Iterator[Server]:
    """The bare server, writing to files in `folder`."""
    with _started(BARE, [str(build("bare")), str(folder)], folder, cpu) as server:
        yield server


@contextmanager
def ours(
    folder: Path,
    cpu: int | None,
    *,
    is_sync: bool = False,
    is_plain: bool = False,
    through: Sequence[str] = ("orbitmq",),
) -> Iterator[Server]:
    """`orbitmq up` with its data in `folder`; with `is_sync` it answers when the disk has it.

    `through` is the module that runs the command, with words for itself.
    """
    command = [sys.executable, "-m", *through, "up", "--data-dir", str(folder / "data")]
    command += ["--namesrv-port", "0", "--broker-port", "0", "--dashboard-port", "0"]
    settings = [*AS_ORIGINAL, *WITHOUT_SYNC_LIMIT, *removable()]
    for setting in [*settings, SYNC_SETTING] if is_sync else settings:
        command += ["-D", setting]
    name, env = (PLAIN, {CORE_SETTING: "plain"}) if is_plain else (OURS, {})
    with _started(name, command, folder, cpu, env) as server:
        yield server


def default_core() -> str:
    """Return which core a broker chooses here: "compiled" or "plain"."""
    command = [sys.executable, "-m", "orbitmq", "version"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=READY_LIMIT_S, check=True
    )
    return "compiled" if "compiled core" in done.stdout else "plain"


def removable() -> tuple[str, ...]:
    """Return settings with which a removal by hand takes all log files that are full.

    None goes by itself: the hour for that is far away.
    """
    return ("fileReservedTime=0", f"deleteWhen={(time.localtime().tm_hour + 12) % 24:02}")


def missing_for_original() -> list[str]:
    """The tools that the original needs and that are not installed."""
    return [tool for tool in ("java", "mvn") if shutil.which(tool) is None]


@contextmanager
def original(folder: Path, *, is_sync: bool = False) -> Iterator[Server]:
    """The original broker with a name server of its own and log files of its usual size."""
    command = [str(ORIGINAL_SCRIPT), ORIGINAL_VERSION, str(folder / "data")]
    command += [str(free_port()), str(free_port()), "mappedFileSizeCommitLog=1073741824"]
    command += removable()
    if is_sync:
        command.append(SYNC_SETTING)
    env = {"STAY": "1", "STOP_S": "15", "BROKER_JVM": ORIGINAL_HEAP}
    with _started(ORIGINAL, command, folder, None, env) as server:
        yield server


@contextmanager
def launched(
    command: Sequence[str], folder: Path, cpu: int | None, env: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A process with `folder` for its files, and the file with its standard error."""
    folder.mkdir(parents=True)
    log = folder / "stderr"
    with ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stack.enter_context(log.open("wb")),
                cwd=ROOT,
                env={**os.environ, **(env or {})},
            )
        )
        stack.callback(_stop, process)
        pin(process.pid, cpu)
        yield process, log


@contextmanager
def _started(
    name: str,
    command: Sequence[str],
    folder: Path,
    cpu: int | None,
    env: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    begin = time.monotonic()
    with launched(command, folder, cpu, env) as (process, log):
        limit_s = ORIGINAL_READY_LIMIT_S if name == ORIGINAL else READY_LIMIT_S
        ready = _await_ready(name, process, log, limit_s)
        # Of several process ids the last is the broker's.
        pid = int(ready["pids"].split(",")[-1]) if "pids" in ready else process.pid
        port = int(ready["broker"].rpartition(":")[2])
        ready_s = time.monotonic() - begin
        yield Server(name, port, (pid,), ready_s, ready.get("namesrv", ""))


def _await_ready(
    name: str, process: subprocess.Popen[bytes], log: Path, limit_s: float
) -> dict[str, str]:
    """What the ready line says, as names and values."""
    if process.stdout is None:
        raise ServerFailed("no pipe to read the ready line from")
    deadline = time.monotonic() + limit_s
    line = b""
    while not line.endswith(b"\n"):
        wait_s = max(0.0, deadline - time.monotonic())
        is_readable = bool(select.select([process.stdout], [], [], wait_s)[0])
        chunk = os.read(process.stdout.fileno(), 4096) if is_readable else b""
        if not chunk:
            what = "ended before it was ready" if is_readable else f"is not ready after {limit_s} s"
            raise ServerFailed(f"{name} {what}; its standard error ends:\n{tail_of(log)}")
        line += chunk
    return dict(word.split("=", 1) for word in line.decode().split()[1:])


def tail_of(log: Path) -> str:
    """Return the end of what a server wrote to standard error."""
    return log.read_text(encoding="utf-8", errors="replace")[-TAIL_CHARS:]


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()


def free_port() -> int:
    """A free port with free neighbours: an original broker also listens on -2 and +1."""
    for _ in range(200):
        port = random.randrange(PORT_MIN, PORT_MAX)
        if all(_is_free(near) for near in range(port - 2, port + 2)):
            return port
    raise ServerFailed(f"no four free ports in a row between {PORT_MIN} and {PORT_MAX}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
