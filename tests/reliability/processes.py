"""A broker or name server as a process of its own, and what can be seen of it from outside.

In: a folder and options of `orbitmq broker` or `orbitmq namesrv`. Out: its address, its figures
(metrics, memory, open descriptors), its log lines. Nothing here knows its insides.
"""

import re
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.foreign.running import Program, started

PATIENCE_S = 15.0
_LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ orbitmq")


class BrokerProcess:
    """A broker that runs; or, if so named, a name server."""

    def __init__(self, program: Program, folder: Path, server: str = "broker") -> None:
        self.program = program
        self.folder = folder
        self._server = server
        self.address = program.ready[server]
        host, _, port = self.address.rpartition(":")
        self.host, self.port = host, int(port)
        found = re.search(r"metrics on (http://\S+)", self.log())
        assert found is not None, "the log names the metrics port"
        self._metrics_url = found.group(1)

    def log(self) -> str:
        """What it has logged so far."""
        return self.program.log.read_text(errors="backslashreplace")

    def odd_log_lines(self) -> list[str]:
        """Lines that do not begin as log lines do: the marks of injection, or of a traceback."""
        return [line for line in self.log().split("\n") if line and not _LOG_LINE.match(line)]

    def metric(self, name: str, **labels: str) -> int:
        """Return a figure of the main port, 0 when there is none."""
        wanted = {"server": self._server, **labels} if name.startswith("orbitmq_net") else labels
        rows = self._figures(name)
        return sum(value for given, value in rows if wanted.items() <= given.items())

    def closes(self) -> Counter[str]:
        """Return how many connections of the main port were closed so far, by their reasons."""
        rows = self._figures("orbitmq_net_closes_total")
        found = Counter[str]()
        for given, value in rows:
            if given["server"] == self._server:
                found[given["reason"]] += value
        return found

    def _figures(self, name: str) -> list[tuple[dict[str, str], int]]:
        """Return the labels and values of a metric, as they are at one moment."""
        with urllib.request.urlopen(self._metrics_url, timeout=PATIENCE_S) as page:
            text = page.read().decode()
        found = []
        for line in text.splitlines():
            head, _, value = line.rpartition(" ")
            base, _, shown = head.partition("{")
            if base == name:
                found.append((dict(re.findall(r'(\w+)="([^"]*)"', shown)), int(float(value))))
        return found

    def own_mib(self) -> int:
        """Memory that is the process's own, without mapped files."""
        text = Path(f"/proc/{self.program.pid}/status").read_text()
        return int(text.partition("RssAnon:")[2].split()[0]) // 1024

    def descriptors(self) -> int:
        """How many sockets the process has open."""
        links = Path(f"/proc/{self.program.pid}/fd").iterdir()
        return sum(_target(link).startswith("socket:") for link in links)


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""  # closed meanwhile


@contextmanager
def broker_process(
    folder: Path,
    *options: str,
    module: str = "orbitmq",
    env: Mapping[str, str] | None = None,
) -> Iterator[BrokerProcess]:
    """Run a broker without name server for the length of the block; it must end cleanly."""
    command = [sys.executable, "-m", module, "broker", "--host", "127.0.0.1", "--port", "0"]
    command += ["--metrics-port", "0", "--data-dir", str(folder), *options]
    with started(command, env=env) as program:
        yield BrokerProcess(program, folder)


@contextmanager
def namesrv_process(folder: Path) -> Iterator[BrokerProcess]:
    """Run a name server for the length of the block; it must end cleanly."""
    command = [sys.executable, "-m", "orbitmq", "namesrv", "--host", "127.0.0.1", "--port", "0"]
    command += ["--metrics-port", "0", "--data-dir", str(folder)]
    with started(command) as program:
        yield BrokerProcess(program, folder, "namesrv")


def wait_until(claim: Callable[[], object], limit_s: float = PATIENCE_S) -> float:
    """Look again and again until a claim holds; return how long that took."""
    start_s = time.monotonic()
    while not claim():
        assert time.monotonic() - start_s < limit_s, f"not so within {limit_s:g} s"
        time.sleep(0.01)
    return time.monotonic() - start_s
