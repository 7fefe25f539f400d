"""Giving a message back (36): what depends on the group's and the broker's settings."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from orbitmq.broker.puts import NewMessage, put
from orbitmq.wire.bodies_namesrv import SubscriptionGroupConfig, TopicConfig
from orbitmq.wire.command import Command
from orbitmq.wire.host import Host, pack_host
from orbitmq.wire.message_id import decode_offset_id
from orbitmq.wire.record import scan_records
from tests.behaviour.requests import pull_request, send_request
from tests.broker.running import Running
from tests.broker.test_send_checks import context_of, with_broker

Act = Callable[[Running], Awaitable[None]]


async def give_back(at: Running, **fields: str | int) -> Command:
    """Send a message and return it back."""
    sent = await at.call(send_request("T", b"body"))
    log_offset = decode_offset_id(sent.fields["msgId"]).log_offset
    given: dict[str, str | int] = {"offset": log_offset, "group": "G", "delayLevel": -1}
    return await at.ask(36, **(given | fields))


async def dead_letters(at: Running, group: str = "G") -> int:
    """How many messages the dead-letter topic of a group has."""
    return int((await at.ask(30, topic=f"%DLQ%{group}", queueId=0)).fields["offset"])


def test_a_group_without_retry_queues_wants_nothing_back(tmp_path: Path) -> None:
    async def act(at: Running) -> None:
        context = context_of(at)
        context.groups.put(SubscriptionGroupConfig(group_name="G", retry_queue_count=0))
        assert (await give_back(at)).code == 0
        assert await dead_letters(at) == 0
        assert context.topics.find("%RETRY%G") is None

    with_broker(tmp_path, act)


def test_the_groups_settings_say_how_many_queues_and_how_often(tmp_path: Path) -> None:
    async def act(at: Running) -> None:
        context = context_of(at)
        config = SubscriptionGroupConfig(group_name="G", retry_queue_count=5, retry_max_times=0)
        context.groups.put(config)
        assert (await give_back(at, delayLevel=1)).code == 0
        assert await dead_letters(at) == 1, "no retry is allowed"
        made = context.topics.find("%RETRY%G")
        assert made is not None
        assert (made.read_queue_count, made.write_queue_count, made.perm) == (5, 5, 6)
        context.groups.put(SubscriptionGroupConfig(group_name="G", retry_queue_count=5))
        for _ in range(40):
            assert (await give_back(at, delayLevel=18)).code == 0
        answer = await at.call(pull_request("SCHEDULE_TOPIC_XXXX", "G", 0, queueId=17))
        properties = [record.properties for record in scan_records(answer.body)]
        places = {found.partition(b"REAL_QID\x01")[2][:1] for found in properties}
        assert len(places) > 1, "a queue is chosen by chance"
        assert places <= {b"0", b"1", b"2", b"3", b"4"}

    with_broker(tmp_path, act)


def test_in_unit_mode_the_retry_topic_says_so(tmp_path: Path) -> None:
    async def act(at: Running) -> None:
        assert (await give_back(at, unitMode="true")).code == 0
        made = context_of(at).topics.find("%RETRY%G")
        assert made is not None
        assert made.topic_sys_flag == 2

    with_broker(tmp_path, act)


def test_a_retry_topic_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    async def act(at: Running) -> None:
        context_of(at).topics.put(TopicConfig(topic_name="%RETRY%G", perm=4))
        answer = await give_back(at)
        assert answer.code == 16
        assert answer.remark == "the topic[%RETRY%G] sending message is forbidden"

    with_broker(tmp_path, act)


def test_a_broker_that_may_not_be_written_takes_nothing_back(tmp_path: Path) -> None:
    async def act(at: Running) -> None:
        answer = await give_back(at)
        assert answer.code == 16
        assert "the broker[127.0.0.1] sending message is forbidden" in (answer.remark or "")

    with_broker(tmp_path, act, broker_permission=4)


def test_an_unknown_group_is_refused_when_groups_are_not_made(tmp_path: Path) -> None:
    async def act(at: Running) -> None:
        answer = await give_back(at)
        assert answer.code == 26
        assert "subscription group not exist, G" in (answer.remark or "")

    with_broker(tmp_path, act, auto_create_subscription_group=False)


@pytest.mark.parametrize("missing", ["offset", "group", "delayLevel"])
def test_a_request_without_a_field_names_it(tmp_path: Path, missing: str) -> None:
    async def act(at: Running) -> None:
        fields: dict[str, str | int] = {"offset": 0, "group": "G", "delayLevel": 0}
        del fields[missing]
        answer = await at.ask(36, **fields)
        assert answer.code == 1
        assert missing in (answer.remark or "")

    with_broker(tmp_path, act)


def test_a_store_that_takes_nothing_takes_nothing_back_and_says_why(tmp_path: Path) -> None:
    async def act(at: Running) -> None:
        sent = await at.call(send_request("T", b"body"))
        log_offset = decode_offset_id(sent.fields["msgId"]).log_offset
        context_of(at).store._refusals.note_disk("no room on the disk")
        answer = await at.ask(36, offset=log_offset, group="G", delayLevel=1)
        assert (answer.code, answer.remark) == (1, "no room on the disk")

    with_broker(tmp_path, act)


def test_a_group_whose_retry_topic_no_record_can_name_is_refused(tmp_path: Path) -> None:
    async def act(at: Running) -> None:
        answer = await give_back(at, group="g" * 121, delayLevel=1)
        assert answer.code == 1
        assert "at most 120" in (answer.remark or "")
        assert (await give_back(at, group="g" * 120, delayLevel=1)).code == 0

    with_broker(tmp_path, act)


def test_what_is_given_back_is_counted_by_its_first_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[tuple[str, str]] = []

    async def act(at: Running) -> None:
        context = context_of(at)
        monkeypatch.setattr(
            context.counts, "note_sent_back", lambda topic, group: counted.append((topic, group))
        )
        assert (await give_back(at)).code == 0
        message = NewMessage(
            topic="%RETRY%G",
            queue_id=0,
            body=b"again",
            own=b"RETRY_TOPIC\x01First\x02",
            born_ms=1,
            born_host=pack_host(Host("127.0.0.1", 1)),
            tags_code=0,
        )
        log_offset = put(context, message).log_offset
        await at.call(send_request("T", b"the turn is over"))
        assert (await at.ask(36, offset=log_offset, group="G", delayLevel=-1)).code == 0
        assert counted == [("T", "G"), ("First", "G")]

    with_broker(tmp_path, act)
