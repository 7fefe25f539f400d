"""What becomes of messages that could not be consumed: retries, dead letters, stuck handlers."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from orbitmq.client import concurrent
from orbitmq.client.consume_hooks import ConsumeContext, ConsumeReturn
from orbitmq.client.message import ReceivedMessage, received
from orbitmq.client.offset_stores import FileOffsets
from orbitmq.client.outcomes import DeadLetter, Retry
from orbitmq.wire.bodies_client import MessageModel
from orbitmq.wire.record import scan_records
from tests.behaviour.requests import pull_request
from tests.client.pushing import (
    FreshName,
    Inbox,
    becomes,
    committed,
    consumer_of,
    fail_first,
    inner,
    make_topic,
    max_offset,
    numbered,
    run,
    send,
    stored_count,
)
from tests.foreign.judged import System
from tests.wire_client import WireClient


def dead_letters(system: System, group: str, count: int) -> list[ReceivedMessage]:
    """Return the dead letters of a group, as soon as there are so many."""
    topic = f"%DLQ%{group}"
    stored_count(system, topic, count)
    with WireClient(system.broker) as client:
        answer = client.call(pull_request(topic, f"{group}-reader", 0))
        assert answer.code == 0, answer.remark
    return [received(record, "broker-a") for record in scan_records(answer.body)]


@pytest.mark.parametrize("is_async", [True, False])
def test_a_failed_message_comes_again_after_the_delay_it_asks_for(
    system: System, fresh_name: FreshName, is_async: bool
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic)

    async def main() -> None:
        def fail_first(message: ReceivedMessage) -> None:
            if not message.reconsume_times:
                raise Retry(delay_level=1)

        inbox = Inbox(fail_first)
        await send(system, topic, numbered(5), tag="TagA", keys=["k"])
        async with await consumer_of(system, group, topic, inbox if is_async else inbox.take):
            await inbox.holds(10)
        again = [message for message in inbox.messages if message.reconsume_times]
        assert sorted(message.body for message in again) == numbered(5)
        first = {message.body: message for message in inbox.messages if not message.reconsume_times}
        for message in again:
            assert (message.topic, message.tag, message.keys) == (topic, "TagA", ["k"])
            assert message.queue.topic == f"%RETRY%{group}"
            assert message.message_id == first[message.body].message_id
            assert message.properties["ORIGIN_MESSAGE_ID"] == first[message.body].offset_id

    run(main())
    assert sum(committed(system, group, topic, each) or 0 for each in range(4)) == 5
    assert committed(system, group, f"%RETRY%{group}") == 5


@pytest.mark.slow
def test_what_a_handler_raises_comes_again_after_ten_seconds(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        def act(message: ReceivedMessage) -> None:
            if message.body == b"m-0" and not message.reconsume_times:
                raise ValueError("not today")

        inbox = Inbox(act)
        await send(system, topic, numbered(2))
        async with await consumer_of(system, group, topic, inbox):
            await inbox.holds(3)
        assert inbox.bodies[2:] == [b"m-0"]
        assert inbox.times_s[2] - inbox.times_s[0] > 8

    run(main())


RETURNED: tuple[object, ...] = (0, False, [], "", None, True, 1, object())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_orderly": True},
        {"consume_batch_size": 2},
        {"message_model": MessageModel.BROADCASTING},
    ],
    ids=["concurrent", "orderly", "batch", "broadcasting"],
)
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
def test_a_handler_that_returned_0_false_or_an_empty_list_had_its_message_retried(
    system: System, fresh_name: FreshName, is_async: bool, options: dict[str, Any], tmp_path: Path
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)
    if "message_model" in options:
        options = options | {"offset_store": FileOffsets("client", group, folder=tmp_path)}

    async def main() -> None:
        left, outcomes = list(RETURNED), []

        def act(_messages: object) -> object:
            return left.pop() if left else None

        async def act_async(messages: object) -> object:
            return act(messages)

        class Hook:
            def before_consume(self, context: ConsumeContext) -> None: ...

            def after_consume(self, context: ConsumeContext) -> None:
                outcomes.extend([(context.is_success, context.returned)] * len(context.messages))

        await send(system, topic, numbered(8), queue_id=0)
        handler = act_async if is_async else act
        consumer = await consumer_of(system, group, topic, handler, **options)
        consumer.consume_hooks.append(Hook())
        async with consumer:
            await becomes(lambda: len(outcomes) >= 8, "all were handled")
        assert outcomes == [(True, ConsumeReturn.SUCCESS)] * 8

    run(main())
    if "message_model" not in options:
        assert committed(system, group, topic) == 8


def test_after_the_allowed_number_of_retries_a_message_is_a_dead_letter(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        def fail(_message: ReceivedMessage) -> None:
            raise Retry(delay_level=1)

        inbox = Inbox(fail)
        await send(system, topic, [b"hopeless"], keys=["k"])
        options = {"max_reconsume_times": 2}
        async with await consumer_of(system, group, topic, inbox, **options):
            await inbox.holds(3)
            await asyncio.to_thread(dead_letters, system, group, 1)
        assert [message.reconsume_times for message in inbox.messages] == [0, 1, 2]

    run(main())
    (letter,) = dead_letters(system, group, 1)
    assert (letter.body, letter.keys) == (b"hopeless", ["k"])
    assert letter.properties["RETRY_TOPIC"] == topic


@pytest.mark.parametrize("is_orderly", [False, True], ids=["concurrent", "orderly"])
def test_nobody_could_tell_why_a_message_was_a_dead_letter(
    system: System,
    fresh_name: FreshName,
    caplog: pytest.LogCaptureFixture,
    is_orderly: bool,
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)
    reasons = {
        b"given up": "no such customer, not since 2019",
        b"failed": "ZeroDivisionError: never mind",
        b"asked": "KeyError: 'amount'",
    }

    async def main() -> None:
        def act(message: ReceivedMessage) -> None:
            if message.body == b"given up":
                raise DeadLetter("no such customer,\nnot since \x02 2019")
            if message.body == b"failed":
                raise ZeroDivisionError("never mind")
            raise Retry(delay_level=1) from KeyError("amount")

        await send(system, topic, list(reasons), queue_id=0)
        options = {"max_reconsume_times": 0, "is_orderly": is_orderly}
        async with await consumer_of(system, group, topic, act, **options):
            await asyncio.to_thread(dead_letters, system, group, 3)

    run(main())
    letters = dead_letters(system, group, 3)
    told = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    for letter in letters:
        reason = reasons[letter.body]
        assert letter.properties.get("DLQ_REASON") == (reason if system.version is None else None)
        assert any(letter.message_id in text and reason in text for text in told)


def test_a_dead_letter_that_is_sent_as_a_copy_has_its_reason_with_any_broker(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        inbox = Inbox()
        await send(system, topic, [b"x"])
        async with await consumer_of(system, group, topic, inbox) as consumer:
            await inbox.holds(1)
            lost = msgspec.structs.replace(inbox.messages[0], log_offset=2**40)
            assert await consumer.send_back(lost, -1, reason="r" * 1000)
            await asyncio.to_thread(dead_letters, system, group, 1)

    run(main())
    assert dead_letters(system, group, 1)[0].properties["DLQ_REASON"] == "r" * 500


def test_a_dead_letter_goes_there_at_once(system: System, fresh_name: FreshName) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        def give_up(_message: ReceivedMessage) -> None:
            raise DeadLetter("no such customer")

        inbox = Inbox(give_up)
        await send(system, topic, [b"nobody's"])
        async with await consumer_of(system, group, topic, inbox):
            await inbox.holds(1)
            await asyncio.to_thread(dead_letters, system, group, 1)
        assert len(inbox.messages) == 1

    run(main())
    assert dead_letters(system, group, 1)[0].body == b"nobody's"
    assert committed(system, group, topic) == 1


def test_a_message_that_its_broker_cannot_put_back_is_sent_as_a_copy(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        inbox = Inbox()
        await send(system, topic, [b"copied", b"dead"], tag="TagA", properties={"colour": "red"})
        async with await consumer_of(system, group, topic, inbox) as consumer:
            await inbox.holds(2)
            await becomes(lambda: len(consumer.queues()) == 2, "the retry topic is there")
            by_body = {message.body: message for message in inbox.messages}
            # A place in the log where no record begins: the broker does not find the message.
            copied = msgspec.structs.replace(by_body[b"copied"], log_offset=7)
            dead = msgspec.structs.replace(by_body[b"dead"], log_offset=7)
            assert await consumer.send_back(copied, 1)
            assert await consumer.send_back(dead, -1)
            await inbox.holds(3)
        again = inbox.messages[2]
        assert (again.body, again.topic, again.tag) == (b"copied", topic, "TagA")
        assert again.properties["colour"] == "red"
        assert again.message_id == by_body[b"copied"].message_id
        assert again.properties["ORIGIN_MESSAGE_ID"] == copied.offset_id
        assert again.reconsume_times == 1

    run(main())
    (letter,) = dead_letters(system, group, 1)
    assert (letter.body, letter.properties["RETRY_TOPIC"]) == (b"dead", topic)


def test_what_no_broker_takes_back_is_consumed_again_here(
    system: System, fresh_name: FreshName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrent, "RETRY_HERE_S", 0.3)
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        async def refuse(message: ReceivedMessage, delay_level: int = 0, reason: str = "") -> bool:
            assert reason
            return not message.topic and delay_level > 99

        inbox = Inbox(fail_first)
        await send(system, topic, numbered(3))
        async with await consumer_of(system, group, topic, inbox) as consumer:
            inner(consumer).sending_back.send_back = refuse  # type: ignore[method-assign]  # no broker
            await inbox.holds(6)
            assert inbox.times_s[3] - inbox.times_s[0] >= 0.25
        assert sorted(inbox.bodies) == sorted(numbered(3) * 2)
        assert {message.queue.topic for message in inbox.messages} == {topic}

    run(main())
    assert committed(system, group, topic) == 3
    assert max_offset(system, f"%RETRY%{group}") == 0


@pytest.mark.slow
@pytest.mark.parametrize("is_async", [True, False])
def test_a_message_stuck_in_its_handler_is_sent_back_and_its_queue_goes_on(
    system: System, fresh_name: FreshName, is_async: bool
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        goes_on = asyncio.Event()
        loop = asyncio.get_running_loop()
        seen: list[ReceivedMessage] = []

        async def handle(message: ReceivedMessage) -> None:
            seen.append(message)
            if message.body == b"m-0" and not message.reconsume_times:
                await goes_on.wait()

        def plain(message: ReceivedMessage) -> None:
            asyncio.run_coroutine_threadsafe(handle(message), loop).result()

        await send(system, topic, numbered(5), queue_id=0)
        options = {"consume_timeout_s": 1.0, "commit_interval_s": 0.2}
        handler = handle if is_async else plain
        async with await consumer_of(system, group, topic, handler, **options):
            await becomes(lambda: len(seen) == 5, "the others were consumed")
            assert await asyncio.to_thread(committed, system, group, topic) == 0
            await becomes(lambda: len(seen) == 6, "the stuck one came again")
            assert (seen[5].body, seen[5].reconsume_times) == (b"m-0", 1)
            await becomes(lambda: committed(system, group, topic) == 5, "the offset went on")
            goes_on.set()

    run(main())
    assert committed(system, group, topic) == 5


@pytest.mark.slow
def test_retries_of_a_group_that_is_new_come_in_time(system: System, fresh_name: FreshName) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        inbox = Inbox(fail_first)
        await send(system, topic, [b"early"])
        async with await consumer_of(system, group, topic, inbox):
            await inbox.holds(2)
        # The original's clients look for the new retry topic after half a minute only.
        assert inbox.times_s[1] - inbox.times_s[0] < 20

    run(main())
