"""What an operator changes is kept when it is answered, and refused when it cannot be."""

import asyncio
import json
from pathlib import Path

import pytest

from orbitmq.broker import broker as broker_module
from orbitmq.broker import topics as topics_module
from orbitmq.config import BrokerSettings
from orbitmq.errors import RequestFailed
from orbitmq.net.turn import Turn
from orbitmq.wire.bodies_namesrv import SubscriptionGroupConfig, TopicConfig
from orbitmq.wire.command import Command
from orbitmq.world.files import SystemFiles
from orbitmq.world.net import run
from tests.behaviour.requests import pull_request, send_request
from tests.broker.running import RefusingTables, Running, begin, running

SETTINGS = BrokerSettings(listen_port=0, mapped_file_size_commit_log=1 << 20)


@pytest.fixture(autouse=True)
def never_saved_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "TABLE_SAVE_S", 3_600.0)


async def make(site: Running, topic: str, **changes: str | int) -> Command:
    """Ask for a topic."""
    fields: dict[str, str | int] = {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
    return await site.ask(17, topic=topic, **(fields | changes))


def saved(folder: Path, name: str) -> str:
    """Return what a table's file holds."""
    return (folder / "config" / name).read_text()


def test_changes_are_in_their_files_when_they_are_answered(tmp_path: Path) -> None:
    async def scenario() -> None:
        turn = Turn(asyncio.get_running_loop())
        async with running(tmp_path, turn, SETTINGS) as site:
            assert (await make(site, "Orders")).code == 0
            assert '"Orders"' in saved(tmp_path, "topics.json")
            body = json.dumps({"groupName": "Shop"}).encode()
            assert (await site.call(Command(200, body=body))).code == 0
            assert '"Shop"' in saved(tmp_path, "subscriptionGroup.json")
            place: dict[str, str | int] = {"consumerGroup": "Shop", "topic": "Orders"}
            await site.ask(15, **place, queueId=0, commitOffset=0)
            list(site.broker._context.offsets.looking())  # as every 5 s
            assert (await make(site, "Other")).code == 0
            assert '"Orders@Shop"' in saved(tmp_path, "consumerOffset.json")
            assert (await site.ask(215, topic="Orders")).code == 0
            assert '"Orders@Shop"' not in saved(tmp_path, "consumerOffset.json")
            assert '"Orders"' not in saved(tmp_path, "topics.json")
            assert (await site.ask(207, groupName="Shop", removeOffset="true")).code == 0
            assert '"Shop"' not in saved(tmp_path, "subscriptionGroup.json")

    run(scenario())


def test_a_change_that_the_disk_refuses_is_answered_with_the_cause(tmp_path: Path) -> None:
    async def scenario() -> None:
        files, turn = RefusingTables(), Turn(asyncio.get_running_loop())
        site = await begin(tmp_path, turn, SETTINGS, files)
        files.is_full = True
        answer = await make(site, "Orders")
        files.is_full = False
        assert answer.code == 1
        assert "could not be saved: no space left for topics.json" in (answer.remark or "")
        await site.stop()
        assert '"Orders"' in saved(tmp_path, "topics.json")

    run(scenario())


def test_many_changes_at_once_are_all_kept(tmp_path: Path) -> None:
    async def scenario() -> None:
        turn = Turn(asyncio.get_running_loop())
        async with running(tmp_path, turn, SETTINGS) as site:
            answers = await asyncio.gather(*(make(site, f"T{number}") for number in range(50)))
            assert {answer.code for answer in answers} == {0}
            table = json.loads(saved(tmp_path, "topics.json"))["topicConfigTable"]
            assert {f"T{number}" for number in range(50)} <= table.keys()

    run(scenario())


def test_a_forbidden_topic_is_forbidden_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        turn = Turn(asyncio.get_running_loop())
        async with running(tmp_path, turn, SETTINGS) as site:
            await site.call(send_request("Orders"))
            await site.call(Command(200, body=b'{"groupName":"Shop"}'))
            await site.ask(353, group="Shop", topic="Orders", readable="false")
        async with running(tmp_path, turn, SETTINGS) as site:
            assert (await site.call(pull_request("Orders", "Shop", 0))).code == 16
            await site.ask(207, groupName="Shop")
            assert (await site.call(pull_request("Orders", "Shop", 0))).code == 0

    run(scenario())


def test_above_the_limit_no_topic_is_made_and_known_ones_can_be_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        turn = Turn(asyncio.get_running_loop())
        async with running(tmp_path, turn, SETTINGS) as site:
            assert (await make(site, "Orders")).code == 0
            topics = site.broker._context.topics
            count = len(topics.snapshot().configs)
            monkeypatch.setattr(topics_module, "TOPIC_COUNT_MAX", count)
            refused = await make(site, "One")
            assert refused.code == 1
            assert f"limit {count}" in (refused.remark or "")
            assert (await make(site, "Orders", perm=4)).code == 0
            with pytest.raises(RequestFailed):
                topics.ensure("%RETRY%Shop", 1)
            assert topics.ensure("Orders", 9).perm == 4

    run(scenario())


def test_a_group_is_found_without_being_made(tmp_path: Path) -> None:
    async def scenario() -> None:
        turn = Turn(asyncio.get_running_loop())
        async with running(tmp_path, turn, SETTINGS) as site:
            groups = site.broker._context.groups
            assert groups.get("Shop") is None
            assert groups.find("Shop") == SubscriptionGroupConfig(group_name="Shop")
            assert groups.get("Shop") is not None
            assert groups.remove("Shop")
            assert not groups.remove("Shop")

    run(scenario())


def test_topics_are_ordered_as_a_name_servers_table_says(tmp_path: Path) -> None:
    async def scenario() -> None:
        turn = Turn(asyncio.get_running_loop())
        async with running(tmp_path, turn, SETTINGS) as site:
            topics = site.broker._context.topics
            topics.put(TopicConfig(topic_name="One"))
            topics.put(TopicConfig(topic_name="Two", order=True))
            topics.set_order_topics({"One": "broker-a:4", "Unknown": "x"})
            one, two = topics.find("One"), topics.find("Two")
            assert one is not None
            assert two is not None
            assert (one.order, two.order) == (True, False)
            version = topics.snapshot().data_version
            topics.set_order_topics({"One": "broker-a:8"})
            assert topics.snapshot().data_version == version

    run(scenario())


def test_queues_of_topics_that_are_no_more_are_cleaned_up(tmp_path: Path) -> None:
    """As a folder of the original may have them: in the store, and not in the table."""

    async def scenario() -> None:
        turn = Turn(asyncio.get_running_loop())
        async with running(tmp_path, turn, SETTINGS) as site:
            await site.call(send_request("Orders"))
            context = site.broker._context
            context.topics._rows.remove("Orders")  # what nobody does here
            context.topics.note_change()
            for code in (306, 316):
                assert (await site.ask(code)).code == 0
                assert context.store.find_queue("Orders", 0) is None
        async with running(tmp_path, turn, SETTINGS) as site:
            assert site.broker._context.topics.find("Orders") is None

    run(scenario())


def test_files_of_a_topic_that_the_disk_keeps_are_told_and_tried_again(tmp_path: Path) -> None:
    class Keeping(SystemFiles):
        """Files of queues that cannot be removed while `is_stuck`."""

        is_stuck = False

        def remove(self, path: Path) -> None:
            if self.is_stuck and "consumequeue" in path.parts:
                raise OSError(f"cannot remove {path}")
            super().remove(path)

    async def scenario() -> None:
        files, turn = Keeping(), Turn(asyncio.get_running_loop())
        settings = BrokerSettings(
            listen_port=0, mapped_file_size_commit_log=1 << 20, flush_interval_consume_queue=10
        )
        site = await begin(tmp_path, turn, settings, files)
        await site.call(send_request("Orders"))
        queue = tmp_path / "consumequeue" / "Orders" / "0" / f"{0:020}"
        async with asyncio.timeout(10):
            while not queue.exists():
                await asyncio.sleep(0.01)
        files.is_stuck = True
        answer = await site.ask(215, topic="Orders")
        assert answer.code == 1
        assert "cannot remove" in (answer.remark or "")
        files.is_stuck = False
        async with asyncio.timeout(10):
            while queue.exists():
                await asyncio.sleep(0.01)
        await site.stop()

    run(scenario())
