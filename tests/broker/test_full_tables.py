"""Tables that are as big as they may be: no more comes in, and what is there can be told."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker import broker as broker_module
from orbitmq.broker import groups as groups_module
from orbitmq.broker import topics as topics_module
from orbitmq.broker.context import Context
from orbitmq.config import BrokerSettings
from orbitmq.errors import RequestFailed
from orbitmq.net.turn import Turn
from orbitmq.wire.bodies_namesrv import TopicConfig, read_register_body
from orbitmq.wire.command import Command, encode_command
from orbitmq.wire.frame import FRAME_SIZE_MAX
from orbitmq.wire.ready_tables import write_topic_registration
from orbitmq.world.net import run
from tests.behaviour.consumers import heartbeat
from tests.behaviour.requests import send_request
from tests.broker.running import Running, running

SETTINGS = BrokerSettings(listen_port=0, mapped_file_size_commit_log=1 << 20)
TAKE_CPU_S_MAX = 0.015
"""On the loop, for 30,000 topics and groups; joining their rows there would pass it already."""

Act = Callable[[Running, Context], Coroutine[Any, Any, None]]


@pytest.fixture(autouse=True)
def never_saved_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "TABLE_SAVE_S", 3_600.0)


@asynccontextmanager
async def broker_at(folder: Path) -> AsyncIterator[tuple[Running, Context]]:
    """A broker that runs inside the block, and its parts."""
    async with running(folder, Turn(asyncio.get_running_loop()), SETTINGS) as site:
        yield site, site.broker._context


def with_broker(folder: Path, act: Act) -> None:
    """Do something with a broker."""

    async def scenario() -> None:
        async with broker_at(folder) as (site, context):
            await act(site, context)

    run(scenario())


def fill_with_retry_topics(context: Context) -> int:
    """Make retry topics with the longest names until one is refused; how many."""
    for number in range(topics_module.TOPIC_COUNT_MAX):
        try:
            context.topics.ensure(f"%RETRY%{number:0>255}", 1)
        except RequestFailed:
            return number
    pytest.fail("nothing bounds the bytes of the table")


def test_a_table_full_of_long_names_fits_one_frame(tmp_path: Path) -> None:
    """Symptom: 30,000 topics with long names were 20 MB; no name server took the broker again."""

    async def act(site: Running, context: Context) -> None:
        count = fill_with_retry_topics(context)
        topics = context.topics.snapshot()
        assert count > 15_000
        body = write_topic_registration(topics)
        frame = encode_command(Command(103, fields={"brokerName": "b" * 255}, body=body))
        assert FRAME_SIZE_MAX * 0.9 < len(frame) < FRAME_SIZE_MAX
        assert read_register_body(body, compressed=False).topics.topic_config_table.keys() == (
            topics.configs.keys()
        )
        answer = await site.ask(21)
        assert answer.code == 0
        assert len(json.loads(answer.body)["topicConfigTable"]) == len(topics.configs)

    with_broker(tmp_path, act)


def test_a_heartbeat_makes_no_retry_topic_that_has_no_room_and_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Symptom: heartbeats made 45,008 topics, limit 30,000, and put the broker out for good."""
    caplog.set_level(logging.ERROR)

    async def act(site: Running, context: Context) -> None:
        count = len(context.topics.snapshot().configs)
        monkeypatch.setattr(topics_module, "TOPIC_COUNT_MAX", count + 1)
        for group in ("One", "Two", "Three"):
            assert (await site.call(Command(34, body=heartbeat("c@1", group, "T")))).code == 0
            assert context.clients.member_ids(group) == ["c@1"]
            assert context.groups.get(group) is not None
        assert context.topics.find("%RETRY%One") is not None
        assert len(context.topics.snapshot().configs) == count + 1

    with_broker(tmp_path, act)
    (told,) = {record.getMessage() for record in caplog.records}
    assert "limit" in told
    assert "delete some (deleteTopic)" in told


def test_above_the_limit_of_bytes_no_topic_is_made_and_known_ones_can_be_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(site: Running, context: Context) -> None:
        topics = context.topics
        topics.put(TopicConfig(topic_name="Orders"))
        monkeypatch.setattr(topics_module, "SIZE_MAX", size := topics._rows.size)
        fields: dict[str, str | int] = {"readQueueNums": 16, "writeQueueNums": 16}
        refused = await site.ask(17, topic="New", perm=6, **fields)
        assert refused.code == 1
        assert f"have {size} bytes, limit {size}" in (refused.remark or "")
        assert (await site.ask(17, topic="Orders", perm=4, **fields)).code == 0
        grown = await site.ask(17, topic="Orders", perm=4, attributes="+a=b", **fields)
        assert grown.code == 1
        sent = await site.call(send_request("Sent"))
        assert sent.code == 1
        assert f"limit {size}" in (sent.remark or "")
        assert (await site.ask(215, topic="Orders")).code == 0
        assert (await site.ask(17, topic="New", perm=6, **fields)).code == 0
        assert topics._rows.size <= size

    with_broker(tmp_path, act)


def test_above_the_limit_of_bytes_no_group_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(site: Running, context: Context) -> None:
        groups = context.groups
        groups.find("Shop")
        monkeypatch.setattr(groups_module, "SIZE_MAX", size := groups._rows.size)
        assert groups.find("Other") is None
        refused = await site.call(Command(200, body=b'{"groupName":"Other"}'))
        assert refused.code == 1
        assert f"limit {size}" in (refused.remark or "")
        assert (await site.ask(207, groupName="Shop")).code == 0
        assert groups.find("Else") is not None

    with_broker(tmp_path, act)
    assert any("delete some (deleteSubGroup)" in record.getMessage() for record in caplog.records)


def test_a_table_that_is_too_big_already_is_kept_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with broker_at(tmp_path) as (_, context):
            context.topics.put(TopicConfig(topic_name="Orders"))
        monkeypatch.setattr(topics_module, "SIZE_MAX", 100)
        async with broker_at(tmp_path) as (_, context):
            assert context.topics.find("Orders") is not None

    run(scenario())
    assert any("delete some (deleteTopic)" in record.getMessage() for record in caplog.records)


def test_a_save_of_many_topics_takes_next_to_nothing_of_the_loop(tmp_path: Path) -> None:
    """Symptom: each save held up everybody for 284 ms at 30,000 topics, groups for longer."""

    async def act(site: Running, context: Context) -> None:
        topics, groups = context.topics, context.groups
        count = len(topics.snapshot().configs)
        for number in range(topics_module.TOPIC_COUNT_MAX - count):
            topics.ensure(f"Topic_{number}", 8)
            groups.find(f"Group_{number}")
        assert min(take_cpu_s(context) for _ in range(3)) < TAKE_CPU_S_MAX
        await context.keeper.save_all()
        saved = json.loads((tmp_path / "config" / "topics.json").read_bytes())
        assert len(saved["topicConfigTable"]) == topics_module.TOPIC_COUNT_MAX
        assert (await site.ask(201)).code == 0

    with_broker(tmp_path, act)


def take_cpu_s(context: Context) -> float:
    """Return the CPU time that taking all that is to be saved and registered needs."""
    files = (context.topics.file, context.groups.file)
    for file in files:
        file.mark()
    start_s = time.thread_time()
    for file in files:
        assert file.take() is not None
    context.topics.snapshot()
    context.topics.set_order_topics({})
    used_s = time.thread_time() - start_s
    for file in files:
        file.mark()
    return used_s
