"""`storePathCommitLog` outside the store folder: kills, shared logs, check, dump and repair.

Method: the commands as processes of their own, on real folders.
"""

import json
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.behaviour.requests import send_request
from tests.cli.commands import Running, run_command
from tests.cli.test_broker_command import address_of, broker
from tests.wire_client import WireClient

SIZES = ("-D", "mappedFileSizeCommitLog=131072", "-D", "mappedFileSizeConsumeQueue=2000")
INDEX = ("-D", "maxHashSlotNum=500", "-D", "maxIndexNum=3000")
COUNT = 1_000


def setting(log: Path) -> tuple[str, str]:
    return "-D", f"storePathCommitLog={log}"


def with_log(folder: Path, log: Path) -> Running:
    return broker(folder, *SIZES, *INDEX, *setting(log))


def send_all(address: str, count: int, first: int = 0) -> None:
    with WireClient(address) as client:
        requests = [
            send_request("T", bytes(300), e=str(number % 4), i=f"UNIQ_KEY\x01U{number}")
            for number in range(first, first + count)
        ]
        opaques = [client.send(request) for request in requests]
        assert [client.receive_answer(opaque).code for opaque in opaques] == [0] * count


def ends(address: str) -> list[int]:
    """Where the topic's queues end."""
    with WireClient(address) as client:
        answers = [client.ask(30, topic="T", queueId=str(number)) for number in range(4)]
    return [int(answer.fields["offset"]) for answer in answers]


def store(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command("orbitmq", "store", *arguments, folder=folder)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A place that is not there yet, nor is the folder that it is in."""
    return tmp_path / "disk" / "log"


@pytest.fixture
def filled(tmp_path: Path, log: Path) -> Path:
    """The data folder of a broker that was stopped; its log is elsewhere."""
    with with_log(tmp_path, log) as running:
        send_all(address_of(running.line()), COUNT)
        assert running.stop() == 0
    return tmp_path / "data"


def test_all_messages_are_there_after_a_kill(tmp_path: Path, log: Path) -> None:
    for life in range(2):
        with with_log(tmp_path, log) as running:
            address = address_of(running.line())
            assert ends(address) == [life * COUNT // 4] * 4
            send_all(address, COUNT, life * COUNT)
            assert running.stop(signal.SIGKILL) == -signal.SIGKILL
    with with_log(tmp_path, log) as running:
        assert ends(address_of(running.line())) == [COUNT // 2] * 4
        assert running.stop() == 0
    assert len(list(log.iterdir())) > 3
    assert not (tmp_path / "data" / "store" / "commitlog").exists()
    done = store(tmp_path, "check", "data", "--log", str(log), *INDEX)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "healthy")
    assert f"{2 * COUNT:,} records" in done.stdout


def test_mqbroker_and_up_obey_it_too(tmp_path: Path) -> None:
    root = ("-D", f"storePathRootDir={tmp_path / 'up'}", *setting(tmp_path / "up-log"))
    ports = ("--namesrv-port", "0", "--broker-port", "0", "--data-dir", "data")
    with Running("orbitmq", "up", *ports, *root, *SIZES, folder=tmp_path) as running:
        send_all(running.line().split("broker=")[1].split()[0], 1)
    words = ("listenPort=0", "storePathCommitLog=mq-log", "mappedFileSizeCommitLog=131072")
    with Running("orbitmq.cli.mqbroker", *words, folder=tmp_path) as running:
        send_all(running.line().split(", ")[1].split("]")[0], 1)
    for name in ("up-log", "mq-log"):
        assert [path.name for path in (tmp_path / name).iterdir()] == [f"{0:020d}"]
    for root_name in ("up", "store"):
        assert (tmp_path / root_name / "config").is_dir()
        assert not (tmp_path / root_name / "commitlog").exists()


def test_two_store_folders_cannot_have_one_log(tmp_path: Path, log: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(log)
    with with_log(tmp_path, log) as running:
        send_all(address_of(running.line()), 10)
        for second in (log, link):
            flags = ("--port", "0", "--data-dir", "other", *setting(second))
            refused = run_command("orbitmq", "broker", *flags, folder=tmp_path)
            assert refused.returncode == 1
            assert f"another broker has the log folder {second} open" in refused.stderr
        repairing = store(tmp_path, "repair", "other", "--log", str(log))
        assert repairing.returncode == 2
        assert "another broker has the log folder" in repairing.stderr
        assert running.stop() == 0
    with with_log(tmp_path, log) as running:
        assert sum(ends(address_of(running.line()))) == 10


def test_the_log_in_one_store_folder_cannot_be_that_of_another(tmp_path: Path) -> None:
    with broker(tmp_path, *SIZES) as running:
        send_all(address_of(running.line()), 10)
        log = tmp_path / "data" / "store" / "commitlog"
        flags = ("--port", "0", "--data-dir", "other", *setting(log))
        refused = run_command("orbitmq", "broker", *flags, folder=tmp_path)
    assert refused.returncode == 1
    assert f"another broker has the log folder {log} open" in refused.stderr


@pytest.mark.parametrize("is_setting_forgotten", [False, True])
def test_a_log_whose_disk_is_not_there_is_not_begun_anew(
    tmp_path: Path, filled: Path, log: Path, is_setting_forgotten: bool
) -> None:
    """An empty log would set all queues aside and give offsets a second time."""
    log.rename(tmp_path / "unmounted")
    given = () if is_setting_forgotten else setting(log)
    flags = ("broker", "--port", "0", "--data-dir", "data", *given)
    refused = run_command("orbitmq", *flags, folder=tmp_path)
    assert refused.returncode == 1
    assert "has no log, but data/store says that one was written" in refused.stderr
    assert not log.exists()
    (tmp_path / "unmounted").rename(log)
    with with_log(tmp_path, log) as running:
        assert sum(ends(address_of(running.line()))) == COUNT
    assert filled.is_dir()


def test_a_log_can_be_moved_elsewhere_and_is_asked_for_when_it_was_not(
    tmp_path: Path, log: Path
) -> None:
    with broker(tmp_path, *SIZES) as running:
        send_all(address_of(running.line()), 10)
        assert running.stop() == 0
    flags = ("broker", "--port", "0", "--data-dir", "data", *setting(log))
    refused = run_command("orbitmq", *flags, folder=tmp_path)
    assert refused.returncode == 1
    assert "move its files there, or remove the setting" in refused.stderr
    log.parent.mkdir()
    shutil.move(tmp_path / "data" / "store" / "commitlog", log)
    with with_log(tmp_path, log) as running:
        assert sum(ends(address_of(running.line()))) == 10


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "letters").mkdir(parents=True)
    flags = ("broker", "--port", "0", "--data-dir", "data", *setting(home))
    refused = run_command("orbitmq", *flags, folder=tmp_path)
    assert refused.returncode == 1
    assert "it holds letters, and no file of a log; choose a folder" in refused.stderr
    assert [path.name for path in home.iterdir()] == ["letters"]


def test_check_dump_and_repair_say_what_to_do_without_the_log(tmp_path: Path, filled: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("storePathCommitLog=/disk/log\n")
    for verb in ("check", "dump", "repair"):
        done = store(tmp_path, verb, str(filled), "-c", str(conf))
        assert done.returncode == 2
        assert "give that folder with --log" in done.stderr
        done = store(tmp_path, verb, str(filled), "--log", "nowhere")
        assert done.returncode == 2
        assert "there is no log folder nowhere; give with --log the folder" in done.stderr


def test_dump_reads_the_log_where_it_is(tmp_path: Path, filled: Path, log: Path) -> None:
    done = store(tmp_path, "dump", str(filled), "--log", str(log), "--topic", "T")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, COUNT)
    found = store(tmp_path, "dump", "data", "--log", str(log), "--topic", "T", "--key", "U7")
    assert [json.loads(line)["properties"]["UNIQ_KEY"] for line in found.stdout.splitlines()] == [
        "U7"
    ]


def test_repair_makes_queues_anew_and_sets_strays_aside(
    tmp_path: Path, filled: Path, log: Path
) -> None:
    queue = filled / "store" / "consumequeue" / "T" / "0" / f"{0:020d}"
    before = queue.read_bytes()
    queue.write_bytes(bytes(len(before)))
    (log / "stray").write_bytes(b"mine")
    checked = store(tmp_path, "check", "data", "--log", str(log), *INDEX)
    assert checked.returncode == 1
    assert f"{log / 'stray'}: " in checked.stdout
    done = store(tmp_path, "repair", "data", "--log", str(log), *INDEX)
    assert done.returncode == 0, done.stdout + done.stderr
    assert queue.read_bytes() == before
    assert (filled / "store" / "aside" / "1-commitlog-stray").read_bytes() == b"mine"
    again = store(tmp_path, "repair", "data", "--log", str(log), *INDEX)
    assert again.stdout.splitlines()[0].startswith("nothing to repair")
