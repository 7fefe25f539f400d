"""`orbitmq broker` and `mqbroker` as processes: ready line, settings, ports, stop, mistakes."""

import json
import re
import signal
import socket
from pathlib import Path

import pytest

from orbitmq.config import parse_properties
from tests.behaviour.requests import fill, send_request
from tests.cli.commands import Running, run_command
from tests.foreign.asking import await_claim
from tests.wire_client import WireClient

ORBITMQ = "orbitmq"
MQBROKER = "orbitmq.cli.mqbroker"
PATIENCE_S = 20.0


def namesrv(folder: Path, port: int = 0) -> Running:
    folder.mkdir(exist_ok=True)
    flags = ("namesrv", "--port", str(port), "--data-dir", str(folder / "data"))
    return Running(ORBITMQ, *flags, folder=folder)


def broker(folder: Path, *arguments: str) -> Running:
    """Start `orbitmq broker` on any port, its data in `folder`."""
    folder.mkdir(exist_ok=True)
    flags = ("broker", "--port", "0", "--data-dir", str(folder / "data"))
    return Running(ORBITMQ, *flags, *arguments, folder=folder)


def address_of(ready: str, what: str = "broker") -> str:
    found = re.fullmatch(rf"ready {what}=(127\.0\.0\.1:\d+)", ready)
    assert found is not None, ready
    return found[1]


def brokers_of(namesrv_address: str) -> dict[str, str]:
    """Return the names and addresses of the brokers that a name server knows."""
    with WireClient(namesrv_address) as client:
        answer = client.ask(105, topic="TBW102")
    if answer.code != 0:
        return {}
    found = json.loads(answer.body)["brokerDatas"]
    return {one["brokerName"]: one["brokerAddrs"]["0"] for one in found}


def free_ports() -> int:
    """Return a port that is free, and so is the one 2 below."""
    for _ in range(100):
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port - 2))
            except OSError:
                continue
            return port
    raise AssertionError("no two free ports")


# --- orbitmq broker ---


def test_a_broker_serves_registers_and_stops_cleanly(tmp_path: Path) -> None:
    with namesrv(tmp_path / "n") as names:
        namesrv_address = address_of(names.line(), "namesrv")
        with broker(tmp_path / "b", "--namesrv", namesrv_address) as running:
            address = address_of(running.line())
            assert brokers_of(namesrv_address) == {"broker-a": address}
            with WireClient(address) as client:
                fill(client, "Orders", [b"x"])
            assert running.stop() == 0
            assert running.rest() == ""
            assert "Traceback" not in running.errors.read_text()
        assert brokers_of(namesrv_address) == {}
    assert not (tmp_path / "b" / "data" / "store" / "abort").exists()


def test_name_servers_can_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with namesrv(tmp_path / "n") as names:
        namesrv_address = address_of(names.line(), "namesrv")
        monkeypatch.setenv("NAMESRV_ADDR", namesrv_address)
        with broker(tmp_path / "b", "-D", "brokerName=kiosk") as running:
            address = address_of(running.line())
            assert brokers_of(namesrv_address) == {"kiosk": address}


def test_two_brokers_of_one_cluster_share_a_topic(tmp_path: Path) -> None:
    with namesrv(tmp_path / "n") as names:
        namesrv_address = address_of(names.line(), "namesrv")
        with (
            broker(tmp_path / "a", "--namesrv", namesrv_address) as one,
            broker(
                tmp_path / "b", "--namesrv", namesrv_address, "-D", "brokerName=broker-b"
            ) as two,
        ):
            addresses = {
                "broker-a": address_of(one.line()),
                "broker-b": address_of(two.line()),
            }
            for address in addresses.values():
                with WireClient(address) as client:
                    fill(client, "Shared", [b"x"])
            with WireClient(namesrv_address) as client:

                def members() -> set[str]:
                    answer = client.ask(105, topic="Shared")
                    if answer.code != 0:
                        return set()
                    return {one["brokerName"] for one in json.loads(answer.body)["queueDatas"]}

                await_claim(lambda: members() == set(addresses), "both have the topic", PATIENCE_S)
                clusters = json.loads(
                    client.ask(106).body.replace(b"{0:", b'{"0":')  # number keys have no quotes
                )["clusterAddrTable"]
            assert set(clusters["DefaultCluster"]) == set(addresses)


def test_when_a_name_server_is_lost_routes_are_learned_from_the_other(tmp_path: Path) -> None:
    with namesrv(tmp_path / "n1") as lost, namesrv(tmp_path / "n2") as left:
        addresses = [address_of(one.line(), "namesrv") for one in (lost, left)]
        file = tmp_path / "broker.conf"
        file.write_text(f"namesrvAddr={addresses[1]}\n")
        words = ("-n", ";".join(addresses), "-c", str(file), "--listenPort", "0")
        with Running(MQBROKER, *words, folder=tmp_path) as running:
            broker_address = running.line().partition(", ")[2].partition("]")[0]
            for one in addresses:
                assert brokers_of(one) == {"broker-a": broker_address}
            lost.stop(signal.SIGKILL)
            with WireClient(broker_address) as client, WireClient(addresses[1]) as names:
                fill(client, "Orders", [b"x"])
                await_claim(
                    lambda: names.ask(105, topic="Orders").code == 0,
                    "the other knows the new topic",
                    PATIENCE_S,
                )


def test_a_broker_is_ready_when_a_name_server_knows_it_and_serves_before(tmp_path: Path) -> None:
    """Symptom: `ready` was printed though no client could find the broker."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # not listening: connections are refused
        port = taken.getsockname()[1]
        running = broker(tmp_path / "b", "--namesrv", f"127.0.0.1:{port}")
        with WireClient(running.await_listening()) as client:
            fill(client, "Orders", [b"x"])
        running.await_log(f"name server 127.0.0.1:{port}")
        running.await_log("not ready yet: no name server has taken the registration")
    with running, namesrv(tmp_path / "n", port) as names:
        address = address_of(names.line(), "namesrv")
        ready = address_of(running.line())
        assert brokers_of(address) == {"broker-a": ready}
        assert running.stop() == 0


def test_a_broker_that_is_not_ready_yet_stops_cleanly(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
        with broker(tmp_path, "--namesrv", nobody) as running:
            running.await_log("not ready yet")
            assert running.stop() == 0
            assert running.rest() == ""


def test_a_folder_that_a_kill_left_is_opened_by_itself(tmp_path: Path) -> None:
    with broker(tmp_path) as first:
        with WireClient(address_of(first.line())) as client:
            fill(client, "Orders", [b"one", b"two"])
        first.stop(signal.SIGKILL)
    assert (tmp_path / "data" / "store" / "abort").exists()
    with broker(tmp_path) as second, WireClient(address_of(second.line())) as client:
        assert client.call(send_request("Orders", b"three")).fields["queueOffset"] == "2"
        assert second.stop() == 0
    assert not (tmp_path / "data" / "store" / "abort").exists()


def test_the_second_port_serves_the_same_requests(tmp_path: Path) -> None:
    port = free_ports()
    with broker(tmp_path, "--port", str(port)) as running:
        assert address_of(running.line()) == f"127.0.0.1:{port}"
        with WireClient(f"127.0.0.1:{port - 2}") as vip, WireClient(f"127.0.0.1:{port}") as main:
            fill(vip, "Orders", [b"x"])
            assert main.call(send_request("Orders", b"y")).fields["queueOffset"] == "1"
            assert vip.ask(30, topic="Orders", queueId=0).fields["offset"] == "2"
        assert running.stop() == 0


def test_a_second_port_that_is_taken_is_one_line_in_the_log(tmp_path: Path) -> None:
    port = free_ports()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port - 2))
        taken.listen()
        with broker(tmp_path, "--port", str(port)) as running:
            address_of(running.line())
            log = running.errors.read_text()
            assert len([line for line in log.splitlines() if f"127.0.0.1:{port - 2}" in line]) == 1
            assert running.stop() == 0


def test_settings_come_from_file_kept_changes_and_flags(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=shop\nlistenPort=1234\nsendMessageThreadPoolNums=9\nbrokrId=0\n")
    kept = tmp_path / "data" / "store" / "config" / "broker.properties"
    kept.parent.mkdir(parents=True)
    kept.write_text("fileReservedTime=5\n")
    flags = ("broker", "-c", str(file), "-D", "listenPort=4321", "--namesrv", "127.0.0.1:1", "-p")
    done = run_command(ORBITMQ, *flags, folder=tmp_path)
    assert done.returncode == 0
    table = parse_properties(done.stdout)
    assert (table["brokerName"], table["listenPort"]) == ("shop", "4321")
    assert (table["fileReservedTime"], table["namesrvAddr"]) == ("5", "127.0.0.1:1")
    assert table["storePathRootDir"] == "data/store"
    file.write_text("fileReservedTime=6\n")
    done = run_command(ORBITMQ, *flags, folder=tmp_path)
    assert parse_properties(done.stdout)["fileReservedTime"] == "6"
    important = run_command(ORBITMQ, "broker", "-m", folder=tmp_path).stdout
    assert "brokerClusterName=DefaultCluster\n" in important
    assert len(important.splitlines()) < 40


def test_what_is_changed_over_the_network_is_in_force_after_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("# mine\nfileReservedTime=72\n")
    for expected in ("72", "24"):
        with broker(tmp_path, "-c", str(file)) as running:
            with WireClient(address_of(running.line())) as client:
                table = parse_properties(client.ask(26).body)
                assert table["fileReservedTime"] == expected
                assert client.ask(25, b"fileReservedTime=24\n").code == 0
            assert running.stop() == 0
    assert file.read_text() == "# mine\nfileReservedTime=24\n"


def test_unknown_and_needless_keys_of_a_file_are_named_and_do_not_stop_it(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerNam=x\nsendMessageThreadPoolNums=9\n")
    with broker(tmp_path, "-c", str(file)) as running:
        address_of(running.line())
        log = running.errors.read_text()
        assert "unknown setting brokerNam; did you mean brokerName?" in log
        assert "sendMessageThreadPoolNums is accepted without effect" in log


def test_the_store_folder_of_the_settings_wins_over_the_data_folder(tmp_path: Path) -> None:
    store = tmp_path / "elsewhere"
    options = ("-D", f"storePathRootDir={store}", "-D", f"storePathCommitLog={store}/commitlog/")
    with broker(tmp_path, *options) as running:
        address_of(running.line())
        assert (store / "commitlog").is_dir()
        assert not (tmp_path / "data").exists()


def test_a_log_on_another_disk_is_a_link_in_the_store_folder(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "data" / "store").mkdir(parents=True)
    (tmp_path / "data" / "store" / "commitlog").symlink_to(tmp_path / "disk")
    small = ("-D", "mappedFileSizeCommitLog=131072")
    for count in ("0", "1"):
        with broker(tmp_path, *small) as running:
            with WireClient(address_of(running.line())) as client:
                answer = client.call(send_request("Orders", b"x"))
                assert answer.fields["queueOffset"] == count
            assert running.stop() == 0
    assert (tmp_path / "disk" / f"{0:020d}").stat().st_size == 131_072


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("-D", "storePathCommitLog=a,b,a/"), 1, "storePathCommitLog names a twice"),
        (("-D", "rocketmq.broker.multiPathSplitter="), 2, "multiPathSplitter is empty"),
        (("--namesrv", "nowhere"), 2, "namesrvAddr: 'nowhere' is not an address"),
        (("-D", "brokerId=-1"), 2, "brokerId=-1 cannot be used"),
        (("-D", "brokerId=1"), 2, "replication does not exist yet; 0 is the master"),
        (("-D", "brokerRole=slave"), 2, "brokerRole=slave cannot be used: replication does not"),
        (("-D", "brokerRole=SYNC_MASTER"), 2, "every broker is a master of its own"),
        (("-D", "aclEnable=true"), 2, "aclEnable=true cannot be used: access control does not"),
        (("-D", "enableDLegerCommitLog=true"), 2, "enableDLegerCommitLog=true cannot be used"),
        (("-D", "flushDiskTyp=SYNC_FLUSH"), 2, "did you mean flushDiskType?"),
        (("-c", "missing.conf"), 2, "there is no settings file missing.conf"),
        (("--brokers", "27"), 2, "--brokers 27: from 1 to 26"),
        (("--brokers", "2", "-D", "storePathRootDir=/x"), 2, "each of several brokers has its own"),
        (("--brokers", "2", "-D", "storePathCommitLog=/x"), 2, "storePathCommitLog is for one"),
        (("-D", "brokrName=x", "--strict"), 2, "did you mean brokerName?"),
    ],
)
def test_mistakes_are_named_with_the_fix(
    tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = run_command(ORBITMQ, "broker", "--port", "0", *arguments, folder=tmp_path)
    assert done.returncode == code
    assert said in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_a_taken_port_and_a_locked_folder_are_named(tmp_path: Path) -> None:
    with broker(tmp_path) as running:
        port = address_of(running.line()).rpartition(":")[2]
        flags = ("broker", "--port", port, "--data-dir")
        same_port = run_command(ORBITMQ, *flags, "other", folder=tmp_path)
        same_folder = run_command(ORBITMQ, *flags, "data", folder=tmp_path)
    assert same_port.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in same_port.stderr
    assert same_folder.returncode == 1
    assert "another process has" in same_folder.stderr


# --- mqbroker ---


def test_mqbroker_boots_with_the_words_of_the_original(tmp_path: Path) -> None:
    with namesrv(tmp_path / "n") as names:
        namesrv_address = address_of(names.line(), "namesrv")
        file = tmp_path / "broker.conf"
        file.write_text("brokerName=broker-x\nautoCreateTopicEnable=false\n")
        words = ("-n", namesrv_address, "-c", str(file), "--listenPort", "0")
        options = ("mappedFileSizeCommitLog=131072", "autoCreateTopicEnable=true")
        with Running(MQBROKER, *words, *options, folder=tmp_path) as running:
            line = running.line()
            found = re.fullmatch(
                r"The broker\[broker-x, (127\.0\.0\.1:\d+)\] boot success\. serializeType=JSON "
                rf"and name server is {namesrv_address}",
                line,
            )
            assert found is not None, line
            assert brokers_of(namesrv_address) == {"broker-x": found[1]}
            assert running.stop() == 0
    assert (tmp_path / "store" / "commitlog").is_dir()  # in the user's folder


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("-n", "a:b:c"), 253, "The Name Server Address[a:b:c] illegal, please set it as follows"),
        (("-c", "/nonexistent"), 255, "there is no settings file /nonexistent"),
        (("-x",), 1, "unknown argument -x"),
        (("brokrName=x",), 255, "did you mean brokerName?"),
    ],
)
def test_mqbroker_ends_with_the_exit_codes_of_the_original(
    tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = run_command(MQBROKER, *arguments, folder=tmp_path)
    assert done.returncode == code
    assert said in done.stderr


def test_mqbroker_prints_its_settings(tmp_path: Path) -> None:
    everything = run_command(MQBROKER, "-p", folder=tmp_path)
    assert everything.returncode == 0
    table = parse_properties(everything.stdout)
    assert table["storePathRootDir"] == str(tmp_path / "store")
    assert len(table) > 180
    important = run_command(MQBROKER, "-m", folder=tmp_path)
    assert important.returncode == 0
    assert parse_properties(important.stdout).items() < table.items()
