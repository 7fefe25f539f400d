"""Queue files are written behind: a disk that is slow with them holds up no sender."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

from orbitmq.config import BrokerSettings
from orbitmq.net.turn import Turn
from orbitmq.wire.batch import BatchMessage, encode_batch
from orbitmq.wire.record import scan_records
from orbitmq.world.files import SystemFiles
from orbitmq.world.net import run
from tests.behaviour.requests import pull_request, send_request
from tests.broker.running import begin

UNTIL_S = 10.0
SETTINGS = BrokerSettings(
    listen_port=0,
    mapped_file_size_commit_log=1 << 20,
    flush_disk_type="SYNC_FLUSH",
    flush_interval_consume_queue=10,
    flush_consume_queue_thorough_interval=100,
)


class SlowQueues(SystemFiles):
    """Files whose queues are synced only while `gate` is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.is_asked = threading.Event()

    def sync(self, paths: Sequence[Path]) -> None:
        if any("consumequeue" in path.parts for path in paths):
            self.is_asked.set()
            assert self.gate.wait(2 * UNTIL_S), "the test left the gate shut"
        super().sync(paths)


def test_no_send_waits_for_the_flush_of_the_queues(tmp_path: Path) -> None:
    async def scenario() -> None:
        files, turn = SlowQueues(), Turn(asyncio.get_running_loop())
        files.gate.set()
        site = await begin(tmp_path, turn, SETTINGS, files)
        try:
            files.gate.clear()
            assert (await site.call(send_request("T", b"0"))).code == 0
            assert await asyncio.to_thread(files.is_asked.wait, UNTIL_S), "the queues are flushed"
            for number in range(1, 20):
                answer = await site.call(send_request("T", b"%d" % number))
                assert (answer.code, answer.fields["queueOffset"]) == (0, str(number))
            pulled = await site.call(pull_request("T", "G", 0))
            assert len(list(scan_records(pulled.body))) == 20
            assert not files.gate.is_set()
        finally:
            files.gate.set()
            await site.stop()

    run(scenario())


def test_a_flood_of_keys_is_filed_beside_other_work_and_then_written(tmp_path: Path) -> None:
    """Symptom: a flush filed all of it at once, and nobody was answered for seconds."""

    async def scenario() -> None:
        site = await begin(tmp_path, Turn(asyncio.get_running_loop()), SETTINGS, SystemFiles())
        store = site.broker._store  # how far it has come is not on the wire
        try:
            messages = [
                BatchMessage(b"", b"KEYS\x01" + b" ".join(b"%d-%d" % (n, k) for k in range(60)), 0)
                for n in range(1_000)
            ]
            sent = await site.call(send_request("T", encode_batch(messages), m="true"))
            assert sent.code == 0, sent.remark
            assert store.dispatch_lag_bytes > 0, "one turn does a part of it"
            async with asyncio.timeout(UNTIL_S):
                while store.flush_lag_bytes:
                    await asyncio.sleep(0.01)
            assert store.dispatch_lag_bytes == 0
            found = await site.ask(
                12, topic="T", key="999-59", maxNum=9, beginTimestamp=0, endTimestamp=2**62
            )
            assert len(list(scan_records(found.body))) == 1
        finally:
            await site.stop()

    run(scenario())
