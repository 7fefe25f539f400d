"""Brokers that die under a running producer: what was acknowledged stays, sending goes on."""

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from orbitmq.client.message import Message
from orbitmq.client.producer import Producer
from orbitmq.client.producer_settings import ProducerOptions
from orbitmq.client.send_result import SendResult
from orbitmq.errors import MQError
from tests.client.producing import run, stored
from tests.foreign.judged import judged_original, up_command
from tests.foreign.peers import free_port_with_neighbours
from tests.foreign.running import Program, running, started

FreshName = Callable[[str], str]
ORBITMQ = [sys.executable, "-m", "orbitmq"]
pytestmark = pytest.mark.timeout(180)
LIMIT_S = 120.0
"""Processes are started and started again; on a busy machine each takes many seconds."""
ours_only = pytest.mark.skipif(judged_original() is not None, reason="starts OrbitMQ's brokers")


@contextmanager
def _namesrv(folder: Path) -> Iterator[str]:
    words = ["namesrv", "--host", "127.0.0.1", "--port", "0", "--data-dir", str(folder / "names")]
    with running([*ORBITMQ, *words]) as ready:
        yield ready["namesrv"]


def _broker_command(folder: Path, name: str, namesrv: str, port: int) -> list[str]:
    words = ["broker", "--host", "127.0.0.1", "--port", str(port), "--namesrv", namesrv]
    return [*ORBITMQ, *words, "--data-dir", str(folder / name), "-D", f"brokerName={name}"]


class _Steady:
    """A program that sends without a pause and keeps every acknowledgement."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self.producer = producer
        self.topic = topic
        self.acknowledged: list[tuple[bytes, SendResult]] = []
        self.failures: list[MQError] = []
        self._sent = 0
        self._task = asyncio.create_task(self._go_on())

    async def _go_on(self) -> None:
        while True:
            bodies = [b"%d" % (self._sent + n) for n in range(20)]
            self._sent += len(bodies)
            futures = [self.producer.submit(Message(self.topic, body)) for body in bodies]
            for body, future in zip(bodies, futures, strict=True):
                try:
                    self.acknowledged.append((body, await future))
                except MQError as error:
                    self.failures.append(error)
                    await asyncio.sleep(0.01)

    async def more(self, count: int) -> None:
        """Return when so many more are acknowledged."""
        goal = len(self.acknowledged) + count
        while len(self.acknowledged) < goal:
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.producer.flush()

    def check_stored(self, addresses: dict[str, str]) -> None:
        for broker_name, address in addresses.items():
            mine = [
                (body, result)
                for body, result in self.acknowledged
                if result.queue.broker_name == broker_name
            ]
            assert mine, f"{broker_name} got nothing"
            found = stored(address, [result for _, result in mine])
            assert [one.body for one in found] == [body for body, _ in mine]
            assert [one.queue_offset for one in found] == [one.queue_offset for _, one in mine]


@ours_only
def test_messages_spread_over_two_brokers(tmp_path: Path, fresh_name: FreshName) -> None:
    topic = fresh_name("Topic")

    async def main(namesrv: str) -> None:
        async with Producer(namesrv, group="PG") as producer:
            queues = await producer.publish_queues(topic)
            assert [(queue.broker_name, queue.queue_id) for queue in queues] == [
                (name, number) for name in ("broker-a", "broker-b") for number in range(4)
            ]
            futures = [producer.submit(Message(topic, b"x")) for _ in range(80)]
            results = await asyncio.gather(*futures)
        counts = {queue: sum(one.queue == queue for one in results) for queue in queues}
        assert set(counts.values()) == {10}

    with running(up_command(tmp_path, "--brokers", "2")) as ready:
        run(main(ready["namesrv"]))


@ours_only
def test_a_killed_broker_is_left_out_and_used_again_when_it_is_back(
    tmp_path: Path, fresh_name: FreshName, caplog: pytest.LogCaptureFixture
) -> None:
    topic = fresh_name("Topic")
    caplog.set_level(logging.INFO, "orbitmq.client")

    async def main(
        namesrv: str, brokers: dict[str, Program], come_back: Callable[[], None]
    ) -> None:
        addresses = {name: program.ready["broker"] for name, program in brokers.items()}
        options: ProducerOptions = {"heartbeat_interval_s": 0.5, "route_interval_s": 0.5}
        async with Producer(namesrv, group="PG", **options) as producer:
            steady = _Steady(producer, topic)
            await steady.more(200)
            brokers["b"].kill()
            await steady.more(200)
            assert {one.queue.broker_name for _, one in steady.acknowledged[-60:]} == {"a"}
            await asyncio.to_thread(come_back)
            await _until_used(steady, "b")
            await steady.stop()
            steady.check_stored(addresses)

    with ExitStack() as stack:
        namesrv = stack.enter_context(_namesrv(tmp_path))
        commands = {
            name: _broker_command(tmp_path, name, namesrv, free_port_with_neighbours())
            for name in ("a", "b")
        }
        brokers = {
            name: stack.enter_context(started(command)) for name, command in commands.items()
        }
        run(main(namesrv, brokers, lambda: _enter(stack, started(commands["b"]))), LIMIT_S)
    told = [record.getMessage() for record in caplog.records]
    assert sum("is in a route again" in text for text in told) == 1, told
    assert sum("is in no route any more" in text for text in told) == 1, told


def _enter(stack: ExitStack, program: AbstractContextManager[Program]) -> None:
    stack.enter_context(program)


async def _until_used(steady: _Steady, broker_name: str) -> None:
    while steady.acknowledged[-1][1].queue.broker_name != broker_name:
        await asyncio.sleep(0.01)


@ours_only
def test_the_only_broker_killed_and_restarted_loses_nothing_acknowledged(
    tmp_path: Path, fresh_name: FreshName, caplog: pytest.LogCaptureFixture
) -> None:
    topic = fresh_name("Topic")
    caplog.set_level(logging.INFO, "orbitmq.client")

    def told(words: str) -> list[str]:
        return [record.getMessage() for record in caplog.records if words in record.getMessage()]

    async def main(namesrv: str, program: Program, come_back: Callable[[], None]) -> None:
        options: ProducerOptions = {"heartbeat_interval_s": 1, "route_interval_s": 600}
        async with Producer(namesrv, group="PG", **options) as producer:
            steady = _Steady(producer, topic)
            await steady.more(300)
            program.kill()
            while len(steady.failures) < 3 or not told("does not take heartbeats"):
                await asyncio.sleep(0.01)
            await asyncio.to_thread(come_back)
            await steady.more(300)
            while not told("takes heartbeats again"):
                await asyncio.sleep(0.01)
            await steady.stop()
            steady.check_stored({"a": program.ready["broker"]})

    with ExitStack() as stack:
        namesrv = stack.enter_context(_namesrv(tmp_path))
        command = _broker_command(tmp_path, "a", namesrv, free_port_with_neighbours())
        program = stack.enter_context(started(command))
        run(main(namesrv, program, lambda: _enter(stack, started(command))), LIMIT_S)
    broker = program.ready["broker"]
    (silent,) = told("does not take heartbeats")  # once, however many failed
    assert silent.startswith(f"broker {broker} does not take heartbeats: ")
    assert told("takes heartbeats again") == [f"broker {broker} takes heartbeats again"]
