"""Consumer offsets that know of more messages than the log: set back at the start, and saved so."""

import asyncio
import json
import logging
from pathlib import Path

import pytest

from orbitmq.config import BrokerSettings
from orbitmq.net.turn import Turn
from orbitmq.wire.codes import RequestCode
from orbitmq.world.net import run
from tests.behaviour.requests import send_request
from tests.broker.running import Running, running

SETTINGS = BrokerSettings(listen_port=0, mapped_file_size_commit_log=1 << 20)


async def offset_of(broker: Running, group: str, topic: str = "T") -> str:
    answer = await broker.ask(
        RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup=group, topic=topic, queueId=0
    )
    return answer.fields["offset"]


def test_a_group_ahead_of_its_queue_misses_nothing_that_is_sent_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Symptom: after a power cut a group passed over the new messages that took lost numbers."""
    path = tmp_path / "config" / "consumerOffset.json"

    async def inner() -> None:
        turn = Turn(asyncio.get_running_loop())
        async with running(tmp_path, turn, SETTINGS) as broker:
            for number in range(5):
                assert (await broker.call(send_request("T", b"%d" % number))).code == 0
        # The disk lost messages 5 to 9 and kept the table.
        table = {"T@ahead": {"0": 10}, "T@behind": {"0": 3}, "gone@ahead": {"0": 7}}
        path.write_text(json.dumps({"offsetTable": table}))
        with caplog.at_level(logging.WARNING):
            async with running(tmp_path, turn, SETTINGS) as broker:
                assert [await offset_of(broker, name) for name in ("ahead", "behind")] == ["5", "3"]

    run(inner())
    saved = '{"offsetTable":{"T@ahead":{0:5},"T@behind":{0:3},"gone@ahead":{0:0}}}'
    assert path.read_text() == saved
    told = [text for text in caplog.messages if "consumer offset of" in text]
    assert len(told) == 2
    assert "T@ahead, queue 0 (topic@group) was 10, but the queue ends at 5" in told[0]
