"""The processes of a kill loop: name server, broker, clients; started, killed, started again.

In: a folder, the broker's settings. Out: running processes, and the events `kill` and `ready` in
the history. What each process says goes to files in the folder, which stay.

Rules:
1. Every process is ended by its own id. What is still there at the end of the block is killed.
2. Broker and name server have fixed ports below the outgoing ones: they come back where they were.
3. A client that ends by itself, or badly, is a finding.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from tests.foreign.peers import free_port_with_neighbours
from tests.reliability.load_client import Log

ROOT = Path(__file__).resolve().parents[2]
READY_LIMIT_S = 60.0
STOP_LIMIT_S = 40.0
HOST = "127.0.0.1"


class Started:
    """A process, and the file that has what it says."""

    def __init__(self, command: list[str], said: Path) -> None:
        self.said = said
        self.started_s = time.monotonic()
        with said.open("ab") as stderr:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr
            )

    @property
    def is_gone(self) -> bool:
        """Whether it has ended, however."""
        return self._process.poll() is not None

    def wait_ready(self) -> bool:
        """Wait for its ready line; False when it ended before."""
        assert self._process.stdout is not None
        wait_s = self.started_s + READY_LIMIT_S - time.monotonic()
        is_there = select.select([self._process.stdout], [], [], max(0.0, wait_s))[0]
        assert is_there, f"not ready after {READY_LIMIT_S:g} s: {self.tail()}"
        return os.read(self._process.stdout.fileno(), 4096).startswith(b"ready ")

    def wait(self, limit_s: float) -> None:
        """Wait so long, or until it ends."""
        try:
            self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return

    def kill(self) -> None:
        """End it by SIGKILL; afterwards it is gone."""
        self._process.kill()
        self._close()

    def stop(self) -> None:
        """End it by SIGTERM; it must end well."""
        self._process.terminate()
        self.wait(STOP_LIMIT_S)
        code = self._process.poll()
        assert code == 0, f"ended with {code} after SIGTERM: {self.tail()}"
        self._close()

    def _close(self) -> None:
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def tail(self) -> str:
        """Return the end of what it has said."""
        return f"{self.said}\n" + self.said.read_text(errors="replace")[-3000:]


class Cluster:
    """A name server, a broker and clients on one folder."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self.data = folder / "data"
        self.histories = folder / "histories"
        self._logs = folder / "logs"
        for path in (self.data, self.histories, self._logs):
            path.mkdir(parents=True)
        self._settings = settings
        self.log = Log(self.histories, "judge")
        self.namesrv_address = f"{HOST}:{free_port_with_neighbours()}"
        self.broker_address = f"{HOST}:{free_port_with_neighbours()}"
        self.namesrv: Started | None = None
        self.broker: Started | None = None
        self.clients: dict[str, Started] = {}

    def __enter__(self) -> Cluster:
        namesrv = self.start_namesrv()
        assert namesrv.wait_ready(), namesrv.tail()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for started in (*self.clients.values(), self.broker, self.namesrv):
            if started is not None:
                started.kill()

    def _start(self, name: str, command: list[str]) -> Started:
        return Started([sys.executable, "-m", *command], self._logs / f"{name}.log")

    def note(self, op: str, what: str) -> None:
        """Put an event into the history."""
        self.log.add("ok", op, what)
        self.log.flush()

    def start_namesrv(self) -> Started:
        """Start the name server; nobody has to wait for it."""
        port = self.namesrv_address.rpartition(":")[2]
        command = ["orbitmq", "namesrv", "--host", HOST, "--port", port]
        self.namesrv = self._start("namesrv", [*command, "--data-dir", str(self.data)])
        return self.namesrv

    def restart_namesrv(self) -> None:
        """Kill the name server and start it again; nobody waits for it."""
        assert self.namesrv is not None
        assert not self.namesrv.is_gone, self.namesrv.tail()
        self.note("kill", "namesrv")
        self.namesrv.kill()
        self.start_namesrv()

    def spawn_broker(self, builds: tuple[str, ...] = ()) -> Started:
        """Start a broker without waiting for it; `builds` are changes of its program."""
        port = self.broker_address.rpartition(":")[2]
        options = [f"-D{key}={value}" for key, value in self._settings.items()]
        command = ["broker", "--namesrv", self.namesrv_address, "--host", HOST, "--port", port]
        command += ["--data-dir", str(self.data), *options]
        head = ["tests.reliability.builds", *builds, "--"] if builds else ["orbitmq"]
        self.broker = self._start("broker", [*head, *command])
        return self.broker

    def await_broker(self) -> bool:
        """Wait until the broker is ready; False when it ended before."""
        assert self.broker is not None
        is_ready = self.broker.wait_ready()
        if is_ready:
            self.note("ready", "broker")
        return is_ready

    def kill_broker(self) -> None:
        """Kill the broker, if it has not done so itself."""
        assert self.broker is not None
        self.broker.kill()
        # Behind it: whatever it has answered, it has answered before.
        self.note("kill", "broker")
        self.broker = None

    def stop_broker(self) -> None:
        """Stop the broker cleanly."""
        assert self.broker is not None
        self.broker.stop()
        self.broker = None

    def start_client(self, kind: str, process: str, seed: int, *options: str) -> None:
        """Start a producer or a consumer under a name that no other one had."""
        command = [f"tests.reliability.load_{kind}", "--namesrv", self.namesrv_address]
        command += ["--broker", self.broker_address, "--histories", str(self.histories)]
        command += ["--process", process, "--seed", str(seed), *options]
        self.clients[process] = self._start(process, command)

    def kill_client(self, process: str) -> None:
        """Kill a client."""
        self.note("kill", process)
        self.clients.pop(process).kill()

    def stop_client(self, process: str) -> None:
        """Let a client finish what is under way."""
        self.clients.pop(process).stop()

    def bury_clients(self) -> list[str]:
        """Return what is to be said of clients that ended by themselves; they are gone then."""
        gone = {process: client for process, client in self.clients.items() if client.is_gone}
        for process in gone:
            self.clients.pop(process).kill()
        return [f"client: {process} ended by itself: {one.tail()}" for process, one in gone.items()]
