"""Requests of our own without a task or a timer each: answers, deadlines, limits."""

import asyncio
from math import inf

import pytest

from orbitmq.errors import ConnectionClosed, LimitExceeded
from orbitmq.net.calls import LATE_S, Calls
from orbitmq.net.connection import Connection, Result
from orbitmq.net.limits import Limits
from orbitmq.net.peer import Peer
from orbitmq.wire.command import Command, encode_command, reply_to
from tests.net.running import PATIENCE_S, Run, Site, nothing_left, open_descriptors, serving, until


class Asked:
    """A request that remembers what became of it."""

    def __init__(self, code: int, deadline_s: float = inf, body: bytes = b"") -> None:
        self.code = code
        self.body = body
        self.deadline_s = deadline_s
        self.outcomes: list[object] = []
        self.settled_s = 0.0

    def frame(self, opaque: int) -> list[bytes | memoryview]:
        return [encode_command(Command(self.code, opaque, body=self.body))]

    def answered(self, answer: Command) -> None:
        self._settle(answer.body)

    def overdue(self, peer: str) -> None:
        self._settle(peer)

    def failed(self, error: Exception) -> None:
        self._settle(error)

    def _settle(self, outcome: object) -> None:
        self.outcomes.append(outcome)
        self.settled_s = asyncio.get_running_loop().time()


async def _dialled(site: Site, limits: Limits | None = None) -> tuple[Peer, Connection]:
    peer = Peer(site.address, site.turn, limits=limits or Limits())
    return peer, await peer.connect(PATIENCE_S)


async def _end(peer: Peer) -> None:
    peer.close()
    await peer.wait_closed()


def test_many_requests_at_once_find_their_answers_without_a_task(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site:
            peer, connection = await _dialled(site)
            tasks = len(asyncio.all_tasks())
            asked = [Asked(10, body=b"%d" % n) for n in range(1000)]
            for one in asked:
                connection.ask(one)
            assert len(asyncio.all_tasks()) == tasks
            await until(lambda: all(one.outcomes for one in asked))
            assert [one.outcomes for one in asked] == [[b"%d" % n] for n in range(1000)]
            assert not connection.calls.waiting
            await _end(peer)

    run(scenario())


def test_each_deadline_is_kept_whatever_the_order_they_come_in(run: Run) -> None:
    async def scenario() -> None:
        async with serving(lambda request, connection: None) as site:
            peer, connection = await _dialled(site)
            now_s = asyncio.get_running_loop().time()
            asked = [Asked(10, now_s + after_s) for after_s in (0.3, 0.1, 0.2, 0.1)]
            patient = Asked(10, now_s + 60)
            for one in (*asked, patient):
                connection.ask(one)
            await until(lambda: all(one.outcomes for one in asked))
            for one in asked:
                assert one.outcomes == [connection.peer]
                assert one.deadline_s <= one.settled_s < one.deadline_s + 0.1 + 5 * LATE_S
            assert patient.outcomes == []
            peer.close()
            await until(lambda: patient.outcomes)
            assert isinstance(patient.outcomes[0], ConnectionClosed)
            await _end(peer)

    run(scenario())


def test_a_request_costs_no_timer_while_an_earlier_one_is_set() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        timers: list[float] = []
        real = loop.call_at

        def counted(when: float, *args: object) -> asyncio.TimerHandle:
            timers.append(when)
            return real(when, *args)  # type: ignore[arg-type]  # handed on as it came

        loop.call_at = counted  # type: ignore[method-assign,assignment]  # to count them
        calls = Calls(100_000, loop)
        now_s = loop.time()
        for n in range(1000):
            calls.open(Asked(10, now_s + 3 + n / 1000))
        assert len(timers) == 1
        calls.open(Asked(10, now_s + 1))
        assert len(timers) == 2
        calls.fail(lambda: ConnectionClosed("peer", "test"))
        assert not calls.waiting

    asyncio.run(scenario())


def test_nobody_who_waits_is_forgotten_when_a_connection_ends(run: Run) -> None:
    async def scenario() -> None:
        before = open_descriptors()

        def handle(request: Command, connection: Connection) -> Result:
            if request.code == 11:
                connection.close("test")
            return None

        async with serving(handle) as site:
            peer, connection = await _dialled(site)
            asked = [Asked(10), Asked(10), Asked(11)]
            for one in asked:
                connection.ask(one)
            await until(lambda: all(one.outcomes for one in asked))
            assert [type(one.outcomes[0]) for one in asked] == [ConnectionClosed] * 3
            await _end(peer)
        await nothing_left(before)

    run(scenario())


def test_too_many_requests_are_refused_before_they_are_sent(run: Run) -> None:
    async def scenario() -> None:
        async with serving(lambda request, connection: None) as site:
            peer, connection = await _dialled(site, Limits(calls_per_connection_max=2))
            connection.ask(Asked(10))
            connection.ask(Asked(10))
            with pytest.raises(LimitExceeded, match="calls_per_connection_max"):
                connection.ask(Asked(10))
            assert len(connection.calls.waiting) == 2
            await _end(peer)

    run(scenario())


def test_a_peer_that_does_not_read_is_sent_no_more_than_half_of_what_ends_it(run: Run) -> None:
    async def scenario() -> None:
        limits = Limits(output_pause_bytes=10_000, output_bytes_max=4_000_000)
        async with serving(lambda request, connection: None) as site:
            peer, connection = await _dialled(site, limits)
            taken = 0
            while taken < 1000 and connection._output.size <= limits.output_bytes_max // 2:
                connection.ask(Asked(10, body=b"x" * 100_000))
                taken += 1
            with pytest.raises(LimitExceeded, match="half of output_bytes_max"):
                connection.ask(Asked(10, body=b"x" * 100_000))
            assert taken < 25
            assert len(connection.calls.waiting) == taken
            await connection.wait_drained()
            await until(lambda: site.traffic.frames.value == taken)
            assert not connection.closed
            await _end(peer)

    run(scenario())


def test_answers_are_taken_while_our_own_output_waits(run: Run) -> None:
    """Both sides waited for the other to read: each had more to say than the sockets hold."""

    async def scenario() -> None:
        size, count = 100_000, 200
        limits = Limits(output_pause_bytes=50_000)

        def handle(request: Command, connection: Connection) -> Result:
            return reply_to(request, body=request.body)

        async with serving(handle, limits=limits) as site:
            peer, connection = await _dialled(site, limits)
            asked = [Asked(10, body=b"x" * size) for _ in range(count)]
            for one in asked:
                connection.ask(one)
            await until(lambda: all(one.outcomes for one in asked))
            assert site.traffic.pauses.value > 0
            await _end(peer)

    run(scenario())


def test_a_request_that_cannot_be_written_leaves_no_trace(run: Run) -> None:
    class Broken(Asked):
        def frame(self, opaque: int) -> list[bytes | memoryview]:
            raise ValueError("no frame")

    async def scenario() -> None:
        async with serving() as site:
            peer, connection = await _dialled(site)
            with pytest.raises(ValueError, match="no frame"):
                connection.ask(Broken(10))
            assert not connection.calls.waiting
            await _end(peer)

    run(scenario())
