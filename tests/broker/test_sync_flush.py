"""Synchronous flush: an answer says "stored" only when the disk has the message."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from orbitmq.config import BrokerSettings
from orbitmq.net.turn import Turn
from orbitmq.wire.command import Command, encode_command
from orbitmq.wire.record import scan_records
from orbitmq.world.net import run
from tests.behaviour.requests import pull_request, send_request
from tests.broker.running import Running, begin
from tests.broker.slow_disk import SlowDisk
from tests.net.running import connected

SYNC = BrokerSettings(
    listen_port=0, mapped_file_size_commit_log=1 << 20, flush_disk_type="SYNC_FLUSH"
)
UNTIL_S = 10.0


def with_broker(
    folder: Path,
    use: Callable[[Running, SlowDisk], Awaitable[None]],
    settings: BrokerSettings = SYNC,
) -> None:
    """Run a broker on a slow disk; it is stopped whatever happens."""

    async def inner() -> None:
        files = SlowDisk()
        running = await begin(folder, Turn(asyncio.get_running_loop()), settings, files)
        try:
            await use(running, files)
        finally:
            files.gate.set()
            files.is_broken = False
            await running.stop()

    run(inner())


async def asked(files: SlowDisk) -> None:
    """Wait until a sync of the log has begun."""
    assert await asyncio.to_thread(files.asked.acquire, timeout=UNTIL_S)


def test_the_answer_comes_after_the_sync_and_the_message_is_not_seen_before(
    tmp_path: Path,
) -> None:
    async def use(running: Running, files: SlowDisk) -> None:
        files.gate.clear()
        send = asyncio.create_task(running.call(send_request("T", b"one")))
        await asked(files)
        pulled = await running.call(pull_request("T", "G", 0))
        assert not pulled.body, "what is not on the disk may not be seen"
        assert not send.done()
        synced = files.sync_count
        files.gate.set()
        assert (await send).code == 0
        assert files.sync_count > synced
        pulled = await running.call(pull_request("T", "G", 0))
        assert [record.body for record in scan_records(pulled.body)] == [b"one"]

    with_broker(tmp_path, use)


def test_one_sync_serves_all_who_came_while_the_last_one_ran(tmp_path: Path) -> None:
    async def use(running: Running, files: SlowDisk) -> None:
        await running.call(send_request("T", b"first"))
        files.gate.clear()
        first = asyncio.create_task(running.call(send_request("T", b"alone")))
        await asked(files)
        rest = [
            asyncio.create_task(running.call(send_request("T", b"%d" % number)))
            for number in range(100)
        ]
        await running.call(pull_request("T", "G", 0))  # the sends before it have arrived
        synced = files.sync_count
        files.gate.set()
        answers = await asyncio.gather(first, *rest)
        assert [answer.code for answer in answers] == [0] * 101
        assert files.sync_count <= synced + 3

    with_broker(tmp_path, use)


def test_a_disk_that_is_too_slow_is_answered_as_a_time_out_never_as_stored(tmp_path: Path) -> None:
    async def use(running: Running, files: SlowDisk) -> None:
        files.gate.clear()
        answer = await running.call(send_request("T", b"late"))
        assert answer.code == 10
        assert "syncFlushTimeout" in (answer.remark or "")
        assert answer.fields["queueOffset"] == "0", "the message has its place, as in the original"
        files.gate.set()
        again = await running.call(send_request("T", b"next"))
        assert (again.code, again.fields["queueOffset"]) == (0, "1")

    with_broker(tmp_path, use, msgspec.structs.replace(SYNC, sync_flush_timeout=500))


def test_a_message_that_does_not_wait_is_answered_at_once(tmp_path: Path) -> None:
    async def use(running: Running, files: SlowDisk) -> None:
        await running.call(send_request("T", b"first"))
        files.gate.clear()
        answer = await running.call(send_request("T", b"quick", i="WAIT\x01false"))
        assert answer.code == 0

    with_broker(tmp_path, use)


def test_a_message_that_is_given_back_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    async def use(running: Running, files: SlowDisk) -> None:
        sent = await running.call(send_request("T", b"again"))
        log_offset = int(sent.fields["msgId"][-16:], 16)
        files.gate.clear()
        answer = await running.ask(36, offset=log_offset, group="G", delayLevel=-1)
        assert answer.code == 0
        assert not files.gate.is_set()

    with_broker(tmp_path, use)


def refused(answer: Command) -> bool:
    return answer.code == 14 and "Input/output error" in (answer.remark or "")


def test_after_a_failed_sync_nothing_is_acknowledged_and_reading_goes_on(tmp_path: Path) -> None:
    async def use(running: Running, files: SlowDisk) -> None:
        assert (await running.call(send_request("T", b"kept"))).code == 0
        files.is_broken = True
        lost = await running.call(send_request("T", b"lost"))
        assert lost.code == 1
        assert "Input/output error" in (lost.remark or "")
        files.is_broken = False  # a second sync would succeed; nobody may believe it
        assert refused(await running.call(send_request("T", b"after")))
        pulled = await running.call(pull_request("T", "G", 0))
        assert [record.body for record in scan_records(pulled.body)] == [b"kept"]

    with_broker(tmp_path, use)


def test_a_failed_sync_stops_an_asynchronous_broker_too(tmp_path: Path) -> None:
    async def use(running: Running, files: SlowDisk) -> None:
        files.is_broken = True
        answer = await running.call(send_request("T", bytes(20_000)))
        async with asyncio.timeout(UNTIL_S):
            while not refused(answer):
                answer = await running.call(send_request("T", b"more"))

    settings: Any = {"flush_disk_type": "ASYNC_FLUSH", "flush_interval_commit_log": 10}
    with_broker(tmp_path, use, msgspec.structs.replace(SYNC, **settings))


def test_sends_are_refused_while_too_much_of_the_log_is_not_synced(tmp_path: Path) -> None:
    async def use(running: Running, files: SlowDisk) -> None:
        files.gate.clear()
        codes = []
        for _ in range(40):
            answer = await running.call(send_request("T", bytes(100_000)))
            codes.append(answer.code)
        assert codes[0] == 0
        assert codes[-1] == 2
        assert "unsyncedBytesMax" in (answer.remark or "")
        files.gate.set()
        async with asyncio.timeout(UNTIL_S):
            while (await running.call(send_request("T", b"again"))).code != 0:
                await asyncio.sleep(0.01)

    settings: Any = {"flush_disk_type": "ASYNC_FLUSH", "unsynced_bytes_max": 1 << 20}
    with_broker(tmp_path, use, msgspec.structs.replace(SYNC, **settings))


def test_a_pull_does_not_wait_for_the_sync_of_others_messages(tmp_path: Path) -> None:
    """Symptom: a pull that was read in the same turn as another connection's send had to wait for
    the disk."""

    async def use(running: Running, files: SlowDisk) -> None:
        port = int(running.broker.address.rpartition(":")[2])
        context = running.broker._context
        async with connected(port) as sender, connected(port) as puller:
            for client in (sender, puller):
                client.ask(send_request("T", b"old"))
                assert (await client.answer()).code == 0
            by_port = {one.peer_address[1]: one for one in context.hot._origins}
            ours = [
                by_port[client.writer.get_extra_info("sockname")[1]] for client in (sender, puller)
            ]
            puller.ask(pull_request("T", "G", 0))
            assert (await puller.answer()).code == 0, "the hot path knows the group now"
            files.gate.clear()
            # Two reads of one turn, as two connections bring them.
            context.hot.read_frames(ours[0], encode_command(send_request("T", b"new")), 0)
            context.hot.read_frames(ours[1], encode_command(pull_request("T", "G", 0)), 0)
            pulled = await asyncio.wait_for(puller.answer(), UNTIL_S)
            bodies = [record.body for record in scan_records(pulled.body)]
            assert bodies == [b"old", b"old"]
            files.gate.set()
            assert (await sender.answer()).code == 0

    with_broker(tmp_path, use)
