"""Answers that come later: given, timed out, cancelled, bounded."""

import asyncio
import gc
import socket
import weakref
from functools import partial

import pytest

from orbitmq.metrics import Registry
from orbitmq.net.connection import Connection, Result
from orbitmq.net.dispatch import Dispatcher
from orbitmq.net.later import EXPIRE_SLICE, Later
from orbitmq.net.limits import Limits
from orbitmq.wire.command import FLAG_ONEWAY, Command, encode_command, reply_to
from tests.net.running import HOST, PATIENCE_S, Run, connected, serving, until


class Waiting:
    """A handler that lets every request of code 11 wait and answers all others."""

    def __init__(self, timeout_s: float = PATIENCE_S) -> None:
        self.timeout_s = timeout_s
        self.laters: list[tuple[Command, Later]] = []
        self.events: list[str] = []

    def __call__(self, request: Command, connection: Connection) -> Result:
        if request.code != 11:
            return reply_to(request)

        def on_timeout() -> Command:
            self.events.append(f"timeout {request.opaque}")
            return reply_to(request, 19, "nothing new")

        later = Later(
            self.timeout_s, on_timeout, lambda: self.events.append(f"cancel {request.opaque}")
        )
        self.laters.append((request, later))
        return later


def _has_waiting(handle: Waiting, count: int) -> bool:
    return len(handle.laters) == count


def test_an_answer_may_come_later_and_out_of_order(run: Run) -> None:
    async def scenario() -> None:
        handle = Waiting()
        async with serving(handle) as site, connected(site.port) as client:
            for number in range(3):
                client.ask(Command(11, opaque=number))
            client.ask(Command(10, opaque=99))
            assert (await client.answer()).opaque == 99
            assert site.traffic.laters.value == 3
            for request, later in reversed(handle.laters):
                later.answer(reply_to(request, body=b"%d" % request.opaque))
            answers = [await client.answer() for _ in range(3)]
            assert [answer.opaque for answer in answers] == [2, 1, 0]
            assert [answer.body for answer in answers] == [b"2", b"1", b"0"]
            assert all(later.done for _, later in handle.laters)
            assert site.traffic.laters.value == 0
        assert handle.events == []

    run(scenario())


def test_only_the_first_answer_counts(run: Run) -> None:
    async def scenario() -> None:
        handle = Waiting()
        async with serving(handle) as site, connected(site.port) as client:
            client.ask(Command(11, opaque=1))
            await until(lambda: handle.laters)
            ((request, later),) = handle.laters
            later.answer(reply_to(request, body=b"first"))
            later.answer(reply_to(request, body=b"second"))
            later.cancel()
            later.late()
            client.ask(Command(10, opaque=2))
            assert (await client.answer()).body == b"first"
            assert (await client.answer()).opaque == 2
        assert handle.events == []

    run(scenario())


def test_a_later_that_is_answered_before_the_handler_returns_is_sent_at_once(run: Run) -> None:
    async def scenario() -> None:
        def handle(request: Command, connection: Connection) -> Result:
            later = Later(PATIENCE_S, lambda: None)
            later.answer([encode_command(reply_to(request, body=b"early"))])
            return later

        async with serving(handle) as site, connected(site.port) as client:
            client.ask(Command(11))
            assert (await client.answer()).body == b"early"

    run(scenario())


def test_a_time_out_gives_what_on_timeout_gives_and_not_before_its_time(run: Run) -> None:
    async def scenario() -> None:
        handle = Waiting(timeout_s=0.2)
        loop = asyncio.get_running_loop()
        async with serving(handle) as site, connected(site.port) as client:
            asked_s = loop.time()
            client.ask(Command(11, opaque=4))
            answer = await client.answer()
            assert (answer.opaque, answer.code, answer.remark) == (4, 19, "nothing new")
            assert loop.time() - asked_s > 0.19
            assert handle.events == ["timeout 4"]
            assert site.traffic.laters.value == 0

    run(scenario())


def test_time_outs_come_in_the_order_of_their_times(run: Run) -> None:
    async def scenario() -> None:
        handle = Waiting()
        async with serving(handle) as site, connected(site.port) as client:
            for opaque, timeout_s in ((1, 0.6), (2, 0.1), (3, 0.35), (4, 9.0)):
                handle.timeout_s = timeout_s
                client.ask(Command(11, opaque=opaque))
                await until(partial(_has_waiting, handle, opaque))
            assert [(await client.answer()).opaque for _ in range(3)] == [2, 3, 1]
        assert handle.events == ["timeout 2", "timeout 3", "timeout 1", "cancel 4"]

    run(scenario())


def test_a_time_out_may_have_nothing_to_say(run: Run) -> None:
    async def scenario() -> None:
        def handle(request: Command, connection: Connection) -> Result:
            return Later(0.01, lambda: None) if request.code == 11 else reply_to(request)

        async with serving(handle) as site, connected(site.port) as client:
            client.ask(Command(11, opaque=1))
            await until(lambda: site.traffic.requests.value(11) == 1)
            await until(lambda: site.traffic.laters.value == 0)
            client.ask(Command(10, opaque=2))
            assert (await client.answer()).opaque == 2

    run(scenario())


def test_more_time_outs_at_once_than_one_turn_handles_are_all_answered(run: Run) -> None:
    async def scenario() -> None:
        handle = Waiting(timeout_s=0.1)
        count = 2 * EXPIRE_SLICE + 100
        async with serving(handle) as site, connected(site.port) as client:
            client.write(b"".join(encode_command(Command(11, opaque=n)) for n in range(count)))
            opaques = {(await client.answer()).opaque for _ in range(count)}
            assert opaques == set(range(count))

    run(scenario())


def test_a_connection_that_ends_cancels_what_it_is_owed(run: Run) -> None:
    async def scenario() -> None:
        handle = Waiting()
        async with serving(handle) as site:
            async with connected(site.port) as client:
                client.ask(Command(11, opaque=1))
                client.ask(Command(11, opaque=2))
                await until(lambda: len(handle.laters) == 2)
            await until(lambda: len(handle.events) == 2)
            assert sorted(handle.events) == ["cancel 1", "cancel 2"]
            for request, later in handle.laters:
                assert later.done
                later.answer(reply_to(request))
            assert site.traffic.laters.value == 0

    run(scenario())


def test_a_later_of_a_one_way_request_is_never_answered(run: Run) -> None:
    async def scenario() -> None:
        handle = Waiting(timeout_s=0.01)
        async with serving(handle) as site, connected(site.port) as client:
            client.ask(Command(11, opaque=1, flag=FLAG_ONEWAY))
            await until(lambda: handle.events == ["timeout 1"])
            client.ask(Command(10, opaque=2))
            assert (await client.answer()).opaque == 2
            assert site.traffic.laters.value == 0

    run(scenario())


def test_over_the_limit_of_one_connection_requests_are_refused_as_busy(run: Run) -> None:
    async def scenario() -> None:
        handle = Waiting()
        limits = Limits(laters_per_connection_max=3)
        async with (
            serving(handle, limits=limits) as site,
            connected(site.port) as client,
            connected(site.port) as other,
        ):
            for number in range(5):
                client.ask(Command(11, opaque=number))
            for number in (3, 4):
                answer = await client.answer()
                assert (answer.opaque, answer.code) == (number, 2)
                remark = answer.remark or ""
                assert remark.startswith("[OVERLOAD]system busy, 3 requests of this connection")
                assert "laters_per_connection_max" in remark
            assert handle.events == ["cancel 3", "cancel 4"]
            assert site.traffic.failures.value(2) == 2
            other.ask(Command(11, opaque=7))
            await until(lambda: site.traffic.laters.value == 4)
            request, later = handle.laters[0]
            later.answer(reply_to(request))
            assert (await client.answer()).opaque == 0
            client.ask(Command(11, opaque=8))
            await until(lambda: site.traffic.laters.value == 4)

    run(scenario())


def test_over_the_limit_of_all_connections_requests_are_refused_as_busy(run: Run) -> None:
    async def scenario() -> None:
        handle = Waiting()
        async with (
            serving(handle, limits=Limits(laters_max=2)) as site,
            connected(site.port) as one,
            connected(site.port) as two,
        ):
            one.ask(Command(11))
            two.ask(Command(11))
            await until(lambda: site.traffic.laters.value == 2)
            one.ask(Command(11, opaque=5))
            answer = await one.answer()
            assert answer.code == 2
            assert "(laters_max)" in (answer.remark or "")

    run(scenario())


def test_a_connection_owed_many_answers_is_paused_until_half_of_them_are_given(run: Run) -> None:
    async def scenario() -> None:
        handle = Waiting()
        # A sweep lets one read through; here none comes while we look.
        limits = Limits(laters_pause=4, laters_per_connection_max=1000)
        async with serving(handle, limits=limits) as site, connected(site.port) as client:
            client.write(b"".join(encode_command(Command(11, opaque=n)) for n in range(6)))
            await until(lambda: len(handle.laters) >= 4)
            assert len(handle.laters) == 4  # the read had six
            assert site.traffic.pauses.value == 1
            assert site.connection().is_blocked()
            for request, later in handle.laters[:2]:
                later.answer(reply_to(request))
            assert [(await client.answer()).opaque for _ in range(2)] == [0, 1]
            await until(lambda: len(handle.laters) == 6)

    run(scenario())


def test_a_paused_connection_still_gets_a_heartbeat_through(run: Run) -> None:
    async def scenario() -> None:
        handle = Waiting()
        limits = Limits(laters_pause=2, first_frame_s=0.2)
        async with serving(handle, limits=limits) as site, connected(site.port) as client:
            for number in range(2):
                client.ask(Command(11, opaque=number))
            await until(lambda: site.traffic.pauses.value == 1)
            client.ask(Command(34, opaque=50))
            assert (await client.answer()).opaque == 50
            assert site.traffic.laters.value == 2

    run(scenario())


def test_a_paused_connection_that_holds_half_a_frame_is_still_read(run: Run) -> None:
    """Symptom: its heartbeats and its end went unnoticed until its pulls had timed out."""

    async def scenario() -> None:
        handle = Waiting()
        limits = Limits(laters_pause=2, first_frame_s=0.2)
        heartbeat = encode_command(Command(34, opaque=50))
        async with serving(handle, limits=limits) as site:
            async with connected(site.port) as client:
                waiting = b"".join(encode_command(Command(11, opaque=n)) for n in range(2))
                client.write(waiting + heartbeat[:20])
                await until(lambda: site.traffic.pauses.value >= 1)
                client.write(heartbeat[20:])
                assert (await client.answer()).opaque == 50
                client.write(heartbeat[:20])
            await until(lambda: not site.server.connections)
            assert sorted(handle.events) == ["cancel 0", "cancel 1"]

    run(scenario())


def test_a_peer_that_left_before_its_requests_were_handled_is_owed_no_answer_to_them(
    run: Run,
) -> None:
    """Symptom: each was owed an answer, and worked for, until the last of them was handled."""

    async def scenario() -> None:
        owed: list[int] = []
        waiting = Waiting()

        def handle(request: Command, connection: Connection) -> Result:
            owed.append(site.traffic.laters.value)
            return waiting(request, connection)

        limits = Limits(handling_s=0)  # one request a turn
        async with serving(handle, limits=limits) as site:
            with socket.create_connection((HOST, site.port), timeout=PATIENCE_S) as peer:
                peer.sendall(b"".join(encode_command(Command(11, opaque=n)) for n in range(200)))
            await until(lambda: len(owed) == 200)
            await until(lambda: not site.server.connections)
            assert max(owed) <= 1
            assert sorted(waiting.events) == sorted(f"cancel {n}" for n in range(200))
            assert site.closes("peer") == 1

    run(scenario())


def test_a_peer_that_ends_its_side_and_does_not_read_is_owed_nothing_more(run: Run) -> None:
    """Symptom: as nothing was read from it, its end went unnoticed for a minute."""

    async def scenario() -> None:
        waiting = Waiting()

        def handle(request: Command, connection: Connection) -> Result:
            if request.code == 11:
                return waiting(request, connection)
            return reply_to(request, body=bytes(8_000_000))

        limits = Limits(first_frame_s=0.2)
        async with serving(handle, limits=limits) as site, connected(site.port) as client:
            client.ask(Command(11, opaque=1))
            client.ask(Command(10, opaque=2))
            client.ask(Command(10, opaque=3))
            await until(lambda: site.traffic.pauses.value >= 1)
            client.writer.write_eof()
            await until(lambda: waiting.events == ["cancel 1"])
            assert site.connection().is_undrained
            assert len((await client.answer()).body) == 8_000_000

    run(scenario())


def test_failures_inside_a_later_are_answered_and_counted(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("at last")

    async def scenario() -> None:
        handle = Dispatcher(
            {
                11: lambda request, connection: Later(0.01, fail),
                12: lambda request, connection: Later(PATIENCE_S, lambda: None, fail),
            },
            Registry(),
        )
        async with serving(handle) as site:
            async with connected(site.port) as client:
                client.ask(Command(11))
                answer = await client.answer()
                assert (answer.code, answer.remark) == (1, "ZeroDivisionError: at last")
                client.ask(Command(12))
                client.ask(Command(12))
                await until(lambda: site.traffic.laters.value == 2)
            await until(lambda: not site.server.connections)
            text = site.registry.render()
            assert 'orbitmq_handler_errors_total{code="11"} 1' in text
            assert 'orbitmq_handler_errors_total{code="12"} 2' in text

    run(scenario())
    assert "failed unforeseen" in caplog.text


class Token:
    """Something that can be watched until it is gone."""

    def note(self) -> None:
        raise AssertionError


def test_a_later_that_is_answered_is_kept_by_nobody(run: Run) -> None:
    async def scenario() -> None:
        laters: list[tuple[Command, Later]] = []
        tokens: list[weakref.ref[Token]] = []

        def handle(request: Command, connection: Connection) -> Result:
            token = Token()
            tokens.append(weakref.ref(token))
            later = Later(PATIENCE_S, lambda: None, token.note)
            laters.append((request, later))
            return later

        async with serving(handle) as site, connected(site.port) as client:
            gc.disable()  # so that only a missing reference, not the collector, can free it
            try:
                client.ask(Command(11))
                await until(lambda: laters)
                assert tokens[0]() is not None
                request, later = laters.pop()
                later.answer(reply_to(request))
                del request, later
                await client.answer()
                assert tokens[0]() is None
            finally:
                gc.enable()

    run(scenario())
