"""The folder that a broker keeps: the original's parts, its sizes, and the marks of a run."""

import asyncio
import logging
import shutil
from pathlib import Path

import msgspec
import pytest

from orbitmq.broker.store_options import retention_settings, store_options
from orbitmq.config import BrokerSettings
from orbitmq.net.turn import Turn
from orbitmq.store.opening import Outside, open_folder
from orbitmq.store.options import StoreOptions
from orbitmq.store.retention import RetentionSettings
from orbitmq.wire.command import Command
from orbitmq.wire.record import scan_records
from orbitmq.world.clock import SystemClock
from orbitmq.world.files import SystemFiles
from orbitmq.world.net import run
from tests.behaviour.requests import heartbeat_body, pull_request, send_request
from tests.broker.running import begin, running
from tests.store.opened import open_store, send

SETTINGS = BrokerSettings(listen_port=0)
PARTS = {
    "checkpoint",
    "commitlog/00000000000000000000",
    "config/consumerOffset.json",
    "config/subscriptionGroup.json",
    "config/topics.json",
    "config/topics.json.bak",
    "consumequeue/T/2/00000000000000000000",
    "index",
    "lock",
}


def parts(folder: Path) -> set[str]:
    """The files of a folder; of the index, which is named by the time, its folder only."""
    paths = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return {"index" if path.parts[0] == "index" else str(path) for path in paths}


def test_the_folder_has_the_parts_and_sizes_of_the_originals(tmp_path: Path) -> None:
    async def scenario() -> None:
        turn = Turn(asyncio.get_running_loop())
        for number in range(2):  # the second run replaces tables: their .bak is the first run's
            site = await begin(tmp_path, turn, SETTINGS, SystemFiles())
            await site.call(send_request("T", e=2, i="KEYS\x01k\x02"))
            await site.call(Command(34, body=heartbeat_body("c@1", "G", "T")))
            await site.ask(15, consumerGroup="G", topic="T", queueId=2, commitOffset=1)
            await site.call(send_request(f"Another{number}"))
            assert (tmp_path / "abort").stat().st_size == 0, "it is there while the broker runs"
            await site.stop()
            assert not (tmp_path / "abort").exists()

    run(scenario())
    assert parts(tmp_path) >= PARTS
    assert (tmp_path / "commitlog" / f"{0:020d}").stat().st_size == 1 << 30
    assert (tmp_path / "checkpoint").stat().st_size == 4_096
    assert (tmp_path / "lock").read_bytes() == b"lock"
    (index,) = (tmp_path / "index").iterdir()
    assert index.stat().st_size == 40 + 4 * 5_000_000 + 20 * 20_000_000
    assert len(index.name) == 17
    assert index.name.isdigit()


def test_only_queues_that_were_written_have_files(tmp_path: Path) -> None:
    async def scenario() -> None:
        turn = Turn(asyncio.get_running_loop())
        site = await begin(tmp_path, turn, SETTINGS, SystemFiles())
        await site.call(send_request("T", d=8, e=5))
        await site.call(send_request("T", i="DELAY\x017"))
        await site.stop()

    run(scenario())
    queues = {path.name: path for path in (tmp_path / "consumequeue").iterdir()}
    assert {name: [one.name for one in path.iterdir()] for name, path in queues.items()} == {
        "T": ["5"],
        "SCHEDULE_TOPIC_XXXX": ["6"],
    }


def was_clean(folder: Path) -> bool:
    """Whether the next start takes the last run for cleanly ended."""
    opened = open_folder(Outside(SystemFiles(), SystemClock()), folder, StoreOptions())
    opened.lock.release()
    return opened.was_clean


def test_a_file_abort_says_that_the_last_run_did_not_end_cleanly(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert (tmp_path / "abort").exists()
    send(store, 0, b"x")
    store.close()
    assert not (tmp_path / "abort").exists()
    assert was_clean(tmp_path)
    assert not was_clean(tmp_path), "the one before was never closed"


def test_a_start_logs_where_the_log_ends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = open_store(tmp_path, options=StoreOptions(log_file_size=131_072))
    send(store, 0, b"x")
    end = store.tail.end_offset
    store.close()

    async def scenario() -> None:
        site = await begin(tmp_path, Turn(asyncio.get_running_loop()), SETTINGS, SystemFiles())
        await site.stop()

    caplog.set_level(logging.INFO)
    run(scenario())
    assert f"the log of {tmp_path} goes from 0 to {end}" in caplog.messages


def test_what_the_store_is_told_by_default_is_what_the_original_is_told() -> None:
    defaults = BrokerSettings()
    assert (defaults.flush_disk_type, defaults.sync_flush_timeout) == ("ASYNC_FLUSH", 5_000)
    assert (defaults.file_reserved_time, defaults.delete_when) == (72, "04")
    assert (defaults.clean_resource_interval, defaults.message_index_enable) == (10_000, True)
    options = store_options(defaults)
    assert not options.is_sync_flush
    assert (options.log_file_size, options.queue_file_size) == (1 << 30, 300_000 * 20)
    assert (options.index_slot_count, options.index_entry_count) == (5_000_000, 20_000_000)
    assert retention_settings(defaults) == RetentionSettings(
        reserved_ms=72 * 3_600_000,
        delete_hours="04",
        max_used_ratio=0.75,
        clean_forcibly_ratio=0.85,
        warning_ratio=0.90,
        is_forcible=True,
        least_free_bytes=5 << 30,
        batch_max=10,
    )


def test_after_a_kill_no_message_is_missing_and_some_come_twice(tmp_path: Path) -> None:
    """A copy of the folder of a running broker is what a kill leaves."""
    settings = msgspec.structs.replace(
        SETTINGS, mapped_file_size_commit_log=131_072, flush_consumer_offset_interval=600_000
    )
    place: dict[str, str | int] = {"consumerGroup": "G", "topic": "T", "queueId": 0}
    sent = [b"%d" % number for number in range(30)]

    async def scenario() -> None:
        turn = Turn(asyncio.get_running_loop())
        async with running(tmp_path / "run", turn, settings) as first:
            for body in sent:
                assert (await first.call(send_request("T", body))).code == 0
            first.broker._context.groups.find("G")  # makes it
            assert (await first.ask(15, commitOffset=len(sent), **place)).code == 0
            shutil.copytree(tmp_path / "run", tmp_path / "killed")
        async with running(tmp_path / "killed", turn, settings) as second:
            progress = int((await second.ask(14, **place)).fields["offset"])
            assert progress < len(sent), "it was consumed, and it comes again"
            found: list[bytes] = []
            while len(found) < len(sent):
                answer = await second.call(pull_request("T", "G", len(found)))
                found += [record.body for record in scan_records(answer.body)]
            assert found == sent

    run(scenario())


def test_offsets_are_replaced_with_a_backup_which_is_read_when_the_table_is_gone(
    tmp_path: Path,
) -> None:
    settings = msgspec.structs.replace(SETTINGS, mapped_file_size_commit_log=131_072)
    place: dict[str, str | int] = {"consumerGroup": "G", "topic": "T", "queueId": 0}

    async def scenario() -> None:
        turn = Turn(asyncio.get_running_loop())
        for offset in (1, 2):
            async with running(tmp_path, turn, settings) as site:
                assert (await site.call(send_request("T"))).code == 0
                site.broker._context.groups.find("G")  # makes it
                assert (await site.ask(15, commitOffset=offset, **place)).code == 0
        table = tmp_path / "config" / "consumerOffset.json"
        assert b"{0:2}" in table.read_bytes()
        assert not list(table.parent.glob("*.tmp"))
        table.unlink()
        async with running(tmp_path, turn, settings) as site:
            assert (await site.ask(14, **place)).fields["offset"] == "1"

    run(scenario())
