"""`orbitmq up` as a user meets it: ready line, files, stopping, being killed, coming back."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orbitmq.wire.record import scan_records
from tests.behaviour.requests import fill, heartbeat_body, pull_request, send_request
from tests.wire_client import WireClient

READY = re.compile(
    r"ready namesrv=(?P<namesrv>127\.0\.0\.1:\d+) broker=(?P<broker>127\.0\.0\.1:\d+) dashboard=-\n"
)
BODIES = [b"message %d" % number for number in range(50)]


class Up:
    """A running `orbitmq up`."""

    def __init__(self, data_dir: Path, *options: str) -> None:
        command = [sys.executable, "-m", "orbitmq", "up", "--data-dir", str(data_dir)]
        command += ["--namesrv-port", "0", "--broker-port", "0", *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        match = READY.fullmatch(line)
        assert match is not None, (line, self.errors() if not line else "")
        self.namesrv, self.broker = match["namesrv"], match["broker"]

    def errors(self) -> str:
        """Return what it wrote to standard error, once it has ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def end(self, number: signal.Signals) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=20)


@contextmanager
def up(data_dir: Path, *options: str) -> Iterator[Up]:
    running = Up(data_dir, *options)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
        running.process.communicate()


def read_bodies(client: WireClient, topic: str, count: int) -> list[bytes]:
    bodies: list[bytes] = []
    while len(bodies) < count:
        answer = client.call(pull_request(topic, "Readers", len(bodies)))
        assert answer.code == 0, answer.remark
        bodies += [record.body for record in scan_records(answer.body)]
    return bodies


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_messages_topics_and_offsets_are_there_after_a_restart(
    tmp_path: Path, number: signal.Signals
) -> None:
    with up(tmp_path) as first, WireClient(first.broker) as client:
        fill(client, "Orders", BODIES)
        client.ask(34, heartbeat_body("c@1", "Shop", "Orders"))
        client.ask(15, consumerGroup="Shop", topic="Orders", queueId=0, commitOffset=7)
        assert first.end(number) == (0 if number != signal.SIGKILL else -signal.SIGKILL)
    with up(tmp_path) as second, WireClient(second.broker) as client:
        assert read_bodies(client, "Orders", len(BODIES)) == BODIES
        answer = client.call(send_request("Orders", b"next"))
        assert answer.fields["queueOffset"] == str(len(BODIES))
        if number != signal.SIGKILL:  # offsets are saved every 5 s and on a clean stop
            offset = client.ask(14, consumerGroup="Shop", topic="Orders", queueId=0)
            assert offset.fields["offset"] == "7"


def test_what_was_acknowledged_survives_a_kill_in_the_middle_of_the_load(tmp_path: Path) -> None:
    acknowledged = 0
    with up(tmp_path) as first, WireClient(first.broker) as client:
        fill(client, "Load", [b"0"])
        for number in range(1, 2000):
            client.send(send_request("Load", b"%d" % number))
        while acknowledged < 1000:
            assert client.receive().code == 0
            acknowledged += 1
        first.end(signal.SIGKILL)
    with up(tmp_path) as second, WireClient(second.broker) as client:
        bodies = read_bodies(client, "Load", acknowledged + 1)
    assert bodies == [b"%d" % number for number in range(len(bodies))]


def test_a_message_that_does_not_fit_a_log_file_is_refused_and_harms_no_other(
    tmp_path: Path,
) -> None:
    """Symptom: with small log files a large message was acknowledged, then lost."""
    small_files = ("-D", "mappedFileSizeCommitLog=131072")
    with up(tmp_path, *small_files) as first, WireClient(first.broker) as client:
        fill(client, "Orders", [b"before"])
        refused = client.call(send_request("Orders", bytes(131_072)))
        assert refused.code == 13
        assert "mappedFileSizeCommitLog" in (refused.remark or "")
        fill(client, "Orders", [bytes(65_528), b"behind"])
        assert first.end(signal.SIGTERM) == 0
    with up(tmp_path, *small_files) as second, WireClient(second.broker) as client:
        assert read_bodies(client, "Orders", 3) == [b"before", bytes(65_528), b"behind"]


def test_the_folder_has_the_originals_shape(tmp_path: Path) -> None:
    with up(tmp_path) as running, WireClient(running.broker) as client:
        fill(client, "Orders", [b"x"])
        assert running.end(signal.SIGTERM) == 0
    store = tmp_path / "store"
    assert (store / "commitlog" / f"{0:020d}").stat().st_size == 1 << 30
    assert (store / "consumequeue" / "Orders" / "0" / f"{0:020d}").stat().st_size == 6_000_000
    for name in ("topics.json", "subscriptionGroup.json"):
        assert (store / "config" / name).stat().st_size > 100
    assert (store / "lock").read_bytes() == b"lock"
    assert (tmp_path / "namesrv").is_dir()


def test_topics_groups_and_offsets_are_in_the_originals_files(tmp_path: Path) -> None:
    retry = "%RETRY%Shop"
    with up(tmp_path) as first, WireClient(first.broker) as client:
        fill(client, "Orders", [b"x"])
        client.ask(34, heartbeat_body("c@1", "Shop", "Orders"))
        client.ask(15, consumerGroup="Shop", topic="Orders", queueId=0, commitOffset=1)
        registered = topics_when_there(first.namesrv, retry)
        assert first.end(signal.SIGTERM) == 0
    config = tmp_path / "store" / "config"
    table = json.loads((config / "topics.json").read_bytes())["topicConfigTable"]
    assert set(table) == registered
    assert {"TBW102", "SELF_TEST_TOPIC", "Orders", retry} <= registered
    queues = {"readQueueNums": 4, "writeQueueNums": 4}
    flags = {"order": False, "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}
    assert table["Orders"] == {"topicName": "Orders", **queues, **flags}
    assert b'"Shop":{' in (config / "subscriptionGroup.json").read_bytes()
    assert (config / "consumerOffset.json").read_bytes() == b'{"offsetTable":{"Orders@Shop":{0:1}}}'
    with up(tmp_path) as second, WireClient(second.broker) as client:
        assert client.call(send_request("Orders", e=3)).code == 0  # a queue without files


def topics_when_there(namesrv: str, topic: str) -> set[str]:
    """Return all topics that a name server knows, once it knows `topic`."""
    with WireClient(namesrv) as client:
        for _ in range(200):
            topics = set(json.loads(client.ask(206).body)["topicList"])
            if topic in topics:
                break
    assert topic in topics
    return topics


def test_a_broker_is_at_all_its_name_servers_and_those_may_differ(tmp_path: Path) -> None:
    with up(tmp_path / "one") as one:
        both = ("-D", f"namesrvAddr={one.namesrv}", "-D", "brokerName=broker-b")
        with up(tmp_path / "two", *both) as two:
            assert send_by_route(one.namesrv) == {"broker-a": one.broker, "broker-b": two.broker}
            assert send_by_route(two.namesrv) == {"broker-b": two.broker}


def send_by_route(namesrv: str) -> dict[str, str]:
    """Send to each broker that a name server knows for a new topic; give their addresses."""
    with WireClient(namesrv) as client:
        route = json.loads(client.ask(105, topic="TBW102").body)
    brokers = {data["brokerName"]: data["brokerAddrs"]["0"] for data in route["brokerDatas"]}
    for address in brokers.values():
        with WireClient(address) as client:
            fill(client, "Orders", [b"x"])
    return brokers


def test_no_topic_is_made_by_a_send_where_that_is_switched_off(tmp_path: Path) -> None:
    with (
        up(tmp_path, "-D", "autoCreateTopicEnable=false") as running,
        WireClient(running.broker) as client,
        WireClient(running.namesrv) as namesrv,
    ):
        assert namesrv.ask(105, topic="TBW102").code == 17
        answer = client.call(send_request("Orders"))
        assert answer.code == 17
        assert "autoCreateTopicEnable" in str(answer.remark)


def test_an_idle_process_stays_below_100_mb(tmp_path: Path) -> None:
    with up(tmp_path) as running, WireClient(running.broker) as client:
        fill(client, "Orders", BODIES)
        status = Path(f"/proc/{running.process.pid}/status").read_text()
    resident_kb = int(re.search(r"VmRSS:\s+(\d+) kB", status)[1])  # type: ignore[index]  # Linux has it
    assert resident_kb < 100_000


def test_three_lines_say_what_to_try_and_stdout_has_the_ready_line_only(tmp_path: Path) -> None:
    with up(tmp_path) as running:
        assert running.end(signal.SIGTERM) == 0
        assert running.process.stdout is not None
        assert running.process.stdout.read() == ""
        errors = running.errors()
    assert re.findall(r"orbitmq\.up (\d)\. ", errors) == ["1", "2", "3"]
    assert running.namesrv in errors


def test_a_port_that_is_taken_is_named_with_the_fix(tmp_path: Path) -> None:
    with up(tmp_path / "one") as running:
        port = running.broker.rpartition(":")[2]
        command = [sys.executable, "-m", "orbitmq", "up", "--data-dir", str(tmp_path / "two")]
        command += ["--namesrv-port", "0", "--broker-port", port]
        second = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert second.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in second.stderr
    assert second.stdout == ""


def test_a_folder_that_is_open_already_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with up(tmp_path) as running:
        command = [sys.executable, "-m", "orbitmq", "up", "--data-dir", str(tmp_path)]
        command += ["--namesrv-port", "0", "--broker-port", "0"]
        second = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        assert second.returncode == 1
        assert "another process has" in second.stderr
        assert running.process.poll() is None


@pytest.mark.parametrize("name", ["store/lock", "store/config/topics.json"])
def test_a_folder_in_the_place_of_a_file_is_named_in_one_sentence(
    tmp_path: Path, name: str
) -> None:
    """Symptom: a traceback instead of the file's name."""
    (tmp_path / name).mkdir(parents=True)
    command = [sys.executable, "-m", "orbitmq", "up", "--data-dir", str(tmp_path)]
    command += ["--namesrv-port", "0", "--broker-port", "0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 1
    told = [line for line in ended.stderr.splitlines() if line.startswith("orbitmq up: ")]
    assert len(told) == 1
    assert f"{tmp_path / name}: Is a directory" in told[0]
    assert "Traceback" not in ended.stderr


def test_metrics_are_shown_on_their_port(tmp_path: Path) -> None:
    with up(tmp_path, "--metrics-port", "0") as running, WireClient(running.broker) as client:
        fill(client, "Orders", BODIES)
        assert running.process.stderr is not None
        line = next(line for line in running.process.stderr if "metrics on" in line)
        address = re.search(r"http://(\S+)/metrics", line)
        assert address is not None
        text = scrape(address[1])
    samples = dict(
        line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#")
    )
    assert float(samples["orbitmq_store_messages_total"]) == len(BODIES)
    assert 1 <= float(samples["orbitmq_store_write_bytes_count"]) <= len(BODIES)
    assert float(samples["orbitmq_store_write_bytes_sum"]) > len(BODIES) * 91


def scrape(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def test_settings_are_taken_from_the_command_line_and_shown(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "orbitmq", "up", "--data-dir", str(tmp_path)]
    command += ["-D", "brokerName=kiosk", "-p"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert shown.returncode == 0
    assert "brokerName=kiosk" in shown.stdout.splitlines()
    misspelt = subprocess.run(
        [*command, "-D", "brokerNamee=x"], capture_output=True, text=True, timeout=30, check=False
    )
    assert misspelt.returncode == 2
    assert "unknown setting brokerNamee; did you mean brokerName?" in misspelt.stderr
    assert not os.listdir(tmp_path)


def test_the_start_imports_no_client() -> None:
    """Symptom: ready a tenth of a second later, for a verb that nobody had asked for."""
    program = "import sys, orbitmq.cli.up; print('orbitmq.client' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
