"""Requests and answers over one connection: order, cuts, both directions, one-way, failures."""

import asyncio
import gc
from functools import partial
from typing import Any

import pytest

from orbitmq.errors import (
    ConnectionClosed,
    LimitExceeded,
    RemoteProtocolError,
    RequestFailed,
    RequestTimeout,
    StoreError,
)
from orbitmq.metrics import Registry
from orbitmq.net.connection import Connection, Parts, Result
from orbitmq.net.dispatch import Dispatcher
from orbitmq.net.limits import Limits
from orbitmq.wire.command import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    Command,
    encode_command,
    reply_to,
)
from orbitmq.wire.frame import BINARY, JSON, Frame, cut_frame
from tests.net.running import PATIENCE_S, Run, Site, connected, serving, until


def test_pipelined_requests_are_answered_in_their_order(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site, connected(site.port) as client:
            for number in range(500):
                client.ask(Command(10, opaque=number, body=b"%d" % number))
            for number in range(500):
                answer = await client.answer()
                assert (answer.opaque, answer.body) == (number, b"%d" % number)
                assert answer.is_response

    run(scenario())


def _has_read(site: Site, size: int) -> bool:
    return site.traffic.received.value == size


@pytest.mark.parametrize("serialization", [JSON, BINARY])
def test_frames_may_be_cut_anywhere(run: Run, serialization: int) -> None:
    frames = b"".join(
        encode_command(
            Command(10, opaque=number, body=b"body", fields={"a": "b"}, serialization=serialization)
        )
        for number in range(2)
    )

    async def scenario() -> None:
        taken: list[int] = []

        def handle(request: Command, connection: Connection) -> Result:
            taken.append(request.opaque)
            return reply_to(request)

        async with serving(handle) as site, connected(site.port) as client:
            for cut in range(1, len(frames)):
                before = site.traffic.received.value
                client.write(frames[:cut])
                await until(partial(_has_read, site, before + cut))
                client.write(frames[cut:])
                assert [(await client.answer()).opaque for _ in range(2)] == [0, 1]
            client.write(frames)
            for byte in frames:
                client.write(bytes([byte]))
            assert [(await client.answer()).opaque for _ in range(4)] == [0, 1, 0, 1]
            assert taken == [0, 1] * (len(frames) + 1)

    run(scenario())


def test_answers_use_the_serialization_of_the_request(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site, connected(site.port) as client:
            for serialization in (JSON, BINARY, JSON):
                client.ask(Command(10, serialization=serialization))
                assert (await client.answer()).serialization == serialization

    run(scenario())


class Recorder:
    """Stands before a real transport and notes how often it is written to."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.writes = 0

    def write(self, data: bytes) -> None:
        self.writes += 1
        self.transport.write(data)

    def writelines(self, parts: Parts) -> None:
        self.writes += 1
        self.transport.writelines(parts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)


def test_all_answers_of_one_read_leave_in_one_write(run: Run) -> None:
    async def scenario() -> None:
        patient = Limits(handling_s=PATIENCE_S)  # on a busy machine a turn would end in between
        async with serving(limits=patient) as site, connected(site.port) as client:
            client.ask(Command(10))
            await client.answer()
            connection = site.connection()
            recorder = Recorder(connection._transport)
            connection._transport = recorder  # type: ignore[assignment] # records, then delegates
            client.write(b"".join(encode_command(Command(10, opaque=n)) for n in range(100)))
            for number in range(100):
                assert (await client.answer()).opaque == number
            assert recorder.writes == 1

    run(scenario())


def test_an_encoded_answer_in_pieces_is_sent_as_it_is(run: Run) -> None:
    async def scenario() -> None:
        def handle(request: Command, connection: Connection) -> Result:
            frame = encode_command(reply_to(request, body=b"0123456789" * 20_000))
            return [frame[:100], memoryview(frame)[100:]]

        async with serving(handle) as site, connected(site.port) as client:
            client.ask(Command(10, opaque=5))
            answer = await client.answer()
            assert answer.opaque == 5
            assert answer.body == b"0123456789" * 20_000

    run(scenario())


def test_a_handler_that_gives_nothing_sends_nothing(run: Run) -> None:
    async def scenario() -> None:
        def handle(request: Command, connection: Connection) -> Result:
            return reply_to(request) if request.opaque == 2 else None

        async with serving(handle) as site, connected(site.port) as client:
            client.ask(Command(10, opaque=1))
            client.ask(Command(10, opaque=2))
            assert (await client.answer()).opaque == 2

    run(scenario())


def test_one_way_requests_are_handled_and_never_answered(run: Run) -> None:
    async def scenario() -> None:
        taken: list[int] = []

        def note(request: Command, connection: Connection) -> Result:
            taken.append(request.opaque)
            return reply_to(request)

        def fail(request: Command, connection: Connection) -> Result:
            raise RequestFailed(13, "no")

        handle = Dispatcher({10: note, 11: fail}, Registry())
        async with serving(handle) as site, connected(site.port) as client:
            client.ask(Command(10, opaque=1, flag=FLAG_ONEWAY))
            client.ask(Command(11, opaque=2, flag=FLAG_ONEWAY))
            client.ask(Command(999, opaque=3, flag=FLAG_ONEWAY))
            client.ask(Command(10, opaque=4))
            assert (await client.answer()).opaque == 4
            assert taken == [1, 4]

    run(scenario())


def test_the_server_asks_over_the_client_s_connection_while_requests_go_on(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site, connected(site.port) as client:
            client.ask(Command(10, opaque=1))
            await client.answer()
            calls = [
                asyncio.create_task(site.connection().call(Command(39, body=b"%d" % n), PATIENCE_S))
                for n in range(3)
            ]
            requests = [await client.answer() for _ in range(3)]
            assert [request.body for request in requests] == [b"0", b"1", b"2"]
            assert not any(request.is_response for request in requests)
            client.ask(Command(10, opaque=requests[0].opaque))  # the same number, our own space
            for request in reversed(requests):
                client.ask(reply_to(request, 7, body=request.body))
            answers = [await call for call in calls]
            assert [answer.body for answer in answers] == [b"0", b"1", b"2"]
            assert {answer.code for answer in answers} == {7}
            assert (await client.answer()).opaque == requests[0].opaque

    run(scenario())


def test_a_call_nobody_answers_times_out_with_an_unknown_outcome(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site, connected(site.port) as client:
            client.ask(Command(10))
            await client.answer()
            connection = site.connection()
            with pytest.raises(RequestTimeout) as caught:
                await connection.call(Command(39), 0.05)
            assert (caught.value.code, caught.value.peer) == (39, connection.peer)
            late = await client.answer()
            client.ask(reply_to(late))
            client.ask(Command(10, opaque=9))
            assert (await client.answer()).opaque == 9
            assert site.traffic.unasked.value == 1
            assert not connection.closed

    run(scenario())


def test_a_call_under_way_when_the_connection_ends_fails_as_closed(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site:
            async with connected(site.port) as client:
                client.ask(Command(10))
                await client.answer()
                connection = site.connection()
                call = asyncio.create_task(connection.call(Command(39), PATIENCE_S))
                await client.answer()
            with pytest.raises(ConnectionClosed, match="peer"):
                await call
            with pytest.raises(ConnectionClosed):
                await connection.call(Command(39), 1.0)

    run(scenario())


def test_calls_without_answers_are_bounded(run: Run) -> None:
    async def scenario() -> None:
        limits = Limits(calls_per_connection_max=2)
        async with serving(limits=limits) as site, connected(site.port) as client:
            client.ask(Command(10))
            await client.answer()
            connection = site.connection()
            calls = [asyncio.create_task(connection.call(Command(39), PATIENCE_S)) for _ in "ab"]
            requests = [await client.answer() for _ in calls]
            with pytest.raises(LimitExceeded, match="calls_per_connection_max"):
                await connection.call(Command(39), 1.0)
            for request in requests:
                client.ask(reply_to(request))
            await asyncio.gather(*calls)

    run(scenario())


def test_responses_nobody_asked_for_are_counted_and_ignored(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site, connected(site.port) as client:
            for number in range(50):
                client.ask(Command(0, opaque=number, flag=FLAG_RESPONSE))
            client.ask(Command(10, opaque=77))
            assert (await client.answer()).opaque == 77
            assert site.traffic.unasked.value == 50
            assert site.traffic.requests.total() == 1

    run(scenario())


def _raise(error: Exception) -> Result:
    raise error


@pytest.mark.parametrize(
    ("error", "code", "remark"),
    [
        (RequestFailed(17, "no such topic"), 17, "no such topic"),
        (RemoteProtocolError("header-field", "topic is missing"), 1, "topic is missing"),
        (StoreError("the disk is gone"), 14, "the disk is gone"),
        (ZeroDivisionError("by zero"), 1, "ZeroDivisionError: by zero"),
    ],
)
def test_what_a_handler_raises_becomes_an_answer_and_the_connection_stays(
    run: Run, error: Exception, code: int, remark: str
) -> None:
    async def scenario() -> None:
        registry = Registry()
        dispatcher = Dispatcher({10: lambda request, connection: _raise(error)}, registry)
        for handle in (dispatcher, lambda request, connection: _raise(error)):
            async with serving(handle) as site, connected(site.port) as client:
                for number in range(2):
                    client.ask(Command(10, opaque=number))
                    answer = await client.answer()
                    assert (answer.opaque, answer.code) == (number, code)
                    assert answer.remark == remark
                assert site.traffic.failures.value(code) == 2

    run(scenario())


def test_unforeseen_failures_are_counted_and_logged_ever_less_often(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        registry = Registry()
        handle = Dispatcher({10: lambda request, connection: _raise(KeyError("x"))}, registry)
        async with serving(handle) as site, connected(site.port) as client:
            for _ in range(100):
                client.ask(Command(10))
            for _ in range(100):
                await client.answer()
        text = registry.render()
        assert 'orbitmq_handler_errors_total{code="10"} 100' in text

    run(scenario())
    records = [record for record in caplog.records if record.name == "orbitmq.net.dispatch"]
    assert len(records) == 7  # the 1st, 2nd, 4th, ... 64th
    assert all(record.exc_info for record in records)
    assert records[0].getMessage().startswith("request 10 SEND_MESSAGE failed unforeseen")


def test_an_unknown_code_is_answered_with_3_and_the_original_s_words(run: Run) -> None:
    async def scenario() -> None:
        handle = Dispatcher({}, Registry())
        async with serving(handle) as site, connected(site.port) as client:
            client.ask(Command(4711))
            answer = await client.answer()
            assert (answer.code, answer.remark) == (3, " request type 4711 not supported")
            assert site.traffic.requests.value("unknown") == 1

    run(scenario())


def test_an_answer_that_does_not_fit_a_frame_becomes_an_error_answer(run: Run) -> None:
    async def scenario() -> None:
        def handle(request: Command, connection: Connection) -> Result:
            return reply_to(request, body=bytes(17_000_000))

        async with serving(handle) as site, connected(site.port) as client:
            client.ask(Command(10))
            answer = await client.answer()
            assert answer.code == 1
            assert "frame of 17000" in (answer.remark or "")

    run(scenario())


def test_valid_requests_before_a_broken_frame_are_answered_then_it_is_closed(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site, connected(site.port) as client:
            client.write(encode_command(Command(10, opaque=3)) + b"\xff\xff\xff\xff")
            assert (await client.answer()).opaque == 3
            assert await client.ended() == b""
            assert site.closes("frame-length") == 1
            assert site.traffic.protocol_errors.value("frame-length") == 1

    run(scenario())


def test_answers_are_written_to_a_peer_that_has_ended_its_own_side(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site, connected(site.port) as client:
            client.ask(Command(10, opaque=6, body=b"last"))
            client.writer.write_eof()
            assert (await client.answer()).body == b"last"
            assert await client.ended() == b""
            assert site.closes("peer") == 1

    run(scenario())


def test_read_frames_gets_every_read_and_leaves_unknown_frames_in_order(run: Run) -> None:
    async def scenario() -> None:
        handled: list[tuple[str, int]] = []

        def read_frames(
            connection: Connection, data: bytes, position: int
        ) -> tuple[int, Frame | None]:
            """Handles requests whose body is `hot`."""
            while (frame := cut_frame(data, position)) is not None:
                position += 8 + len(frame.header) + len(frame.body)
                if frame.body != b"hot":
                    return position, frame
                handled.append(("hot", len(handled)))
                connection.send(encode_command(Command(0, flag=FLAG_RESPONSE, body=b"hot")))
            return position, None

        def handle(request: Command, connection: Connection) -> Result:
            handled.append(("cold", len(handled)))
            return reply_to(request, body=request.body)

        async with serving(handle, read_frames=read_frames) as site, connected(site.port) as client:
            order = [b"hot", b"hot", b"cold", b"hot", b"cold", b"cold", b"hot"] * 20
            client.write(b"".join(encode_command(Command(10, body=body)) for body in order))
            assert [(await client.answer()).body for _ in order] == order
            assert [kind for kind, _ in handled] == [body.decode() for body in order]

    run(scenario())


def test_a_bug_while_reading_frames_closes_the_connection_and_is_logged(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        def read_frames(
            connection: Connection, data: bytes, position: int
        ) -> tuple[int, Frame | None]:
            raise IndexError(position)

        async with serving(read_frames=read_frames) as site, connected(site.port) as client:
            client.ask(Command(10))
            await client.ended()
            assert site.closes("internal-error") == 1

    run(scenario())
    assert "handling input of" in caplog.text


def test_on_close_is_called_once_each_even_if_one_of_them_fails(run: Run) -> None:
    async def scenario() -> None:
        ended: list[Connection] = []

        def fail(connection: Connection) -> None:
            raise ValueError

        def handle(request: Command, connection: Connection) -> Result:
            connection.on_close += [fail, ended.append]
            return reply_to(request)

        async with serving(handle) as site, connected(site.port) as client:
            client.ask(Command(10))
            await client.answer()
            connection = site.connection()
            connection.close("first")
            connection.close("second")
            assert ended == [connection]
            await client.ended()
            assert (connection.closed, connection.close_reason) == (True, "first")
            assert (site.closes("first"), site.closes("second")) == (1, 0)
        assert ended == [connection]

    run(scenario())


def test_addresses_and_counters_tell_who_is_connected(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site, connected(site.port) as client:
            own_port = client.writer.get_extra_info("sockname")[1]
            client.ask(Command(10, body=bytes(1000)))
            await client.answer()
            connection = site.connection()
            assert connection.peer == f"127.0.0.1:{own_port}"
            assert connection.peer_address == ("127.0.0.1", own_port)
            assert connection.local_address == ("127.0.0.1", site.port)
            text = site.registry.render()
            assert 'orbitmq_net_connections{server="test"} 1' in text
            assert 'orbitmq_net_opens_total{server="test"} 1' in text
            assert 'orbitmq_net_frames_total{server="test"} 1' in text
            assert 'orbitmq_net_requests_total{server="test",code="10"} 1' in text
            assert site.traffic.received.value > 1000
            assert site.traffic.sent.value > 1000

    run(scenario())


def test_requests_leave_no_reference_cycles_behind(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site, connected(site.port) as client:
            frames = b"".join(encode_command(Command(10, opaque=n)) for n in range(1000))
            client.write(frames)
            for _ in range(1000):
                await client.answer()
            gc.collect()
            gc.disable()
            try:
                client.write(frames)
                answers = await client.reader.readexactly(
                    sum(len(encode_command(Command(0, n, FLAG_RESPONSE))) for n in range(1000))
                )
                assert answers
                assert gc.collect() < 100  # a cycle per request would be a thousand
            finally:
                gc.enable()

    run(scenario())
