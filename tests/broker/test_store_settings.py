"""Settings of the store that no other test turns: eager syncs, fractions of the disk, figures.

In: a broker with one setting that is not the default. Out: what files, senders and tools see of it.
"""

import asyncio
from pathlib import Path

import msgspec
import pytest

from orbitmq.broker.starting import Given, put_together
from orbitmq.broker.store_options import retention_settings
from orbitmq.config import BrokerSettings
from orbitmq.errors import SettingError
from orbitmq.net.turn import Turn
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.world.files import Space, SystemFiles
from orbitmq.world.net import run
from tests.behaviour.requests import send_request
from tests.broker.running import begin, running
from tests.broker.test_retention import TightFiles, until
from tests.net.running import until as until_true

SETTINGS = BrokerSettings(listen_port=0, mapped_file_size_commit_log=1 << 20)
SELDOM = msgspec.structs.replace(
    SETTINGS,
    flush_interval_commit_log=60_000,
    flush_commit_log_thorough_interval=60_000,
    flush_consume_queue_thorough_interval=600_000,
    unsynced_millis_max=600_000,
)
PAGE = bytes(4_096)
GIB = 1 << 30


def test_without_timed_syncs_the_log_is_synced_as_soon_as_enough_pages_are_written(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        turn = Turn(asyncio.get_running_loop())
        async with running(tmp_path, turn, SELDOM) as broker:
            store = broker.broker._context.store
            for _ in range(5):
                assert (await broker.call(send_request("T", PAGE))).code == 0
            assert store._sync_job is None
            assert store.durable_offset == 0, "syncs wait for their interval"
            change = Command(RequestCode.UPDATE_BROKER_CONFIG, body=b"flushCommitLogTimed=false")
            assert (await broker.call(change)).code == 0
            assert (await broker.call(send_request("T", PAGE))).code == 0
            await until_true(lambda: store.unsynced_bytes == 0)
            assert (await broker.call(send_request("T", b"less than 4 pages"))).code == 0
            assert store._sync_job is None
            assert store.unsynced_bytes > 0

    run(main())


def test_the_disk_is_full_at_the_fraction_that_was_set(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(
        SETTINGS,
        disk_space_warning_level_fraction="0.6",
        disk_free_bytes_least=1 << 60,
        clean_resource_interval=100,
    )

    async def main() -> None:
        files = TightFiles()
        broker = await begin(tmp_path, Turn(asyncio.get_running_loop()), settings, files)
        try:
            await until(broker, 0)
            files.space_now = Space(100 * GIB, 35 * GIB)
            refusal = await until(broker, 14)
            assert "65.0% full" in refusal
            assert "limit 60% (diskSpaceWarningLevelRatio)" in refusal
            change = b"diskSpaceWarningLevelRatio=70"
            changed = await broker.call(Command(RequestCode.UPDATE_BROKER_CONFIG, body=change))
            assert changed.code == 0
            await until(broker, 0)
        finally:
            await broker.stop()

    run(main())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (0.85, 0.9)),
        ({"rocketmq.broker.diskSpaceCleanForciblyRatio": "0.5"}, (0.5, 0.9)),
        ({"rocketmq.broker.diskSpaceWarningLevelRatio": ".75"}, (0.85, 0.75)),
        (
            {
                "rocketmq.broker.diskSpaceCleanForciblyRatio": "0.5",
                "diskSpaceCleanForciblyRatio": "60",
            },
            (0.6, 0.9),
        ),
    ],
)
def test_fractions_count_unless_the_per_cent_are_set(
    tmp_path: Path, given: dict[str, str], expected: tuple[float, float]
) -> None:
    start = put_together(SystemFiles(), tmp_path, Given({}, given, None), strict=True)
    retention = retention_settings(start.settings)
    assert (retention.clean_forcibly_ratio, retention.warning_ratio) == expected


@pytest.mark.parametrize("text", ["85", "0", "1", "-0.5", "much", "nan", "1e-1"])
def test_what_is_no_fraction_is_refused_before_anything_is_opened(
    tmp_path: Path, text: str
) -> None:
    key = "rocketmq.broker.diskSpaceCleanForciblyRatio"
    with pytest.raises(SettingError, match="expected a fraction"):
        put_together(SystemFiles(), tmp_path, Given({}, {key: text}, None))


@pytest.mark.parametrize("is_detailed", [True, False])
def test_figures_by_queue_are_kept_if_they_are_wanted(tmp_path: Path, is_detailed: bool) -> None:
    settings = msgspec.structs.replace(SETTINGS, enable_detail_stat=is_detailed)

    async def main() -> None:
        async with running(tmp_path, Turn(asyncio.get_running_loop()), settings) as broker:
            delayed = send_request("T", b"later", i="DELAY\x0118")
            assert (await broker.call(delayed)).code == 0
            stats = broker.broker._context.stats
            for _ in stats.sampling(1_000.0, 1, is_forgetful=False):
                pass
            code = RequestCode.VIEW_BROKER_STATS_DATA
            topic, level = "SCHEDULE_TOPIC_XXXX", "SCHEDULE_TOPIC_XXXX@17"
            asked = await broker.ask(code, statsName="TOPIC_PUT_NUMS", statsKey=topic)
            assert asked.code == 0
            asked = await broker.ask(code, statsName="QUEUE_PUT_NUMS", statsKey=level)
            assert (asked.code == 0) is is_detailed

    run(main())
