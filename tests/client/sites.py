"""Topics and runs for the client's tests: made with exact queues, filled by plain requests.

In: the system under test. Out: topics as a test wants them, and coroutines run to their end, after
which nothing of them may be left.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from orbitmq.client.instance import Instance
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.properties import encode_properties
from tests.behaviour.requests import send_request
from tests.foreign.asking import await_claim, await_topic
from tests.foreign.judged import System
from tests.wire_client import WireClient

Fresh = Callable[[str], str]
BROKER_NAME = "broker-a"
LIMIT_S = 60.0

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine; fails when it leaves a task or a thread behind."""
    threads = set(threading.enumerate())

    async def whole() -> T:
        async with asyncio.timeout(LIMIT_S):
            result = await work
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks are left: {left}"
        return result

    result = asyncio.run(whole())
    assert set(threading.enumerate()) <= threads, "threads are left"
    return result


def make_topic(system: System, topic: str, queue_count: int) -> list[MessageQueue]:
    """Make a topic with so many queues, known to the name server; give its queues."""
    with WireClient(system.broker) as client:
        made = client.ask(
            17,
            topic=topic,
            defaultTopic="TBW102",
            readQueueNums=queue_count,
            writeQueueNums=queue_count,
            perm=6,
            topicFilterType="SINGLE_TAG",
            topicSysFlag=0,
            order="false",
        )
        assert made.code == 0, made.remark
    await_topic(system.namesrv, topic, BROKER_NAME)
    return [MessageQueue(topic, BROKER_NAME, number) for number in range(queue_count)]


def make_group(system: System, group: str) -> str:
    """Make a consumer group: 5.x stores no offsets of one that it does not know."""
    with WireClient(system.broker) as client:
        made = client.ask(200, json.dumps({"groupName": group}).encode())
        assert made.code == 0, made.remark
    return group


def fill(
    system: System, queue: MessageQueue, bodies: Sequence[bytes], **properties: str
) -> list[int]:
    """Send messages to a queue and wait until consumers can see them; give their offsets."""
    offsets: list[int] = []
    text = encode_properties({"WAIT": "true", **properties}).decode()
    with WireClient(system.broker) as client:
        for body in bodies:
            sent = client.call(send_request(queue.topic, body, e=queue.queue_id, i=text))
            assert sent.code == 0, sent.remark
            offsets.append(int(sent.fields["queueOffset"]))
        await_visible(client, queue, offsets)
    return offsets


def await_visible(client: WireClient, queue: MessageQueue, offsets: Sequence[int]) -> None:
    """Wait for a queue's end: originals acknowledge a message before its queue has it."""
    end = max(offsets, default=-1) + 1
    await_claim(
        lambda: (
            int(client.ask(30, topic=queue.topic, queueId=queue.queue_id).fields["offset"]) >= end
        ),
        f"{queue} goes up to {end}",
        30,
    )


async def send(instance: Instance, queue: MessageQueue, body: bytes, **properties: str) -> None:
    """Send one message to a queue while other things go on."""
    text = encode_properties({"WAIT": "true", **properties}).decode()
    address = await instance.routes.master_address(queue)
    await instance.remote.ask(address, send_request(queue.topic, body, e=queue.queue_id, i=text))
