"""Groups that read slowly: stopped where that is wanted, let alone otherwise."""

import asyncio
from pathlib import Path

import pytest

from orbitmq.broker.slow_groups import SlowGroups
from orbitmq.config import BrokerSettings
from orbitmq.net.turn import Turn
from orbitmq.wire.command import Command
from orbitmq.world.net import run
from tests.behaviour.requests import heartbeat_body, pull_request, send_request
from tests.broker.running import Running, running

BODY = bytes(10_000)


async def look(broker: Running) -> None:
    async def in_thread(action: object) -> None:
        assert callable(action)
        await asyncio.to_thread(action)

    await SlowGroups(broker.broker._context, in_thread).look()


@pytest.mark.parametrize(
    ("is_wanted", "threshold", "code"),
    [(True, 50_000, 16), (True, 500_000, 0), (False, 0, 0)],
)
def test_a_group_that_is_too_far_behind_is_stopped_if_that_is_wanted(
    tmp_path: Path, is_wanted: bool, threshold: int, code: int
) -> None:
    settings = BrokerSettings(
        listen_port=0,
        mapped_file_size_commit_log=1 << 20,
        disable_consume_if_consumer_read_slowly=is_wanted,
        consumer_fallbehind_threshold=threshold,
    )

    async def main() -> None:
        async with running(tmp_path, Turn(asyncio.get_running_loop()), settings) as broker:
            for _ in range(10):
                assert (await broker.call(send_request("Orders", BODY))).code == 0
            for group, offset in (("Slow", 1), ("Quick", 10)):
                await broker.call(Command(34, body=heartbeat_body(f"{group}@1", group, "Orders")))
                await broker.ask(
                    15, consumerGroup=group, topic="Orders", queueId=0, commitOffset=offset
                )
            await look(broker)
            answer = await broker.call(pull_request("Orders", "Slow", 1))
            assert answer.code == code
            assert (await broker.call(pull_request("Orders", "Quick", 1))).code == 0

    run(main())
