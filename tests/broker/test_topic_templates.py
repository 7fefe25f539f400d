"""Topics that are made by themselves, after a lost table and after a changed setting."""

import asyncio
from pathlib import Path

import pytest

from orbitmq.config import BrokerSettings
from orbitmq.net.turn import Turn
from orbitmq.wire.record import scan_records
from orbitmq.world.net import run
from tests.behaviour.requests import pull_request, send_request
from tests.broker.running import running

ON = BrokerSettings(listen_port=0, mapped_file_size_commit_log=1 << 20)
OFF = BrokerSettings(
    listen_port=0, mapped_file_size_commit_log=1 << 20, auto_create_topic_enable=False
)
FEWER = BrokerSettings(
    listen_port=0, mapped_file_size_commit_log=1 << 20, default_topic_queue_nums=4
)


def lose_topics(folder: Path) -> None:
    for path in (folder / "config").glob("topics.json*"):
        path.unlink()


@pytest.mark.parametrize("template", ["TBW102", ON.broker_cluster_name, ON.broker_name])
def test_a_template_with_messages_is_a_template_still_when_the_topic_table_was_lost(
    tmp_path: Path, template: str
) -> None:
    """Symptom: TBW102 came back from the log as a plain topic and no topic was ever made again."""

    async def scenario() -> None:
        turn = Turn(asyncio.get_running_loop())
        async with running(tmp_path, turn, ON) as site:
            assert (await site.call(send_request(template))).code == 0
        lose_topics(tmp_path)
        async with running(tmp_path, turn, ON) as site:
            assert (await site.call(send_request("Fresh", c=template))).code == 0

    run(scenario())


def test_a_system_topic_keeps_the_queues_that_have_messages_when_the_topic_table_was_lost(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        turn = Turn(asyncio.get_running_loop())
        async with running(tmp_path, turn, ON) as site:
            assert (await site.call(send_request("TBW102", b"last", e=7))).code == 0
        lose_topics(tmp_path)
        async with running(tmp_path, turn, FEWER) as site:
            answer = await site.call(pull_request("TBW102", "G", 0, queueId=7))
            assert [record.body for record in scan_records(answer.body)] == [b"last"]

    run(scenario())


def test_no_topic_is_made_when_that_is_switched_off_in_a_folder_that_had_it_on(
    tmp_path: Path,
) -> None:
    """Symptom: autoCreateTopicEnable=false did nothing once TBW102 was in topics.json."""

    async def scenario() -> None:
        turn = Turn(asyncio.get_running_loop())
        async with running(tmp_path, turn, ON) as site:
            assert (await site.call(send_request("Before"))).code == 0
        async with running(tmp_path, turn, OFF) as site:
            assert (await site.call(send_request("Before"))).code == 0
            refused = await site.call(send_request("Fresh"))
            assert refused.code == 17
            assert "autoCreateTopicEnable" in str(refused.remark)

    run(scenario())
