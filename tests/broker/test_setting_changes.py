"""Changed settings: where they are kept, what they change at once, and what a full disk does."""

import asyncio
from pathlib import Path

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.broker.setting_changes import CHANGES_FILE, read_kept_changes
from orbitmq.config import BrokerSettings, parse_properties
from orbitmq.errors import SettingError
from orbitmq.metrics import Registry
from orbitmq.net.turn import Turn
from orbitmq.wire.command import Command
from orbitmq.wire.record import scan_records
from orbitmq.world.files import SystemFiles
from orbitmq.world.net import run
from tests.behaviour.requests import pull_request, send_request
from tests.broker.running import RefusingTables, Running, begin, running

SETTINGS = BrokerSettings(listen_port=0, mapped_file_size_commit_log=1 << 20)
UPDATE, GET = 25, 26
KILOBYTE = 1_000


async def change(broker: Running, text: str) -> Command:
    return await broker.call(Command(UPDATE, body=text.encode()))


async def shown(broker: Running) -> dict[str, str]:
    return parse_properties((await broker.ask(GET)).body)


def test_changes_without_a_settings_file_are_kept_in_the_config_folder(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, Turn(asyncio.get_running_loop()), SETTINGS) as broker:
            assert (await change(broker, "fileReservedTime=48\ntraceOn=false\n")).code == 0
            assert (await change(broker, "fileReservedTime=24\n")).code == 0

    run(main())
    config = tmp_path / "config"
    assert (config / CHANGES_FILE).read_text() == "fileReservedTime=24\ntraceOn=false\n"
    kept = read_kept_changes(SystemFiles(), config)
    assert kept == {"fileReservedTime": "24", "traceOn": "false"}


def test_the_file_of_the_start_gets_the_changes_and_keeps_its_other_lines(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("# ours\nbrokerName = shop\nfileReservedTime=72\n")

    async def main() -> None:
        broker = Broker(SETTINGS, tmp_path / "store", Turn(asyncio.get_running_loop()), Registry())
        broker.keep_changes_in(file)
        await broker.start()
        started = Running(broker, Turn(asyncio.get_running_loop()))
        assert (await change(started, "fileReservedTime=24\ndeleteWhen=03;15\n")).code == 0
        await started.stop()

    run(main())
    assert file.read_text() == "# ours\nbrokerName = shop\nfileReservedTime=24\ndeleteWhen=03;15\n"
    assert not (tmp_path / "store" / "config" / CHANGES_FILE).exists()


@pytest.mark.parametrize("text", ["listenPort=1\n", "nosuch=1\n", "\\u12"])
def test_a_kept_file_that_was_tampered_with_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / CHANGES_FILE).write_text(text)
    with pytest.raises(SettingError, match=CHANGES_FILE):
        read_kept_changes(SystemFiles(), tmp_path)


def test_a_change_that_cannot_be_saved_changes_nothing_and_says_why(tmp_path: Path) -> None:
    async def main() -> None:
        files = RefusingTables()
        broker = await begin(tmp_path, Turn(asyncio.get_running_loop()), SETTINGS, files)
        try:
            files.is_full = True
            answer = await change(broker, "fileReservedTime=24\n")
            assert answer.code != 0
            assert "no space left" in str(answer.remark)
            assert (await shown(broker))["fileReservedTime"] == "72"
            files.is_full = False
            assert (await change(broker, "fileReservedTime=24\n")).code == 0
            assert (await shown(broker))["fileReservedTime"] == "24"
        finally:
            files.is_full = False
            await broker.stop()

    run(main())


def test_limits_of_pulls_follow_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, Turn(asyncio.get_running_loop()), SETTINGS) as broker:
            for _ in range(10):
                assert (await broker.call(send_request("Orders", bytes(KILOBYTE)))).code == 0
            assert await pulled(broker) == 10
            assert (await change(broker, "maxTransferCountOnMessageInMemory=7\n")).code == 0
            assert await pulled(broker) == 7
            assert (await change(broker, "maxTransferBytesOnMessageInMemory=6000\n")).code == 0
            assert await pulled(broker) == 5
            assert await pulled(broker, subscription="TagA") == 5

    run(main())


def test_the_limit_of_bulk_pulls_follows_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        bulk = {"bulk": "true", "maxMsgNums": "300"}
        selected = {**bulk, "subscription": "TagA"}
        fewer = {**bulk, "maxMsgBytes": "50000"}
        async with running(tmp_path, Turn(asyncio.get_running_loop()), SETTINGS) as broker:
            for _ in range(50):
                assert (await broker.call(send_request("Orders", bytes(KILOBYTE)))).code == 0
            assert await pulled(broker, maxMsgNums="300") == 32
            assert [await pulled(broker, **asked) for asked in (bulk, selected)] == [50, 50]
            assert 32 < await pulled(broker, **fewer) < 50
            assert (await change(broker, "maxTransferBytesOnBulkPull=6000\n")).code == 0
            assert [await pulled(broker, **asked) for asked in (bulk, selected)] == [5, 5]
            assert (await change(broker, "maxTransferBytesOnBulkPull=0\n")).code == 0
            assert [await pulled(broker, **asked) for asked in (bulk, selected)] == [32, 32]
        async with running(tmp_path, Turn(asyncio.get_running_loop()), SETTINGS) as broker:
            assert await pulled(broker, **bulk) == 50, "old ones, too"
            assert await pulled(broker, **fewer) < 50
            assert (await change(broker, "maxTransferBytesOnBulkPull=0\n")).code == 0
            assert await pulled(broker, **bulk) == 8
            assert broker.broker._context.cold_reads.count == 3, "all came from the files"

    run(main())


def test_limits_of_pulls_of_old_messages_follow_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, Turn(asyncio.get_running_loop()), SETTINGS) as broker:
            for _ in range(20):
                assert (await broker.call(send_request("Orders", bytes(KILOBYTE)))).code == 0
        async with running(tmp_path, Turn(asyncio.get_running_loop()), SETTINGS) as broker:
            assert await pulled(broker) == 8
            assert (await change(broker, "maxTransferCountOnMessageInDisk=12\n")).code == 0
            assert await pulled(broker) == 12
            recent = "maxTransferBytesOnMessageInMemory=5000\n"
            assert (await change(broker, recent)).code == 0
            assert await pulled(broker) == 12, "that one is of recent messages"
            assert (await change(broker, "maxTransferBytesOnMessageInDisk=6000\n")).code == 0
            assert await pulled(broker) == 5
            assert broker.broker._context.cold_reads.count == 4, "all came from the files"

    run(main())


async def pulled(broker: Running, **changes: str) -> int:
    answer = await broker.call(pull_request("Orders", "Readers", 0, **changes))
    return len(list(scan_records(answer.body)))


@pytest.mark.parametrize("is_traced", [True, False])
def test_producers_are_told_whether_to_trace(tmp_path: Path, is_traced: bool) -> None:
    async def main() -> None:
        async with running(tmp_path, Turn(asyncio.get_running_loop()), SETTINGS) as broker:
            word = str(is_traced).lower()
            assert (await change(broker, f"traceOn={word}\n")).code == 0
            for properties in ("TAGS\x01A\x02", "DELAY\x011\x02"):  # answered by core and handler
                answer = await broker.call(send_request("Orders", b"x", i=properties))
                assert answer.fields["TRACE_ON"] == word

    run(main())


def test_listeners_hear_of_each_change_after_it_is_in_force(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, Turn(asyncio.get_running_loop()), SETTINGS) as broker:
            heard: list[int] = []
            context = broker.broker._context
            context.on_settings_change.append(
                lambda settings: heard.append(settings.file_reserved_time)
            )
            await change(broker, "fileReservedTime=5\n")
            await change(broker, "fileReservedTime=oops\n")
            await change(broker, "fileReservedTime=6\n")
            assert heard == [5, 6]
            assert context.settings.file_reserved_time == 6

    run(main())


def test_topics_and_groups_are_made_as_long_as_that_is_on(tmp_path: Path) -> None:
    """Difference: in the original a topic's template is lost once this was off."""

    async def main() -> None:
        async with running(tmp_path, Turn(asyncio.get_running_loop()), SETTINGS) as broker:
            off = "autoCreateTopicEnable=false\nautoCreateSubscriptionGroup=false\n"
            assert (await change(broker, off)).code == 0
            assert (await broker.call(send_request("Orders"))).code == 17
            assert (await broker.call(pull_request("BenchmarkTest", "Readers", 0))).code == 26
            assert (await change(broker, off.replace("false", "true"))).code == 0
            assert (await broker.call(send_request("Orders"))).code == 0
            assert (await broker.call(pull_request("Orders", "Readers", 0))).code == 0

    run(main())


def test_ordered_topics_take_no_sends_while_the_broker_may_not_be_written_to(
    tmp_path: Path,
) -> None:
    """Symptom: the hot path went on taking them."""

    async def main() -> None:
        async with running(tmp_path, Turn(asyncio.get_running_loop()), SETTINGS) as broker:
            for topic in ("Ordered", "Plain"):
                for _ in range(2):
                    assert (await broker.call(send_request(topic))).code == 0
            topics = broker.broker._context.topics
            topics.set_order_topics({"Ordered": "broker-a:4"})
            for permission, code in (("4", 16), ("6", 0)):
                assert (await change(broker, f"brokerPermission={permission}\n")).code == 0
                assert (await broker.call(send_request("Ordered"))).code == code
                assert (await broker.call(send_request("Plain"))).code == 0

    run(main())


def test_the_topics_of_the_broker_follow_its_settings(tmp_path: Path) -> None:
    settings = BrokerSettings(
        listen_port=0,
        mapped_file_size_commit_log=1 << 20,
        broker_topic_enable=False,
        cluster_topic_enable=False,
        trace_topic_enable=True,
    )

    async def main() -> None:
        async with running(tmp_path, Turn(asyncio.get_running_loop()), settings) as broker:
            table = broker.broker._context.topics.snapshot().configs
            perms = [table[topic].perm for topic in ("broker-a", "DefaultCluster")]
            assert perms == [1, 1]  # as 4.9.7 makes them
            trace = table["RMQ_SYS_TRACE_TOPIC"]
            assert (trace.read_queue_count, trace.write_queue_count, trace.perm) == (1, 1, 6)

    run(main())
