"""One store folder, by turns in the hands of OrbitMQ and of an original broker.

The judge is the other broker: it must open what the first one left, after a clean stop and after
SIGKILL under load, serve the same bytes, find them by key, and go on writing. Nothing that was
acknowledged may be missing, whoever acknowledged it. Files are small, so that a few thousand
messages make many of each kind; ORBITMQ_EXCHANGE_ROUNDS makes the exchange at the end longer.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
from pathlib import Path

import pytest

from orbitmq.wire.record import decode_record
from tests.foreign.accounts import events
from tests.foreign.contents import (
    Contents,
    all_records,
    assert_found_by_keys,
    assert_found_by_time,
    assert_holds,
    await_readable,
    grew_from,
    read_contents,
)
from tests.foreign.loads import Sent, send_load, send_until_killed
from tests.foreign.peers import java_probe
from tests.foreign.running import ProgramFailed
from tests.foreign.stores import (
    NO_SETTINGS,
    SMALL,
    DataFolder,
    Opened,
    check_store,
    original_on,
    ours_on,
)

pytestmark = [pytest.mark.foreign, pytest.mark.slow]

COUNT = 4_000
KILLS_MAX = 5
MORE = 600
# With it the checkpoint is soon trusted: whoever recovers does not read the log from its beginning.
FLUSHED_OFTEN = {
    "flushIntervalCommitLog": "20",  # an original syncs one file of the log at a time
    "flushCommitLogThoroughInterval": "20",
    "flushConsumeQueueThoroughInterval": "300",
}
STAMP_SLACK_MS = 3_000  # by so much the original distrusts a checkpoint
ROUNDS = int(os.environ.get("ORBITMQ_EXCHANGE_ROUNDS", "1"))


def assert_all_there(opened: Opened, sent: list[Sent]) -> Contents:
    """Everything acknowledged is served, at its place and by its keys."""
    contents = read_contents(opened.broker)
    assert_holds(contents, sent)
    assert_found_by_keys(opened.broker, contents)
    return contents


def assert_appends(opened: Opened, word: str, before: Contents, sent: list[Sent]) -> Contents:
    """It takes more messages, and what was there before stays as it was."""
    sent += send_load(opened.broker, word, MORE)
    await_readable(opened.broker, sent)
    after = assert_all_there(opened, sent)
    assert grew_from(before, after)
    return after


def assert_several_files(folder: DataFolder) -> None:
    """The load was long enough to fill several files of each kind."""
    counts = {
        kind: len([path for path in (folder.store / kind).rglob("*") if path.is_file()])
        for kind in ("commitlog", "index", "consumequeue/Exchange_A/0")
    }
    assert min(counts.values()) >= 3, counts


def files_behind_checkpoint(folder: DataFolder) -> int:
    """How many log files an original need not read after a kill, by the stamps of the folder."""
    stamps = struct.unpack(">qq", (folder.store / "checkpoint").read_bytes()[:16])
    firsts = [
        decode_record(path.read_bytes())[0].store_ms
        for path in sorted((folder.store / "commitlog").iterdir())
        if path.read_bytes().strip(b"\0")
    ]
    return sum(first_ms <= min(stamps) - STAMP_SLACK_MS for first_ms in firsts)


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_original_goes_on_with_what_ours_wrote_and_ours_goes_on_after_it(
    folder: DataFolder, namesrv: str, version: str
) -> None:
    with ours_on(folder) as ours:
        sent = send_load(ours.broker, "ours", COUNT)
        written = assert_all_there(ours, sent)
    assert_several_files(folder)
    check_store(folder)
    with original_on(version, folder, namesrv) as original:
        assert assert_all_there(original, sent) == written
        written = assert_appends(original, "original", written, sent)
    check_store(folder)
    with ours_on(folder) as ours:
        assert assert_all_there(ours, sent) == written
        assert_found_by_time(ours.broker, written)
        assert_appends(ours, "ours-again", written, sent)
    check_store(folder)


@pytest.mark.nightly("exchange")
def test_a_log_that_lies_elsewhere_is_served_by_both_in_turn(tmp_path: Path, namesrv: str) -> None:
    log = tmp_path / "disk" / "log"
    folder = DataFolder(tmp_path / "data", SMALL, (log,))
    with ours_on(folder) as ours:
        sent = send_until_killed(ours.broker, "ours", ours.kill, 2)
    with original_on("4.9.7", folder, namesrv) as original:
        written = assert_all_there(original, sent)
        written = assert_appends(original, "original", written, sent)
    check_store(folder)
    with ours_on(folder) as ours:
        assert assert_all_there(ours, sent) == written
        assert_appends(ours, "ours-again", written, sent)
    check_store(folder)
    assert len(list(log.iterdir())) >= 3
    assert not (folder.store / "commitlog").exists()


def spread_of(folder: DataFolder) -> list[str]:
    """The names of the folders that file 0, 1, 2 … of the log is in; each number is there once."""
    paths = sorted((path.name, log.name) for log in folder.logs_elsewhere for path in log.iterdir())
    size = int(SMALL["mappedFileSizeCommitLog"])
    assert [int(name) for name, _ in paths] == [size * number for number in range(len(paths))]
    return [log for _, log in paths]


@pytest.mark.nightly("exchange")
def test_a_log_in_several_folders_is_served_by_both_in_turn_and_goes_round_alike(
    tmp_path: Path, namesrv: str
) -> None:
    """Each takes the files where the other left them; later one folder becomes read-only."""
    logs = tuple(tmp_path / letter for letter in "bca")
    folder = DataFolder(tmp_path / "data", SMALL, logs)
    sent: list[Sent] = []
    with original_on("4.9.7", folder, namesrv) as original:
        sent += send_load(original.broker, "original", COUNT // 2)
        await_readable(original.broker, sent)
    check_store(folder)
    with ours_on(folder) as ours:
        assert_all_there(ours, sent)
        sent += send_until_killed(ours.broker, "ours", ours.kill, 2)
    with original_on("4.9.7", folder, namesrv) as original:
        written = assert_all_there(original, sent)
        written = assert_appends(original, "original-again", written, sent)
    found = spread_of(folder)
    assert len(found) >= 6
    assert found == [("a", "b", "c")[number % 3] for number in range(len(found))]
    kept = {"readOnlyCommitLogStorePaths": str(tmp_path / "b")}
    with ours_on(folder, kept) as ours:
        assert assert_all_there(ours, sent) == written
        sent += send_load(ours.broker, "ours-again", COUNT // 2)
        written = assert_all_there(ours, sent)
    check_store(folder)
    with original_on("4.9.7", folder, namesrv, kept) as original:
        assert assert_all_there(original, sent) == written
        assert_appends(original, "original-at-last", written, sent)
    later = spread_of(folder)[len(found) :]
    assert len(later) >= 3
    assert set(later) == {"a", "c"}
    with ours_on(folder) as ours:
        assert_all_there(ours, sent)


@pytest.mark.nightly("exchange")
def test_original_recovers_what_ours_left_when_killed_under_load(
    folder: DataFolder, namesrv: str, tmp_path: Path
) -> None:
    sent: list[Sent] = []
    for round_number in range(KILLS_MAX):  # until a kill came while files were still to be flushed
        with ours_on(folder, FLUSHED_OFTEN) as ours:
            sent += send_until_killed(ours.broker, f"ours-{round_number}", ours.kill, 5)
        if files_behind_checkpoint(folder) >= 2:
            break
    assert files_behind_checkpoint(folder) >= 2
    twin = DataFolder(tmp_path / "twin", SMALL)
    shutil.copytree(folder.path, twin.path)
    with ours_on(twin) as ours:
        recovered = assert_all_there(ours, sent)
    check_store(twin)
    assert_several_files(folder)
    with original_on("4.9.7", folder, namesrv) as original:
        assert assert_all_there(original, sent) == recovered
        written = assert_appends(original, "original", recovered, sent)
        sent += send_until_killed(original.broker, "original-killed", original.kill, 2)
    with ours_on(folder) as ours:
        assert grew_from(written, assert_all_there(ours, sent))
    check_store(folder)


@pytest.mark.nightly("exchange")
def test_ours_goes_on_with_what_an_original_and_its_client_wrote(
    folder: DataFolder, namesrv: str
) -> None:
    with original_on("4.9.7", folder, namesrv) as original:
        sent = send_load(original.broker, "original", COUNT)
        options = ["body=java", "keys=java", "tags=TagA,TagB"]
        lines = java_probe(
            *("4.9.7", "send", namesrv, "Exchange_A", "200", *options),
            *("--", "send-batch", namesrv, "Exchange_B", "200", "body=batch", "keys=batch"),
        )
        assert events(lines, "error") == []
        await_readable(original.broker, sent)
        written = assert_all_there(original, sent)
    bodies = {record.body for record in all_records(written)}
    assert {f"{word}-{i}".encode() for word in ("java", "batch") for i in range(200)} <= bodies
    assert_several_files(folder)
    with ours_on(folder) as ours:
        assert assert_all_there(ours, sent) == written
        assert_found_by_time(ours.broker, written)
        written = assert_appends(ours, "ours", written, sent)
    check_store(folder)
    with original_on("4.9.7", folder, namesrv) as original:
        assert assert_all_there(original, sent) == written
        assert_appends(original, "original-again", written, sent)


@pytest.mark.nightly("exchange")
def test_ours_recovers_what_an_original_left_when_killed_under_load(
    folder: DataFolder, namesrv: str
) -> None:
    with original_on("4.9.7", folder, namesrv, FLUSHED_OFTEN) as original:
        sent = send_until_killed(original.broker, "original", original.kill, 5)
    assert files_behind_checkpoint(folder) >= 2
    with ours_on(folder) as ours:
        written = assert_all_there(ours, sent)
        assert_found_by_time(ours.broker, written)
        written = assert_appends(ours, "ours", written, sent)
    check_store(folder)
    with original_on("4.9.7", folder, namesrv) as original:
        assert assert_all_there(original, sent) == written


@pytest.mark.nightly("exchange")
def test_folder_that_one_broker_has_open_is_refused_to_the_other(
    folder: DataFolder, namesrv: str
) -> None:
    with ours_on(folder) as ours:
        sent = send_load(ours.broker, "ours", 100)
        with (
            pytest.raises(ProgramFailed, match="Lock failed"),
            original_on("4.9.7", folder, namesrv),
        ):
            pass
        assert_all_there(ours, sent)
    with original_on("4.9.7", folder, namesrv) as original:
        with pytest.raises(ProgramFailed, match="another process has"), ours_on(folder):
            pass
        assert_all_there(original, sent)


@pytest.mark.timeout(600 + 120 * ROUNDS)
@pytest.mark.nightly("exchange")
def test_folder_that_changes_hands_under_kills_keeps_every_acknowledged_message(
    folder: DataFolder, namesrv: str
) -> None:
    seed = int(os.environ.get("ORBITMQ_EXCHANGE_SEED") or random.randrange(2**32))
    chance = random.Random(seed)
    sent: list[Sent] = []
    kills = 0
    print(f"exchange: {ROUNDS} rounds, seed {seed}")
    for number in range(ROUNDS * 2):
        word = f"round-{number}"
        is_ours, is_killed = number % 2 == 0, chance.random() < 0.8
        further = chance.choice([FLUSHED_OFTEN, NO_SETTINGS])
        if is_ours:
            holder = ours_on(folder, further)
        else:
            holder = original_on("4.9.7", folder, namesrv, further)
        with holder as opened:
            if sent:
                assert_all_there(opened, sent)
            if is_killed:
                kills += 1
                after_s = chance.uniform(0.2, 2)
                sent += send_until_killed(opened.broker, word, opened.kill, after_s)
            else:
                sent += send_load(opened.broker, word, chance.randrange(1, COUNT))
        if is_ours and not is_killed:
            check_store(folder)
    with ours_on(folder) as ours:
        assert_all_there(ours, sent)
    check_store(folder)
    print(f"exchange: {len(sent)} acknowledged messages, {kills} kills, none lost")
