"""Brokers and name servers that die and come back under a running consumer."""

import asyncio
import logging
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from orbitmq.client.message import Message
from orbitmq.client.producer import Producer
from orbitmq.client.push import PushConsumer
from orbitmq.errors import MQError
from tests.client.pushing import FreshName, Inbox, becomes, committed, consumer_of, make_topic, run
from tests.foreign.asking import await_broker
from tests.foreign.judged import System
from tests.foreign.peers import free_port_with_neighbours
from tests.foreign.running import Program, started


class Cluster:
    """A name server and a broker as processes that can be killed and started again."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder
        self._namesrv_port = free_port_with_neighbours()
        self._broker_port = free_port_with_neighbours()
        self.system = System(f"127.0.0.1:{self._namesrv_port}", f"127.0.0.1:{self._broker_port}")
        self.namesrv = self.start_namesrv()
        self.broker = self.start_broker()
        await_broker(self.system.namesrv, "broker-a")

    def _start(self, *words: str) -> Program:
        command = [sys.executable, "-m", "orbitmq", *words, "--host", "127.0.0.1"]
        return self._stack.enter_context(started(command))

    def start_namesrv(self) -> Program:
        port, folder = str(self._namesrv_port), str(self._folder / "n")
        self.namesrv = self._start("namesrv", "--port", port, "--data-dir", folder)
        return self.namesrv

    def start_broker(self) -> Program:
        port, folder = str(self._broker_port), str(self._folder / "b")
        options = ["--namesrv", self.system.namesrv, "--port", port, "--data-dir", folder]
        self.broker = self._start(
            "broker", *options, "-D", "brokerName=broker-a", "-D", "registerNameServerPeriod=10000"
        )
        return self.broker


async def send_all(producer: Producer, topic: str, word: str, count: int, sent: set[bytes]) -> None:
    """Send so many messages; those that were acknowledged are noted, failures are tried again."""
    for number in range(count):
        body = f"{word}-{number}".encode()
        while True:
            try:
                await producer.send(Message(topic, body), timeout=3)
                break
            except MQError:
                await asyncio.sleep(0.2)
        sent.add(body)


@pytest.mark.slow
@pytest.mark.timeout(150)
@pytest.mark.parametrize("is_orderly", [False, True])
def test_a_killed_broker_and_name_server_are_missed_and_found_again(
    tmp_path: Path,
    fresh_name: FreshName,
    caplog: pytest.LogCaptureFixture,
    is_orderly: bool,
) -> None:
    caplog.set_level(logging.INFO, "orbitmq.client")
    topic, group = fresh_name("Topic"), fresh_name("group")

    async def main(cluster: Cluster) -> None:
        system, inbox = cluster.system, Inbox()
        sent: set[bytes] = set()
        options = {"is_orderly": is_orderly, "commit_interval_s": 0.5}
        async with (
            await consumer_of(system, group, topic, inbox, **options),
            Producer(system.namesrv, group=fresh_name("PG")) as producer,
        ):
            await send_all(producer, topic, "a", 50, sent)
            await becomes(lambda: sent <= set(inbox.bodies), "all came", 20)

            sending = asyncio.create_task(send_all(producer, topic, "b", 200, sent))
            await asyncio.sleep(0.1)
            await asyncio.to_thread(cluster.broker.kill)
            await asyncio.sleep(1)
            await asyncio.to_thread(cluster.start_broker)
            await sending
            await becomes(lambda: sent <= set(inbox.bodies), "all came after the kill", 40)

            await asyncio.to_thread(cluster.namesrv.kill)
            await send_all(producer, topic, "c", 50, sent)
            await becomes(lambda: sent <= set(inbox.bodies), "all came without name server", 20)
            await asyncio.to_thread(cluster.start_namesrv)
            await asyncio.to_thread(await_broker, system.namesrv, "broker-a")
            await send_all(producer, topic, "d", 50, sent)
            await becomes(lambda: sent <= set(inbox.bodies), "all came in the end", 20)
        assert len(sent) == 350

    with ExitStack() as stack:
        cluster = Cluster(stack, tmp_path)
        make_topic(cluster.system, topic, 4)
        run(main(cluster), 120)
        ends = [committed(cluster.system, group, topic, each) or 0 for each in range(4)]
        assert sum(ends) >= 350
    lines = [record.getMessage() for record in caplog.records]
    missed = [line for line in lines if "cannot be pulled from broker broker-a" in line]
    found = [line for line in lines if "is pulled from broker broker-a again" in line]
    assert any(topic in line for line in missed)
    assert any(topic in line for line in found)
    # Told once for a topic, not for each queue and attempt.
    assert sum(topic in line for line in missed) <= 2


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_members_that_share_a_group_stay_members_when_their_broker_comes_back(
    tmp_path: Path, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")

    def own(consumer: PushConsumer) -> int:
        return sum(queue.topic == topic for queue in consumer.queues())

    async def main(cluster: Cluster) -> None:
        inbox = Inbox()
        sent: set[bytes] = set()
        system = cluster.system
        async with (
            await consumer_of(system, group, topic, inbox) as one,
            await consumer_of(system, group, topic, inbox) as two,
        ):
            await becomes(lambda: own(one) == own(two) == 2, "they share", 20)
            await asyncio.to_thread(cluster.broker.kill)
            await asyncio.sleep(1)
            assert own(one) == own(two) == 2
            await asyncio.to_thread(cluster.start_broker)
            async with Producer(system.namesrv, group=fresh_name("PG")) as producer:
                await send_all(producer, topic, "m", 40, sent)
            await becomes(lambda: sent <= set(inbox.bodies), "all came", 30)
            await becomes(lambda: own(one) == own(two) == 2, "they share again", 30)

    with ExitStack() as stack:
        cluster = Cluster(stack, tmp_path)
        make_topic(cluster.system, topic, 4)
        run(main(cluster), 100)
