"""Held reads of any kind, on any number of queues: woken, ended, bounded, cancelled."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from orbitmq.broker import held_reads
from orbitmq.broker.held_reads import HeldRead, HeldReads
from orbitmq.config import BrokerSettings
from orbitmq.core import Queue
from orbitmq.net.connection import Connection, Result
from orbitmq.net.turn import Turn
from orbitmq.wire.command import Command, reply_to
from orbitmq.world.clock import SystemClock
from orbitmq.world.files import SystemFiles
from orbitmq.world.net import run
from tests.behaviour.requests import send_request
from tests.broker.running import begin
from tests.net.running import PATIENCE_S, connected, serving, until

SETTINGS = BrokerSettings(listen_port=0, mapped_file_size_commit_log=1 << 20)
AT_END = 19


class Growth(HeldRead):
    """A read that waits until any of its queues has more than there was."""

    least = 1

    def __init__(self, request: Command, queues: Sequence[Queue]) -> None:
        super().__init__(request, queues)
        self._before = [queue.readable_offset for queue in queues]
        self.look_count = 0

    def look(self) -> Command | None:
        self.look_count += 1
        pairs = zip(self.queues, self._before, strict=True)
        grown = [queue for queue, before in pairs if queue.readable_offset - before >= self.least]
        body = ",".join(f"{queue.topic}-{queue.queue_id}" for queue in grown).encode()
        return reply_to(self.request, body=body) if grown else None

    def answer_at_end(self) -> Command:
        return reply_to(self.request, AT_END, "nothing new")


class TwoMore(Growth):
    """One that needs two messages of a queue."""

    least = 2


class Failing(Growth):
    """One whose look is a bug."""

    def look(self) -> Command | None:
        raise ValueError("a bug")


class Holding:
    """A handler that holds every request on the queues it names, `T-0,T-1`, for some time."""

    def __init__(self, timeout_s: float = PATIENCE_S, read: type[Growth] = Growth) -> None:
        self.queues = [Queue("T", number, 0) for number in range(3)]
        self.held = HeldReads(SystemClock())
        self.reads: list[Growth] = []
        self._timeout_s = timeout_s
        self._read = read

    def __call__(self, request: Command, connection: Connection) -> Result:
        queues = [self.queues[int(number)] for number in request.body.decode().split(",")]
        self.reads.append((Failing if request.code == 12 else self._read)(request, queues))
        return self.held.hold(self.reads[-1], self._timeout_s)

    def grow(self, *numbers: int) -> None:
        for number in numbers:
            self.queues[number].readable_offset += 1
        self.held.wake({self.queues[number] for number in numbers})


def ask(opaque: int, queues: bytes, code: int = 11) -> Command:
    return Command(code, opaque=opaque, body=queues)


def test_any_of_several_queues_wakes_a_read_and_it_is_answered_once() -> None:
    async def scenario() -> None:
        handle = Holding()
        async with serving(handle) as site, connected(site.port) as client:
            client.ask(ask(1, b"0,1,2"))
            client.ask(ask(2, b"0"))
            await until(lambda: len(handle.held) == 2)
            handle.grow(1)
            answer = await client.answer()
            assert (answer.opaque, answer.body) == (1, b"T-1")
            assert len(handle.held) == 1, "it waits for none of the others any more"
            handle.grow(0, 1, 2)
            assert (await client.answer()).opaque == 2
            assert handle.reads[0].look_count == 1
            assert not handle.held.queues("T")
            assert site.traffic.laters.value == 0

    run(scenario())


def test_several_queues_that_grow_at_once_are_one_look() -> None:
    async def scenario() -> None:
        handle = Holding()
        async with serving(handle) as site, connected(site.port) as client:
            client.ask(ask(1, b"0,1,2"))
            await until(lambda: handle.reads)
            handle.grow(0, 2)
            assert (await client.answer()).body == b"T-0,T-2"
            assert handle.reads[0].look_count == 1

    run(scenario())


def test_what_is_no_news_for_a_read_leaves_it_held() -> None:
    async def scenario() -> None:
        handle = Holding(read=TwoMore)
        async with serving(handle) as site, connected(site.port) as client:
            client.ask(ask(1, b"0,1"))
            await until(lambda: handle.reads)
            handle.grow(0, 1)
            assert len(handle.held) == 1
            handle.grow(1)
            assert (await client.answer()).body == b"T-1"

    run(scenario())


def test_at_its_deadline_a_read_of_several_queues_is_answered_and_forgotten() -> None:
    async def scenario() -> None:
        handle = Holding(timeout_s=0.05)
        async with serving(handle) as site, connected(site.port) as client:
            client.ask(ask(1, b"0,1"))
            assert (await client.answer()).code == AT_END
            assert (len(handle.held), handle.held.queues("T")) == (0, [])
            handle.grow(0, 1)
            assert handle.reads[0].look_count == 0

    run(scenario())


def test_a_closed_connection_takes_its_reads_along() -> None:
    async def scenario() -> None:
        handle = Holding()
        async with serving(handle) as site:
            async with connected(site.port) as client:
                client.ask(ask(1, b"0,1"))
                client.ask(ask(2, b"1,2"))
                await until(lambda: len(handle.held) == 2)
            await until(lambda: not len(handle.held))
            assert not handle.held.queues("T")
            handle.grow(0, 1, 2)
            assert [read.look_count for read in handle.reads] == [0, 0]

    run(scenario())


def test_above_the_limit_of_one_of_its_queues_a_read_does_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held_reads, "HELD_PER_QUEUE_MAX", 2)

    async def scenario() -> None:
        handle = Holding()
        async with serving(handle) as site, connected(site.port) as client:
            for opaque, queues in ((1, b"1"), (2, b"1"), (3, b"0,1,2")):
                client.ask(ask(opaque, queues))
            answer = await client.answer()
            assert (answer.opaque, answer.code) == (3, AT_END)
            assert len(handle.held) == 2

    run(scenario())


def test_a_read_that_fails_holds_up_no_other() -> None:
    """Symptom: the turn failed after its records were written, and no sender had an answer."""

    async def scenario() -> None:
        handle = Holding()
        async with serving(handle) as site, connected(site.port) as client:
            client.ask(ask(1, b"0", code=12))
            client.ask(ask(2, b"0"))
            await until(lambda: len(handle.held) == 2)
            handle.grow(0)
            answers = [await client.answer() for _ in range(2)]
            assert [(answer.opaque, answer.code) for answer in answers] == [(1, 1), (2, 0)]
            assert len(handle.held) == 0

    run(scenario())


def test_a_queue_that_is_removed_ends_the_reads_that_wait_for_it() -> None:
    async def scenario() -> None:
        handle = Holding()
        async with serving(handle) as site, connected(site.port) as client:
            client.ask(ask(1, b"0,1"))
            client.ask(ask(2, b"1"))
            await until(lambda: len(handle.held) == 2)
            handle.held.end_queue(handle.queues[0], "topic[T] not exist")
            answer = await client.answer()
            assert (answer.opaque, answer.code) == (1, 17)
            assert handle.held.queues("T") == [handle.queues[1]]

    run(scenario())


def test_it_is_answered_in_the_turn_of_the_message(tmp_path: Path) -> None:
    """Two queues of two topics; the answer is there when the sender has its own."""

    async def scenario() -> None:
        at = await begin(tmp_path, Turn(asyncio.get_running_loop()), SETTINGS, SystemFiles())
        try:
            context = at.broker._context
            for topic in ("A", "B"):
                assert (await at.call(send_request(topic))).code == 0
            queues = [context.store.queue(topic, 0) for topic in ("A", "B")]
            read, owner = Growth(Command(11), queues), Owner()
            context.held_reads.hold(read, PATIENCE_S).adopt(owner, read.request)
            assert (await at.call(send_request("B", e=1))).code == 0
            assert not owner.answers, "another queue of the topic"
            assert (await at.call(send_request("B"))).code == 0
            assert [answer.body for answer in owner.answers] == [b"B-0"]
        finally:
            await at.stop()

    run(scenario())


class Owner:
    """Stands for the connection that owes the answer."""

    def __init__(self) -> None:
        self.answers: list[Command] = []

    def later_done(self, _later: object, _request: Command, reply: object) -> None:
        assert isinstance(reply, Command)
        self.answers.append(reply)

    def later_failed(self, _request: Command, error: Exception) -> None:
        raise error
