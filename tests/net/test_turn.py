"""The end of a turn: steps first, then one write per connection; nothing after a failed step."""

import asyncio

import pytest

from orbitmq.net.connection import Connection, Result
from orbitmq.net.turn import Turn
from orbitmq.wire.command import Command, encode_command, reply_to
from tests.net.running import Run, connected, serving


class Output:
    """Notes what the turn does with it."""

    def __init__(self, name: str, events: list[str]) -> None:
        self.name = name
        self.events = events

    def write_turn(self) -> None:
        self.events.append("write " + self.name)

    def drop(self, reason: str) -> None:
        self.events.append(f"drop {self.name} {reason}")


async def _turn_over() -> None:
    """Return after everything that was due in this turn."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_steps_come_first_in_their_order_then_each_output_once(run: Run) -> None:
    async def scenario() -> None:
        events: list[str] = []
        turn = Turn(asyncio.get_running_loop())
        late = Output("late", events)

        def first() -> None:
            events.append("first")
            turn.touch(late)

        turn.before_write(first)
        turn.before_write(lambda: events.append("second"))
        turn.touch(Output("a", events))
        turn.touch(Output("b", events))
        assert events == []
        await _turn_over()
        assert events == ["first", "second", "write a", "write b", "write late"]
        await _turn_over()
        assert len(events) == 5

    run(scenario())


def test_a_requested_turn_runs_its_steps_without_output(run: Run) -> None:
    async def scenario() -> None:
        events: list[str] = []
        turn = Turn(asyncio.get_running_loop())
        turn.before_write(lambda: events.append("step"))
        turn.request()
        turn.request()
        await _turn_over()
        assert events == ["step"]

    run(scenario())


def test_a_failed_step_lets_nothing_of_its_turn_out(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        is_broken = True
        staged: list[Command] = []

        def write_log() -> None:
            if staged and is_broken:
                staged.clear()
                raise OSError("the disk is gone")

        def handle(request: Command, connection: Connection) -> Result:
            staged.append(request)
            return reply_to(request)

        async with serving(handle) as site:
            site.turn.before_write(write_log)
            async with connected(site.port) as client:
                client.ask(Command(10))
                assert await client.ended() == b""
                assert site.closes("internal-error") == 1
            is_broken = False
            async with connected(site.port) as client:
                client.ask(Command(10, opaque=2))
                assert (await client.answer()).opaque == 2

    run(scenario())
    assert "no answer of this turn is sent" in caplog.text


def test_a_failed_write_does_not_keep_others_from_theirs(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Output):
        def write_turn(self) -> None:
            raise ValueError

    async def scenario() -> None:
        events: list[str] = []
        turn = Turn(asyncio.get_running_loop())
        turn.touch(Broken("a", events))
        turn.touch(Output("b", events))
        await _turn_over()
        assert events == ["drop a internal-error", "write b"]

    run(scenario())
    assert "output to" in caplog.text


def test_requests_of_several_connections_share_one_turn(run: Run) -> None:
    async def scenario() -> None:
        sizes: list[int] = []
        staged: list[Command] = []

        def write_log() -> None:
            sizes.append(len(staged))
            staged.clear()

        def handle(request: Command, connection: Connection) -> Result:
            staged.append(request)
            return reply_to(request)

        async with serving(handle) as site:
            site.turn.before_write(write_log)
            async with connected(site.port) as one, connected(site.port) as two:
                requests = b"".join(encode_command(Command(10)) for _ in range(10))
                one.write(requests)
                two.write(requests)
                for client in (one, two):
                    for _ in range(10):
                        await client.answer()
            assert sum(sizes) == 20
            assert max(sizes) >= 10  # a read's requests are never split over turns

    run(scenario())
