"""How a pull is answered: one code for each way a look into a queue can end, and for a bad disk."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from orbitmq.broker import assembling, store_options
from orbitmq.broker.pulls import Pull, Suggestion, found_parts, pull_code
from orbitmq.config import BrokerSettings
from orbitmq.core import Gathered, PullStatus, Queue
from orbitmq.errors import ReadFailed
from orbitmq.net.turn import Turn
from orbitmq.wire.command import Command, decode_command
from orbitmq.wire.frame import FrameDecoder
from orbitmq.wire.host import Host
from orbitmq.wire.record import Record, encode_record, scan_records
from orbitmq.world.files import AnyPath, SystemFiles
from orbitmq.world.machine import memory_bytes
from orbitmq.world.net import run
from tests.behaviour.requests import pull_request, send_request
from tests.broker.running import begin

SETTINGS = BrokerSettings(listen_port=0, mapped_file_size_commit_log=131_072)
CODES = {
    PullStatus.FOUND: 0,
    PullStatus.NO_MESSAGE_IN_QUEUE: 19,
    PullStatus.OFFSET_FOUND_NULL: 19,
    PullStatus.OFFSET_OVERFLOW_ONE: 19,
    PullStatus.NO_MATCHED_MESSAGE: 20,
    PullStatus.MESSAGE_WAS_REMOVING: 20,
    PullStatus.OFFSET_OVERFLOW_BADLY: 21,
    PullStatus.OFFSET_TOO_SMALL: 21,
}


def pull_of(tmp_path: Path, queue_offset: int) -> Pull:
    queue = Queue("T", 0, 9)
    return Pull(
        request=Command(11, opaque=5),
        queue=queue,
        queue_offset=queue_offset,
        count_max=32,
        codes=None,
    )


@pytest.mark.parametrize("status", CODES)
def test_every_status_of_a_look_up_has_its_code_and_is_the_remark(
    tmp_path: Path, status: PullStatus
) -> None:
    assert set(PullStatus) - set(CODES) == {PullStatus.COLD}, "which is read from the files instead"
    (frame,) = FrameDecoder().feed(
        b"".join(found_parts(pull_of(tmp_path, 0), Gathered(status, 7, [], 0)))
    )
    answer = decode_command(frame)
    assert (answer.code, answer.remark) == (CODES[status], status.value)
    assert answer.fields["nextBeginOffset"] == "7"


def test_an_empty_queue_moves_whoever_asks_beyond_its_start(tmp_path: Path) -> None:
    found = Gathered(PullStatus.NO_MESSAGE_IN_QUEUE, 0, [], 0)
    assert [pull_code(pull_of(tmp_path, at), found) for at in (0, 3)] == [19, 21]


def record_at(log_offset: int) -> memoryview:
    host = Host("127.0.0.1", 1)
    record = Record(topic="T", body=b"x", log_offset=log_offset, born_host=host, store_host=host)
    return memoryview(encode_record(record))


@pytest.mark.parametrize(
    ("log_offset", "suggested"), [(999, "7"), (1_000, "4"), (5_000, "4"), (None, "4")]
)
def test_who_reads_records_far_behind_is_sent_to_the_groups_slave(
    tmp_path: Path, log_offset: int | None, suggested: str
) -> None:
    suggestion = Suggestion(usual_id=4, slow_id=7, slow_offset=1_000)
    pull = msgspec.structs.replace(pull_of(tmp_path, 0), suggestion=suggestion)
    parts = [] if log_offset is None else [record_at(9_000), record_at(log_offset)]
    status = PullStatus.FOUND if parts else PullStatus.OFFSET_OVERFLOW_ONE
    found = Gathered(status, 7, parts, sum(map(len, parts)), len(parts))
    (frame,) = FrameDecoder().feed(b"".join(found_parts(pull, found)))
    assert decode_command(frame).fields["suggestWhichBrokerId"] == suggested


@pytest.mark.parametrize(("ratio", "suggested"), [(1, "1"), (90, "0")])
def test_how_much_of_memory_counts_as_recent_is_what_was_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ratio: int, suggested: str
) -> None:
    """accessMessageInMemoryMaxRatio, with a machine of 100 kB: the last kB, or nearly all."""
    for module in (assembling, store_options):
        monkeypatch.setattr(module, "memory_bytes", lambda: 100_000)

    async def scenario() -> None:
        settings = msgspec.structs.replace(
            SETTINGS, slave_read_enable=True, access_message_in_memory_max_ratio=ratio
        )
        turn = Turn(asyncio.get_running_loop())
        running = await begin(tmp_path, turn, settings, SystemFiles())
        try:
            for _ in range(3):
                assert (await running.call(send_request("T", bytes(1_000)))).code == 0
            first = await running.call(pull_request("T", "G", 0, maxMsgNums=1))
            assert (first.code, first.fields["suggestWhichBrokerId"]) == (0, suggested)
        finally:
            await running.stop()

    run(scenario())
    assert store_options.store_options(SETTINGS).hot_bytes == 40_000
    changed = msgspec.structs.replace(SETTINGS, access_message_in_memory_max_ratio=ratio)
    assert store_options.store_options(changed).hot_bytes == ratio * 1_000


def test_a_record_is_far_behind_when_more_than_40_per_cent_of_memory_lies_after_it(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        settings = msgspec.structs.replace(SETTINGS, slave_read_enable=True)
        turn = Turn(asyncio.get_running_loop())
        running = await begin(tmp_path, turn, settings, SystemFiles())
        try:
            context = running.broker._context
            assert context.recent_bytes == memory_bytes() * 40 // 100
            sent = [await running.call(send_request("T", bytes(1_000))) for _ in range(3)]
            offsets = [int(answer.fields["msgId"][-16:], 16) for answer in sent]
            context.recent_bytes = context.core.tail.written_offset - offsets[1]
            behind = await running.call(pull_request("T", "G", 0, maxMsgNums=1))
            recent = await running.call(pull_request("T", "G", 1, maxMsgNums=1))
            suggested = [answer.fields["suggestWhichBrokerId"] for answer in (behind, recent)]
            assert suggested == ["1", "0"]
            context.settings = msgspec.structs.replace(settings, slave_read_enable=False)
            behind = await running.call(pull_request("T", "G", 0, maxMsgNums=1))
            assert behind.fields["suggestWhichBrokerId"] == "0"
        finally:
            await running.stop()

    run(scenario())


class UnreadableLog(SystemFiles):
    """Files whose log cannot be read while `is_broken`."""

    is_broken = False

    def read_at(self, path: AnyPath, position: int, size: int) -> bytes | None:
        if self.is_broken and "commitlog" in str(path):
            raise ReadFailed(f"cannot read {path}: Input/output error")
        return super().read_at(path, position, size)


def test_a_pull_that_the_disk_refuses_gets_code_1_and_the_reason(tmp_path: Path) -> None:
    async def scenario() -> None:
        files, turn = UnreadableLog(), Turn(asyncio.get_running_loop())
        first = await begin(tmp_path, turn, SETTINGS, files)
        assert (await first.call(send_request("T", b"kept"))).code == 0
        await first.stop()
        second = await begin(tmp_path, turn, SETTINGS, files)
        try:
            files.is_broken = True
            refused = await second.call(pull_request("T", "G", 0))
            assert refused.code == 1
            assert "Input/output error" in (refused.remark or "")
            assert not refused.body
            files.is_broken = False
            again = await second.call(pull_request("T", "G", 0))
            assert [record.body for record in scan_records(again.body)] == [b"kept"]
        finally:
            files.is_broken = False
            await second.stop()

    run(scenario())
