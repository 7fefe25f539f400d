"""The end of a turn: who is told of what it brought."""

import asyncio
from functools import partial
from pathlib import Path

from orbitmq.config import BrokerSettings
from orbitmq.net.turn import Turn
from orbitmq.world.net import run
from tests.behaviour.requests import send_request
from tests.broker.running import running

SETTINGS = BrokerSettings(listen_port=0, mapped_file_size_commit_log=1 << 20)


def test_all_who_follow_queues_are_told_of_each_that_grew(tmp_path: Path) -> None:
    """Symptom: a second follower silenced the first, and delayed messages were not delivered."""

    async def scenario() -> None:
        async with running(tmp_path, Turn(asyncio.get_running_loop()), SETTINGS) as site:
            told: list[str] = []
            context = site.broker._context
            tells = [partial(told.append, name) for name in ("one", "other")]
            for tell in tells:
                context.on_grown.add(context.store.queue("Orders", 0), tell)
            assert (await site.call(send_request("Orders"))).code == 0
            assert (await site.call(send_request("Others"))).code == 0
            assert told == ["one", "other"]
            context.on_grown.remove(context.store.queue("Orders", 0), tells[0])
            assert (await site.call(send_request("Orders"))).code == 0
            assert told == ["one", "other", "other"]

    run(scenario())
