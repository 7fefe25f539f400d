"""Pulls by expression inside the broker: old messages, retries, figures, and refusals."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from orbitmq.broker import selecting
from orbitmq.broker.context import Context
from orbitmq.config import BrokerSettings
from orbitmq.core import CHOSEN
from orbitmq.net.turn import Turn
from orbitmq.wire.command import Command
from orbitmq.wire.record import scan_records
from orbitmq.world.net import run
from tests.behaviour.requests import pull_request, send_request
from tests.broker.running import Running, running

SETTINGS = BrokerSettings(
    listen_port=0, mapped_file_size_commit_log=131_072, enable_property_filter=True
)
HEARTBEAT = 34


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: on a busy machine a look was over before its last record."""
    monkeypatch.setattr(selecting, "LOOK_S", 60.0)


def with_broker(
    folder: Path,
    scenario: Callable[[Running], Awaitable[None]],
    settings: BrokerSettings = SETTINGS,
) -> None:
    async def inner() -> None:
        async with running(folder, Turn(asyncio.get_running_loop()), settings) as broker:
            await scenario(broker)

    run(inner())


def context_of(broker: Running) -> Context:
    return broker.broker._context


async def fill(broker: Running, count: int, topic: str = "T", **properties: str) -> None:
    """Send messages with n = 0, 1, 2 …"""
    for number in range(count):
        values = {"n": str(number), **properties}
        text = "\x02".join(f"{name}\x01{value}" for name, value in values.items())
        assert (await broker.call(send_request(topic, b"%d" % number, i=text))).code == 0


async def join(
    broker: Running, expressions: dict[str, str], *, kind: str = "SQL92", is_class: bool = False
) -> None:
    subscriptions = [
        {
            "topic": topic,
            "subString": expression,
            "subVersion": 5,
            "expressionType": kind,
            "classFilterMode": is_class,
        }
        for topic, expression in expressions.items()
    ]
    consumer = {"groupName": "G", "subscriptionDataSet": subscriptions}
    body = {"clientID": "c@1", "consumerDataSet": [consumer], "producerDataSet": []}
    assert (await broker.call(Command(HEARTBEAT, body=json.dumps(body).encode()))).code == 0


def by_group(offset: int = 0, **changes: str | int) -> Command:
    return pull_request("T", "G", offset, **{"sysFlag": 0, "subVersion": 5, **changes})


def by_request(expression: str, offset: int = 0, **changes: str | int) -> Command:
    own = {"subscription": expression, "expressionType": "SQL92", **changes}
    return pull_request("T", "G", offset, **own)


def bodies(answer: Command) -> list[bytes]:
    return [record.body for record in scan_records(answer.body)]


def test_old_messages_are_filtered_when_they_are_read_from_the_files(tmp_path: Path) -> None:
    with_broker(tmp_path, lambda broker: fill(broker, 20))

    async def scenario(broker: Running) -> None:
        answer = await broker.call(by_request("n BETWEEN 3 AND 5 OR n = 17"))
        assert (answer.code, bodies(answer)) == (0, [b"3", b"4", b"5", b"17"])
        assert answer.fields["nextBeginOffset"] == "20"
        context = context_of(broker)
        assert context.cold_reads.count == 1
        got = context.core.got["T", "G"]
        assert (got.count, got.size) == (4, len(answer.body))
        none = await broker.call(by_request("n = 99"))
        assert (none.code, none.fields["nextBeginOffset"]) == (20, "20")
        fewer = await broker.call(by_request("n < 10", maxMsgBytes=1))
        assert bodies(fewer) == [b"0"]

    with_broker(tmp_path, scenario)


def test_a_look_at_old_messages_ends_when_its_filter_has_worked_for_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_broker(tmp_path, lambda broker: fill(broker, 100))
    monkeypatch.setattr(selecting, "LOOK_S", 0.0)

    async def scenario(broker: Running) -> None:
        found: list[bytes] = []
        offset, pulls = 0, 0
        while offset < 100:
            answer = await broker.call(by_request("n = 50", offset))
            assert answer.code in (0, 20)
            assert offset < int(answer.fields["nextBeginOffset"]) < offset + 40
            offset, pulls = int(answer.fields["nextBeginOffset"]), pulls + 1
            found += bodies(answer)
        assert found == [b"50"]
        assert pulls > 3

    with_broker(tmp_path, scenario)


def test_figures_count_what_pulls_got_hot_or_cold_and_at_once_or_later(tmp_path: Path) -> None:
    async def scenario(broker: Running) -> None:
        await fill(broker, 6)
        await broker.call(by_request("n > 3"))
        waits = {"sysFlag": 6, "suspendTimeoutMillis": 9_000}
        held = asyncio.ensure_future(broker.call(by_request("n = 0", 6, **waits)))
        while not len(context_of(broker).held_reads):
            await asyncio.sleep(0)
        await fill(broker, 2)
        assert bodies(await held) == [b"0"]
        assert context_of(broker).core.got["T", "G"].count == 3

    with_broker(tmp_path, scenario)


def test_a_filter_older_than_the_subscription_is_28(tmp_path: Path) -> None:
    """No row of requests leads here: the table is set back by hand."""

    async def scenario(broker: Running) -> None:
        await fill(broker, 1)
        await join(broker, {"T": "n = 0"})
        table = context_of(broker).filters
        older = table.find("T", "G")
        assert older is not None
        table._put(older.alive(4))
        answer = await broker.call(by_group())
        assert answer.code == 28
        assert answer.remark == "the consumer's consumer filter data not latest"

    with_broker(tmp_path, scenario)


def test_a_group_without_filter_data_is_27_before_the_switch_is_looked_at(tmp_path: Path) -> None:
    async def scenario(broker: Running) -> None:
        await fill(broker, 1)
        await join(broker, {"T": "n ="})
        answer = await broker.call(by_group())
        assert answer.code == 27
        assert (answer.remark or "").endswith(
            "Your expression may be wrong! It is, at character 4: expected a property, a number,"
            " a text, TRUE, FALSE, NULL, NOT, + or -, or `(`, found the end"
        )

    off = msgspec.structs.replace(SETTINGS, enable_property_filter=False)
    with_broker(tmp_path, scenario, off)


def test_a_group_that_nobody_made_is_26_where_none_may_make_itself(tmp_path: Path) -> None:
    async def scenario(broker: Running) -> None:
        answer = await broker.call(pull_request("Nowhere", "G", 0))
        assert answer.code == 26
        assert (answer.remark or "").startswith("subscription group [G] does not exist")

    closed = msgspec.structs.replace(SETTINGS, auto_create_subscription_group=False)
    with_broker(tmp_path, scenario, closed)


def test_an_expression_that_is_too_long_is_refused_with_its_heartbeat(tmp_path: Path) -> None:
    """A limit of ours: the expression is kept for as long as the group lives."""

    async def scenario(broker: Running) -> None:
        subscription = {"topic": "T", "subString": "x" * 16_385, "expressionType": "SQL92"}
        consumer = {"groupName": "G", "subscriptionDataSet": [subscription]}
        body = {"clientID": "c@1", "consumerDataSet": [consumer], "producerDataSet": []}
        answer = await broker.call(Command(HEARTBEAT, body=json.dumps(body).encode()))
        assert answer.code == 1
        assert "16385 characters in an expression, limit 16384" in (answer.remark or "")

    with_broker(tmp_path, scenario)


def test_a_subscription_by_class_is_refused_by_name(tmp_path: Path) -> None:
    async def scenario(broker: Running) -> None:
        await fill(broker, 1)
        await join(broker, {"T": "org.example.Filter"}, kind="TAG", is_class=True)
        answer = await broker.call(by_group())
        assert (answer.code, "by class" in (answer.remark or "")) == (1, True)

    with_broker(tmp_path, scenario)


def test_an_unknown_kind_of_expression_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    """The original takes it for no filter at all."""

    async def scenario(broker: Running) -> None:
        await fill(broker, 1)
        answer = await broker.call(by_request("x", expressionType="REGEX"))
        assert answer.code == 23
        assert "expected the type TAG or SQL92, found REGEX" in (answer.remark or "")

    with_broker(tmp_path, scenario)


# --- the hot path ---


async def pull_twice(broker: Running) -> tuple[Command, int]:
    """The second of two equal answers, and how many of the pulls the hot path answered."""
    context = context_of(broker)
    before = context.hot._pulls.value
    first, second = await broker.call(by_group()), await broker.call(by_group())
    assert (first.code, first.fields, first.body) == (second.code, second.fields, second.body)
    return second, int(context.hot._pulls.value - before)


async def told_again(broker: Running, expression: str, version: int) -> None:
    """The group's heartbeat brings another subscription to T."""
    subscription = {"topic": "T", "subString": expression, "subVersion": version}
    subscription |= {"expressionType": "SQL92"}
    consumer = {"groupName": "G", "subscriptionDataSet": [subscription]}
    body = {"clientID": "c@1", "consumerDataSet": [consumer], "producerDataSet": []}
    assert (await broker.call(Command(HEARTBEAT, body=json.dumps(body).encode()))).code == 0


def test_the_hot_path_filters_as_long_as_the_filter_is_the_same(tmp_path: Path) -> None:
    hot = 1 if CHOSEN.compiled is not None else 0

    async def scenario(broker: Running) -> None:
        await fill(broker, 6)
        await join(broker, {"T": "n > 3"})
        answer, hot_count = await pull_twice(broker)
        assert (bodies(answer), hot_count) == ([b"4", b"5"], hot)
        await told_again(broker, "n < 2", 6)
        answer, hot_count = await pull_twice(broker)
        assert (bodies(answer), hot_count) == ([b"0", b"1"], hot)
        await told_again(broker, "n <", 7)
        answer, hot_count = await pull_twice(broker)
        assert (answer.code, hot_count) == (27, 0)

    with_broker(tmp_path, scenario)


def test_the_hot_path_does_not_filter_by_what_is_forgotten_or_no_longer_allowed(
    tmp_path: Path,
) -> None:
    async def scenario(broker: Running) -> None:
        await fill(broker, 6)
        await join(broker, {"T": "n > 3"})
        await pull_twice(broker)
        context = context_of(broker)
        context.change_settings({"enablePropertyFilter": "false"})
        assert (await pull_twice(broker))[0].code == 1
        context.change_settings({"enablePropertyFilter": "true"})
        assert (await pull_twice(broker))[0].code == 0
        data = context.filters.find("T", "G")
        assert data is not None
        context.filters._remove(data)
        assert (await pull_twice(broker))[0].code == 27

    with_broker(tmp_path, scenario)


# --- retries ---


@pytest.mark.parametrize(("is_filtered", "found"), [(False, [b"0", b"1", b"2"]), (True, [b"1"])])
def test_retries_are_filtered_by_the_filter_of_their_own_topic_if_told_so(
    tmp_path: Path, is_filtered: bool, found: list[bytes]
) -> None:
    async def scenario(broker: Running) -> None:
        await join(broker, {"T": "n = 1", "%RETRY%G": "TRUE"})
        await fill(broker, 3, "%RETRY%G", RETRY_TOPIC="T")
        answer = await broker.call(pull_request("%RETRY%G", "G", 0))
        assert bodies(answer) == found

    settings = msgspec.structs.replace(SETTINGS, filter_support_retry=is_filtered)
    with_broker(tmp_path, scenario, settings)


def test_retries_of_a_topic_without_a_filter_all_pass(tmp_path: Path) -> None:
    async def scenario(broker: Running) -> None:
        await join(broker, {"T": "n = 1"})
        await fill(broker, 2, "%RETRY%G", RETRY_TOPIC="Other")
        assert len(bodies(await broker.call(pull_request("%RETRY%G", "G", 0)))) == 2

    settings = msgspec.structs.replace(SETTINGS, filter_support_retry=True)
    with_broker(tmp_path, scenario, settings)
