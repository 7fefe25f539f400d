"""Groups that may not broadcast: refused when they do, as fast as others when they do not."""

import asyncio
import json
from pathlib import Path

from orbitmq.config import BrokerSettings
from orbitmq.net.turn import Turn
from orbitmq.wire.command import Command
from orbitmq.world.net import run
from tests.behaviour.consumers import heartbeat
from tests.behaviour.requests import pull_request, send_request
from tests.broker.running import Running, running

SETTINGS = BrokerSettings(listen_port=0, mapped_file_size_commit_log=1 << 20)
NO_PERMISSION = 16


async def forbid_broadcast(site: Running) -> None:
    """Make the group as `mqadmin updateSubGroup` does by default."""
    body = json.dumps({"groupName": "Shop", "consumeBroadcastEnable": False}).encode()
    assert (await site.call(Command(200, body=body))).code == 0


async def beat(site: Running, message_model: str) -> None:
    body = heartbeat("c@1", "Shop", "Orders", messageModel=message_model)
    assert (await site.call(Command(34, body=body))).code == 0


async def pull(site: Running) -> tuple[int, bool]:
    """Pull by the group's own subscription; the code, and whether the hot path answered."""
    hot_pulls = site.broker._context.hot._pulls
    before = hot_pulls.value
    answer = await site.call(pull_request("Orders", "Shop", 0, sysFlag=0, subVersion=1))
    return answer.code, hot_pulls.value > before


def test_a_group_that_does_not_broadcast_is_served_by_the_hot_path(tmp_path: Path) -> None:
    """Symptom: groups made by mqadmin cost twice the CPU a pull."""

    async def scenario() -> None:
        async with running(tmp_path, Turn(asyncio.get_running_loop()), SETTINGS) as site:
            assert (await site.call(send_request("Orders"))).code == 0
            await forbid_broadcast(site)
            await beat(site, "CLUSTERING")
            assert await pull(site) == (0, True)
            await beat(site, "BROADCASTING")
            assert await pull(site) == (NO_PERMISSION, False)
            await beat(site, "CLUSTERING")
            assert await pull(site) == (0, True)

    run(scenario())


def test_a_group_that_broadcasts_is_refused_also_when_it_is_forbidden_later(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, Turn(asyncio.get_running_loop()), SETTINGS) as site:
            assert (await site.call(send_request("Orders"))).code == 0
            await beat(site, "BROADCASTING")
            assert await pull(site) == (0, True)
            await forbid_broadcast(site)
            assert await pull(site) == (NO_PERMISSION, False)
            await site.ask(35, clientID="c@1", consumerGroup="Shop")
            assert "Shop" in site.broker._context.core.groups

    run(scenario())
