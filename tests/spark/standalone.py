"""A real Spark cluster on this machine: a master and workers, each a process of its own.

In: a folder. Out: the master's address, for `submit`, which runs a program as users do, and the
executors that run now. Rules: ports by the operating system; what was started is ended by its own
id; executors are found below the workers that were started here, and only there.
"""

import os
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from orbitmq.spark.quick_start import PLAIN_OPTIONS
from tests.spark.processes import children, command

SPARK_HOME = Path(pyspark.__file__).parent
WORKER_COUNT = 2
READY_LIMIT_S = 120
SUBMIT_LIMIT_S = 480
STOP_LIMIT_S = 30
EXECUTOR_CLASS = "CoarseGrainedExecutorBackend"


class ClusterFailed(Exception):
    """A part of the cluster, or a program on it, did not do what it should."""


@dataclass(frozen=True)
class Cluster:
    """A master and its workers."""

    address: str
    worker_pids: tuple[int, ...]

    def executors(self) -> list[int]:
        """Return the process ids of the JVMs that run tasks now, for whatever application."""
        return [
            pid
            for worker in self.worker_pids
            for pid in children(worker)
            if EXECUTOR_CLASS in command(pid)
        ]


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """Return a master with two workers of one core each."""
    with ExitStack() as stack:
        master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0"]
        ready = r"Starting Spark master at (\S+)"
        address, _ = _started(stack, folder / "master", master, ready)
        pids = []
        for number in range(WORKER_COUNT):
            place = folder / f"worker-{number}"
            worker = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1"]
            worker += ["--port", "0", "--cores", "1", "--memory", "600m"]
            worker += ["--work-dir", str(place / "work"), address]
            ready = r"Successfully registered with master (\S+)"
            pids.append(_started(stack, place, worker, ready)[1])
        yield Cluster(address, tuple(pids))


def cluster_settings() -> dict[str, str]:
    """Return the settings of an application on such a cluster."""
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": PLAIN_OPTIONS,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": PLAIN_OPTIONS,
        "spark.ui.enabled": "false",
    }


def submit(
    address: str, program: Path, arguments: Sequence[str], settings: Mapping[str, str]
) -> str:
    """Run a program by spark-submit and return what it printed."""
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", address]
    given = {**cluster_settings(), **settings}
    for name, text in given.items():
        command += ["--conf", f"{name}={text}"]
    done = subprocess.run(
        [*command, str(program), *arguments],
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=SUBMIT_LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise ClusterFailed(f"{program.name} ended with {done.returncode}:\n{done.stderr[-8000:]}")
    return done.stdout


def _environment() -> dict[str, str]:
    """Return the variables of this process without those that say where Python finds packages."""
    kept = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith("PYSPARK_") and name != "PYTHONPATH"
    }
    return {
        **kept,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_DAEMON_JAVA_OPTS": PLAIN_OPTIONS,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def _started(
    stack: ExitStack, folder: Path, arguments: Sequence[str], ready: str
) -> tuple[str, int]:
    """Start a daemon, and return what its ready line names and its process id."""
    folder.mkdir(parents=True)
    log = folder / "log"
    environment = {**_environment(), "SPARK_LOCAL_DIRS": str(folder / "local")}
    process = stack.enter_context(
        subprocess.Popen(
            [SPARK_HOME / "bin" / "spark-class", *arguments, "--webui-port", "0"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
    )
    said: queue.Queue[str | None] = queue.Queue()
    reader = threading.Thread(target=_read, args=(process, log, re.compile(ready), said))
    reader.start()
    stack.callback(reader.join)
    stack.callback(_stop, process)
    found = said.get(timeout=READY_LIMIT_S)
    if found is None:
        raise ClusterFailed(f"it ended before it was ready: {log.read_text()[-4000:]}")
    return found, process.pid


def _read(
    process: "subprocess.Popen[str]",
    log: Path,
    ready: "re.Pattern[str]",
    said: "queue.Queue[str | None]",
) -> None:
    """Keep what a daemon says, and tell when it is ready: a full pipe would stop it."""
    assert process.stderr is not None
    with log.open("w") as kept:
        for line in process.stderr:
            kept.write(line)
            if found := ready.search(line):
                said.put(found[1])
    said.put(None)


def _stop(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
