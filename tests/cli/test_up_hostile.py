"""Every hostile peer at once against a running `orbitmq up`, beside a client that must be served.

Goal: each bad peer is closed or refused for its reason, with the product's own time limits, while a
producer beside them gets every answer and every message it sent is there afterwards.
"""

import re
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orbitmq.wire.codes import ResponseCode
from tests.behaviour.requests import fill, send_request
from tests.cli.test_up_command import Up, read_bodies, scrape, up
from tests.net.hostile_cases import CASES, HostileCase
from tests.wire_client import WireClient

PATIENCE_S = 100.0
PLAIN_CASES = [case for case in CASES if not case.needs_tls]


class Producer:
    """Sends one message after the other until it is told to stop."""

    def __init__(self, broker: str) -> None:
        self.bodies: list[bytes] = []
        self.failure: Exception | None = None
        self._client = WireClient(broker)
        self._stop = threading.Event()
        fill(self._client, "Steady", [b"first"])
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def stop(self) -> None:
        """Send no more and wait for the last answer."""
        self._stop.set()
        self._thread.join()
        self._client.close()

    def _send(self) -> None:
        try:
            while not self._stop.wait(0.005):
                body = b"%d" % len(self.bodies)
                answer = self._client.call(send_request("Steady", body))
                if answer.code == ResponseCode.SYSTEM_BUSY and "TIMEOUT_CLEAN" in (
                    answer.remark or ""
                ):
                    continue  # refused for now, with its cause: the machine is that busy
                assert answer.code == 0, answer.remark
                self.bodies.append(body)
        except Exception as error:
            self.failure = error


def closes(running: Up, metrics: str) -> Counter[str]:
    found = re.findall(
        r'^orbitmq_net_closes_total\{server="broker",reason="([^"]+)"\} (\d+)$', metrics, re.M
    )
    assert running.process.poll() is None
    return Counter({reason: int(count) for reason, count in found})


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_hostile_peers_are_closed_for_their_reasons_and_a_producer_is_served(
    tmp_path: Path,
) -> None:
    with up(tmp_path, "--metrics-port", "0") as running:
        assert running.process.stderr is not None
        line = next(line for line in running.process.stderr if "metrics on" in line)
        drained = threading.Thread(target=running.process.stderr.read)  # a full pipe would block it
        drained.start()
        metrics_address = re.search(r"http://(\S+)/metrics", line)
        assert metrics_address is not None
        producer = Producer(running.broker)
        host, _, port = running.broker.rpartition(":")

        def act(case: HostileCase) -> None:
            case.act(host, int(port), PATIENCE_S)

        try:
            with ThreadPoolExecutor(len(PLAIN_CASES)) as pool:
                for case, outcome in [(case, pool.submit(act, case)) for case in PLAIN_CASES]:
                    assert outcome.exception() is None, (case.name, outcome.exception())
        finally:
            producer.stop()
        assert producer.failure is None
        assert len(producer.bodies) > 1_000
        with WireClient(running.broker) as client:
            sent = [b"first", *producer.bodies]
            assert read_bodies(client, "Steady", len(sent)) == sent
        counted = closes(running, scrape(metrics_address[1]))
        status = Path(f"/proc/{running.process.pid}/status").read_text()
        running.process.terminate()
        drained.join()
    expected = Counter[str]()
    for case in PLAIN_CASES:
        if case.reason is not None:
            expected[case.reason] += case.count
    assert counted & expected == expected
    resident = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert resident is not None
    assert int(resident[1]) < 300_000
