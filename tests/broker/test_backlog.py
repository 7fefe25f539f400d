"""A backlog that nobody consumes: on the disk, without a price for those who send and read now."""

import asyncio
import time
from pathlib import Path

from orbitmq.config import BrokerSettings
from orbitmq.net.turn import Turn
from orbitmq.wire.batch import BatchMessage, encode_batch
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.record import scan_records
from orbitmq.world.net import run
from tests.behaviour.requests import pull_request, send_request
from tests.broker.running import Running, running

SETTINGS = BrokerSettings(listen_port=0, mapped_file_size_commit_log=1 << 20)
BATCH, BACKLOG = 500, 60_000
ROUNDS = 200


async def fill(at: Running) -> None:
    batch = encode_batch([BatchMessage(bytes(100)) for _ in range(BATCH)])
    fields = send_request("T", m="true", i="").fields
    for _ in range(BACKLOG // BATCH):
        sent = Command(RequestCode.SEND_BATCH_MESSAGE, fields=dict(fields), body=batch)
        assert (await at.call(sent)).code == 0
    store = at.broker._store  # what is written behind is no part of what is measured
    async with asyncio.timeout(30):
        while store.unwritten_bytes:
            await asyncio.sleep(0.01)


async def cost_s(at: Running) -> float:
    """Return the least processor time of some rounds: a send, and a pull of what it sent."""
    costs = []
    for _ in range(3):
        begin_s = time.process_time()
        for _ in range(ROUNDS):
            sent = await at.call(send_request("T", b"now"))
            found = await at.call(pull_request("T", "G", int(sent.fields["queueOffset"])))
            (record,) = scan_records(found.body)
            assert record.body == b"now"
        costs.append(time.process_time() - begin_s)
    return min(costs)


def test_a_backlog_on_the_disk_slows_down_neither_sends_nor_reads(tmp_path: Path) -> None:
    async def inner() -> None:
        async with running(tmp_path, Turn(asyncio.get_running_loop()), SETTINGS) as at:
            before_s = await cost_s(at)
            await fill(at)
            after_s = await cost_s(at)
            oldest = await at.call(pull_request("T", "G", 3 * ROUNDS))
            assert next(iter(scan_records(oldest.body))).body == bytes(100)
            assert len(list((tmp_path / "commitlog").iterdir())) > 8
            assert after_s < 2 * before_s, (before_s, after_s)

    run(inner())
