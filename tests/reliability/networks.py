"""Two networks of the test's own with a cable between them that can be pulled; Linux, as root.

In: nothing. Out: threads in which everything lives in one of the two networks: sockets that are
opened there and programs that are started there. The networks end with the last of those.

Rule: the machine's own network is not touched. Where such networks may not be made, the test is
skipped with a line that says why, or fails when ORBITMQ_TEST_ALL=1.
"""

import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from tests.must_run import cannot

NEW_NETWORK = 0x40000000
HOME, AWAY = "10.99.7.1", "10.99.7.2"


@dataclass(frozen=True)
class Networks:
    """The two networks, each by the thread that lives in it, and the cable."""

    home: ThreadPoolExecutor
    away: ThreadPoolExecutor

    def pull_cable(self) -> None:
        """From now on nothing arrives on either side, and nobody is told."""
        self.away.submit(_ip, "link", "set", "away0", "down").result()


@contextmanager
def two_networks() -> Iterator[Networks]:
    """Two networks with a cable: HOME is here, AWAY is there."""
    if shutil.which("ip") is None:
        cannot("`ip` (iproute2) is not installed")
    with ThreadPoolExecutor(1) as home, ThreadPoolExecutor(1) as away:
        home.submit(_enter).result()
        far = away.submit(_enter).result()
        home.submit(_join, far).result()
        away.submit(_ip, "addr", "add", f"{AWAY}/30", "dev", "away0").result()
        away.submit(_ip, "link", "set", "away0", "up").result()
        yield Networks(home, away)


def _enter() -> int:
    """Move this thread into a network of its own; return the thread's id."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_NETWORK):
        cannot(f"no network of its own: {os.strerror(ctypes.get_errno())}")
    _ip("link", "set", "lo", "up")
    return threading.get_native_id()


def _join(far: int) -> None:
    end = ("peer", "name", "away0", "netns", str(far))
    _ip("link", "add", "home0", "type", "veth", *end)
    _ip("addr", "add", f"{HOME}/30", "dev", "home0")
    _ip("link", "set", "home0", "up")


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        cannot(f"`ip {' '.join(arguments)}`: {done.stderr.strip()}")
