"""Mistakes that `orbitmq send`, `tail` and `group reset` once made."""

import asyncio
from pathlib import Path

import pytest

from orbitmq.cli import tail
from orbitmq.client.message import Message, ReceivedMessage
from orbitmq.client.producer import Producer
from orbitmq.client.pull_consumer import PullConsumer
from orbitmq.client.subscriptions import Selector
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.names import TOOLS_GROUP
from tests.behaviour.consumers import Fresh
from tests.behaviour.test_filters import changed
from tests.cli.shell_runs import NOBODY, shell
from tests.client.scripted import SILENT, TOPIC, scripted
from tests.foreign.judged import System

pytestmark = pytest.mark.timeout(120)
QUEUE_COUNT, EACH = 40, 32


def test_a_tail_of_many_busy_queues_does_not_stop_between_old_and_new_messages(
    system: System, fresh_name: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = fresh_name("Topic")
    words = ("topic", "create", topic, "--queues", str(QUEUE_COUNT), "--namesrv", system.namesrv)
    assert shell(tmp_path, *words).code == 0

    async def early_ends(_tail: object, queues: list[MessageQueue]) -> list[int]:
        """Say where the queues ended before all but their first message came."""
        return [1] * len(queues)

    monkeypatch.setattr(tail._Tail, "_ends", early_ends)
    shown: list[ReceivedMessage] = []

    def show(message: ReceivedMessage) -> bool:
        shown.append(message)
        return len(shown) == QUEUE_COUNT * EACH

    async def main() -> None:
        async with Producer(system.namesrv) as producer:
            queues = await producer.publish_queues(topic)
            for queue in queues:
                await producer.send_batch([Message(topic, b"x")] * EACH, queue=queue)
        async with PullConsumer(system.namesrv, TOOLS_GROUP) as consumer:
            work = tail._Tail(consumer, topic, Selector(), show).run(0, follows=True)
            await asyncio.wait_for(work, 30)

    asyncio.run(main())
    places = {(message.queue.queue_id, message.queue_offset) for message in shown}
    assert len(places) == QUEUE_COUNT * EACH


def test_a_tail_with_a_mistake_in_its_sql_ends_and_says_so(
    system: System, fresh_name: Fresh, tmp_path: Path
) -> None:
    topic = fresh_name("Topic")
    assert shell(tmp_path, "topic", "create", topic, "--namesrv", system.namesrv).code == 0
    with changed(system, enablePropertyFilter="true"):
        done = shell(tmp_path, "tail", topic, "--sql", "price >>> 3", "--namesrv", system.namesrv)
    assert done.code == 1
    assert "does not answer" not in done.err
    assert "code 23" in done.err


def test_a_timeout_counts_for_messages_of_a_file_too(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"one\n")

    async def main() -> None:
        async with scripted([SILENT] * 9) as cluster:
            flags = ("--timeout", "0.5", "--namesrv", cluster.namesrv.address)
            began_s = asyncio.get_running_loop().time()
            done = await asyncio.to_thread(shell, tmp_path, "send", TOPIC, "-f", "lines", *flags)
            assert done.code == 1
            assert "0.5 s" in done.err
            assert asyncio.get_running_loop().time() - began_s < 30

    asyncio.run(main())


@pytest.mark.parametrize("place", [("--offset", "3"), ("--to", "latest"), ("--to", "earliest")])
def test_only_back_is_refused_where_it_would_do_nothing(
    tmp_path: Path, place: tuple[str, str]
) -> None:
    words = ("group", "reset", "G", "T", *place, "--only-back", "--namesrv", NOBODY)
    done = shell(tmp_path, *words)
    assert done.code == 2
    assert "--only-back needs --to with a time" in done.err
