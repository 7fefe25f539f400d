"""What brokers ask of a push consumer: resets, how far it is, how it is, one message now."""

import asyncio
import json

import pytest

from orbitmq.client.committing import SETTLE_S
from orbitmq.client.message import ReceivedMessage
from orbitmq.client.outcomes import Retry
from orbitmq.wire.command import Command
from tests.client.pushing import (
    FreshName,
    Inbox,
    becomes,
    committed,
    consumer_of,
    inner,
    make_topic,
    numbered,
    run,
    send,
)
from tests.foreign.judged import System, judged_original
from tests.wire_client import WireClient

PULL, RESET, STATUS, RUNNING_INFO, DIRECTLY = 11, 222, 223, 307, 309


def ask(system: System, code: int, **fields: str | int) -> bytes:
    with WireClient(system.broker) as client:
        answer = client.ask(code, **fields)
        assert answer.code == 0, answer.remark
        return answer.body


def reset(system: System, group: str, topic: str, timestamp_ms: int) -> None:
    ask(system, RESET, topic=topic, group=group, timestamp=timestamp_ms, isForce="true")


@pytest.mark.parametrize("is_orderly", [False, True])
@pytest.mark.timeout(120)
def test_a_reset_brings_messages_again_to_a_running_consumer(
    system: System, fresh_name: FreshName, is_orderly: bool
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 2)

    async def main() -> None:
        inbox = Inbox()
        await send(system, topic, numbered(10))
        options = {"is_orderly": is_orderly, "commit_interval_s": 0.2}
        async with await consumer_of(system, group, topic, inbox, **options):
            await inbox.holds(10)
            await becomes(
                lambda: sum(committed(system, group, topic, each) or 0 for each in (0, 1)) == 10,
                "all is stored",
            )
            await asyncio.to_thread(reset, system, group, topic, 0)
            await inbox.holds(20)
            await send(system, topic, numbered(4, "later"))
            await inbox.holds(24)
        assert sorted(inbox.bodies) == sorted(numbered(10) * 2 + numbered(4, "later"))

    run(main(), 100)
    assert sum(committed(system, group, topic, each) or 0 for each in range(2)) == 14


def test_a_reset_to_the_end_skips_what_is_waiting(system: System, fresh_name: FreshName) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        goes_on, seen = asyncio.Event(), []

        async def handle(message: ReceivedMessage) -> None:
            seen.append(message.body)
            await goes_on.wait()

        await send(system, topic, numbered(100), queue_id=0)
        options = {"consume_threads": 1, "queue_messages_max": 10}
        async with await consumer_of(system, group, topic, handle, **options) as consumer:
            await becomes(lambda: len(seen) == 1, "the first one is in its handler")
            await asyncio.sleep(SETTLE_S)
            await consumer.commit()
            await asyncio.to_thread(reset, system, group, topic, -1)
            await becomes(lambda: committed(system, group, topic) == 100, "the offset is set")
            goes_on.set()
            await send(system, topic, [b"after"], queue_id=0)
            await becomes(lambda: seen[-1] == b"after", "it goes on at the end")
        # Brokers of 5.x reset by themselves and tell the client with its next pull, which comes
        # when there is room again.
        assert len(seen) <= (40 if judged_original() == "5.5.0" else 3)

    run(main())
    assert committed(system, group, topic) == 101


def test_a_consumer_says_how_far_it_is(system: System, fresh_name: FreshName) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        inbox = Inbox()
        await send(system, topic, numbered(7), queue_id=0)
        async with await consumer_of(system, group, topic, inbox) as consumer:
            await inbox.holds(7)
            fields = {"topic": topic, "group": group}
            body = await asyncio.to_thread(lambda: ask(system, STATUS, **fields))
            assert consumer.client_id.encode() in body
            assert f'"topic":"{topic}"}}:7'.encode() in body

    run(main())


def test_a_consumer_says_how_it_is(system: System, fresh_name: FreshName) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        def act(message: ReceivedMessage) -> None:
            if message.body == b"m-0":
                raise Retry

        inbox = Inbox(act)
        await send(system, topic, numbered(6), queue_id=0)
        options = {"selector": "*", "is_orderly": False, "consume_threads": 7}
        async with await consumer_of(system, group, topic, inbox, **options) as consumer:
            await inbox.holds(6)
            await becomes(
                lambda: list(inner(consumer).offsets(topic).values()) == [6], "all is consumed"
            )
            fields = {"consumerGroup": group, "clientId": consumer.client_id}
            body = await asyncio.to_thread(lambda: ask(system, RUNNING_INFO, **fields))
            text = body.decode()
        queue = f'{{"brokerName":"broker-a","queueId":0,"topic":"{topic}"}}:'
        assert queue in text
        # Objects as keys are the original's way; the rest is plain JSON.
        info = text.split('"mqTable":', 1)[1].split(queue, 1)[1]
        first, _, _ = info.partition("}")
        facts = json.loads(first + "}")
        assert facts["commitOffset"] == 6
        assert facts["cachedMsgCount"] == 0
        assert facts["droped"] is False
        assert facts["lastPullTimestamp"] > 1_700_000_000_000
        properties = json.loads(text.split('"properties":', 1)[1].partition("}")[0] + "}")
        assert properties["PROP_CONSUMEORDERLY"] == "false"
        assert properties["PROP_THREADPOOL_CORE_SIZE"] == "7"
        assert properties["PROP_NAMESERVER_ADDR"] == system.namesrv
        status = json.loads(text.split(f'"{topic}":', 1)[1].partition("}")[0] + "}")
        assert status["consumeFailedMsgs"] == 1
        assert status["consumeOKTPS"] > 0
        assert status["pullTPS"] > 0
        assert status["pullRT"] > 0
        assert status["consumeRT"] > 0

    run(main())


@pytest.mark.parametrize("is_async", [True, False])
def test_one_message_is_consumed_when_a_tool_asks_for_it(
    system: System, fresh_name: FreshName, is_async: bool
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        answers: list[object] = []

        def act(_message: ReceivedMessage) -> object:
            answer = answers.pop() if answers else None
            if isinstance(answer, Exception):
                raise answer
            return answer

        inbox = Inbox(act)
        await send(system, topic, [b"again"], queue_id=0)
        handler = inbox if is_async else inbox.take
        async with await consumer_of(system, group, topic, handler) as consumer:
            await inbox.holds(1)
            fields = {
                "consumerGroup": group,
                "clientId": consumer.client_id,
                "msgId": inbox.messages[0].offset_id,
                "topic": topic,
                "brokerName": "broker-a",
            }
            results = []
            for answer in (None, False, Retry(3), ValueError("no")):
                answers.append(answer)
                body = await asyncio.to_thread(lambda: ask(system, DIRECTLY, **fields))
                results.append(json.loads(body))
        assert [each["consumeResult"] for each in results] == [
            "CR_SUCCESS",
            "CR_SUCCESS",
            "CR_LATER",
            "CR_THROW_EXCEPTION",
        ]
        assert all(each["order"] is False and each["autoCommit"] for each in results)
        assert "no" in results[3]["remark"]
        assert inbox.bodies == [b"again"] * 5
        assert {message.topic for message in inbox.messages} == {topic}

    run(main())
    assert judged_original() is None or committed(system, group, topic) == 1


def test_an_offset_that_is_wrong_is_not_pulled_again_before_it_is_put_right(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        inbox, pulled = Inbox(), list[int]()

        def see(_address: str, request: Command) -> None:
            if request.code == PULL and request.fields["topic"] == topic:
                pulled.append(int(request.fields["queueOffset"]))

        await send(system, topic, numbered(5), queue_id=0)
        async with await consumer_of(system, group, topic, Inbox()):
            pass  # the group is known to the broker now
        with WireClient(system.broker) as client:
            moved = client.ask(15, consumerGroup=group, topic=topic, queueId=0, commitOffset=900)
            assert moved.code == 0
        async with await consumer_of(system, group, topic, inbox) as consumer:
            inner(consumer).instance.remote.before_request.append(see)
            await becomes(lambda: 5 in pulled, "it goes on at the end")
            await send(system, topic, [b"next"], queue_id=0)
            await inbox.holds(1)
        # Another pull would have carried the wrong offset as a commit.
        assert pulled[:2] == [900, 5]

    run(main())
