"""What may be seen and what may be said is decided once: by the marks that the store requires.

A third mark stands for another copy of the log. Whoever compared settings by itself would answer,
or show, before that mark has come.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from orbitmq.config import BrokerSettings
from orbitmq.errors import StoreError
from orbitmq.net.turn import Turn
from orbitmq.watermark import Watermark
from orbitmq.wire.batch import BatchMessage, encode_batch
from orbitmq.wire.command import Command
from orbitmq.wire.record import scan_records
from orbitmq.world.files import SystemFiles
from orbitmq.world.net import run
from tests.behaviour.requests import pull_request, send_request
from tests.broker.running import Running, begin

SETTINGS = BrokerSettings(listen_port=0, mapped_file_size_commit_log=1 << 20)
SHORT_S = 0.05

Use = Callable[[Running, Watermark], Awaitable[None]]


def with_copy(folder: Path, use: Use, settings: BrokerSettings = SETTINGS) -> None:
    """Run a broker whose store requires a mark of the test's, too."""

    async def inner() -> None:
        at = await begin(folder, Turn(asyncio.get_running_loop()), settings, SystemFiles())
        context = at.broker._context
        assert (await at.call(send_request("T", b"before"))).code == 0
        copied = Watermark(context.core.tail.written_offset)
        context.store.require(copied)
        try:
            await use(at, copied)
        finally:
            await at.stop()

    run(inner())


def advance(at: Running, copied: Watermark) -> None:
    """Say that the copy has all that is written."""
    context = at.broker._context
    copied.advance(context.core.tail.written_offset)
    context.writer.note_mark_moved()


async def is_silent(*asked: "asyncio.Task[Command]") -> bool:
    """Whether none is answered for a while."""
    answered, _ = await asyncio.wait(asked, timeout=SHORT_S)
    return not answered


def waiting_pull(offset: int) -> Command:
    """A pull that is held until there is something."""
    return pull_request("T", "G", offset, sysFlag=6, suspendTimeoutMillis=10_000)


async def bodies(at: Running, offset: int) -> list[bytes]:
    """What a pull that does not wait sees."""
    answer = await at.call(pull_request("T", "G", offset))
    return [record.body for record in scan_records(answer.body)]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_every_way_of_a_message_waits_for_the_mark(tmp_path: Path, flush: str) -> None:
    async def use(at: Running, copied: Watermark) -> None:
        batch = encode_batch([BatchMessage(b"in a batch")])
        sends = (
            send_request("T", b"hot"),
            send_request("T", batch, m="true"),
            send_request("Made", b"with its topic"),
        )
        asked = [asyncio.create_task(at.call(request)) for request in sends]
        assert await is_silent(*asked), "nothing is acknowledged before the copy has it"
        assert await bodies(at, 0) == [b"before"], "nor seen"
        held = asyncio.create_task(at.call(waiting_pull(1)))
        assert await is_silent(*asked, held)
        advance(at, copied)
        assert [(await answer).code for answer in asked] == [0, 0, 0]
        seen = [record.body for record in scan_records((await held).body)]
        assert seen[:1] == [b"hot"], "held pulls are woken by the mark, too"
        assert await bodies(at, 1) == [b"hot", b"in a batch"]

    with_copy(tmp_path, use, msgspec.structs.replace(SETTINGS, flush_disk_type=flush))


def test_who_does_not_wait_is_answered_and_not_seen(tmp_path: Path) -> None:
    async def use(at: Running, copied: Watermark) -> None:
        answer = await at.call(send_request("T", b"quick", i="WAIT\x01false"))
        assert answer.code == 0
        assert await bodies(at, 0) == [b"before"]
        held = asyncio.create_task(at.call(waiting_pull(1)))
        advance(at, copied)
        assert [record.body for record in scan_records((await held).body)] == [b"quick"]

    settings = msgspec.structs.replace(SETTINGS, flush_disk_type="SYNC_FLUSH")
    with_copy(tmp_path, use, settings)


def test_a_mark_that_does_not_come_in_time_is_a_time_out(tmp_path: Path) -> None:
    async def use(at: Running, _copied: Watermark) -> None:
        assert (await at.call(send_request("T", b"late"))).code == 10

    with_copy(tmp_path, use, msgspec.structs.replace(SETTINGS, sync_flush_timeout=100))


def test_a_failure_answers_all_who_wait_and_all_who_come(tmp_path: Path) -> None:
    async def use(at: Running, _copied: Watermark) -> None:
        context = at.broker._context
        waiting = asyncio.create_task(at.call(send_request("T", b"waits")))
        assert await is_silent(waiting)
        context.core.tail.visible.fail(StoreError("the copy is gone"))
        context.writer.note_mark_moved()
        late = await at.call(send_request("T", b"comes"))
        answers = [await waiting, late]
        assert [answer.code for answer in answers] == [1, 1]
        assert all("the copy is gone" in (answer.remark or "") for answer in answers)

    with_copy(tmp_path, use)


def test_too_many_who_wait_are_answered_at_once(tmp_path: Path) -> None:
    async def use(at: Running, _copied: Watermark) -> None:
        visible = at.broker._context.core.tail.visible
        visible._waiters_max = 1
        first = asyncio.create_task(at.call(send_request("T", b"waits")))
        assert await is_silent(first)
        assert (await at.call(send_request("T", b"too many"))).code == 10
        assert visible.refused_count == 1
        assert not first.done()

    with_copy(tmp_path, use)


def test_what_the_settings_require_is_compared_in_one_place() -> None:
    """Handlers, writers and readers ask the store; see `Store.require`."""
    source = Path(__file__).parents[2] / "src" / "orbitmq"
    deciding = {
        path.relative_to(source).as_posix()
        for part in ("broker", "store", "core", "net")
        for path in (source / part).rglob("*.py")
        if "flush_disk_type" in path.read_text() or "SYNC_FLUSH" in path.read_text()
    }
    assert deciding == {"broker/store_options.py"}
