"""Mistakes that a broker process once made, each named for what its operator saw."""

import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.config import parse_properties
from orbitmq.world.files import SystemFiles
from tests.behaviour.requests import send_request
from tests.cli.commands import Running, run_command
from tests.cli.test_broker_command import broker, brokers_of, namesrv
from tests.foreign.asking import await_claim
from tests.wire_client import WireClient

DELAYED_S_MAX = 10.0
"""A delay of one second on a busy machine; it was 60 s here."""

ANSWER_S = 60.0
"""How long a broker waits for a name server in these tests."""


@pytest.fixture
def silent_namesrv() -> Iterator[str]:
    """An address that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_silent_name_server_holds_up_neither_start_nor_delays_nor_stop(
    tmp_path: Path, silent_namesrv: str
) -> None:
    """Symptom: with a name server that hung a broker served, delivered and stopped late."""
    flags = ("--namesrv", silent_namesrv, "-D", f"registerBrokerTimeoutMills={ANSWER_S * 1000:.0f}")
    begin_s = time.monotonic()
    with broker(tmp_path, *flags) as process:
        with WireClient(process.await_listening()) as client:
            delayed = send_request("Late", b"x", i="DELAY\x011\x02", e=0)
            assert client.call(delayed).code == 0

            def is_delivered() -> bool:
                return client.ask(30, topic="Late", queueId=0).fields["offset"] == "1"

            await_claim(is_delivered, "the delayed message came", DELAYED_S_MAX)
        assert process.stop() == 0
    assert time.monotonic() - begin_s < ANSWER_S


def test_a_host_name_is_registered_as_it_is_written(tmp_path: Path) -> None:
    """Symptom: clients elsewhere got the address that the broker's own machine resolves."""
    with namesrv(tmp_path / "names") as names:
        address = names.line().removeprefix("ready namesrv=")
        with broker(tmp_path, "--namesrv", address, "-D", "brokerIP1= localhost ") as process:
            port = process.line().rpartition(":")[2]
            assert brokers_of(address) == {"broker-a": f"localhost:{port}"}
            assert process.stop() == 0
        assert names.stop() == 0


def test_a_broker_that_others_are_told_of_but_cannot_reach_says_so(tmp_path: Path) -> None:
    """Symptom: the log said `listening on 192.0.2.7`, which nobody could connect to."""
    with broker(tmp_path, "-D", "brokerIP1=192.0.2.7") as process:
        port = process.line().rpartition(":")[2]
        process.await_log(f"listening on 127.0.0.1:{port}")
        process.await_log("bindAddress=0.0.0.0")
        assert process.stop() == 0


@pytest.mark.parametrize("name", ["../evil", "a b", "", ".hidden", "x" * 128])
def test_a_broker_name_that_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    """Symptom: brokerName=../evil with --brokers made folders outside the data folder."""
    flags = ("broker", "--port", "0", "--data-dir", str(tmp_path / "data"))
    done = run_command(
        "orbitmq", *flags, "-D", f"brokerName={name}", "--brokers", "2", folder=tmp_path
    )
    assert done.returncode != 0
    assert "brokerName" in done.stderr
    assert not (tmp_path / "data").exists()


def test_a_replaced_file_keeps_its_mode_and_the_link_to_it(tmp_path: Path) -> None:
    """Symptom: a settings file with passwords became readable by all, its link a plain file."""
    real, link = tmp_path / "real.conf", tmp_path / "broker.conf"
    real.write_bytes(b"old")
    real.chmod(0o600)
    link.symlink_to(real)
    SystemFiles().replace(link, b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o600


def test_changes_at_two_brokers_that_share_a_file_are_both_kept(tmp_path: Path) -> None:
    """Symptom: brokers of one --brokers changed the file of -c at once, and one change was lost."""
    shared = tmp_path / "shared.conf"
    shared.write_text("fileReservedTime=72\n")
    flags = ("broker", "--port", "0", "--data-dir", "data", "-c", str(shared), "--brokers", "2")
    for wanted in ("48", "24"):
        with Running("orbitmq", *flags, folder=tmp_path) as process:
            addresses = process.line().removeprefix("ready broker=").split(",")
            for address in addresses:
                with WireClient(address) as client:
                    if wanted == "24":
                        text = client.ask(26).body.decode()
                        assert parse_properties(text)["fileReservedTime"] == "48"
                    change = f"fileReservedTime={wanted}\n".encode()
                    assert client.ask(25, change).code == 0
            assert process.stop() == 0
    assert shared.read_text() == "fileReservedTime=72\n"
