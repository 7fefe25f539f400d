"""Original clients find a broker by the address for the way on which they reached the name server.

The broker listens on 127.0.0.2 only and calls itself 127.0.0.5, where nobody listens: a client that
is told that address gets nowhere. Originals have no such setting, so only OrbitMQ is judged.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.foreign.accounts import events
from tests.foreign.judged import System, judged_original
from tests.foreign.peers import go_probe, java_probe
from tests.foreign.running import running
from tests.foreign.test_clients import Names, assert_round_trip, round_trip

pytestmark = [pytest.mark.nightly("clients"), pytest.mark.foreign]

COUNT = 40


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A name server on every address, and a broker that has two of its own."""
    if judged_original() is not None:
        pytest.skip("the original has no advertised addresses")
    data: Path = tmp_path_factory.mktemp("advertised")
    program = [sys.executable, "-m", "orbitmq"]
    namesrv = [*program, "namesrv", "--host", "0.0.0.0", "--port", "0", "--data-dir", str(data)]
    with running(namesrv) as found:
        port = found["namesrv"].rpartition(":")[2]
        broker = [*program, "broker", "--namesrv", f"127.0.0.1:{port}", "--host", "127.0.0.2"]
        broker += ["--port", "0", "--data-dir", str(data), "-D", "brokerIP1=127.0.0.5"]
        broker += ["-D", "advertisedAddresses=127.0.0.2=127.0.0.2"]
        with running(broker) as ready:
            yield System(port, ready["broker"].rpartition(":")[2])


def test_java_client_uses_the_address_for_its_way(site: System, fresh_name: Names) -> None:
    topic = fresh_name("advertised_java")
    outside, inside = f"127.0.0.2:{site.namesrv}", f"127.0.0.1:{site.namesrv}"
    commands = [*round_trip(outside, topic, COUNT), "--", "route", outside, topic]
    lines = java_probe("4.9.7", *commands, "--", "route", inside, topic)
    assert_round_trip(lines, topic, COUNT)
    told = [line["brokers"][0]["addresses"] for line in events(lines, "route")]
    assert told == [{"0": f"127.0.0.2:{site.broker}"}, {"0": f"127.0.0.5:{site.broker}"}]


def test_go_client_uses_the_address_for_its_way(site: System, fresh_name: Names) -> None:
    topic = fresh_name("advertised_go")
    lines = go_probe(*round_trip(f"127.0.0.2:{site.namesrv}", topic, COUNT))
    assert_round_trip(lines, topic, COUNT)
