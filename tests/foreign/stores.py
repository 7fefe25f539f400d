"""One store folder, opened by OrbitMQ or by an original broker, as often as a test likes.

In: a folder and the sizes of its files, which both must be told alike. Out: the broker that serves
it, for the length of a block. Rules:

1. A block ends with a clean stop, which leaves no `abort` behind, unless the broker was killed in
   it. An original gets all the time it needs for that, 7 to 10 seconds.
2. OrbitMQ runs as a process of its own with its own name server; an original uses the one it is
   given, so that a test pays for one JVM only.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.foreign.judged import up_command
from tests.foreign.peers import tidy_original_broker
from tests.foreign.running import started

CHECK_LIMIT_S = 120
Settings = Mapping[str, str]
NO_SETTINGS: Settings = {}

SMALL: Settings = {
    "mappedFileSizeCommitLog": "262144",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
}
"""Files so small that a few thousand messages fill several of each kind."""


class Opened(NamedTuple):
    """A broker that has a folder open."""

    broker: str
    namesrv: str
    kill: Callable[[], None]


@dataclass(frozen=True)
class DataFolder:
    """OrbitMQ's data folder, and how big the files of the store in it are."""

    path: Path
    sizes: Settings
    logs_elsewhere: tuple[Path, ...] = ()

    @property
    def store(self) -> Path:
        """What the original calls storePathRootDir."""
        return self.path / "store"

    @property
    def log(self) -> str:
        """What the original calls storePathCommitLog."""
        return ",".join(map(str, self.logs_elsewhere or (self.store / "commitlog",)))

    @property
    def is_aborted(self) -> bool:
        """Whether the last broker that had it open was cut off."""
        return (self.store / "abort").exists()


def _options(settings: Settings) -> list[str]:
    """Settings as options of our commands."""
    return [word for item in settings.items() for word in ("-D", "=".join(item))]


@contextmanager
def ours_on(folder: DataFolder, further: Settings = NO_SETTINGS) -> Iterator[Opened]:
    """OrbitMQ on a folder."""
    place = {"storePathCommitLog": folder.log} if folder.logs_elsewhere else {}
    options = _options({**folder.sizes, **place, **further})
    with started(up_command(folder.path, *options)) as program:
        yield Opened(program.ready["broker"], program.ready["namesrv"], program.kill)
    assert folder.is_aborted == program.is_killed


@contextmanager
def original_on(
    version: str, folder: DataFolder, namesrv: str, further: Settings = NO_SETTINGS
) -> Iterator[Opened]:
    """An original broker on a folder, registered at `namesrv`."""
    paths = {"storePathRootDir": str(folder.store), "storePathCommitLog": folder.log}
    is_killed = False

    def kill() -> None:
        nonlocal is_killed
        is_killed = True
        original.kill_broker()

    settings = {**folder.sizes, **paths, **further}
    with tidy_original_broker(version, namesrv, settings) as original:
        yield Opened(original.broker, original.namesrv, kill)
    assert folder.is_aborted == is_killed


def check_store(folder: DataFolder) -> str:
    """What `orbitmq store check` says of a folder that it must find healthy."""
    command = [sys.executable, "-m", "orbitmq", "store", "check", str(folder.store)]
    command += ["--log", folder.log] if folder.logs_elsewhere else []
    done = subprocess.run(
        [*command, *_options(folder.sizes)],
        capture_output=True,
        text=True,
        timeout=CHECK_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout
