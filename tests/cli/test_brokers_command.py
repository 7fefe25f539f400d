"""`--brokers N`: several broker processes of one command, while they live and when one dies."""

import json
import os
import re
import signal
from pathlib import Path

from orbitmq.cli.brokers import plan_brokers
from orbitmq.cli.main import make_parser
from orbitmq.config import BrokerSettings
from tests.behaviour.requests import fill, send_request
from tests.cli.commands import Running
from tests.cli.test_broker_command import address_of, brokers_of, namesrv
from tests.foreign.asking import await_claim
from tests.wire_client import WireClient

SMALL = ("-D", "mappedFileSizeCommitLog=131072")
PATIENCE_S = 30.0


def up(folder: Path, count: int) -> Running:
    flags = ("up", "--namesrv-port", "0", "--broker-port", "0", "--brokers", str(count))
    return Running("orbitmq", *flags, "--data-dir", "data", *SMALL, folder=folder)


def addresses_of(ready: str) -> tuple[str, list[str]]:
    found = re.fullmatch(r"ready namesrv=(\S+) broker=(\S+) dashboard=-", ready)
    assert found is not None, ready
    return found[1], found[2].split(",")


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return not Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].startswith(" Z")
    except (OSError, FileNotFoundError):
        return False


def test_names_folders_and_ports_of_several_brokers_follow_from_those_of_one() -> None:
    words = ["broker", "--brokers", "3", "--data-dir", "d", "-c", "b.conf", "-D", "brokerId=0"]
    settings = BrokerSettings(store_path_root_dir="d/store", listen_port=10_911)
    plans = plan_brokers(make_parser().parse_args(words), settings, metrics_port=9_000)
    assert [(plan.name, plan.port) for plan in plans] == [
        ("broker-a", 10_911),
        ("broker-b", 10_921),
        ("broker-c", 10_931),
    ]
    child = make_parser().parse_args(plans[1].command()[1:])
    assert (child.data_dir, child.file, child.metrics_port) == ("d/broker-b", "b.conf", 9_010)
    assert child.overrides == ["brokerId=0", "brokerName=broker-b"]
    assert child.is_child
    assert child.brokers == 1


def test_up_runs_several_brokers_beside_its_name_server(tmp_path: Path) -> None:
    with up(tmp_path, 3) as running:
        namesrv_address, addresses = addresses_of(running.line())
        names = ["broker-a", "broker-b", "broker-c"]
        assert brokers_of(namesrv_address) == dict(zip(names, addresses, strict=True))
        for address in addresses:
            with WireClient(address) as client:
                fill(client, "Orders", [b"x"])
        children = children_of(running.process.pid)
        assert len(children) == 3
        assert running.stop() == 0
        assert not any(map(is_running, children))
        assert running.rest() == ""
    for name in names:
        store = tmp_path / "data" / name / "store"
        assert (store / "consumequeue" / "Orders").is_dir()
        assert not (store / "abort").exists()
    assert not (tmp_path / "data" / "store").exists()


def test_a_broker_that_dies_is_reported_and_comes_back_on_its_port(tmp_path: Path) -> None:
    with up(tmp_path, 2) as running:
        _, addresses = addresses_of(running.line())
        for address in addresses:
            with WireClient(address) as client:
                fill(client, "Orders", [b"x"])
        os.kill(children_of(running.process.pid)[0], signal.SIGKILL)
        running.await_log("ended with exit code -9; starting it again in 1 s")
        with WireClient(addresses[1]) as client:  # the others go on meanwhile
            fill(client, "Orders", [b"y"])
        running.await_log(f"is back on {addresses[0]}")
        with WireClient(addresses[0]) as client:
            assert client.call(send_request("Orders", b"y")).fields["queueOffset"] == "1"
        assert running.stop() == 0


def test_a_second_signal_ends_all_at_once(tmp_path: Path) -> None:
    with up(tmp_path, 2) as running:
        addresses_of(running.line())
        children = children_of(running.process.pid)
        for child in children:
            os.kill(child, signal.SIGSTOP)  # none of them can stop by itself
        running.process.send_signal(signal.SIGTERM)
        running.await_log("stopping; a second signal stops at once")
        assert running.stop() == -signal.SIGTERM
        for child in children:
            os.kill(child, signal.SIGCONT)
        await_claim(lambda: not any(map(is_running, children)), "all brokers ended", PATIENCE_S)


def test_no_broker_outlives_a_parent_that_was_killed(tmp_path: Path) -> None:
    with up(tmp_path, 2) as running:
        addresses_of(running.line())
        children = children_of(running.process.pid)
        assert len(children) == 2
        running.stop(signal.SIGKILL)
        await_claim(lambda: not any(map(is_running, children)), "all brokers ended", PATIENCE_S)
    for name in ("broker-a", "broker-b"):  # they stopped cleanly
        assert not (tmp_path / "data" / name / "store" / "abort").exists()


def test_one_that_cannot_start_ends_them_all(tmp_path: Path) -> None:
    locked = tmp_path / "data" / "broker-b" / "store"
    (locked / "lock").mkdir(parents=True)
    with up(tmp_path, 2) as running:
        assert running.line() == ""
        assert running.process.wait(PATIENCE_S) == 1
        log = running.errors.read_text()
    assert "broker-b ended with exit code 1 before it was ready" in log
    assert "data/broker-b/store/lock: Is a directory" in log
    assert not (tmp_path / "data" / "broker-a" / "store" / "abort").exists()


def test_the_broker_command_runs_several_with_names_of_their_own(tmp_path: Path) -> None:
    with namesrv(tmp_path / "n") as names:
        namesrv_address = address_of(names.line(), "namesrv")
        flags = ("broker", "--namesrv", namesrv_address, "--port", "0", "--brokers", "2")
        name = ("-D", "brokerName=shop", "-D", "brokerClusterName=Mall")
        with Running("orbitmq", *flags, *name, *SMALL, folder=tmp_path) as running:
            addresses = running.line().removeprefix("ready broker=").split(",")
            assert brokers_of(namesrv_address) == {
                "shop-a": addresses[0],
                "shop-b": addresses[1],
            }
            with WireClient(namesrv_address) as client:
                body = client.ask(106).body.replace(b"{0:", b'{"0":')
            assert set(json.loads(body)["clusterAddrTable"]) == {"Mall"}
            assert running.stop() == 0
