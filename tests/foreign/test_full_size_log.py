"""A log file of full size, one GiB, fills up and the log goes on in the next.

Everything else here works with small files; this one proves the sizes that are in use. Messages of
4 MiB, the largest there are, fill a file with 255 of them; the 256th does not fit any more. Then
the original broker opens the folder with its default sizes. It needs 2 GiB of disk for a moment.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.wire.record import BLANK_MAGIC, Record, decode_record
from tests.behaviour.requests import pull_request, send_request
from tests.foreign.asking import await_claim
from tests.foreign.contents import MAX_OFFSET
from tests.foreign.judged import namesrv_under_test
from tests.foreign.stores import DataFolder, Opened, check_store, original_on, ours_on
from tests.wire_client import WireClient

pytestmark = [pytest.mark.nightly("exchange"), pytest.mark.foreign, pytest.mark.slow]

FILE_SIZE = 1 << 30
BODY_SIZE = 4 << 20
FITTING = 255
COUNT = 258
TOPIC = "Big"
SIZES = {
    "mappedFileSizeCommitLog": str(FILE_SIZE),
    "mappedFileSizeConsumeQueue": "6000000",
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
}
SEND_LIMIT_S = 30


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[DataFolder]:
    yield DataFolder(tmp_path / "data", SIZES)
    shutil.rmtree(tmp_path / "data")


def body_of(number: int) -> bytes:
    return (number % 251).to_bytes() * BODY_SIZE


def send_big(client: WireClient, number: int) -> None:
    """Send one message; while the disk cannot keep up it is refused, and sent again."""
    request = send_request(TOPIC, body_of(number), i=f"KEYS\x01big-{number}\x02")
    await_claim(lambda: client.call(request).code == 0, f"message {number} is taken", SEND_LIMIT_S)


def pull_one(client: WireClient, queue_offset: int) -> Record:
    answer = client.call(pull_request(TOPIC, "Big_Group", queue_offset))
    assert answer.code == 0, answer.remark
    record, size = decode_record(answer.body)
    assert size == len(answer.body)
    return record


def assert_serves_across_the_roll(opened: Opened, count: int) -> None:
    """The queue has so many messages; those around the end of the file are whole."""
    with WireClient(opened.broker) as client:
        end = client.ask(MAX_OFFSET, topic=TOPIC, queueId=0).fields["offset"]
        assert int(end) == count
        for number in (0, *range(FITTING - 2, count)):
            record = pull_one(client, number)
            assert record.body == body_of(number), number
            assert record.log_offset // FILE_SIZE == (number >= FITTING)
        assert pull_one(client, FITTING).log_offset == FILE_SIZE


def assert_ends_with_a_blank_record(path: Path) -> None:
    """Behind the last record lies a blank one that says how much is left, then nothing."""
    with path.open("rb") as file:
        start = 0
        for _ in range(FITTING):
            file.seek(start)
            start += int.from_bytes(file.read(4))
        file.seek(start)
        left = FILE_SIZE - start
        assert struct.unpack(">iI", file.read(8)) == (left, BLANK_MAGIC)
        assert not file.read().strip(b"\0")


def test_log_goes_on_in_a_second_file_of_full_size_and_the_original_opens_both(
    folder: DataFolder, tmp_path: Path
) -> None:
    first, second = (folder.store / "commitlog" / f"{n * FILE_SIZE:020d}" for n in range(2))
    with ours_on(folder) as ours, WireClient(ours.broker) as client:
        for number in range(FITTING - 20):
            send_big(client, number)
        await_claim(second.exists, "the second file is made ahead", SEND_LIMIT_S)
        facts = second.stat()
        assert facts.st_size == FILE_SIZE
        assert facts.st_blocks * 512 >= FILE_SIZE, "with its space"
        for number in range(FITTING - 20, COUNT):
            send_big(client, number)
        assert_serves_across_the_roll(ours, COUNT)
    assert_ends_with_a_blank_record(first)
    with ours_on(folder) as ours:
        assert_serves_across_the_roll(ours, COUNT)
    with (
        namesrv_under_test(tmp_path / "namesrv") as namesrv,
        original_on("4.9.7", folder, namesrv) as original,
    ):
        assert_serves_across_the_roll(original, COUNT)
        with WireClient(original.broker) as client:
            send_big(client, COUNT)
            await_claim(
                lambda: (
                    client.ask(MAX_OFFSET, topic=TOPIC, queueId=0).fields["offset"]
                    == str(COUNT + 1)
                ),
                "the original shows its message",
                SEND_LIMIT_S,
            )
    with ours_on(folder) as ours:
        assert_serves_across_the_roll(ours, COUNT + 1)
    assert f"{COUNT + 1} records" in check_store(folder)
