"""How far groups are: rates, and answers that stay bounded on a broker with many queues."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker.handlers import consume_stats
from orbitmq.config import BrokerSettings
from orbitmq.net.turn import Turn
from orbitmq.wire.fastjson import read_json
from orbitmq.world.net import run
from tests.behaviour.consumers import queues
from tests.behaviour.requests import pull_request, send_request
from tests.broker.running import Running, running

SETTINGS = BrokerSettings(listen_port=0, mapped_file_size_commit_log=1 << 20)


def with_broker(folder: Path, use: Callable[[Running], Awaitable[None]]) -> None:
    async def inner() -> None:
        turn = Turn(asyncio.get_running_loop())
        async with running(folder, turn, SETTINGS) as started:
            await use(started)

    run(inner())


async def fill_and_commit(started: Running, topic: str, group: str) -> None:
    for _ in range(3):
        assert (await started.call(send_request(topic))).code == 0
    place: dict[str, str | int] = {"consumerGroup": group, "topic": topic, "queueId": 0}
    assert (await started.ask(15, commitOffset=1, **place)).code == 0


def test_the_rate_is_that_of_the_last_minutes_pulls(tmp_path: Path) -> None:
    async def use(started: Running) -> None:
        await fill_and_commit(started, "T", "G")
        stats = started.broker._context.stats
        for at_s in (10, 20):
            for _ in stats.sampling(at_s, at_s * 1000, is_forgetful=False):
                pass
            await started.call(pull_request("T", "G", 0))
        for _ in stats.sampling(30, 30_000, is_forgetful=False):
            pass
        body = read_json((await started.ask(208, consumerGroup="G")).body, dict[str, Any])
        assert body["consumeTps"] > 0

    with_broker(tmp_path, use)


def test_one_groups_answer_has_a_limit_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume_stats, "ROWS_MAX", 3)

    async def use(started: Running) -> None:
        await fill_and_commit(started, "T", "G")
        rows = queues((await started.ask(208, consumerGroup="G")).body, "offsetTable")
        assert rows.keys() == {0, 1, 2}

    with_broker(tmp_path, use)


def test_all_groups_answer_has_a_limit_of_rows_and_names_every_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume_stats, "ROWS_MAX", 6)
    monkeypatch.setattr(consume_stats, "SLICE", 2)

    async def use(started: Running) -> None:
        for number in range(3):
            await fill_and_commit(started, f"T{number}", f"G{number}")
        answer = await started.ask(317, isOrder="false")
        body = read_json(answer.body, dict[str, Any])
        groups = {name: topics for one in body["consumeStatsList"] for name, topics in one.items()}
        counts = [sum(len(one["offsetTable"]) for one in groups[f"G{n}"]) for n in range(3)]
        assert counts == [4, 2, 0]

    with_broker(tmp_path, use)


def test_a_message_that_was_consumed_and_removed_has_no_time(tmp_path: Path) -> None:
    async def use(started: Running) -> None:
        await fill_and_commit(started, "T", "G")
        queue = started.broker._context.store.find_queue("T", 0)
        assert queue is not None
        queue.min_offset = 2
        rows = queues((await started.ask(208, consumerGroup="G")).body, "offsetTable")
        assert rows[0]["lastTimestamp"] == 0
        spans = json.loads((await started.ask(303, topic="T", group="G")).body)
        first = spans["consumeTimeSpanSet"][0]
        assert first["consumeTimeStamp"] == first["minTimeStamp"]

    with_broker(tmp_path, use)


def test_a_broker_that_has_just_begun_tells_its_rates_and_its_first_message(
    tmp_path: Path,
) -> None:
    """Kept difference: an original answers 1 then, and later empty rates and -1."""

    async def use(started: Running) -> None:
        assert (await started.call(send_request("T"))).code == 0
        table = json.loads((await started.ask(28)).body)["table"]
        assert [len(table[name].split()) for name in ("putTps", "getTotalTps")] == [3, 3]
        assert int(table["earliestMessageTimeStamp"]) > 0

    with_broker(tmp_path, use)
