"""The original Java client speaks TLS to a name server and a broker that take nothing else."""

from pathlib import Path

import pytest

from tests.foreign.judged import system_under_test
from tests.foreign.peers import java_probe
from tests.foreign.test_clients import assert_round_trip, round_trip
from tests.net.certificates import Authority
from tests.wire_client import WireClient

pytestmark = [pytest.mark.nightly("clients"), pytest.mark.foreign]


def test_java_client_over_tls_gets_back_each_message(tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue("server")
    options = ["-D", "tls.server.mode=enforcing"]
    options += ["-D", f"tls.server.certPath={pair.cert_path}"]
    options += ["-D", f"tls.server.keyPath={pair.key_path}"]
    with system_under_test(tmp_path / "data", *options) as system:
        lines = java_probe("4.9.7", *round_trip(system.namesrv, "Sealed", 100), tls=True)
        assert_round_trip(lines, "Sealed", 100)
        with WireClient(system.broker) as plain, pytest.raises(ConnectionError):
            plain.ask(34)


def test_java_client_over_tls_takes_the_certificate_that_is_made_up_for_trials(
    tmp_path: Path,
) -> None:
    """The client's own tls.test.mode.enable is true: it trusts everybody."""
    options = ["-D", "tls.server.mode=enforcing", "-D", "tls.test.mode.enable=true"]
    with system_under_test(tmp_path / "data", *options) as system:
        lines = java_probe("4.9.7", *round_trip(system.namesrv, "Trial", 20), tls=True)
        assert_round_trip(lines, "Trial", 20)
