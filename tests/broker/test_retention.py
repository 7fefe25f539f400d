"""Old files go, queues and index follow, and a full disk is refused before it is full."""

import asyncio
import json
import time
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from orbitmq.broker.broker import Broker
from orbitmq.config import BrokerSettings
from orbitmq.net.turn import Turn
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.record import scan_records
from orbitmq.world.files import Space, SystemFiles
from orbitmq.world.net import run
from tests.behaviour.requests import pull_request, send_request
from tests.broker.running import Running, begin

UNTIL_S = 20.0
EVERY_HOUR = ";".join(f"{hour:02d}" for hour in range(24))
OLD_AT_ONCE = BrokerSettings(
    listen_port=0,
    mapped_file_size_commit_log=131_072,
    mapped_file_size_consume_queue=200,
    max_hash_slot_num=50,
    max_index_num=100,
    file_reserved_time=0,
    delete_when=EVERY_HOUR,
    clean_resource_interval=100,
    flush_interval_consume_queue=10,
    flush_consume_queue_thorough_interval=100,
)
_GIB = 1 << 30


class TightFiles(SystemFiles):
    """Files on a disk whose space the test sets."""

    def __init__(self) -> None:
        self.space_now = Space(100 * _GIB, 50 * _GIB)

    def space(self, path: Path) -> Space:
        del path
        return self.space_now


async def offset_of(running: Running, code: int) -> int:
    return int((await running.ask(code, topic="T", queueId=0)).fields["offset"])


async def send_many(running: Running, count: int) -> None:
    for number in range(count):
        answer = await running.call(send_request("T", bytes(2_000), i=f"UNIQ_KEY\x01U{number}"))
        assert answer.code == 0, answer.remark


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_old_files_go_and_queues_and_index_follow(tmp_path: Path) -> None:
    async def use(running: Running) -> int:
        await send_many(running, 400)
        async with asyncio.timeout(UNTIL_S):
            while await offset_of(running, 31) < 300:
                await asyncio.sleep(0.01)
        first = await offset_of(running, 31)
        moved = await running.call(pull_request("T", "G", 0))
        assert (moved.code, int(moved.fields["nextBeginOffset"])) == (21, first)
        found = await running.call(pull_request("T", "G", first))
        assert next(iter(scan_records(found.body))).queue_offset == first
        return first

    async def inner() -> None:
        turn = Turn(asyncio.get_running_loop())
        running = await begin(tmp_path, turn, OLD_AT_ONCE, SystemFiles())
        try:
            first = await use(running)
        finally:
            await running.stop()
        assert len(names(tmp_path / "commitlog")) <= 3
        assert len(names(tmp_path / "consumequeue" / "T" / "0")) <= 12
        assert len(names(tmp_path / "index")) <= 3
        running = await begin(tmp_path, turn, OLD_AT_ONCE, SystemFiles())
        try:
            assert (await offset_of(running, 30), await offset_of(running, 31)) == (400, first)
            await send_many(running, 1)
        finally:
            await running.stop()

    run(inner())


def test_old_files_are_looked_for_more_often_than_each_second_once_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: cleanResourceInterval below 1000 was taken at run time and changed nothing."""
    looks = 0

    async def count(_broker: Broker) -> None:
        nonlocal looks
        looks += 1

    async def inner() -> None:
        nonlocal looks
        turn = Turn(asyncio.get_running_loop())
        settings = msgspec.structs.replace(OLD_AT_ONCE, clean_resource_interval=3_000)
        running = await begin(tmp_path, turn, settings, SystemFiles())
        monkeypatch.setattr(Broker, "_clean", count)
        try:
            changed = await running.call(Command(25, body=b"cleanResourceInterval=100\n"))
            assert changed.code == 0, changed.remark
            async with asyncio.timeout(UNTIL_S):
                while not looks:
                    await asyncio.sleep(0.01)
            looks = 0
            await asyncio.sleep(0.9)
            assert looks >= 2
        finally:
            await running.stop()

    run(inner())


class TwoDisks(SystemFiles):
    """Files on two disks: that of the log and that of the rest."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self.of_log = Space(100 * _GIB, 75 * _GIB)
        self.of_rest = Space(100 * _GIB, 50 * _GIB)

    def space(self, path: Path) -> Space:
        return self.of_log if path.is_relative_to(self._log) else self.of_rest


def test_old_files_go_from_a_log_that_lies_elsewhere_and_its_disk_is_measured(
    tmp_path: Path,
) -> None:
    log = tmp_path / "disk" / "log"
    files = TwoDisks(log)
    settings = msgspec.structs.replace(OLD_AT_ONCE, store_path_commit_log=str(log), delete_when="")

    async def use(running: Running) -> None:
        await send_many(running, 400)
        table = json.loads((await running.ask(28)).body)["table"]
        assert (table["commitLogDiskRatio"], table["consumeQueueDiskRatio"]) == ("0.25", "0.5")
        assert table[f"commitLogDiskRatio_{log}"] == "0.25"
        assert table["commitLogDirCapacity"] == "Total : 100.0 GiB, Free : 75.0 GiB."
        assert await offset_of(running, 31) == 0
        files.of_log = Space(100 * _GIB, 20 * _GIB)
        async with asyncio.timeout(UNTIL_S):
            while await offset_of(running, 31) < 300:
                await asyncio.sleep(0.01)
        files.of_log = Space(100 * _GIB, 4 * _GIB)
        refusal = await until(running, 14)
        assert f"the disk of {log} is 96.0% full" in refusal
        files.of_log = Space(100 * _GIB, 50 * _GIB)
        await until(running, 0)

    async def inner() -> None:
        turn = Turn(asyncio.get_running_loop())
        running = await begin(tmp_path / "root", turn, settings, files)
        try:
            await use(running)
        finally:
            await running.stop()

    run(inner())
    assert len(names(log)) <= 3
    assert not (tmp_path / "root" / "commitlog").exists()


def test_asked_by_hand_old_files_go_outside_their_hour(tmp_path: Path) -> None:
    hour = time.localtime().tm_hour
    other_hours = ";".join(f"{one:02d}" for one in range(24) if one not in (hour, (hour + 1) % 24))
    settings = msgspec.structs.replace(OLD_AT_ONCE, delete_when=other_hours)

    async def inner() -> None:
        turn = Turn(asyncio.get_running_loop())
        running = await begin(tmp_path, turn, settings, SystemFiles())
        try:
            await send_many(running, 200)
            cleaner = running.broker._store.cleaner  # sees that it looked
            async with asyncio.timeout(UNTIL_S):
                while not cleaner.disks:
                    await asyncio.sleep(0.01)
            assert await offset_of(running, 31) == 0
            answer = await running.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)
            assert (answer.code, answer.remark) == (0, None)
            async with asyncio.timeout(UNTIL_S):
                while await offset_of(running, 31) < 100:
                    await asyncio.sleep(0.01)
        finally:
            await running.stop()

    run(inner())


def test_sends_are_refused_before_the_disk_is_full_and_taken_when_there_is_room(
    tmp_path: Path,
) -> None:
    async def inner() -> None:
        turn, files = Turn(asyncio.get_running_loop()), TightFiles()
        settings = BrokerSettings(
            listen_port=0, mapped_file_size_commit_log=131_072, clean_resource_interval=100
        )
        running = await begin(tmp_path, turn, settings, files)
        try:
            await fill_and_free(running, files)
        finally:
            await running.stop()

    run(inner())


async def fill_and_free(running: Running, files: TightFiles) -> None:
    await send_many(running, 1)
    files.space_now = Space(100 * _GIB, 4 * _GIB)
    answer = await until(running, 14)
    assert "96.0% full" in answer
    assert "diskSpaceWarningLevelRatio" in answer
    found = await running.call(pull_request("T", "G", 0))
    assert len(list(scan_records(found.body))) >= 1, "reading goes on"
    files.space_now = Space(1_000 * _GIB, 40 * _GIB)  # as full, but there is room
    await until(running, 0)


async def until(running: Running, code: int) -> str:
    """Send until the answer has this code; give its remark."""
    async with asyncio.timeout(UNTIL_S):
        while True:
            answer = await running.call(send_request("T", b"x"))
            if answer.code == code:
                return answer.remark or ""
            await asyncio.sleep(0.01)


# --- pauses between removals ---


class Noting(SystemFiles):
    """Files that note when the log's and the queues' were removed."""

    def __init__(self) -> None:
        self.log_s: list[float] = []
        self.queues_s: dict[str, list[float]] = {}

    def remove(self, path: Path) -> None:
        super().remove(path)
        if path.parent.name == "commitlog":
            self.log_s.append(time.monotonic())
        elif path.parent.parent.parent.name == "consumequeue":
            self.queues_s.setdefault(path.parent.name, []).append(time.monotonic())


def gaps(moments_s: list[float]) -> list[float]:
    return [after - before for before, after in pairwise(moments_s)]


async def send_to_queues(running: Running, count: int) -> None:
    for number in range(count):
        answer = await running.call(send_request("T", bytes(2_000), e=str(number % 3)))
        assert answer.code == 0, answer.remark


PACED = msgspec.structs.replace(OLD_AT_ONCE, delete_when="")


def test_between_two_files_of_the_log_there_is_the_pause_that_was_set(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(PACED, delete_commit_log_files_interval=150)

    async def inner() -> None:
        files = Noting()
        running = await begin(tmp_path, Turn(asyncio.get_running_loop()), settings, files)
        try:
            await send_many(running, 300)
            await running.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)
            async with asyncio.timeout(UNTIL_S):
                while len(files.log_s) < 3:
                    await asyncio.sleep(0.01)
            assert min(gaps(files.log_s)) > 0.14
            assert await offset_of(running, 31) < 300, "what is left can be read"
        finally:
            await running.stop()

    run(inner())


def test_between_two_queues_whose_files_go_there_is_the_pause_that_was_set(
    tmp_path: Path,
) -> None:
    settings = msgspec.structs.replace(
        PACED, delete_commit_log_files_interval=0, delete_consume_queue_files_interval=150
    )

    async def inner() -> None:
        files = Noting()
        running = await begin(tmp_path, Turn(asyncio.get_running_loop()), settings, files)
        try:
            await send_to_queues(running, 300)
            await running.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)
            async with asyncio.timeout(UNTIL_S):
                while len(files.queues_s) < 3:
                    await asyncio.sleep(0.01)
            assert min(gaps(sorted(moments[0] for moments in files.queues_s.values()))) > 0.14
        finally:
            await running.stop()

    run(inner())


def test_a_stop_waits_for_no_pause(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(PACED, delete_commit_log_files_interval=60_000)

    async def inner() -> None:
        files = Noting()
        running = await begin(tmp_path, Turn(asyncio.get_running_loop()), settings, files)
        await send_many(running, 300)
        await running.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)
        async with asyncio.timeout(UNTIL_S):
            while not files.log_s:
                await asyncio.sleep(0.01)
        async with asyncio.timeout(UNTIL_S):
            await running.stop()
        assert len(files.log_s) == 1

    run(inner())
