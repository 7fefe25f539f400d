"""`orbitmq namesrv` and `mqnamesrv` as processes: ready line, settings, signals, exit codes."""

import json
import signal
import socket
import urllib.request
from pathlib import Path

import pytest

from orbitmq.config import parse_properties
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from tests.cli.commands import Running, run_command
from tests.namesrv.registering import body, topic
from tests.namesrv.serving import register_request
from tests.test_config import KEYS_OF_4_9_7
from tests.wire_client import WireClient

ORBITMQ = "orbitmq"
MQNAMESRV = "orbitmq.cli.mqnamesrv"
PUT, GET = RequestCode.PUT_KV_CONFIG, RequestCode.GET_KV_CONFIG


def namesrv(folder: Path, *arguments: str) -> Running:
    """Start `orbitmq namesrv` on any port, its data in `folder`."""
    data = str(folder / "data")
    flags = ("namesrv", "--port", "0", "--data-dir", data)
    return Running(ORBITMQ, *flags, *arguments, folder=folder)


def address_of(ready: str) -> str:
    assert ready.startswith("ready namesrv=127.0.0.1:")
    return ready.removeprefix("ready namesrv=")


def test_the_ready_line_is_all_of_standard_output_and_sigterm_is_a_clean_stop(
    tmp_path: Path,
) -> None:
    with namesrv(tmp_path) as running:
        address = address_of(running.line())
        with WireClient(address) as client:
            assert client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).code == 0
            assert running.stop() == 0
        assert running.rest() == ""
        log = running.errors.read_text()
        assert f"namesrvAddr={address}" in log
        assert "Traceback" not in log
    assert sorted(path.name for path in (tmp_path / "data" / "namesrv").iterdir()) == ["lock"]


def test_sigint_is_a_clean_stop_too(tmp_path: Path) -> None:
    with namesrv(tmp_path) as running:
        running.line()
        assert running.stop(signal.SIGINT) == 0


def test_a_second_signal_ends_the_process_at_once(tmp_path: Path) -> None:
    """A client that does not read its answers keeps a clean stop waiting; the second ends that."""
    topics = [topic(f"topic-{number:04}") for number in range(2_000)]
    with namesrv(tmp_path) as running, WireClient(address_of(running.line())) as client:
        assert client.call(register_request(data=body(*topics))).code == 0
        for _ in range(400):  # 12 MB of answers, more than the system holds for us
            client.send(Command(int(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)))
        client.receive()
        running.process.send_signal(signal.SIGTERM)
        running.await_log("stopping; a second signal stops at once")
        assert running.stop() == -signal.SIGTERM


def test_settings_come_from_file_flags_and_are_printed(tmp_path: Path) -> None:
    file = tmp_path / "n.properties"
    file.write_text("listenPort=1234\norderMessageEnable=true\nserverWorkerThreads=9\n")
    done = run_command(
        ORBITMQ,
        *("namesrv", "-c", str(file), "-D", "listenPort=4321", "--host", "localhost", "-p"),
        folder=tmp_path,
    )
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert {
        "listenPort=4321",
        "orderMessageEnable=true",
        "serverWorkerThreads=9",
        "bindAddress=localhost",
    } <= set(lines)
    assert not (tmp_path / "data").exists()


def test_unknown_keys_are_named_with_the_nearest_and_do_not_stop(tmp_path: Path) -> None:
    file = tmp_path / "n.properties"
    file.write_text("listenPrt=1\nuseEpollNativeSelector=true\n")
    with namesrv(tmp_path, "-c", str(file)) as running:
        running.line()
        running.stop()
        log = running.errors.read_text()
        assert "unknown setting listenPrt; did you mean listenPort?" in log
        assert "useEpollNativeSelector is accepted without effect" in log


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--strict", "-D", "listenPrt=1"), "did you mean listenPort?"),
        (("-D", "listenPort=70000"), "expected a whole number from 0 to 65535"),
        (("--port", "70000"), "expected a whole number from 0 to 65535"),
        (("-D", "listenPort"), "write it as KEY=VALUE"),
        (("-c", "absent.properties"), "there is no settings file absent.properties"),
        (("-c", "."), "cannot read ."),
        (("--host", "203.0.113.1"), "cannot listen on 203.0.113.1"),
        (("-D", "tls.server.mode=enforcing"), "needs a certificate"),
        (("--no-such-flag",), "unrecognized arguments"),
    ],
)
def test_what_cannot_work_ends_with_a_reason(
    tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    done = run_command(ORBITMQ, "namesrv", *arguments, folder=tmp_path)
    assert done.returncode == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_two_name_servers_cannot_share_a_data_folder(tmp_path: Path) -> None:
    with namesrv(tmp_path) as running:
        running.line()
        data = str(tmp_path / "data")
        done = run_command(ORBITMQ, "namesrv", "--port", "0", "--data-dir", data, folder=tmp_path)
        assert done.returncode == 1
        assert "--data-dir" in done.stderr


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run_command(ORBITMQ, "namesrv", "--port", port, folder=tmp_path)
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr


def test_a_change_over_the_network_is_in_force_after_a_restart(tmp_path: Path) -> None:
    with namesrv(tmp_path) as running, WireClient(address_of(running.line())) as client:
        change = Command(int(RequestCode.UPDATE_NAMESRV_CONFIG), body=b"orderMessageEnable=true")
        assert client.call(change).code == 0
        running.stop()
    with namesrv(tmp_path) as running, WireClient(address_of(running.line())) as client:
        shown = client.ask(RequestCode.GET_NAMESRV_CONFIG).body
        assert b"orderMessageEnable=true" in shown


def test_every_acknowledged_key_survives_a_kill(tmp_path: Path) -> None:
    """KILL between two writes and inside one: the file is whole, and nothing answered is lost."""
    acknowledged = 0
    for round_number in range(3):
        with namesrv(tmp_path) as running, WireClient(address_of(running.line())) as client:
            for number in range(acknowledged):
                answer = client.ask(GET, namespace="n", key=f"k{number}")
                assert answer.fields == {"value": f"v{number}"}
            for _ in range(20):
                key, value = f"k{acknowledged}", f"v{acknowledged}"
                assert client.ask(PUT, namespace="n", key=key, value=value).code == 0
                acknowledged += 1
            for number in range(50):  # under way when the end comes
                fields = {"namespace": "late", "key": f"r{round_number}-{number}", "value": "x"}
                client.send(Command(int(PUT), fields=fields))
            running.stop(signal.SIGKILL)
    table = json.loads((tmp_path / "data" / "namesrv" / "kvConfig.json").read_bytes())
    assert len(table["configTable"]["n"]) == 60


def test_metrics_are_shown_on_their_port(tmp_path: Path) -> None:
    with namesrv(tmp_path, "--metrics-port", "0") as running:
        running.line()
        log = running.errors.read_text()
        url = log[log.index("http://") :].split()[0]
        with urllib.request.urlopen(url, timeout=10) as response:
            text = response.read().decode()
        assert "orbitmq_namesrv_brokers 0\n" in text


def test_a_damaged_key_value_file_does_not_stop_the_start(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "namesrv"
    folder.mkdir(parents=True)
    (folder / "kvConfig.json").write_bytes(b"{torn")
    with namesrv(tmp_path) as running:
        running.line()
        assert "kvConfig.json is damaged" in running.errors.read_text()
        running.stop()
    assert (folder / "kvConfig.json.damaged-1").read_bytes() == b"{torn"


def test_version_and_help(tmp_path: Path) -> None:
    version = run_command(ORBITMQ, "version", folder=tmp_path)
    assert version.stdout.startswith("orbitmq 0.")
    help_text = run_command(ORBITMQ, "namesrv", "--help", folder=tmp_path)
    assert "examples:" in help_text.stdout
    nothing = run_command(ORBITMQ, folder=tmp_path)
    assert nothing.returncode == 2


# --- mqnamesrv ---


def test_mqnamesrv_says_what_the_original_says(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("listenPort=0\nlistenPrt=1\n")
    arguments = ("-c", str(file), "-n", "127.0.0.1:9876")
    with Running(MQNAMESRV, *arguments, folder=tmp_path) as running:
        assert running.line() == f"load config properties file OK, {file}"
        assert running.line() == "The Name Server boot success. serializeType=JSON"
        assert running.stop() == 0
        log = running.errors.read_text()
        assert "did you mean listenPort?" in log
        assert "-n 127.0.0.1:9876 is ignored" in log
        assert "bindAddress=127.0.0.1 brokersMax=10000" in log
    assert (tmp_path / "namesrv").is_dir()


def test_mqnamesrv_prints_its_settings_with_the_command_line_winning(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("listenPort=1111\nserverSelectorThreads=5\n")
    done = run_command(
        MQNAMESRV,
        *("-c", str(file), "--listenPort", "2222", "--orderMessageEnable=true"),
        *("serverWorkerThreads=3", "-p"),
        folder=tmp_path,
    )
    assert done.returncode == 0
    lines = set(done.stdout.splitlines())
    assert {
        "listenPort=2222",
        "orderMessageEnable=true",
        "serverSelectorThreads=5",
        "serverWorkerThreads=3",
    } <= lines


def test_mqnamesrv_prints_every_setting_of_the_original_with_its_default(tmp_path: Path) -> None:
    done = run_command(MQNAMESRV, "-p", folder=tmp_path)
    assert done.returncode == 0
    shown = parse_properties(done.stdout)
    assert shown.keys() >= set(KEYS_OF_4_9_7.split())
    defaults = {"listenPort": "9876", "orderMessageEnable": "false", "clusterTest": "false"}
    assert shown.items() >= {**defaults, "productEnvName": "center"}.items()
    with Running(MQNAMESRV, "listenPort=0", folder=tmp_path) as running:
        running.line()
        log = running.errors.read_text()
    assert f"kvConfigPath={tmp_path}/namesrv/kvConfig.json" in log
    assert f"configStorePath={tmp_path}/namesrv/namesrv.properties" in log


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("-x",), "unknown argument -x"),
        (("--listenPort",), "--listenPort needs a value"),
        (("--listenPrt", "1"), "did you mean listenPort?"),
        (("--listenPort", "x"), "expected a whole number"),
        (("-c",), "expected one argument"),
        (("-c", "absent"), "there is no settings file absent"),
        (("stray",), "unknown argument stray"),
        (("--=1",), "names no setting"),
    ],
)
def test_mqnamesrv_ends_with_minus_one_for_wrong_options(
    tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    done = run_command(MQNAMESRV, *arguments, folder=tmp_path)
    assert done.returncode == 255
    assert reason in done.stderr


def test_mqnamesrv_ends_with_minus_three_when_its_parts_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "namesrv").write_text("in the way of the folder")
    done = run_command(MQNAMESRV, "--listenPort", "0", folder=tmp_path)
    assert done.returncode == 253
    assert "Traceback" not in done.stderr


def test_mqnamesrv_ends_with_minus_one_when_its_port_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run_command(MQNAMESRV, "--listenPort", port, folder=tmp_path)
    assert done.returncode == 255
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
