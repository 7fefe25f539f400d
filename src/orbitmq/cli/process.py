"""What every serving command shares: settings from files and flags, logs, signals, the ready line.

In: arguments of the command line and a service. Out: one line on standard output when the service
is ready, everything else on standard error, and an exit code.

Rules:
1. `-D` and flags of their own win over the file of `-c`; where changes kept by the process stand is
   said by each command.
2. The first SIGTERM or SIGINT stops cleanly (exit code 0), also while the service still starts; the
   second ends the process at once.
3. Logs are bounded in lines per second, as a peer can cause lines.
4. A process that another of ours started ends with it: the end of its standard input counts as a
   signal.
"""

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from orbitmq.cli.screen import printable
from orbitmq.config import file_text, parse_properties
from orbitmq.errors import MQError, SettingError
from orbitmq.metrics import Registry
from orbitmq.net.scrape import start_metrics
from orbitmq.net.turn import Turn
from orbitmq.world.clock import Clock, SystemClock
from orbitmq.world.files import Files
from orbitmq.world.net import run
from orbitmq.world.processes import when_parent_is_gone

EXIT_FAILED = 1
EXIT_USAGE = 2
"""The command line or the settings are wrong; argparse uses the same code."""

LOG_LINES_PER_SECOND_MAX = 100
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

logger = logging.getLogger("orbitmq")


class Service(Protocol):
    """What a serving command runs."""

    async def start(self) -> str:
        """Begin to serve; return the ready line. May be cancelled; `stop` is called then, too."""
        ...

    async def stop(self) -> None:
        """Stop cleanly; also after a start that failed."""
        ...


MakeService = Callable[[Turn, Registry], Service]


# --- arguments ---


def add_serving_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of every serving command: where it listens and keeps its files, settings."""
    parser.add_argument("--host", metavar="H", help="address to listen on (127.0.0.1)")
    parser.add_argument("--data-dir", default="data", metavar="D", help="data folder (./data)")
    parser.add_argument(
        "-c", dest="file", metavar="FILE", help="read the original's .properties from FILE"
    )
    parser.add_argument(
        "-D",
        dest="overrides",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="set one of its keys; wins over the file; may be repeated",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="refuse a file with unknown keys or numbers outside their range",
    )
    parser.add_argument(
        "-p", dest="prints", action="store_true", help="print all settings and exit"
    )
    parser.add_argument(
        "--metrics-port",
        type=int,
        metavar="M",
        help="show metrics in Prometheus text on http://HOST:M/metrics (0: any free port)",
    )


class GivenSettings(NamedTuple):
    """The pairs of `-c`, what wins over them (`-D` and flags), and notes for the log."""

    properties: dict[str, str]
    overrides: dict[str, str]
    notes: list[str]


def given_settings(
    files: Files, arguments: argparse.Namespace, flags: Mapping[str, object]
) -> GivenSettings:
    """Return what the command line says; of `flags` those that are not None."""
    overrides = read_overrides(arguments.overrides)
    overrides |= {key: str(value) for key, value in flags.items() if value is not None}
    is_strict = getattr(arguments, "strict", False)  # `orbitmq store` has no such flag
    properties, notes = read_settings_file(files, arguments.file, strict=is_strict)
    return GivenSettings(properties, overrides, notes)


def read_settings_file(
    files: Files, path: str | None, *, strict: bool = False
) -> tuple[dict[str, str], list[str]]:
    """The properties of a settings file and notes; raises SettingError when it is unreadable.

    With `strict`, also when it is not UTF-8.
    """
    if path is None:
        return {}, []
    try:
        data = files.read(Path(path))
    except OSError as error:
        raise SettingError(f"cannot read {path}: {error.strerror}") from None
    if data is None:
        raise SettingError(f"there is no settings file {path}")
    try:
        if strict:
            return parse_properties(data), []
        text, encoding = file_text(data)
        properties = parse_properties(text)
    except SettingError as error:
        raise SettingError(f"{path}: {error}") from None
    note = f"{path} is not UTF-8 and is read as Latin-1, as Java does; save it as UTF-8"
    return properties, [note] if encoding == "latin-1" else []


def read_overrides(texts: list[str]) -> dict[str, str]:
    """Return the pairs of `-D key=value`; raises SettingError for one that is no pair."""
    overrides = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise SettingError(f"-D {text}: write it as KEY=VALUE")
        overrides[key.strip()] = value
    return overrides


# --- logs ---


class LineLimit(logging.Filter):
    """Lets a bounded number of lines a second pass and counts the others."""

    def __init__(self, clock: Clock, lines_max: int = LOG_LINES_PER_SECOND_MAX) -> None:
        super().__init__()
        self._clock = clock
        self._lines_max = lines_max
        self._second = 0
        self._passed = 0
        self._dropped = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line may pass; the first of a new second says how many did not."""
        second = int(self._clock.monotonic_s())
        if second != self._second:
            if self._dropped:
                record.msg = f"{record.getMessage()} ({self._dropped} lines before it left out)"
                record.args = None
            self._second, self._passed, self._dropped = second, 0, 0
        self._passed += 1
        if self._passed <= self._lines_max:
            return True
        self._dropped += 1
        return False


def log_to_stderr(name: str = "") -> None:
    """Send log lines of level INFO and above to standard error, with `name` if several share it."""
    handler = logging.StreamHandler(sys.stderr)
    whose = f" {name.replace('%', '%%')}" if name else ""
    form = f"%(asctime)s %(levelname)s{whose} %(name)s %(message)s"
    handler.setFormatter(logging.Formatter(form))
    handler.addFilter(LineLimit(SystemClock()))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def say(line: str) -> None:
    """Write one line to standard output, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def complain(command: str, error: Exception | str) -> None:
    """Write to standard error what went wrong, with control characters as escapes."""
    text = "\n".join(map(printable, str(error).split("\n")))
    sys.stderr.write(f"{command}: {text}\n")


def show_help(parser: argparse.ArgumentParser) -> int:
    """Show the help of a command that lacks a word; return the exit code."""
    parser.print_help(sys.stderr)
    return EXIT_USAGE


# --- running ---


def serve(
    make: MakeService,
    *,
    metrics_host: str = "",
    metrics_port: int | None = None,
    is_child: bool = False,
) -> None:
    """Run a service until a signal stops it; raises MQError when it cannot start."""
    run(_serve(make, metrics_host, metrics_port, is_child=is_child))


async def _serve(
    make: MakeService, metrics_host: str, metrics_port: int | None, *, is_child: bool
) -> None:
    loop = asyncio.get_running_loop()
    if isinstance(loop, asyncio.SelectorEventLoop):
        logger.info(
            "uvloop is not installed; with it (pip install 'orbitmq[server]') less CPU is used"
        )
    stop_asked = asyncio.Event()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, _ask_to_stop, loop, stop_asked)
    if is_child:
        when_parent_is_gone(loop, lambda: _parent_is_gone(loop, stop_asked))
    registry = Registry()
    service = make(Turn(loop), registry)
    metrics_server: asyncio.AbstractServer | None = None
    try:
        ready = await _unless_stopped(service.start(), stop_asked)
        if ready is None:
            logger.info("stopped before it was ready")
            return
        if metrics_port is not None:
            metrics_server, port = await start_metrics(registry, metrics_host, metrics_port)
            logger.info("metrics on http://%s:%d/metrics", metrics_host, port)
        say(ready)
        await stop_asked.wait()
        logger.info("stopping; a second signal stops at once")
    finally:
        if metrics_server is not None:
            metrics_server.close()
        await service.stop()


async def _unless_stopped(start: Coroutine[Any, Any, str], stop_asked: asyncio.Event) -> str | None:
    """Return what `start` gives, or None when it was cancelled because a signal came first."""
    starting = asyncio.create_task(start)
    stopping = asyncio.create_task(stop_asked.wait())
    try:
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            logger.info("stopping while starting; a second signal stops at once")
            starting.cancel()
            await asyncio.wait((starting,))
    finally:
        stopping.cancel()
    return None if starting.cancelled() else starting.result()


def _ask_to_stop(loop: asyncio.AbstractEventLoop, stop_asked: asyncio.Event) -> None:
    stop_asked.set()
    for number in STOP_SIGNALS:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)


def _parent_is_gone(loop: asyncio.AbstractEventLoop, stop_asked: asyncio.Event) -> None:
    if stop_asked.is_set():
        signal.raise_signal(signal.SIGTERM)  # the second one: at once
    logger.warning("the process that started this one is gone; stopping")
    _ask_to_stop(loop, stop_asked)


def run_command(command: str, act: Callable[[], int]) -> int:
    """Return what `act` returns, or the exit code for what it raises, which is told in one line."""
    try:
        return act()
    except SettingError as error:
        complain(command, error)
        return EXIT_USAGE
    except MQError as error:
        complain(command, error)
        return EXIT_FAILED


def show_address(host: str, port: int) -> str:
    """Return `host:port`, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
