"""A well-behaved client in a process of its own: sends and pulls, and keeps the times it takes.

In: an address; one line on standard input asks for the figures since the line before. Out: one
line `rounds p50_ms p99_ms max_ms` for each; the end of standard input ends it. A wrong answer ends
it with an error at once. A process, so that what the attackers of a test cost is not its time.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from orbitmq.wire.record import scan_records
from tests.behaviour.requests import heartbeat_body, pull_request, send_request
from tests.reliability.processes import wait_until
from tests.wire_client import WireClient

PAUSE_S = 0.002


class Times(NamedTuple):
    """How long rounds took: a send and the pull of what was sent."""

    rounds: int
    p50_ms: float
    p99_ms: float
    max_ms: float


def talk(client: WireClient, took_s: list[float], ended: threading.Event) -> None:
    """Go round until told to end."""
    number = 0
    while not ended.wait(PAUSE_S):
        start_s = time.perf_counter()
        if number % 100 == 0:
            beat = client.ask(34, heartbeat_body("bystander", "BystanderGroup", "Bystander"))
            assert beat.code == 0, beat.remark
        body = b"%d" % number
        sent = client.call(send_request("Bystander", body))
        assert sent.code == 0, sent.remark
        offset = int(sent.fields["queueOffset"])
        pulled = client.call(pull_request("Bystander", "BystanderGroup", offset))
        assert [record.body for record in scan_records(pulled.body)] == [body]
        took_s.append(time.perf_counter() - start_s)
        number += 1


def times_of(took_s: list[float]) -> Times:
    """Take the times out of the list; give their figures."""
    count = len(took_s)
    times_ms = sorted(one * 1000 for one in took_s[:count])
    del took_s[:count]
    p50_ms, p99_ms, max_ms = (times_ms[int(share * (count - 1))] for share in (0.5, 0.99, 1))
    return Times(count, p50_ms, p99_ms, max_ms)


def main(address: str) -> None:
    took_s: list[float] = []
    ended = threading.Event()
    with WireClient(address) as client:
        thread = threading.Thread(target=talk, args=(client, took_s, ended))
        thread.start()
        for _line in sys.stdin:
            wait_until(lambda: took_s or not thread.is_alive())
            if not thread.is_alive():
                sys.exit(1)
            print(*times_of(took_s), flush=True)
        ended.set()
        thread.join()


class Bystander:
    """The other end of that process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def times(self) -> Times:
        """Return the figures since this was asked last; it fails when the client was not served."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the well-behaved client was not served"
        count, *rest = line.split()
        return Times(int(count), *map(float, rest))


@contextmanager
def bystander(address: str) -> Iterator[Bystander]:
    """A well-behaved client at work for the length of the block; it must be served all the time."""
    command = [sys.executable, "-m", "tests.reliability.bystander", address]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe) as process:
        yield Bystander(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 0, "the well-behaved client was not served"


if __name__ == "__main__":
    main(sys.argv[1])
