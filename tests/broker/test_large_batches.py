"""Batches of many messages: what they cost, and what becomes of their long answers."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from orbitmq.broker.answers import send_turned
from orbitmq.broker.handlers.send import send_message
from orbitmq.config import BrokerSettings
from orbitmq.core import BATCH_COUNT_MAX
from orbitmq.errors import StoreError
from orbitmq.net.connection import Connection, Parts
from orbitmq.net.turn import Turn
from orbitmq.wire.batch import BatchMessage, encode_batch
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import HEADER_SIZE_MAX, Command, encode_command
from orbitmq.wire.frame import FRAME_SIZE_MAX
from orbitmq.world.net import run
from tests.behaviour.requests import send_request
from tests.broker.running import Running, begin
from tests.broker.slow_disk import SlowDisk
from tests.broker.test_send_checks import context_of
from tests.broker.test_sync_flush import with_broker as with_slow_disk
from tests.net.running import Client, connected, until
from tests.store.refusing import RefusingFiles

SETTINGS = BrokerSettings(listen_port=0, mapped_file_size_commit_log=1 << 24)
LONG_COUNT = 8_500
"""The ids of so many messages make a header longer than any peer may send."""


def batch(count: int) -> Command:
    """Return a batch of small messages."""
    return send_request("B", encode_batch([BatchMessage(b"a")] * count), m="true")


def with_broker(folder: Path, act: Callable[[Running, RefusingFiles], Awaitable[None]]) -> None:
    """Run a broker whose disk may refuse."""

    async def inner() -> None:
        files = RefusingFiles()
        at = await begin(folder, Turn(asyncio.get_running_loop()), SETTINGS, files)
        try:
            await act(at, files)
        finally:
            files.room[0] = 1 << 40
            await at.stop()

    run(inner())


def port_of(at: Running) -> int:
    """The broker's port."""
    return int(at.broker.address.rpartition(":")[2])


async def served(at: Running, client: Client) -> Connection:
    """Have a client known to the broker; return the broker's side of its connection."""
    client.ask(send_request("B"))
    assert (await client.answer()).code == 0
    own_port = client.writer.get_extra_info("sockname")[1]
    (found,) = (one for one in context_of(at).hot._origins if one.peer_address[1] == own_port)
    return found


def test_our_own_peer_reads_the_answer_to_a_large_batch(tmp_path: Path) -> None:
    """Symptom: our Peer closed the connection on the answer to its own batch (header-oversize)."""

    async def act(at: Running, _files: RefusingFiles) -> None:
        answer = await at.call(batch(LONG_COUNT))
        assert answer.code == 0
        assert len(answer.fields["msgId"]) > HEADER_SIZE_MAX
        assert answer.fields["msgId"].count(",") == LONG_COUNT - 1

    with_broker(tmp_path, act)


def test_nobody_may_send_us_a_request_with_so_long_a_header(tmp_path: Path) -> None:
    async def act(at: Running, _files: RefusingFiles) -> None:
        async with connected(port_of(at)) as client:
            client.ask(Command(31, fields={"long": "x" * HEADER_SIZE_MAX}))
            assert await client.ended() == b""

    with_broker(tmp_path, act)


def test_a_refused_batch_of_many_holds_up_no_other_answer_and_no_delivery(tmp_path: Path) -> None:
    """Symptom: with a batch of 8,500 in a turn that the disk refused, no other sender of the turn
    was answered, and delayed messages were counted as delivered and lost."""

    async def act(at: Running, files: RefusingFiles) -> None:
        context, told = context_of(at), list[StoreError | None]()
        async with connected(port_of(at)) as first, connected(port_of(at)) as second:
            ours = [await served(at, client) for client in (first, second)]
            files.room[0] = 0
            send_message(context, batch(LONG_COUNT), ours[0])
            send_message(context, send_request("B", b"other"), ours[1])
            context.writer.after_write(told.append)  # as the delivery of delayed messages does
            answers = [await client.answer() for client in (first, second)]
        assert [answer.code for answer in answers] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 2
        assert all("no space left" in (answer.remark or "") for answer in answers)
        assert [str(error) for error in told] == ["no space left"]

    with_broker(tmp_path, act)


def test_a_batch_of_many_is_answered_when_the_disk_is_too_slow_and_so_are_others(
    tmp_path: Path,
) -> None:
    """Symptom: the time-out of a batch of 8,500 failed, and no later sender had a time-out."""

    async def use(at: Running, files: SlowDisk) -> None:
        await at.call(send_request("B"))
        files.gate.clear()
        first = asyncio.create_task(at.call(batch(LONG_COUNT)))
        await until(lambda: context_of(at).core.tail.visible.waiter_count)
        answers = [await first, await at.call(send_request("B", b"later"))]
        assert [answer.code for answer in answers] == [ResponseCode.FLUSH_DISK_TIMEOUT] * 2
        assert answers[0].fields["msgId"].count(",") == LONG_COUNT - 1

    changes = {"flush_disk_type": "SYNC_FLUSH", "sync_flush_timeout": 200}
    with_slow_disk(tmp_path, use, msgspec.structs.replace(SETTINGS, **changes))


def test_answers_that_cannot_be_turned_close_their_own_connection_only(tmp_path: Path) -> None:
    def fails(_answers: Parts) -> Parts:
        raise ValueError("not an answer")

    async def act(at: Running, _files: RefusingFiles) -> None:
        async with connected(port_of(at)) as first, connected(port_of(at)) as second:
            ours = [await served(at, client) for client in (first, second)]
            send_turned(ours[0], [b"anything"], fails)
            assert await first.ended() == b""
            assert not ours[1].closed

    with_broker(tmp_path, act)


@pytest.mark.parametrize(
    ("count", "body_size", "cause"),
    [
        (BATCH_COUNT_MAX + 1, 0, f"more than {BATCH_COUNT_MAX} messages"),
        (190_000, 0, f"more than {BATCH_COUNT_MAX} messages"),
        (BATCH_COUNT_MAX - 1, 200, "maxMessageSize"),
        (BATCH_COUNT_MAX - 1, 1_000, "maxMessageSize"),
    ],
)
def test_a_batch_that_is_too_large_is_refused(
    tmp_path: Path, count: int, body_size: int, cause: str
) -> None:
    async def act(at: Running, _files: RefusingFiles) -> None:
        request = send_request(
            "B", encode_batch([BatchMessage(bytes(body_size))] * count), m="true"
        )
        assert len(encode_command(request)) < FRAME_SIZE_MAX
        answer = await at.call(request)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert cause in (answer.remark or "")

    with_broker(tmp_path, act)


def test_of_a_batch_with_too_many_messages_the_rest_is_not_read(tmp_path: Path) -> None:
    """Symptom: a batch of 700,000 empty messages stopped the broker for ten seconds, and was then
    refused. What lies behind those that are read is torn, and nobody notices."""

    async def act(at: Running, _files: RefusingFiles) -> None:
        body = encode_batch([BatchMessage(b"")] * 2 * BATCH_COUNT_MAX) + b"torn"
        answer = await at.call(send_request("B", body, m="true"))
        assert f"more than {BATCH_COUNT_MAX} messages" in (answer.remark or "")

    with_broker(tmp_path, act)


def test_one_message_in_a_batch_may_be_as_large_as_without(tmp_path: Path) -> None:
    async def act(at: Running, _files: RefusingFiles) -> None:
        limit = context_of(at).core.body_size_max
        for size, code in ((limit, 0), (limit + 1, 13)):
            body = encode_batch([BatchMessage(bytes(size), b"A\x01b")])
            assert (await at.call(send_request("B", body, m="true"))).code == code

    with_broker(tmp_path, act)


def test_who_waits_for_a_write_is_told_also_when_it_fails_in_an_unforeseen_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise ValueError("a bug")

    async def act(at: Running, _files: RefusingFiles) -> None:
        context, told = context_of(at), list[StoreError | None]()

        def raises(_error: StoreError | None) -> None:
            raise ValueError("another bug, of one that waits")

        with monkeypatch.context() as patched:
            patched.setattr(context.store, "write_staged", fails)
            context.writer.after_write(raises)
            context.writer.after_write(told.append)
            await until(lambda: told)
        assert "a bug" in str(told[0])
        assert (await at.call(send_request("B"))).code == 0

    with_broker(tmp_path, act)
