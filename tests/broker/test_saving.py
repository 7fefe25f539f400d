"""Tables and stops when something fails: what is in memory is not lost, the rest goes on."""

import asyncio
import logging
import threading
from pathlib import Path

import pytest

from orbitmq.broker import broker as broker_module
from orbitmq.config import BrokerSettings
from orbitmq.errors import DiskFull
from orbitmq.net.turn import Turn
from orbitmq.world.files import SystemFiles
from orbitmq.world.net import run
from tests.behaviour.requests import send_request
from tests.broker.running import LIMIT_S, RefusingTables, begin

SETTINGS = BrokerSettings(
    listen_port=0, mapped_file_size_commit_log=1 << 20, flush_consumer_offset_interval=10
)
TABLES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json")


@pytest.fixture(autouse=True)
def often_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "TABLE_SAVE_S", 0.01)


def test_tables_that_a_full_disk_refused_once_are_saved_by_a_clean_stop(tmp_path: Path) -> None:
    """Symptom: offsets, groups and topics were lost after a disk that was full for a moment."""

    async def scenario() -> None:
        files, turn = RefusingTables(), Turn(asyncio.get_running_loop())
        site = await begin(tmp_path, turn, SETTINGS, files)
        files.is_full = True
        assert (await site.call(send_request("Orders"))).code == 0
        site.broker._context.groups.find("Shop")  # makes it
        place: dict[str, str | int] = {"consumerGroup": "Shop", "topic": "Orders", "queueId": 0}
        assert (await site.ask(15, commitOffset=1, **place)).code == 0
        for name in TABLES:  # each is tried, though the one before it was refused
            assert await asyncio.to_thread(files.has_refused, name), name
        files.is_full = False
        await site.stop()

    run(scenario())
    topics, groups, offsets = ((tmp_path / "config" / name).read_bytes() for name in TABLES)
    assert b'"Orders"' in topics
    assert b'"Shop"' in groups
    assert offsets == b'{"offsetTable":{"Orders@Shop":{0:1}}}'


def test_a_stop_that_cannot_save_its_tables_says_so_and_closes_everything(tmp_path: Path) -> None:
    """Symptom: a refused table at the end left the log unsynced and the folder locked."""

    async def scenario() -> None:
        files, turn = RefusingTables(), Turn(asyncio.get_running_loop())
        site = await begin(tmp_path, turn, SETTINGS, files)
        files.is_full = True
        assert (await site.call(send_request("Orders"))).code == 0
        with pytest.raises(DiskFull, match=r"topics\.json"):
            await site.stop()
        assert files.is_released

    run(scenario())


class OneAtATime(SystemFiles):
    """Files whose first topic table takes its time; sees whether a second is written beside it."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.second = threading.Event()
        self.has_overlapped = False

    def replace(self, path: Path, data: bytes, *, keep_backup: bool = False) -> None:
        if path.name == "topics.json" and self.begun.is_set():
            self.second.set()
        elif path.name == "topics.json":
            self.begun.set()
            self.has_overlapped = self.second.wait(0.5)
        super().replace(path, data, keep_backup=keep_backup)


def test_a_stop_waits_for_the_save_that_is_under_way_before_it_saves(tmp_path: Path) -> None:
    """Symptom: a cancelled saver's thread and the stop wrote the same temporary file."""

    async def scenario() -> None:
        files, turn = OneAtATime(), Turn(asyncio.get_running_loop())
        site = await begin(tmp_path, turn, SETTINGS, files)
        assert await asyncio.to_thread(files.begun.wait, LIMIT_S)
        assert (await site.call(send_request("Orders"))).code == 0
        await site.stop()
        assert files.second.is_set()
        assert not files.has_overlapped

    run(scenario())
    assert b'"Orders"' in (tmp_path / "config" / "topics.json").read_bytes()


def test_a_routine_outlives_a_failure_that_nobody_foresaw(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Symptom: a ValueError ended saving or expiring for good, without a word."""

    async def scenario() -> None:
        goes_on, rounds = asyncio.Event(), 0

        async def act() -> None:
            nonlocal rounds
            rounds += 1
            if rounds == 1:
                raise ValueError("a bug")
            goes_on.set()

        routine = asyncio.create_task(broker_module._every(0.0, act))
        async with asyncio.timeout(LIMIT_S):
            await goes_on.wait()
        routine.cancel()
        await asyncio.gather(routine, return_exceptions=True)

    with caplog.at_level(logging.ERROR):
        run(scenario())
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["a bug"]
