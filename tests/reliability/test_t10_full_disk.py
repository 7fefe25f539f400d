"""T10, full disk: a running broker on a small file system that fills and empties again.

Method: a broker process whose folder is on a tmpfs of some MiB. It is filled by messages, and by a
file of somebody else; tables cannot be saved then. Sends are refused with the disk's figures, reads
go on, nothing that was acknowledged is lost, and within 5 s of space returning sends are taken
again, without a restart. `make nightly-torture` does 100 cycles.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.record import scan_records
from tests.behaviour.requests import pull_request, send_request
from tests.must_run import small_disk
from tests.reliability.processes import BrokerProcess, broker_process, wait_until
from tests.wire_client import WireClient

CYCLES = 100 if os.environ.get("ORBITMQ_TORTURE") == "long" else 3
GROWTH_CYCLES = min(CYCLES, 8)
"""Each makes the disk a quarter larger: well below diskSpaceWarningLevelRatio, however full."""
DISK_MIB = 24
MIB = 1 << 20
LOG_FILE_BYTES = MIB
BODY_BYTES = 4_000
RESUME_S = 5.0
FIGURES = re.compile(r"\d+(\.\d+)?% full, \d+\.\d+ of \d+\.\d+ GiB free")
SMALL = [
    *("-D", f"mappedFileSizeCommitLog={LOG_FILE_BYTES}"),
    *("-D", "mappedFileSizeConsumeQueue=20000", "-D", "maxHashSlotNum=1000"),
    *("-D", "maxIndexNum=4000", "-D", "flushConsumerOffsetInterval=1000"),
    *("-D", "cleanResourceInterval=100", "-D", "flushConsumeQueueThoroughInterval=100"),
    *("-D", "flushIntervalConsumeQueue=10"),
]
NEVER_CLEANED = ["-D", "cleanFileForciblyEnable=false", "-D", "fileReservedTime=72"]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of its own, of 24 MiB."""
    with small_disk(tmp_path / "disk", DISK_MIB) as folder:
        yield folder


class Sender:
    """Sends messages one after the other and remembers what was acknowledged."""

    def __init__(self, client: WireClient) -> None:
        self.client = client
        self.acked: dict[int, int] = {}
        """Which message is at which queue offset."""
        self.refused: list[Command] = []
        self._number = 0

    def send(self) -> bool:
        """Send one; give whether it was taken."""
        self._number += 1
        answer = self.client.call(send_request("T", body_of(self._number)))
        if answer.code == 0:
            self.acked[int(answer.fields["queueOffset"])] = self._number
            return True
        self.refused.append(answer)
        return False

    def send_until_refused(self, count_max: int = 40_000) -> Command:
        for _ in range(count_max):
            if not self.send():
                return self.refused[-1]
        raise AssertionError("the disk never got full")

    def check_kept(self) -> None:
        """Read all of the queue that is still there: everything acknowledged, as it was sent.

        Old files go one by one, with pauses: meanwhile a reader is sent behind what is gone.
        """
        first = int(self.client.ask(31, topic="T", queueId=0).fields["offset"])
        offset, found = first, dict[int, int]()
        while True:
            answer = self.client.call(pull_request("T", "G", offset, maxMsgNums=1000))
            if answer.remark == "MESSAGE_WAS_REMOVING":
                found.clear()
                first = offset = int(answer.fields["nextBeginOffset"])
                continue
            if answer.code != 0:
                assert answer.code == ResponseCode.PULL_NOT_FOUND, answer.remark
                break
            for record in scan_records(answer.body):
                number = int(record.body[:8])
                assert record.body == body_of(number)
                found[record.queue_offset] = number
            offset = int(answer.fields["nextBeginOffset"])
        assert found == {at: number for at, number in self.acked.items() if at >= first}


def body_of(number: int) -> bytes:
    """Return a message by its number."""
    return b"%08d" % number + bytes(BODY_BYTES)


def is_refused_for_the_disk(answer: Command) -> bool:
    is_told = tells_figures(answer) or "No space left on device" in str(answer.remark)
    return answer.code == ResponseCode.SERVICE_NOT_AVAILABLE and is_told


def tells_figures(answer: Command) -> bool:
    return FIGURES.search(str(answer.remark)) is not None


def resumes(sender: Sender) -> float:
    """Wait until sends are taken again; return how long that took."""
    took_s = wait_until(sender.send, 2 * RESUME_S)
    assert took_s <= RESUME_S
    return took_s


def fill_with_a_file(folder: Path) -> Path:
    """Take all the room there is, as another program would."""
    path = folder / "somebody-else"
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(65_536))
    return path


@pytest.mark.nightly("torture", short=True)
@pytest.mark.timeout(60 + 12 * CYCLES)
def test_another_program_fills_the_disk_and_service_resumes_when_it_is_gone(disk: Path) -> None:
    slowest_s = 0.0
    with (
        broker_process(disk / "data", *SMALL, *NEVER_CLEANED) as broker,
        WireClient(broker.address) as client,
    ):
        sender = Sender(client)
        for _ in range(50):
            assert sender.send()
        for cycle in range(CYCLES):
            file = fill_with_a_file(disk)
            refused = sender.send_until_refused(2_000)
            assert is_refused_for_the_disk(refused), refused.remark
            wait_until(lambda: not sender.send() and tells_figures(sender.refused[-1]), 5)
            sender.check_kept()
            check_tables_wait(client, cycle)
            file.unlink()
            slowest_s = max(slowest_s, resumes(sender))
        sender.check_kept()
        check_unharmed(broker)
        refused_count, acked = len(sender.refused), len(sender.acked)
    assert_starts_again(disk, sender)
    print(
        f"T10 full disk: {CYCLES} cycles of another program's file, {acked} messages kept,"
        f" {refused_count} refused, resumed after {slowest_s:.2f} s at most"
    )


def check_tables_wait(client: WireClient, cycle: int) -> None:
    """A table that cannot be saved costs its request an error, and the broker nothing."""
    answer = client.ask(17, topic=f"Made{cycle}", readQueueNums=1, writeQueueNums=1, perm=6)
    assert answer.code != 0
    assert "No space left on device" in str(answer.remark), answer.remark
    offset = cycle + 1
    commit = client.ask(15, consumerGroup="G", topic="T", queueId=0, commitOffset=offset)
    assert commit.code == 0, "offsets are kept in memory until they can be saved"
    assert committed(client) == offset


def committed(client: WireClient) -> int:
    """Return the offset that the group has committed."""
    return int(client.ask(14, consumerGroup="G", topic="T", queueId=0).fields["offset"])


def check_unharmed(broker: BrokerProcess) -> None:
    assert broker.metric("orbitmq_handler_errors_total") == 0
    assert broker.odd_log_lines() == []


def assert_starts_again(disk: Path, sender: Sender) -> None:
    """After a stop and a start everything acknowledged is there, and the last commit."""
    with (
        broker_process(disk / "data", *SMALL, *NEVER_CLEANED) as broker,
        WireClient(broker.address) as client,
    ):
        sender.client = client
        sender.check_kept()
        assert committed(client) == CYCLES
        assert sender.send()


@pytest.mark.nightly("torture", short=True)
@pytest.mark.timeout(60 + 12 * CYCLES)
def test_messages_fill_the_disk_and_service_resumes_when_it_grows(disk: Path) -> None:
    slowest_s = 0.0
    with (
        broker_process(disk / "data", *SMALL, *NEVER_CLEANED) as broker,
        WireClient(broker.address) as client,
    ):
        sender = Sender(client)
        for cycle in range(1, GROWTH_CYCLES + 1):
            refused = sender.send_until_refused()
            assert is_refused_for_the_disk(refused), refused.remark
            sender.check_kept()
            resize(disk, DISK_MIB * 5**cycle // 4**cycle)
            slowest_s = max(slowest_s, resumes(sender))
        sender.check_kept()
        check_unharmed(broker)
    print(
        f"T10 full disk: {GROWTH_CYCLES} times full of messages, {len(sender.acked)} kept,"
        f" resumed after {slowest_s:.2f} s at most"
    )


def resize(disk: Path, size_mib: int) -> None:
    command = ["mount", "-o", f"remount,size={size_mib}m", str(disk)]
    subprocess.run(command, check=True, capture_output=True, timeout=20)


@pytest.mark.nightly("torture", short=True)
@pytest.mark.timeout(120)
def test_a_disk_too_small_for_all_messages_keeps_the_newest(disk: Path) -> None:
    """With cleanFileForciblyEnable, as by default, old files go before the disk is full."""
    with (
        broker_process(disk / "data", *SMALL) as broker,
        WireClient(broker.address) as client,
    ):
        sender = Sender(client)
        wanted = 3 * DISK_MIB * MIB // BODY_BYTES
        while len(sender.acked) < wanted:
            if not sender.send():
                assert is_refused_for_the_disk(sender.refused[-1])
                resumes(sender)
        sender.check_kept()
        first = int(client.ask(31, topic="T", queueId=0).fields["offset"])
        assert 0 < first < len(sender.acked) - 1_000
        check_unharmed(broker)


def test_a_small_disk_that_is_filled_in_seconds_gets_room_from_old_files(disk: Path) -> None:
    """Symptom: a disk that was full before the first thorough flush stayed full for good."""
    seldom = ["-D", f"mappedFileSizeCommitLog={LOG_FILE_BYTES}", "-D", "maxHashSlotNum=1000"]
    seldom += ["-D", "maxIndexNum=4000", "-D", "mappedFileSizeConsumeQueue=20000"]
    with broker_process(disk / "data", *seldom) as broker, WireClient(broker.address) as client:
        sender = Sender(client)
        assert is_refused_for_the_disk(sender.send_until_refused())
        resumes(sender)


def fill_with_files(folder: Path) -> list[Path]:
    """Take all the files that there may be, as another program would; no bytes."""
    made: list[Path] = []
    with suppress(OSError):
        while True:
            path = folder / f"somebody-else-{len(made)}"
            path.touch()
            made.append(path)
    return made


@pytest.mark.nightly("torture", short=True)
@pytest.mark.timeout(60 + 12 * CYCLES)
def test_a_disk_without_room_for_another_file_serves_again_when_there_is(disk: Path) -> None:
    """There are bytes enough, but no inode for the next file of the log or of a table."""
    command = ["mount", "-o", "remount,nr_inodes=400,size=256m", str(disk)]
    subprocess.run(command, check=True, capture_output=True, timeout=20)
    slowest_s = 0.0
    with (
        broker_process(disk / "data", *SMALL, *NEVER_CLEANED) as broker,
        WireClient(broker.address) as client,
    ):
        sender = Sender(client)
        for _ in range(50):
            assert sender.send()
        for cycle in range(min(CYCLES, 20)):
            files = fill_with_files(disk)
            refused = sender.send_until_refused(2_000)
            assert is_refused_for_the_disk(refused), refused.remark
            sender.check_kept()
            check_tables_wait(client, cycle)
            for file in files:
                file.unlink()
            slowest_s = max(slowest_s, resumes(sender))
        sender.check_kept()
        check_unharmed(broker)
    print(
        f"T10 without inodes: {min(CYCLES, 20)} cycles, {len(sender.acked)} messages kept,"
        f" {len(sender.refused)} refused, resumed after {slowest_s:.2f} s at most"
    )
