"""Checks of a send that depend on the broker's settings and state."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from orbitmq.broker.context import Context
from orbitmq.config import BrokerSettings
from orbitmq.net.turn import Turn
from orbitmq.wire.bodies_namesrv import TopicConfig
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.properties import parse_properties
from orbitmq.wire.record import scan_records
from orbitmq.world.net import run
from tests.behaviour.requests import pull_request, send_request
from tests.broker.running import LIMIT_S, Running, running

Act = Callable[[Running], Awaitable[None]]
FAR_MS = 4_102_444_799_999
"""The last millisecond of the year 2099, in Greenwich."""


def with_broker(folder: Path, act: Act, **changes: int | bool | str) -> None:
    """Do something with a running broker; `changes` are settings."""
    settings = msgspec.structs.replace(BrokerSettings(listen_port=0), **changes)

    async def inner() -> None:
        turn = Turn(asyncio.get_running_loop())
        async with running(folder, turn, settings) as at:
            await act(at)

    run(inner())


def context_of(at: Running) -> Context:
    """The broker's parts, for what no request brings about."""
    return at.broker._context


def test_a_broker_that_may_not_be_written_refuses_order_topics_only(tmp_path: Path) -> None:
    async def act(at: Running) -> None:
        context_of(at).topics.put(TopicConfig(topic_name="O", order=True))
        answer = await at.call(send_request("O", e=99))
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "the broker[127.0.0.1] sending message is forbidden" in (answer.remark or "")
        assert "brokerPermission" in (answer.remark or "")
        assert (await at.call(send_request("T"))).code == 0

    with_broker(tmp_path, act, broker_permission=4)


def test_before_its_time_a_broker_takes_nothing_whatever_else_is_wrong(tmp_path: Path) -> None:
    async def act(at: Running) -> None:
        answer = await at.call(send_request("bad topic!"))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "broker unable to service, until 20" in (answer.remark or "")
        assert (answer.remark or "").endswith(":59,999 (startAcceptSendRequestTimeStamp)")

    with_broker(tmp_path, act, start_accept_send_request_time_stamp=FAR_MS)


def test_before_its_time_a_broker_takes_nothing_also_for_queues_that_are_in_use(
    tmp_path: Path,
) -> None:
    """Symptom: after one pull of a queue the hot path took sends before the time had come."""

    async def store(at: Running) -> None:
        assert (await at.call(send_request("T"))).code == 0

    async def act(at: Running) -> None:
        assert (await at.call(pull_request("T", "G", 0))).code == 0
        answer = await at.call(send_request("T"))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "startAcceptSendRequestTimeStamp" in (answer.remark or "")
        context_of(at).change_settings({"startAcceptSendRequestTimeStamp": "1"})
        assert (await at.call(send_request("T"))).code == 0

    with_broker(tmp_path, store)
    with_broker(tmp_path, act, start_accept_send_request_time_stamp=FAR_MS)


def test_a_retry_topic_of_a_group_that_may_not_be_made_is_refused(tmp_path: Path) -> None:
    async def act(at: Running) -> None:
        answer = await at.call(send_request("%RETRY%G"))
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert "autoCreateSubscriptionGroup" in (answer.remark or "")

    with_broker(tmp_path, act, auto_create_subscription_group=False)


def test_transactional_messages_are_refused_as_the_setting_says(tmp_path: Path) -> None:
    async def act(at: Running) -> None:
        answer = await at.call(send_request("T", i="TRAN_MSG\x01true"))
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "sending transaction message is forbidden" in (answer.remark or "")

    with_broker(tmp_path, act, reject_transaction_message=True)


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ("TRAN_MSG\x01true", "transactional"),
        ("TRAN_MSG\x01TRUE\x02DELAY\x011", "transactional"),
        ("TIMER_DELAY_SEC\x013", "timed"),
        ("TIMER_DELIVER_MS\x013\x02DELAY\x011", "timed"),
    ],
)
def test_what_comes_with_a_later_version_is_refused_by_name(
    tmp_path: Path, properties: str, kind: str
) -> None:
    async def act(at: Running) -> None:
        answer = await at.call(send_request("T", i=properties))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert kind in (answer.remark or "")

    with_broker(tmp_path, act)


def test_a_retry_that_was_once_transactional_is_an_ordinary_delayed_message(
    tmp_path: Path,
) -> None:
    async def act(at: Running) -> None:
        sent = send_request("%RETRY%G", i="TRAN_MSG\x01true\x02DELAY\x011", j=1)
        assert (await at.call(sent)).code == 0
        answer = await at.call(pull_request("SCHEDULE_TOPIC_XXXX", "G", 0))
        (record,) = scan_records(answer.body)
        assert parse_properties(record.properties)["REAL_TOPIC"] == "%RETRY%G"

    with_broker(tmp_path, act)


@pytest.mark.parametrize("level", ["", "DELAY\x012\x02"])
def test_what_a_message_may_not_carry_is_refused_with_and_without_a_delay(
    tmp_path: Path, level: str
) -> None:
    async def act(at: Running) -> None:
        for bad in ("INNER_NUM\x013", "a\x01b\0c", "K\x01" + "v" * 32_767):
            answer = await at.call(send_request("T", i=level + bad))
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        too_large = bytes(4 * 1_048_576 + 1)
        assert (await at.call(send_request("T", too_large, i=level + "a\x01b"))).code == 13
        assert (await at.ask(30, topic="T", queueId=0)).fields["offset"] == "0"

    with_broker(tmp_path, act)


def test_a_full_disk_is_named_after_the_checks_and_being_busy_before_them(tmp_path: Path) -> None:
    async def act(at: Running) -> None:
        refusals = context_of(at).store._refusals
        refusals.note_disk("no room on the disk")
        assert (await at.call(send_request("bad topic!"))).code == ResponseCode.SYSTEM_ERROR
        for properties in ("", "DELAY\x011"):
            answer = await at.call(send_request("T", i=properties))
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert answer.remark == "no room on the disk"
        refusals.note_disk("")
        refusals.note_busy("[X]too much to do")
        for topic in ("bad topic!", "T"):
            answer = await at.call(send_request(topic, i="DELAY\x011"))
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_BUSY, "[X]too much to do")

    with_broker(tmp_path, act)


def test_a_delayed_oneway_send_is_stored_and_never_answered(tmp_path: Path) -> None:
    async def act(at: Running) -> None:
        oneway = send_request("T", b"late", i="DELAY\x011", flag=2)
        (await at.peer.connect(LIMIT_S)).send_command(oneway)
        await at.call(send_request("T", b"next"))
        answer = await at.call(pull_request("SCHEDULE_TOPIC_XXXX", "G", 0))
        assert [record.body for record in scan_records(answer.body)] == [b"late"]

    with_broker(tmp_path, act)


def test_a_batch_that_says_it_is_transactional_is_refused_by_name(tmp_path: Path) -> None:
    """The originals store it as an ordinary batch, which consumers see at once."""

    async def act(at: Running) -> None:
        request: Command = send_request("T", b"", m="true", i="TRAN_MSG\x01true")
        answer = await at.call(request)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "transactional" in (answer.remark or "")

    with_broker(tmp_path, act)
