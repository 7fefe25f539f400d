"""Settings files and ports of a process: mistakes once made, named for what the operator saw."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from orbitmq.config import parse_properties
from orbitmq.net.admission import DESCRIPTORS_APART
from tests.behaviour.requests import send_request
from tests.cli.commands import Running, run_command
from tests.cli.test_broker_command import address_of, broker, free_ports
from tests.cli.test_up_command import up
from tests.wire_client import WireClient

CONNECTIONS = 40
CLAMPED = "registerNameServerPeriod=5000\ndiskMaxUsedSpaceRatio=99\nmaxMessageSize=33554432\n"


def is_served(stack: ExitStack, address: str) -> bool:
    """Connect until the end of `stack`; give whether the connection is let in."""
    client = stack.enter_context(WireClient(address))
    try:
        client.ask(26)
    except ConnectionError:
        return False
    return True


def test_the_second_port_leaves_the_store_its_descriptors(tmp_path: Path) -> None:
    """Symptom: with both ports full of clients every send failed with "Too many open files"."""
    port = free_ports()
    flags = ("broker", "--port", str(port), "--data-dir", "data")
    files_max = DESCRIPTORS_APART + CONNECTIONS
    with (
        Running("orbitmq", *flags, folder=tmp_path, open_files_max=files_max) as process,
        ExitStack() as clients,
    ):
        address = address_of(process.line())
        sender = clients.enter_context(WireClient(address))
        assert sender.ask(26).code == 0
        ports = [port, port - 2] * CONNECTIONS
        served = [is_served(clients, f"127.0.0.1:{one}") for one in ports]
        assert sum(served) == CONNECTIONS - 1
        for number in range(20):
            answer = sender.call(send_request(f"Topic{number}", b"x"))
            assert (answer.code, answer.remark) == (0, None)
        process.await_log(f"leaves {CONNECTIONS} connections instead of 10000")
        assert process.stop() == 0


def test_name_server_and_broker_of_one_process_share_the_limit(tmp_path: Path) -> None:
    """Symptom: `orbitmq up` let connectionsMax in at each of its three ports."""
    with up(tmp_path, "-D", "connectionsMax=3") as running, ExitStack() as clients:
        assert is_served(clients, running.broker)
        assert is_served(clients, running.namesrv)
        assert not is_served(clients, running.namesrv), "the third one is the broker's own"
        assert not is_served(clients, running.broker)


def test_a_file_with_numbers_that_the_original_clamps_starts_with_a_note(tmp_path: Path) -> None:
    """Symptom: registerNameServerPeriod=5000 ended the start with exit code 2."""
    file = tmp_path / "broker.conf"
    file.write_text(CLAMPED)
    with broker(tmp_path, "-c", str(file)) as process:
        with WireClient(address_of(process.line())) as client:
            table = parse_properties(client.ask(26).body)
        assert table["registerNameServerPeriod"] == "10000"
        assert table["diskMaxUsedSpaceRatio"] == "95"
        process.await_log(
            "registerNameServerPeriod=5000 is not a whole number from 10000 to 60000 (ms);"
            " 10000 is used"
        )
        assert process.stop() == 0
    assert file.read_text() == CLAMPED


@pytest.mark.parametrize(
    "arguments",
    [
        ("-c", "broker.conf", "--strict"),
        ("-D", "registerNameServerPeriod=5000"),
    ],
)
def test_a_number_outside_its_range_is_refused_when_given_by_hand_or_strictly(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "broker.conf").write_text(CLAMPED)
    done = run_command("orbitmq", "broker", "--port", "0", *arguments, folder=tmp_path)
    assert done.returncode == 2
    assert "registerNameServerPeriod=5000 cannot be used" in done.stderr


def test_a_file_that_is_not_utf_8_is_read_as_java_reads_it(tmp_path: Path) -> None:
    """Symptom: a comment in GBK or a value in Latin-1 ended the start."""
    comment = "# 主机\n".encode("gbk")
    file = tmp_path / "broker.conf"
    file.write_bytes(comment + b"regionId=M\xfcnchen\nfileReservedTime=72\n")
    with broker(tmp_path, "-c", str(file)) as process:
        with WireClient(address_of(process.line())) as client:
            assert parse_properties(client.ask(26).body)["regionId"] == "München"
            assert client.ask(25, b"fileReservedTime=24\n").code == 0
        process.await_log("broker.conf is not UTF-8 and is read as Latin-1")
        assert process.stop() == 0
    assert file.read_bytes() == comment + b"regionId=M\xfcnchen\nfileReservedTime=24\n"
    flags = ("broker", "--port", "0", "-c", str(file), "-p")
    done = run_command("orbitmq", *flags, "--strict", folder=tmp_path)
    assert done.returncode == 2
    assert "is not UTF-8; save the file as UTF-8" in done.stderr


@pytest.mark.parametrize("module", ["orbitmq.cli.mqbroker", "orbitmq.cli.mqnamesrv"])
def test_the_original_s_commands_note_the_encoding_of_their_file(
    tmp_path: Path, module: str
) -> None:
    file = tmp_path / "process.conf"
    file.write_bytes(b"# \xff\nlistenPort=0\n")
    with Running(module, "-c", str(file), folder=tmp_path) as process:
        process.await_log("process.conf is not UTF-8 and is read as Latin-1")
        process.await_log("listening on")
        assert process.stop() == 0
