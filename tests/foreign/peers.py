"""The originals and their clients, as functions that tests call.

In: addresses and small commands. Out: lines (one JSON object each) that an original Java or Go
client printed, the text of the official mqadmin, or the addresses of a running original. Rules:

1. Nothing here knows OrbitMQ: the same calls judge it and judge an original.
2. A missing tool skips the test with its name, or fails it when ORBITMQ_TEST_ALL=1.
3. Jars and programs are made once and kept in ORBITMQ_CACHE (~/.cache/orbitmq without), under a
   lock and by rename, so that test runs may share it. Programs are keyed by a hash of their
   source; a change builds anew.
4. Every call has a time limit. Every process is ended by whoever started it.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.foreign.asking import await_broker, await_claim
from tests.foreign.running import TAIL_CHARS, ProgramFailed, running
from tests.must_run import cannot

Line = dict[str, Any]

HERE = Path(__file__).parent
ORIGINAL_SCRIPT = HERE.parent / "originals" / "original"
FETCH_LIMIT_S = 900
BUILD_LIMIT_S = 600
BOOT_LIMIT_S = 150
BROKER_NAME = "broker-a"  # what the start script calls it unless a setting says otherwise
# A scratch original needs no tidy end: its connections close with it, and the rest of its stop
# (7 to 10 s) only waits for its threads.
ORIGINAL_STOP_S = 2
TIDY_STOP_S = 25
JAVA_END_S = 20
# A short-lived JVM on two cores: no optimising compiler, no collector threads.
JVM_QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
WITHOUT_TLS = "-Dtls.server.mode=disabled"
"""No test speaks TLS to an original, and each of its ports would make a key first: three quarters
of the CPU of its start."""
BINARY_HEADERS = "-Drocketmq.serialize.type=ROCKETMQ"
# Lower than what the operating system hands to outgoing connections (from 32768).
PORT_MIN, PORT_MAX = 10_240, 32_000


class PeerFailed(AssertionError):
    """A client or tool of the original ended with an error or not at all."""


# ---- tools and cache -----------------------------------------------------------------------------


def require_tool(name: str) -> str:
    """The path of a tool. Without it the test is skipped, or fails when ORBITMQ_TEST_ALL=1."""
    path = shutil.which(name)
    if path is None:
        cannot(f"`{name}` is not installed; install it to run this test")
    return path


def cache_folder() -> Path:
    return Path(os.environ.get("ORBITMQ_CACHE") or Path.home() / ".cache" / "orbitmq")


@functools.cache
def original_jars(version: str) -> Path:
    """The folder with the jars of an original; fetched by Maven when it is not there yet."""
    require_tool("java")
    folder = cache_folder() / "originals" / version / "lib"
    if not folder.is_dir():
        require_tool("mvn")
        run_tool([str(ORIGINAL_SCRIPT), "fetch", version], limit_s=FETCH_LIMIT_S)
    return folder


@contextmanager
def built_once(name: str, sources: Sequence[Path], salt: str) -> Iterator[tuple[Path, Path | None]]:
    """A folder for what is built from `sources`, and the folder to build in if it is not there."""
    digest = hashlib.sha256(salt.encode())
    for source in sorted(sources):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    folder = cache_folder() / "foreign" / f"{name}-{digest.hexdigest()[:16]}"
    if folder.is_dir():
        yield folder, None
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            yield folder, None
            return
        with tempfile.TemporaryDirectory(prefix=f"{name}-part-", dir=folder.parent) as part:
            work = Path(part, "build")
            work.mkdir()
            yield folder, work
            work.rename(folder)


def run_tool(
    command: Sequence[str],
    *,
    limit_s: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str = "",
) -> str:
    """Standard output of a command that must succeed."""
    try:
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=limit_s,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        out = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else ""
        raise PeerFailed(_report(command, f"not done after {limit_s} s", out, "")) from None
    if done.returncode != 0:
        raise PeerFailed(_report(command, f"exit code {done.returncode}", done.stdout, done.stderr))
    return done.stdout


def _report(command: Sequence[str], what: str, out: str, err: str) -> str:
    errors = [line for line in out.splitlines() if '"error"' in line][:20]
    shown = "\n".join(errors) or out[-TAIL_CHARS:]
    return (
        f"{' '.join(map(str, command))[:600]}: {what}\n--- standard output ---\n{shown}"
        f"\n--- the end of standard error ---\n{err[-TAIL_CHARS:]}"
    )


def json_lines(out: str) -> list[Line]:
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


# ---- originals as servers ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Original:
    """A running original. `broker` is "-" for a name server alone."""

    version: str
    namesrv: str
    broker: str
    broker_pid: int

    def kill_broker(self) -> None:
        """End the broker by SIGKILL, as a crash would; afterwards it is gone."""
        os.kill(self.broker_pid, signal.SIGKILL)
        await_claim(self._is_broker_gone, f"original broker {self.broker_pid} is gone", 10)

    def _is_broker_gone(self) -> bool:
        try:
            os.kill(self.broker_pid, 0)
        except ProcessLookupError:
            return True
        return False


def free_port_with_neighbours() -> int:
    """A free port below the outgoing ones whose neighbours -2, -1 and +1 are free as well."""
    for _ in range(200):
        port = random.randrange(PORT_MIN, PORT_MAX)
        with ExitStack() as stack:
            try:
                for near in range(port - 2, port + 2):
                    probe = stack.enter_context(socket.socket())
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("0.0.0.0", near))
            except OSError:
                continue
        return port
    raise PeerFailed(f"no four free ports in a row between {PORT_MIN} and {PORT_MAX}")


@contextmanager
def original_broker(
    version: str, namesrv: str | None = None, **settings: str
) -> Iterator[Original]:
    """An original broker, at `namesrv` or with a name server of its own.

    `namesrv` may be a list "a:1;b:2". Further arguments are settings of the broker. When the block
    begins, every name server knows it.
    """
    with _original(version, namesrv, settings, with_broker=True) as original:
        yield original


@contextmanager
def guarded_original_broker(version: str, conf: Path) -> Iterator[Original]:
    """An original broker with access control by the file `plain_acl.yml` in `conf`."""
    settings = {"aclEnable": "true"}
    with _original(version, None, settings, with_broker=True, conf=conf) as original:
        yield original


@contextmanager
def tidy_original_broker(
    version: str, namesrv: str, settings: Mapping[str, str]
) -> Iterator[Original]:
    """An original broker whose files matter: at the end of the block it stops in its own time."""
    stop_s = TIDY_STOP_S
    with _original(version, namesrv, settings, with_broker=True, stop_s=stop_s) as original:
        yield original


@contextmanager
def original_namesrv(version: str, **settings: str) -> Iterator[Original]:
    """An original name server alone. Further arguments are its settings."""
    with _original(version, None, settings, with_broker=False) as original:
        yield original


@contextmanager
def _original(
    version: str,
    namesrv: str | None,
    settings: Mapping[str, str],
    *,
    with_broker: bool,
    stop_s: int = ORIGINAL_STOP_S,
    conf: Path | None = None,
) -> Iterator[Original]:
    original_jars(version)
    quick = " ".join((*JVM_QUICK, WITHOUT_TLS))
    env = {
        "STAY": "1",
        "STOP_S": str(stop_s),
        "BROKER_JVM": f"-Xms512m -Xmx512m {quick}",
        "NAMESRV_JVM": f"-Xms256m -Xmx256m {quick}",
        "NAMESRV": namesrv or "",
        "CONF": str(conf or ""),
    }
    with ExitStack() as stack:
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="orbitmq-original-", ignore_cleanup_errors=True)
        )
        for attempt in range(3):
            broker_port = str(free_port_with_neighbours()) if with_broker else "-"
            command = [str(ORIGINAL_SCRIPT), version, f"{folder}/{attempt}"]
            command += [str(free_port_with_neighbours()), broker_port]
            command += [f"{key}={value}" for key, value in settings.items()]
            try:
                ready = stack.enter_context(running(command, env=env, ready_limit_s=BOOT_LIMIT_S))
                break
            except ProgramFailed as failed:
                # Another process took the port between the look and the use.
                if "BindException" not in str(failed) and "Address already" not in str(failed):
                    raise
        else:
            raise PeerFailed(f"original {version}: its ports were taken three times")
        if with_broker:
            for address in ready["namesrv"].split(";"):
                await_broker(address, settings.get("brokerName", BROKER_NAME))
        broker_pid = int(ready["pids"].partition(",")[2] or 0)
        yield Original(version, ready["namesrv"], ready["broker"], broker_pid)


# ---- originals as clients ------------------------------------------------------------------------


@functools.cache
def _java_classes(version: str) -> Path:
    jars = original_jars(version)
    with built_once(f"java-{version}", list((HERE / "java").glob("*.java")), version) as made:
        folder, work = made
        if work is not None:
            sources = [str(path) for path in sorted((HERE / "java").glob("*.java"))]
            compiler = [require_tool("javac"), "--release", "11", "-nowarn", "-cp", f"{jars}/*"]
            run_tool([*compiler, "-d", str(work), *sources], limit_s=BUILD_LIMIT_S)
    return folder


def _java(
    version: str,
    main: str,
    args: Sequence[str],
    *,
    flags: Sequence[str] = (),
    limit_s: float,
    stdin: str = "",
) -> str:
    """Standard output of a Java program with the classes of `version`, in a scratch home."""
    with _java_home() as home:
        command, env = _java_command(version, home, main, args, flags)
        return run_tool(command, limit_s=limit_s, env=env, cwd=home, stdin=stdin)


@contextmanager
def _java_home() -> Iterator[Path]:
    """A home for one Java program, with quiet logging."""
    with tempfile.TemporaryDirectory(prefix="orbitmq-java-", ignore_cleanup_errors=True) as home:
        conf = Path(home, "conf")
        conf.mkdir()
        for name in ("logback_tools", "rmq.tools.logback", "rmq.client.logback"):
            text = '<configuration><root level="WARN"/></configuration>'
            (conf / f"{name}.xml").write_text(text)
        yield Path(home)


def _java_command(
    version: str, home: Path, main: str, args: Sequence[str], flags: Sequence[str] = ()
) -> tuple[list[str], dict[str, str]]:
    """A Java program as a command, and what its environment has in addition."""
    classes = _java_classes(version)
    command = [require_tool("java"), "-Xmx256m", *JVM_QUICK, *flags]
    command += [f"-Drocketmq.home.dir={home}", f"-Duser.home={home}", main, *args]
    return command, {"CLASSPATH": f"{classes}:{original_jars(version)}/*"}


@contextmanager
def java_running(version: str, main: str, *args: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program of `java/` that lasts until its standard input ends; its output is piped."""
    with _java_home() as home:
        command, env = _java_command(version, home, main, args)
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **env},
            cwd=home,
        ) as process:
            try:
                yield process
            finally:
                if process.stdin is not None:
                    process.stdin.close()
                try:
                    process.wait(JAVA_END_S)
                except subprocess.TimeoutExpired:
                    process.kill()


def java_probe(
    version: str, *args: str, binary: bool = False, tls: bool = False, limit_s: float = 180
) -> list[Line]:
    """Run commands of `java/Probe.java` (separated by "--") with the client of `version`.

    With `binary` the client writes its headers in the ROCKETMQ form instead of JSON, with `tls` it
    speaks TLS.
    """
    flags = [BINARY_HEADERS] if binary else []
    flags += ["-Dtls.enable=true"] if tls else []
    return json_lines(_java(version, "Probe", args, flags=flags, limit_s=limit_s))


def java_program(
    version: str,
    main: str,
    *args: str,
    stdin: str = "",
    binary: bool = False,
    limit_s: float = 120,
) -> list[Line]:
    """Run one of the small programs in `java/` with the classes of `version`."""
    flags = [BINARY_HEADERS] if binary else []
    return json_lines(_java(version, main, args, flags=flags, limit_s=limit_s, stdin=stdin))


def mqadmin(version: str, *args: str, limit_s: float = 120) -> str:
    """What the official mqadmin prints on standard output."""
    return _java(version, "org.apache.rocketmq.tools.command.MQAdminStartup", args, limit_s=limit_s)


@dataclass(frozen=True, slots=True)
class AdminOutput:
    """What one command of mqadmin printed; a failure is a stack trace in `err`."""

    out: str
    err: str


def mqadmin_script(
    version: str, commands: Sequence[Sequence[str]], limit_s: float = 180
) -> list[AdminOutput]:
    """Run several commands of the official mqadmin one after the other in one JVM."""
    script = "".join("\t".join(command) + "\n" for command in commands)
    lines = json_lines(_java(version, "AdminScript", (), limit_s=limit_s, stdin=script))
    if len(lines) != len(commands):
        done = [line["command"] for line in lines]
        raise PeerFailed(f"mqadmin {version} answered {len(lines)} of {len(commands)}: {done}")
    return [AdminOutput(line["out"], line["err"]) for line in lines]


@functools.cache
def _go_program() -> Path:
    source = HERE / "go"
    sources = [source / name for name in ("go.mod", "go.sum", "probe.go")]
    with built_once("go", sources, "1") as (folder, work):
        if work is not None:
            command = [require_tool("go"), "build", "-mod=readonly", "-buildvcs=false"]
            run_tool([*command, "-o", str(work / "probe"), "."], limit_s=BUILD_LIMIT_S, cwd=source)
    return folder / "probe"


def go_probe(*args: str, limit_s: float = 180) -> list[Line]:
    """Run commands of `go/probe.go` (separated by "--"), built on the Go client 2.1.2."""
    return json_lines(run_tool([str(_go_program()), *args], limit_s=limit_s))
