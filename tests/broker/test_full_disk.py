"""A broker whose disk is full: senders hear why, readers go on, service resumes by itself."""

import asyncio
import re
from pathlib import Path

from orbitmq.broker.broker import Broker
from orbitmq.broker.store_opening import this_machine
from orbitmq.config import BrokerSettings
from orbitmq.errors import DiskFull
from orbitmq.metrics import Registry
from orbitmq.net.peer import Peer
from orbitmq.net.turn import Turn
from orbitmq.wire.frame import BINARY
from orbitmq.wire.record import scan_records
from orbitmq.world.files import BigFile, SystemFiles
from orbitmq.world.net import run
from tests.behaviour.requests import pull_request, send_request
from tests.broker.running import begin
from tests.store.refusing import RefusingFiles

LIMIT_S = 10.0


async def with_broker(folder: Path) -> None:
    turn, registry, files = Turn(asyncio.get_running_loop()), Registry(), RefusingFiles()
    settings = BrokerSettings(listen_port=0, mapped_file_size_commit_log=1 << 20)
    broker = Broker(settings, folder, turn, registry, outside=this_machine(files))
    await broker.start()
    peers = [Peer(broker.address, turn) for _ in range(3)]
    try:
        await _fill_and_refuse(peers, files)
        assert re.search(r"^orbitmq_store_refused_writes_total [12]$", registry.render(), re.M)
    finally:
        for peer in peers:
            peer.close()
        files.room[0] = 1 << 40
        await broker.stop()


async def _fill_and_refuse(peers: list[Peer], files: RefusingFiles) -> None:
    kept = await peers[0].call(send_request("T", b"kept"), LIMIT_S)
    assert kept.code == 0
    files.room[0] = 40
    sends = [send_request("T", b"refused"), send_request("T", b"refused", serialization=BINARY)]
    pull = pull_request("T", "G", 0)
    answers = await asyncio.gather(
        peers[0].call(sends[0], LIMIT_S),
        peers[1].call(sends[1], LIMIT_S),
        peers[2].call(pull, LIMIT_S),
    )
    for refused in answers[:2]:
        assert refused.code == 14
        assert "no space left" in (refused.remark or "")
        assert "msgId" not in refused.fields
    assert answers[1].serialization == BINARY
    assert [record.body for record in scan_records(answers[2].body)] == [b"kept"]
    files.room[0] = 1 << 40
    again = await peers[1].call(send_request("T", b"again"), LIMIT_S)
    assert (again.code, again.fields["queueOffset"]) == (0, "1")
    found = await peers[2].call(pull_request("T", "G", 0), LIMIT_S)
    assert [record.body for record in scan_records(found.body)] == [b"kept", b"again"]


def test_a_full_disk_refuses_sends_with_the_cause_and_service_resumes(tmp_path: Path) -> None:
    run(with_broker(tmp_path))


class NoMoreFiles(SystemFiles):
    """Files on a disk that has no room for another log file while `is_full`, and never ahead."""

    is_full = False

    def open_big(self, path: Path, size: int, *, is_mapped: bool = True) -> BigFile:
        if self.is_full and path.parent.name == "commitlog" and not path.exists():
            raise DiskFull(f"cannot make {path.name}: no room for it")
        return super().open_big(path, size, is_mapped=is_mapped)

    def reserve(self, path: Path, size: int) -> None:
        raise DiskFull(f"cannot make {path.name} of {size} bytes ahead: no room for it")


def test_a_send_whose_log_file_cannot_be_made_fails_with_that_cause(tmp_path: Path) -> None:
    async def scenario() -> None:
        files, turn = NoMoreFiles(), Turn(asyncio.get_running_loop())
        settings = BrokerSettings(listen_port=0, mapped_file_size_commit_log=131_072)
        running = await begin(tmp_path, turn, settings, files)
        try:
            for start, taken in ((0, 0), (131_072, 2)):  # the log's first file, and its second
                files.is_full = True
                refused = await running.call(send_request("T", bytes(60_000)))
                assert refused.code == 14
                assert f"cannot make {start:020d}: no room for it" in (refused.remark or "")
                files.is_full = False
                for number in range(taken, taken + 2):
                    answer = await running.call(send_request("T", bytes(60_000)))
                    assert (answer.code, answer.fields["queueOffset"]) == (0, str(number))
                assert (tmp_path / "commitlog" / f"{start:020d}").exists()
        finally:
            files.is_full = False
            await running.stop()

    run(scenario())
