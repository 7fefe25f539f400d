"""A log in several folders, on real files: the commands that write it, and those that look into it.

Method: real processes and real files. A kill of the broker, folders that come and become read-only,
then what is served again, and what `orbitmq store` says.
"""

import json
import signal
from pathlib import Path

import pytest

from tests.cli.commands import Running, run_command
from tests.cli.test_broker_command import address_of, broker
from tests.cli.test_log_elsewhere import COUNT, INDEX, SIZES, ends, send_all, store
from tests.wire_client import WireClient

SIZE = 131_072


def paths(tmp_path: Path, letters: str) -> str:
    """A list of folders as the setting has it, one for each letter."""
    return ",".join(str(tmp_path / f"disk-{letter}" / "log") for letter in letters)


def with_logs(tmp_path: Path, letters: str, read_only: str = "") -> Running:
    flags = ["-D", f"storePathCommitLog={paths(tmp_path, letters)}"]
    if read_only:
        flags += ["-D", f"readOnlyCommitLogStorePaths={paths(tmp_path, read_only)}"]
    return broker(tmp_path, *SIZES, *INDEX, *flags)


def spread_of(tmp_path: Path) -> str:
    """In which folder file 0, 1, 2 … of the log is; each number once, and none left out."""
    found = sorted((path.name, path.parts[-3][-1]) for path in tmp_path.glob("disk-*/log/*"))
    assert [int(name) for name, _ in found] == [SIZE * number for number in range(len(found))]
    return "".join(letter for _, letter in found)


def assert_healthy(tmp_path: Path, letters: str, count: int) -> None:
    done = store(tmp_path, "check", "data", "--log", paths(tmp_path, letters), *INDEX)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "healthy"), done.stdout
    assert f"{count:,} records" in done.stdout


def test_files_go_round_and_all_messages_are_there_after_a_kill(tmp_path: Path) -> None:
    for life in range(2):
        with with_logs(tmp_path, "cab") as running:
            address = address_of(running.line())
            assert ends(address) == [life * COUNT // 4] * 4
            send_all(address, COUNT, life * COUNT)
            assert running.stop(signal.SIGKILL) == -signal.SIGKILL
    with with_logs(tmp_path, "abc") as running:
        assert ends(address_of(running.line())) == [COUNT // 2] * 4
        assert running.stop() == 0
    found = spread_of(tmp_path)
    assert len(found) > 5
    assert found == ("abc" * len(found))[: len(found)]
    assert not (tmp_path / "data" / "store" / "commitlog").exists()
    assert_healthy(tmp_path, "bca", 2 * COUNT)


def test_folders_come_and_become_read_only(tmp_path: Path) -> None:
    count, before = 0, ""
    for letters, read_only in (("a", ""), ("ab", ""), ("ab", "a"), ("bc", "a"), ("abc", "")):
        with with_logs(tmp_path, letters, read_only) as running:
            address = address_of(running.line())
            assert sum(ends(address)) == count
            send_all(address, COUNT, count)
            count += COUNT
            assert running.stop() == 0
        new, takers = spread_of(tmp_path)[len(before) + 1 :], set(letters) - set(read_only)
        assert set(new) <= takers
        assert set(new) == takers or len(new) < len(takers)
        before = spread_of(tmp_path)
    assert_healthy(tmp_path, "abc", count)


def test_what_a_broker_says_of_its_folders(tmp_path: Path) -> None:
    with with_logs(tmp_path, "ab") as running:
        address_of(running.line())
    with (
        with_logs(tmp_path, "ab", "b") as running,
        WireClient(address_of(running.line())) as client,
    ):
        config = client.ask(26).body.decode()
        table = json.loads(client.ask(28).body)["table"]
    assert f"storePathCommitLog={paths(tmp_path, 'ab')}\n" in config
    assert f"readOnlyCommitLogStorePaths={paths(tmp_path, 'b')}\n" in config
    ratios = {key for key in table if key.startswith("commitLogDiskRatio_")}
    assert ratios == {f"commitLogDiskRatio_{paths(tmp_path, letter)}" for letter in "ab"}
    assert table["commitLogDirCapacity"].startswith("Total : ")


def test_another_separator_stands_between_folders(tmp_path: Path) -> None:
    logs = f"{tmp_path}/disk-a,b/log; {tmp_path}/disk-c/log"
    split = ("-D", "rocketmq.broker.multiPathSplitter=;")
    for life in range(2):
        with broker(
            tmp_path, *SIZES, *INDEX, *split, "-D", f"storePathCommitLog={logs}"
        ) as running:
            address = address_of(running.line())
            assert sum(ends(address)) == life * COUNT
            send_all(address, COUNT, life * COUNT)
            with WireClient(address) as client:
                config = client.ask(26).body.decode()
            assert running.stop() == 0
    assert f"storePathCommitLog={logs.replace('; ', ';')}\n" in config
    assert set(spread_of(tmp_path)) == {"b", "c"}
    done = store(tmp_path, "check", "data", *split, "--log", logs, *INDEX)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "healthy"), done.stdout


def test_dump_and_repair_are_told_of_all_folders(tmp_path: Path) -> None:
    with with_logs(tmp_path, "ab") as running:
        send_all(address_of(running.line()), COUNT)
        assert running.stop() == 0
    logs = ("--log", paths(tmp_path, "ab"))
    done = store(tmp_path, "dump", "data", *logs, "--topic", "T")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, COUNT)
    queue = tmp_path / "data" / "store" / "consumequeue" / "T" / "0" / f"{0:020d}"
    before = queue.read_bytes()
    queue.write_bytes(bytes(len(before)))
    done = store(tmp_path, "repair", "data", *logs, *INDEX)
    assert done.returncode == 0, done.stdout + done.stderr
    assert queue.read_bytes() == before
    partly = store(tmp_path, "check", "data", "--log", paths(tmp_path, "b"), *INDEX)
    assert partly.returncode == 1
    missing = store(tmp_path, "repair", "data", "--log", paths(tmp_path, "ax"))
    assert missing.returncode == 2
    assert "there is no log folder" in missing.stderr


@pytest.mark.parametrize(
    ("letters", "read_only", "said"),
    [
        ("a", "", "name its folder in storePathCommitLog or readOnlyCommitLogStorePaths"),
        ("ab", "x", "which readOnlyCommitLogStorePaths names: mount its disk"),
        ("aba", "", "twice; name each folder once"),
        ("ab", "ab", "add a folder to storePathCommitLog"),
    ],
)
def test_a_start_with_folders_that_cannot_be_right_says_what_to_change(
    tmp_path: Path, letters: str, read_only: str, said: str
) -> None:
    with with_logs(tmp_path, "ab") as running:
        send_all(address_of(running.line()), COUNT)
        assert running.stop() == 0
    before = spread_of(tmp_path)
    flags = ["-D", f"storePathCommitLog={paths(tmp_path, letters)}"]
    flags += ["-D", f"readOnlyCommitLogStorePaths={paths(tmp_path, read_only)}"]
    command = ("broker", "--port", "0", "--data-dir", "data", *flags)
    refused = run_command("orbitmq", *command, folder=tmp_path)
    assert refused.returncode == 1
    assert said in refused.stderr
    assert spread_of(tmp_path) == before


def test_a_folder_under_two_names_is_named_once(tmp_path: Path) -> None:
    (tmp_path / "disk-a").mkdir()
    (tmp_path / "disk-b").symlink_to(tmp_path / "disk-a")
    flags = ("--port", "0", "--data-dir", "data")
    setting = ("-D", f"storePathCommitLog={paths(tmp_path, 'ab')}")
    refused = run_command("orbitmq", "broker", *flags, *setting, folder=tmp_path)
    assert refused.returncode == 1
    assert "under another name: then name it once" in refused.stderr


def test_each_folder_is_for_one_broker(tmp_path: Path) -> None:
    with with_logs(tmp_path, "ab") as running:
        address_of(running.line())
        for letters, read_only in (("bc", ""), ("c", "b")):
            flags = ["-D", f"storePathCommitLog={paths(tmp_path, letters)}"]
            flags += ["-D", f"readOnlyCommitLogStorePaths={paths(tmp_path, read_only)}"]
            command = ("broker", "--port", "0", "--data-dir", "other", *flags)
            refused = run_command("orbitmq", *command, folder=tmp_path)
            assert refused.returncode == 1
            assert f"another broker has the log folder {paths(tmp_path, 'b')} open" in (
                refused.stderr
            )


def test_brokers_of_one_command_cannot_share_folders(tmp_path: Path) -> None:
    for key in ("storePathCommitLog", "readOnlyCommitLogStorePaths"):
        flags = ("--brokers", "2", "--data-dir", "data", "-D", f"{key}={paths(tmp_path, 'ab')}")
        refused = run_command("orbitmq", "broker", *flags, folder=tmp_path)
        assert refused.returncode == 2
        assert f"{key} is for one broker" in refused.stderr
