"""Clients that do not answer, or go away; resets that the broker does itself; big groups."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from orbitmq.broker import broker as broker_module
from orbitmq.broker.broker import Broker
from orbitmq.broker.clients import SILENCE_S_MAX
from orbitmq.broker.handlers import client_calls, clients, connections
from orbitmq.broker.store_opening import this_machine
from orbitmq.config import BrokerSettings
from orbitmq.metrics import Registry
from orbitmq.net.connection import Connection, Result
from orbitmq.net.peer import Peer
from orbitmq.net.turn import Turn
from orbitmq.wire.command import Command
from orbitmq.world.clock import SystemClock
from orbitmq.world.net import run
from tests.behaviour.consumers import heartbeat, queues
from tests.behaviour.requests import pull_request, send_request
from tests.broker.running import LIMIT_S, Running, running

SETTINGS = BrokerSettings(listen_port=0, mapped_file_size_commit_log=1 << 20)
SERVER_SIDE = msgspec.structs.replace(SETTINGS, use_server_side_reset_offset=True)


class Member:
    """A member of group G: keeps what it is asked and answers nothing."""

    def __init__(self, address: str, turn: Turn, client_id: str) -> None:
        self.asked: asyncio.Queue[Command] = asyncio.Queue()
        self.peer = Peer(address, turn, handle=self._take)
        self._client_id = client_id

    def _take(self, request: Command, _connection: Connection) -> Result:
        self.asked.put_nowait(request)
        return None

    async def join(self, *topics: str) -> None:
        beat = heartbeat(self._client_id, "G", *topics)
        assert (await self.peer.call(Command(34, body=beat), LIMIT_S)).code == 0

    async def next_request(self, code: int) -> Command:
        async with asyncio.timeout(LIMIT_S):
            while (request := await self.asked.get()).code != code:
                pass
            return request


Use = Callable[[Running, Callable[[str], Member]], Awaitable[None]]


def with_broker(folder: Path, use: Use, settings: BrokerSettings = SETTINGS) -> None:
    async def inner() -> None:
        turn = Turn(asyncio.get_running_loop())
        members: list[Member] = []

        def member(client_id: str) -> Member:
            members.append(Member(started.broker.address, turn, client_id))
            return members[-1]

        async with running(folder, turn, settings) as started:
            try:
                await use(started, member)
            finally:
                for one in members:
                    one.peer.close()

    run(inner())


def test_a_client_that_does_not_answer_is_207(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_calls, "CALL_TIMEOUT_S", 0.2)

    async def use(started: Running, member: Callable[[str], Member]) -> None:
        await member("c@1").join("TBW102")
        answer = await started.ask(307, consumerGroup="G", clientId="c@1")
        assert answer.code == 207
        assert (answer.remark or "").startswith("consumer <G> <c@1> Timeout: no answer")

    with_broker(tmp_path, use)


def test_a_member_that_does_not_answer_is_left_out_of_the_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_calls, "STATUS_TIMEOUT_S", 0.2)

    async def use(started: Running, member: Callable[[str], Member]) -> None:
        for number in range(3):
            await member(f"c@{number}").join("TBW102")
        answer = await started.ask(223, topic="T", group="G")
        assert answer.code == 0
        assert json.loads(answer.body) == {"consumerTable": {}, "messageQueueTable": {}}

    with_broker(tmp_path, use)


def test_a_client_that_goes_away_while_it_is_asked_is_an_error_at_once(tmp_path: Path) -> None:
    async def use(started: Running, member: Callable[[str], Member]) -> None:
        one = member("c@1")
        await one.join("TBW102")
        asking = asyncio.ensure_future(started.ask(307, consumerGroup="G", clientId="c@1"))
        await one.next_request(307)
        one.peer.close()
        answer = await asking
        assert answer.code == 1
        assert "ended" in (answer.remark or "")

    with_broker(tmp_path, use)


def test_a_tool_that_goes_away_takes_its_question_along(tmp_path: Path) -> None:
    async def use(started: Running, member: Callable[[str], Member]) -> None:
        one = member("c@1")
        await one.join("TBW102")
        tool = member("tool")
        fields = {"consumerGroup": "G", "clientId": "c@1"}
        asking = asyncio.ensure_future(tool.peer.call(Command(307, fields=fields), LIMIT_S))
        await one.next_request(307)
        before = _forwarding_tasks()
        assert len(before) == 1
        tool.peer.close()
        await asyncio.gather(asking, return_exceptions=True)
        async with asyncio.timeout(LIMIT_S):
            await asyncio.wait(before)
        assert all(task.cancelled() for task in before)

    with_broker(tmp_path, use)


def _forwarding_tasks() -> list["asyncio.Task[object]"]:
    return [task for task in asyncio.all_tasks() if "_Forwarded" in repr(task.get_coro())]


def test_members_of_a_big_group_are_told_in_slices_and_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "NOTICE_SLICE", 2)

    async def use(_started: Running, member: Callable[[str], Member]) -> None:
        members = [member(f"c@{number}") for number in range(7)]
        for one in members:
            await one.join("TBW102")
        counts = [7 - number for number in range(7)]
        for one, count in zip(members, counts, strict=True):
            for _ in range(count):
                assert (await one.next_request(40)).fields == {"consumerGroup": "G"}

    with_broker(tmp_path, use)


def test_the_broker_can_be_told_not_to_notify_members(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(SETTINGS, notify_consumer_ids_changed_enable=False)

    async def use(started: Running, member: Callable[[str], Member]) -> None:
        one, two = member("c@1"), member("c@2")
        await one.join("TBW102")
        await two.join("TBW102")
        answer = await started.ask(38, consumerGroup="G")
        assert json.loads(answer.body)["consumerIdList"] == ["c@1", "c@2"]
        assert one.asked.empty()
        assert two.asked.empty()

    with_broker(tmp_path, use, settings)


# --- resets by the broker (useServerSideResetOffset) ---


async def fill(started: Running, count: int) -> None:
    for number in range(count):
        assert (await started.call(send_request("T", b"%d" % number))).code == 0


async def commit(started: Running, offset: int) -> Command:
    return await started.ask(15, consumerGroup="G", topic="T", queueId=0, commitOffset=offset)


async def stored(started: Running) -> str:
    return (await started.ask(14, consumerGroup="G", topic="T", queueId=0)).fields["offset"]


async def reset(started: Running, **changes: str | int) -> Command:
    fields: dict[str, str | int] = {"group": "G", "topic": "T", "timestamp": -1, "isForce": "true"}
    return await started.ask(222, **{**fields, **changes})


def test_the_broker_resets_a_group_of_which_nobody_is_online(tmp_path: Path) -> None:
    async def use(started: Running, _member: Callable[[str], Member]) -> None:
        await fill(started, 3)
        await commit(started, 1)
        answer = await reset(started)
        assert queues(answer.body, "offsetTable") == {0: 3, 1: 0, 2: 0, 3: 0}
        assert await stored(started) == "3"

    with_broker(tmp_path, use, SERVER_SIDE)


def test_commits_are_ignored_until_a_pull_has_heard_of_the_reset(tmp_path: Path) -> None:
    async def use(started: Running, _member: Callable[[str], Member]) -> None:
        await fill(started, 3)
        await commit(started, 2)
        found = await started.call(pull_request("T", "G", 2))  # the hot path serves it
        assert found.code == 0
        await reset(started, timestamp=0)
        ignored = await commit(started, 3)
        assert (ignored.code, ignored.remark) == (0, "Offset has been previously reset")
        moved = await started.call(pull_request("T", "G", 2, sysFlag=5, commitOffset=3))
        assert (moved.code, moved.remark) == (21, "OFFSET_RESET")
        assert moved.fields["nextBeginOffset"] == "0"
        assert await stored(started) == "0"
        assert (await started.call(pull_request("T", "G", 0))).code == 0
        assert (await commit(started, 1)).remark is None
        assert await stored(started) == "1"

    with_broker(tmp_path, use, SERVER_SIDE)


def test_one_queue_can_be_reset_to_an_offset_that_it_has(tmp_path: Path) -> None:
    async def use(started: Running, _member: Callable[[str], Member]) -> None:
        await fill(started, 3)
        await commit(started, 3)
        answer = await reset(started, queueId=0, offset=2)
        assert queues(answer.body, "offsetTable") == {0: 2}
        assert await stored(started) == "2"
        beyond = await reset(started, queueId=0, offset=4)
        assert (beyond.code, beyond.remark) == (
            1,
            "Target offset 4 not in consume queue range [0-3]",
        )
        assert (await reset(started, queueId=9, offset=0)).code == 1

    with_broker(tmp_path, use, SERVER_SIDE)


def test_what_does_not_exist_is_told_with_the_codes_of_5x(tmp_path: Path) -> None:
    async def use(started: Running, _member: Callable[[str], Member]) -> None:
        await fill(started, 1)
        no_group = await reset(started, group="nobody")
        no_topic = await reset(started, topic="nothing")
        assert (no_group.code, no_group.remark) == (26, "Group nobody does not exist")
        assert (no_topic.code, no_topic.remark) == (17, "Topic nothing does not exist")

    with_broker(tmp_path, use, SERVER_SIDE)


def test_a_reset_group_is_served_by_the_hot_path_again_after_its_pulls(tmp_path: Path) -> None:
    async def use(started: Running, _member: Callable[[str], Member]) -> None:
        await fill(started, 3)
        await commit(started, 3)
        core = started.broker._context.core
        assert "G" in core.groups
        await reset(started, queueId=0, offset=0)
        assert "G" not in core.groups
        await started.call(pull_request("T", "G", 3))
        assert "G" in core.groups

    with_broker(tmp_path, use, SERVER_SIDE)


def test_a_group_whose_reset_topic_is_gone_gets_the_hot_path_back(tmp_path: Path) -> None:
    async def use(started: Running, _member: Callable[[str], Member]) -> None:
        await fill(started, 3)
        await commit(started, 3)
        await reset(started)
        assert (await started.call(send_request("U"))).code == 0
        started.broker._context.offsets.remove_topic("T")
        assert (await started.call(pull_request("U", "G", 0))).code == 0
        assert "G" in started.broker._context.core.groups

    with_broker(tmp_path, use, SERVER_SIDE)


def test_filters_live_with_the_members_of_their_group(tmp_path: Path) -> None:
    by_expression = {"topic": "TBW102", "subString": "a > 1", "expressionType": "SQL92"}

    async def use(started: Running, member: Callable[[str], Member]) -> None:
        one, two = member("c@1"), member("c@2")
        beat = heartbeat("c@1", "G", subscriptionDataSet=[{**by_expression, "subVersion": 1}])
        for each in (one, two):
            assert (await each.peer.call(Command(34, body=beat), LIMIT_S)).code == 0
        filters = started.broker._context.filters
        goodbye = Command(35, fields={"clientID": "c@1", "consumerGroup": "G"})
        dead = []
        for each in (one, two):
            found = filters.find("TBW102", "G")
            assert found is not None
            dead.append(found.is_dead)
            await each.peer.call(goodbye, LIMIT_S)
        found = filters.find("TBW102", "G")
        assert found is not None
        assert [*dead, found.is_dead] == [False, False, True]

    with_broker(tmp_path, use)


def test_the_connections_of_a_big_group_are_all_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "QUICK_ROWS", 1)  # a thread makes the answer

    async def use(started: Running, member: Callable[[str], Member]) -> None:
        for number in range(3):
            await member(f"c@{number}").join("TBW102")
        answer = await started.ask(203, consumerGroup="G")
        listed = json.loads(answer.body)["connectionSet"]
        assert [one["clientId"] for one in listed] == ["c@0", "c@1", "c@2"]

    with_broker(tmp_path, use)


class MovedClock(SystemClock):
    """A clock that a test moves on."""

    moved_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.moved_s


def test_a_silent_member_is_taken_out_and_the_others_are_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection stays open: only its silence says that it is gone."""
    monkeypatch.setattr(broker_module, "EXPIRY_SCAN_S", 0.02)
    clock = MovedClock()

    async def main() -> None:
        turn = Turn(asyncio.get_running_loop())
        broker = Broker(SETTINGS, tmp_path, turn, Registry(), outside=this_machine(clock=clock))
        await broker.start()
        started = Running(broker, turn)
        talking, silent = (Member(broker.address, turn, name) for name in ("c@1", "c@2"))
        try:
            await talking.join("TBW102")
            await silent.join("TBW102")
            held = silent.peer.connection
            for _ in ("its own coming", "the other's"):
                assert (await talking.next_request(40)).fields == {"consumerGroup": "G"}
            clock.moved_s += SILENCE_S_MAX - 30
            await talking.join("TBW102")
            assert await member_ids(started) == ["c@1", "c@2"]
            clock.moved_s += 31
            notice = await talking.next_request(40)
            assert (notice.fields, notice.is_oneway) == ({"consumerGroup": "G"}, True)
            assert await member_ids(started) == ["c@1"]
            await silent.join("TBW102")  # it may come back, and that is told, too
            assert silent.peer.connection is held, "its connection was left open"
            await talking.next_request(40)
            assert talking.asked.empty(), "told once of each change"
        finally:
            talking.peer.close()
            silent.peer.close()
            await started.stop()

    run(main())


async def member_ids(started: Running) -> list[str]:
    found: list[str] = json.loads((await started.ask(38, consumerGroup="G")).body)["consumerIdList"]
    return sorted(found)
