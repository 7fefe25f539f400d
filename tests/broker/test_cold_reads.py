"""Old messages: read in a bounded number, in turns, given up with who asked, never on the loop."""

import asyncio
import json
import socket
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from orbitmq.broker import cold_reads
from orbitmq.config import BrokerSettings
from orbitmq.errors import ReadFailed
from orbitmq.net.states import ConnectionState
from orbitmq.net.turn import Turn
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command, decode_command, encode_command
from orbitmq.wire.frame import cut_frame
from orbitmq.wire.record import scan_records
from orbitmq.world.files import SystemFiles
from orbitmq.world.net import run
from tests.behaviour.requests import pull_request, send_request
from tests.broker.running import LIMIT_S, Running, begin

SETTINGS = BrokerSettings(listen_port=0, mapped_file_size_commit_log=1 << 20)
AskedPath = Path | str


class GatedFiles(SystemFiles):
    """Files whose log cannot be read while the gate is shut, and whose queues not while broken."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.are_queues_broken = False
        self.places: list[int] = []
        """Where the log was read, in order."""

    @property
    def read_count(self) -> int:
        return len(self.places)

    def read_at(self, path: AskedPath, position: int, size: int) -> bytes | None:
        if "commitlog" in str(path):
            self.places.append(position)
            self.gate.wait(LIMIT_S)
        if self.are_queues_broken and "consumequeue" in str(path):
            raise ReadFailed(f"cannot read {path}: Input/output error")
        return super().read_at(path, position, size)


def view_requests(count: int, first: int = 0) -> bytes:
    asked = (
        Command(RequestCode.VIEW_MESSAGE_BY_ID, opaque=opaque, fields={"offset": "0"})
        for opaque in range(first, first + count)
    )
    return b"".join(map(encode_command, asked))


class Greedy:
    """A connection of its own that asks for much; it reads its answers only when it is told to."""

    def __init__(self, running: Running) -> None:
        self._address = running.broker.address

    async def __aenter__(self) -> "Greedy":
        host, port = self._address.split(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()

    def ask(self, *requests: bytes) -> None:
        self._writer.write(b"".join(requests))

    async def take_threads(self, reads: cold_reads.ColdReads) -> None:
        """Ask as often as there are threads; the gate is shut."""
        self.ask(view_requests(cold_reads.THREAD_COUNT))
        await until(lambda: reads.running_count == cold_reads.THREAD_COUNT)

    async def answers(self, count: int) -> list[Command]:
        async with asyncio.timeout(LIMIT_S):
            return [await self._answer() for _ in range(count)]

    async def _answer(self) -> Command:
        prefix = await self._reader.readexactly(4)
        frame = cut_frame(prefix + await self._reader.readexactly(int.from_bytes(prefix)), 0)
        assert frame is not None
        return decode_command(frame)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.005)


def with_broker(
    folder: Path,
    files: SystemFiles,
    *uses: Callable[[Running], Awaitable[None]],
    settings: BrokerSettings = SETTINGS,
) -> None:
    """Run one broker after the other on one folder."""

    async def inner() -> None:
        for use in uses:
            turn = Turn(asyncio.get_running_loop())
            running = await begin(folder, turn, settings, files)
            try:
                await use(running)
            finally:
                await running.stop()

    run(inner())


def test_reads_whose_connection_is_gone_wait_no_more(tmp_path: Path) -> None:
    """Symptom: each closed connection left its reads in line; a slow disk filled the memory."""
    files = GatedFiles()

    async def use(running: Running) -> None:
        reads = running.broker._context.cold_reads  # who waits is not on the wire
        assert (await running.call(send_request("T", b"x"))).code == 0
        files.gate.clear()
        try:
            for _ in range(3):
                host, port = running.broker.address.split(":")
                _, writer = await asyncio.open_connection(host, int(port))
                writer.write(view_requests(200))
                await until(lambda: reads.waiting_count >= 190)
                writer.transport.abort()
                await until(lambda: reads.waiting_count == 0)
        finally:
            files.gate.set()
        assert (await running.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=0)).code == 0
        reads_of_each = 2  # its size, then all of it
        assert files.read_count <= (cold_reads.THREAD_COUNT + 1) * reads_of_each

    with_broker(tmp_path, files, use)


def test_above_the_limit_a_read_is_refused_as_busy_and_the_others_are_answered(
    tmp_path: Path,
) -> None:
    files = GatedFiles()

    async def use(running: Running) -> None:
        assert (await running.call(send_request("T", b"x"))).code == 0
        reads = running.broker._context.cold_reads  # who waits is not on the wire
        files.gate.clear()
        asked: list[asyncio.Task[Command]] = []

        def ask(count: int) -> None:
            view = RequestCode.VIEW_MESSAGE_BY_ID
            asked.extend(asyncio.create_task(running.ask(view, offset=0)) for _ in range(count))

        try:
            ask(cold_reads.THREAD_COUNT)
            await until(lambda: reads.running_count == cold_reads.THREAD_COUNT)
            ask(cold_reads.WAITING_MAX)
            await until(lambda: reads.waiting_count == cold_reads.WAITING_MAX)
            refused = await running.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=0)
            assert refused.code == ResponseCode.SYSTEM_BUSY
            assert "wait for the disk already" in (refused.remark or "")
        finally:
            files.gate.set()
        assert {answer.code for answer in await asyncio.gather(*asked)} == {0}

    with_broker(tmp_path, files, use)


def test_a_connection_with_one_read_is_served_beside_one_that_has_more_than_the_limit(
    tmp_path: Path,
) -> None:
    """Symptom: one client asked for 1,024 old messages, and every other consumer was refused."""
    files = GatedFiles()
    too_many = 50

    async def use(running: Running) -> None:
        assert (await running.call(send_request("T", b"x"))).code == 0
        place = running.broker._store.tail.written_offset
        assert (await running.call(send_request("T", b"y"))).code == 0
        reads = running.broker._context.cold_reads  # who waits is not on the wire
        files.gate.clear()
        async with Greedy(running) as greedy:
            try:
                await greedy.take_threads(reads)
                count = cold_reads.THREAD_COUNT + cold_reads.WAITING_MAX
                waiting_count = cold_reads.WAITING_MAX + too_many
                greedy.ask(view_requests(waiting_count, cold_reads.THREAD_COUNT))
                refused = await greedy.answers(too_many)
                assert [answer.opaque for answer in refused] == [*range(count, count + too_many)]
                assert reads.waiting_count == cold_reads.WAITING_MAX
                modest = asyncio.create_task(
                    running.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=place)
                )
                refused += await greedy.answers(1)
                assert refused[-1].opaque == count - 1
                assert {answer.code for answer in refused} == {ResponseCode.SYSTEM_BUSY}
                assert "wait for the disk already" in (refused[-1].remark or "")
            finally:
                files.gate.set()
            assert (await modest).code == 0
            assert files.places.index(place) <= 4 * cold_reads.THREAD_COUNT
            assert {answer.code for answer in await greedy.answers(count - 1)} == {0}

    with_broker(tmp_path, files, use)


def test_a_message_given_back_that_had_to_make_room_is_refused_as_busy(tmp_path: Path) -> None:
    files = GatedFiles()

    async def use(running: Running) -> None:
        assert (await running.call(send_request("T", b"x"))).code == 0
        reads = running.broker._context.cold_reads  # who waits is not on the wire
        fields = {"offset": "0", "group": "G", "delayLevel": "0"}
        files.gate.clear()
        async with Greedy(running) as greedy:
            try:
                await greedy.take_threads(reads)
                greedy.ask(
                    view_requests(cold_reads.WAITING_MAX - 1),
                    encode_command(Command(36, opaque=5_000, fields=fields)),
                )
                await until(lambda: reads.waiting_count == cold_reads.WAITING_MAX)
                modest = asyncio.create_task(running.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=0))
                (refused,) = await greedy.answers(1)
                assert (refused.opaque, refused.code) == (5_000, ResponseCode.SYSTEM_BUSY)
            finally:
                files.gate.set()
            assert (await modest).code == 0

    with_broker(tmp_path, files, use)


def test_connections_that_ask_for_much_and_leave_at_once_leave_nothing_behind(
    tmp_path: Path,
) -> None:
    """Symptom: they were handled request by request, and read for, long after they had left."""
    files = GatedFiles()

    async def use(running: Running) -> None:
        assert (await running.call(send_request("T", b"x"))).code == 0
        reads = running.broker._context.cold_reads  # who waits is not on the wire
        host, port = running.broker.address.split(":")
        files.gate.clear()
        try:
            for _ in range(10):
                with socket.create_connection((host, int(port)), timeout=LIMIT_S) as hostile:
                    hostile.sendall(view_requests(200))
            modest = asyncio.create_task(running.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=0))
            traffic = running.broker._server._watch.traffic  # who left is not on the wire
            await until(lambda: traffic.closes.value("peer") == 10)
            assert reads.waiting_count <= 1
        finally:
            files.gate.set()
        assert (await modest).code == 0
        reads_of_each = 2  # its size, then all of it
        assert files.read_count <= (cold_reads.THREAD_COUNT + 1) * reads_of_each

    with_broker(tmp_path, files, use)


def test_for_a_connection_whose_peer_has_left_nothing_is_read(tmp_path: Path) -> None:
    files = GatedFiles()

    async def use(running: Running) -> None:
        assert (await running.call(send_request("T", b"x"))).code == 0
        others = set(running.broker._server.connections)
        async with Greedy(running) as greedy:
            greedy.ask(view_requests(1))
            await greedy.answers(1)
            count = files.read_count
            (connection,) = running.broker._server.connections - others
            connection.state = ConnectionState.PEER_LEFT  # as when it ends while it is not read
            fields = {"topic": "T", "queueId": "0"}
            ending = Command(RequestCode.GET_MAX_OFFSET, opaque=99, fields=fields)
            greedy.ask(view_requests(20), encode_command(ending))
            assert [answer.opaque for answer in await greedy.answers(1)] == [99]
            assert files.read_count == count
            assert not running.broker._context.cold_reads.running_count

    with_broker(tmp_path, files, use)


def test_for_a_connection_that_does_not_read_its_answers_nothing_more_is_read(
    tmp_path: Path,
) -> None:
    """Symptom: its answers were read up to 64 MiB, then it was cut off; others waited for that."""
    files = GatedFiles()
    count = 200

    async def use(running: Running) -> None:
        assert (await running.call(send_request("T", bytes(200_000)))).code == 0
        reads = running.broker._context.cold_reads  # who waits is not on the wire
        async with Greedy(running) as greedy:
            greedy.ask(view_requests(count))
            await until(lambda: reads.waiting_count > 0 and not reads.running_count)
            assert (await running.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=0)).code == 0
            assert reads.waiting_count > count / 2
            assert not reads.running_count
            answers = await greedy.answers(count)
            assert {answer.code for answer in answers} == {0}

    with_broker(tmp_path, files, use)


def test_a_read_has_the_threads_for_itself_until_it_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: four threads that read from the page cache held the loop up for 50 ms."""
    files = GatedFiles()
    monkeypatch.setattr(cold_reads, "SLOW_S", LIMIT_S)

    async def use(running: Running) -> None:
        assert (await running.call(send_request("T", b"x"))).code == 0
        reads = running.broker._context.cold_reads  # who runs is not on the wire
        files.gate.clear()
        async with Greedy(running) as greedy:
            try:
                greedy.ask(view_requests(20))
                await until(lambda: reads.waiting_count == 19)
                assert reads.running_count == 1
            finally:
                files.gate.set()
            assert {answer.code for answer in await greedy.answers(20)} == {0}
            monkeypatch.setattr(cold_reads, "SLOW_S", 0.001)
            files.gate.clear()
            try:
                await greedy.take_threads(reads)
            finally:
                files.gate.set()
            await greedy.answers(cold_reads.THREAD_COUNT)
            await until(lambda: not reads.running_count)

    with_broker(tmp_path, files, use)


def test_a_queue_file_that_cannot_be_read_is_an_answer_not_the_end_of_the_connection(
    tmp_path: Path,
) -> None:
    """Symptom: the error came up on the loop and the client's connection was closed."""
    files = GatedFiles()

    async def write(running: Running) -> None:
        assert (await running.call(send_request("T", b"x"))).code == 0

    async def read(running: Running) -> None:
        files.are_queues_broken = True
        failed = await running.call(pull_request("T", "G", 0))
        assert failed.code == ResponseCode.SYSTEM_ERROR
        assert "Input/output error" in (failed.remark or "")
        files.are_queues_broken = False
        found = await running.call(pull_request("T", "G", 0))
        assert [record.body for record in scan_records(found.body)] == [b"x"]

    with_broker(tmp_path, files, write, read)


def test_figures_show_how_long_the_disk_took(tmp_path: Path) -> None:
    """Symptom: the longest look was always 0 ms, whatever the disk did."""
    files = GatedFiles()

    async def write(running: Running) -> None:
        assert (await running.call(send_request("T", b"x"))).code == 0

    async def read(running: Running) -> None:
        files.gate.clear()
        count = files.read_count
        pull = asyncio.create_task(running.call(pull_request("T", "G", 0)))
        await until(lambda: files.read_count > count)
        threading.Timer(0.05, files.gate.set).start()  # a busy loop's clock may be behind
        assert (await pull).code == 0
        table = json.loads((await running.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body)["table"]
        assert 40 <= int(table["getMessageEntireTimeMax"]) < LIMIT_S * 1000
        took = running.broker._context.counts.latencies[0, "T", "G"]
        assert (took.messages, took.times) == (int(table["getMessageEntireTimeMax"]), 1)

    with_broker(tmp_path, files, write, read)


def test_recent_messages_are_not_limited_as_those_on_disk_though_their_entries_are_in_files(
    tmp_path: Path,
) -> None:
    async def use(running: Running) -> None:
        for number in range(40):
            assert (await running.call(send_request("T", b"%d" % number))).code == 0
        store = running.broker._store  # moves memory on as millions of messages would
        await until(lambda: store.unwritten_bytes == 0)
        queue = store.queue("T", 0)
        queue.base_offset = queue.flushed_offset
        queue.entries.clear()
        found = await running.call(pull_request("T", "G", 0))
        assert len(list(scan_records(found.body))) == 32

    settings = BrokerSettings(
        listen_port=0, mapped_file_size_commit_log=1 << 20, flush_interval_consume_queue=10
    )
    with_broker(tmp_path, SystemFiles(), use, settings=settings)


def test_whether_a_queue_is_young_is_looked_up_in_its_file_without_stopping_the_loop(
    tmp_path: Path,
) -> None:
    """Symptom: the first entry was read on the loop; when that failed the client was cut off."""
    files = GatedFiles()

    async def write(running: Running) -> None:
        for _ in range(4):
            assert (await running.call(send_request("T", bytes(1_000)))).code == 0

    async def ask(running: Running) -> None:
        context = running.broker._context  # a log of gigabytes would do the same
        log_size = context.core.tail.written_offset
        code = RequestCode.QUERY_CONSUMER_OFFSET
        fields: dict[str, str | int] = {"consumerGroup": "new", "topic": "T", "queueId": 0}
        context.store._log.first_offset = -1  # as if more had been there
        context.recent_bytes = log_size
        young = await running.ask(code, **fields)
        assert (young.code, young.fields) == (0, {"offset": "0"})
        context.recent_bytes = log_size - 1
        old = await running.ask(code, **fields)
        assert old.code == ResponseCode.QUERY_NOT_FOUND
        assert old.remark == "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
        files.are_queues_broken = True
        failed = await running.ask(code, **fields)
        assert failed.code == ResponseCode.SYSTEM_ERROR
        assert "Input/output error" in (failed.remark or "")
        files.are_queues_broken = False

    with_broker(tmp_path, files, write, ask)
