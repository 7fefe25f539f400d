"""`orbitmq store check|dump|repair` as a user runs them: output, exit codes, what is changed.

Method: the command as a process on real folders, made by `slow_store` or recorded from the
original.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq.wire.command import Command
from orbitmq.world.files import SystemFiles
from tests.behaviour.requests import send_request
from tests.cli.commands import PATIENCE_S, Running, environment, run_command
from tests.golden.store import store_files, stored_records
from tests.store.made_folder import made_folder, with_flip
from tests.store.slow_store import assert_derived, blobs_of, read_log
from tests.wire_client import WireClient

LOG = f"commitlog/{0:020d}"


def store(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command("orbitmq", "store", *arguments, folder=tmp_path)


def written(folder: Path, blobs: dict[str, bytes]) -> Path:
    """A folder on the disk."""
    for path, data in blobs.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    return written(tmp_path / "golden", store_files())


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    return written(tmp_path / "damaged", with_flip(made_folder(), LOG, 90, 0))


def test_check_says_healthy_and_exits_0(tmp_path: Path, golden: Path) -> None:
    done = store(tmp_path, "check", str(golden))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "healthy"
    assert "2,105 records" in done.stdout


def test_check_names_damage_with_what_to_do_and_exits_1(tmp_path: Path, damaged: Path) -> None:
    done = store(tmp_path, "check", str(damaged))
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"damage   {LOG} at byte 0: log offsets 0 to ")
    assert lines[1].strip().startswith("-> bring it back from a copy")
    assert lines[-1] == "damaged in 1 places"


def test_check_gives_json(tmp_path: Path, damaged: Path) -> None:
    done = store(tmp_path, "check", str(damaged), "--json")
    verdict = json.loads(done.stdout)
    assert done.returncode == 1
    assert verdict["healthy"] is False
    assert verdict["totals"]["damage"] == 1
    assert verdict["faults"][0]["path"] == LOG
    assert set(verdict["faults"][0]) == {"level", "path", "position", "text", "advice"}


@pytest.mark.parametrize("verb", ["check", "dump", "repair"])
def test_what_is_no_store_folder_exits_2_and_says_so(tmp_path: Path, verb: str) -> None:
    done = store(tmp_path, verb, str(tmp_path))
    assert done.returncode == 2
    assert done.stderr == (
        f"orbitmq store {verb}: {tmp_path} is no store folder: it has no folder commitlog; if its"
        " broker has storePathCommitLog set to another place, give that folder with --log\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_data_folder_will_do(tmp_path: Path) -> None:
    written(tmp_path / "data" / "store", made_folder())
    assert store(tmp_path, "check", "data").returncode == 0


def test_check_takes_the_brokers_settings(tmp_path: Path) -> None:
    folder = written(tmp_path / "store", made_folder())
    delays = store(tmp_path, "check", str(folder), "-D", "messageDelayLevel=1s 2s 3s")
    assert delays.returncode == 1
    assert "is not what the log says: code" in delays.stdout


def test_check_says_how_far_it_is_when_asked(tmp_path: Path, golden: Path) -> None:
    done = store(tmp_path, "check", str(golden), "--progress")
    assert done.returncode == 0  # over within a second: nothing to say
    assert "\r" not in done.stderr


def test_dump_prints_what_was_written_down_of_the_original(tmp_path: Path, golden: Path) -> None:
    done = store(tmp_path, "dump", str(golden))
    assert (done.returncode, done.stderr) == (0, "")
    assert [json.loads(line) for line in done.stdout.splitlines()] == list(stored_records())


def test_dump_takes_all_its_options_together(tmp_path: Path, golden: Path) -> None:
    arguments = ("--topic", "TopicFill", "--key", "user4", "--queue", "1", "--limit", "2", "--body")
    times = ("--from", "2026-11-15T00:00+00:00", "--to", "1794770370363", "--from-offset", "9")
    done = store(tmp_path, "dump", str(golden), *arguments, *times)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(records) == 2
    assert {record["queue_id"] for record in records} == {1}
    assert all("user4" in record["properties"]["KEYS"].split() for record in records)
    assert all(record["body"] for record in records)


def test_dump_reports_damage_on_standard_error_and_exits_1(tmp_path: Path, damaged: Path) -> None:
    done = store(tmp_path, "dump", str(damaged))
    assert done.returncode == 1
    assert done.stderr.startswith("orbitmq store dump: log offsets 0 to ")
    records = read_log(made_folder()).records[1:]
    offsets = [json.loads(line)["offset"] for line in done.stdout.splitlines()]
    assert offsets == [stored.record.log_offset for stored in records]


def test_dump_by_key_needs_a_topic(tmp_path: Path, golden: Path) -> None:
    done = store(tmp_path, "dump", str(golden), "--key", "k")
    assert done.returncode == 2
    assert "--key needs --topic" in done.stderr


def test_dump_refuses_a_time_it_cannot_read(tmp_path: Path, golden: Path) -> None:
    done = store(tmp_path, "dump", str(golden), "--from", "yesterday")
    assert done.returncode == 2
    assert "write ms since 1970, or a time such as 2026-11-15T18:00" in done.stderr


def test_dump_ends_quietly_when_nobody_reads_on(tmp_path: Path, golden: Path) -> None:
    command = [sys.executable, "-m", "orbitmq", "store", "dump", str(golden)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
        cwd=tmp_path,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        process.wait(PATIENCE_S)
        assert process.stderr.read() == b""


def test_check_and_dump_work_beside_one_who_holds_the_lock_and_repair_does_not(
    tmp_path: Path, golden: Path
) -> None:
    lock = SystemFiles().lock(golden / "lock")
    try:
        assert store(tmp_path, "check", str(golden)).returncode == 0
        assert store(tmp_path, "dump", str(golden), "--limit", "1").returncode == 0
        refused = store(tmp_path, "repair", str(golden))
    finally:
        lock.release()
    assert refused.returncode == 2
    assert "another process has" in refused.stderr


def test_a_folder_under_load_is_healthy_and_so_is_it_after_a_kill(tmp_path: Path) -> None:
    """Files roll fast: what the writer and the threads behind it leave always fits together."""
    sizes = ("-D", "mappedFileSizeCommitLog=131072", "-D", "mappedFileSizeConsumeQueue=2000")
    index = ("-D", "maxHashSlotNum=500", "-D", "maxIndexNum=3000")
    ports = ("--namesrv-port", "0", "--broker-port", "0", "--data-dir", "data")
    with Running("orbitmq", "up", *ports, *sizes, *index, folder=tmp_path) as broker:
        address = broker.line().split("broker=")[1].split()[0]
        with WireClient(address) as client:
            for burst in range(40):
                opaques = [client.send(message(burst * 50 + number)) for number in range(50)]
                assert [client.receive_answer(opaque).code for opaque in opaques] == [0] * 50
                if burst % 13 == 12:
                    assert_healthy(store(tmp_path, "check", "data", *index))
        assert broker.stop(signal.SIGKILL) == -signal.SIGKILL
    done = store(tmp_path, "check", "data", *index)
    assert_healthy(done)
    assert "2,000 records" in done.stdout


def message(number: int) -> Command:
    return send_request(
        "Load", bytes(300), e=str(number % 4), i=f"UNIQ_KEY\x01U{number}\x02KEYS\x01k{number % 9} z"
    )


def assert_healthy(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout[:2_000] + done.stderr


def repairable(tmp_path: Path) -> Path:
    """The recorded folder with a queue gone, another wrong, and an index file gone."""
    blobs = dict(store_files())
    wrong = f"consumequeue/TopicFill/1/{0:020d}"
    blobs[wrong] = blobs[wrong][:40] + b"\x01" * 20 + blobs[wrong][60:]
    del blobs[f"consumequeue/TopicFill/2/{0:020d}"]
    del blobs["index/20261115191929630"]
    return written(tmp_path / "store", blobs)


def test_repair_makes_queues_and_index_anew_and_a_second_run_changes_nothing(
    tmp_path: Path,
) -> None:
    folder = repairable(tmp_path)
    assert store(tmp_path, "check", str(folder)).returncode == 1
    done = store(tmp_path, "repair", str(folder))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("QUEUE_REBUILT")
    assert done.stdout.splitlines()[-1] == "healthy"
    after = blobs_of(SystemFiles(), folder)
    assert_derived(after, 500)
    again = store(tmp_path, "repair", str(folder))
    assert again.returncode == 0
    assert "nothing to repair" in again.stdout
    assert blobs_of(SystemFiles(), folder) == after


def test_repair_sets_aside_what_it_cannot_make_anew(tmp_path: Path) -> None:
    blobs = dict(store_files())
    blobs["commitlog/notes.txt"] = b"who put this here"
    folder = written(tmp_path / "store", blobs)
    done = store(tmp_path, "repair", str(folder))
    assert done.returncode == 0
    assert "STRAY_FILE" in done.stdout
    kept = [data for path, data in blobs_of(SystemFiles(), folder).items() if "aside/" in path]
    assert b"who put this here" in kept


def test_repair_with_dry_run_only_checks(tmp_path: Path) -> None:
    folder = repairable(tmp_path)
    before = blobs_of(SystemFiles(), folder)
    done = store(tmp_path, "repair", str(folder), "--dry-run")
    assert done.returncode == 1
    assert done.stdout == store(tmp_path, "check", str(folder)).stdout
    assert blobs_of(SystemFiles(), folder) == before


def test_damage_in_the_log_stays_after_repair_and_is_named_each_time(
    tmp_path: Path, damaged: Path
) -> None:
    settings = ("-D", "maxHashSlotNum=7", "-D", "maxIndexNum=9")
    (damaged / "abort").touch()
    first = store(tmp_path, "repair", str(damaged), *settings)
    after = blobs_of(SystemFiles(), damaged)
    second = store(tmp_path, "repair", str(damaged), *settings, "--json")
    assert (first.returncode, second.returncode) == (1, 1)
    assert "DAMAGE" in first.stdout
    assert json.loads(second.stdout)["findings"] == []
    assert blobs_of(SystemFiles(), damaged) == after
