"""delivery=idempotent over two brokers: one goes with rows that it has not acknowledged."""

from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import pyarrow as pa
import pytest

from orbitmq import Admin
from orbitmq.errors import ConnectionClosed
from orbitmq.spark.cluster import cluster_of
from orbitmq.testing import EmbeddedBroker
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from tests.spark.sinking import bodies, plan, run_task

AWAY_S = 1.5
ROWS = [f"row {number:02d}" for number in range(8)]


@pytest.fixture
def first() -> Iterator[EmbeddedBroker]:
    """The broker whose name server both have."""
    with EmbeddedBroker(settings={"brokerName": "first"}) as broker:
        yield broker


@pytest.fixture
def second(first: EmbeddedBroker, tmp_path: Path) -> Iterator[EmbeddedBroker]:
    settings = {"brokerName": "second", "namesrvAddr": first.namesrv}
    with EmbeddedBroker(folder=tmp_path / "second", settings=settings) as broker:
        yield broker


def test_rows_of_a_broker_that_went_before_its_answer_are_not_sent_to_another_one(
    first: EmbeddedBroker, second: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: rows were doubled when one of two brokers was killed before it could answer."""
    with Admin(first.namesrv) as admin:
        for name in ("first", "second"):
            admin.create_topic("T", queue_count=1, broker=name)
    made = plan(first, ["body"], topic="T", delivery="idempotent", fenceMs="100", batchSize="1")
    cluster = cluster_of(made.options)
    instance = cluster.wait(cluster.instance())
    ask = instance.remote.call
    back, mortal = Timer(AWAY_S, second.start), second.broker
    killed: list[str] = []

    async def lossy(address: str, command: Command, timeout_s: float) -> Command:
        answer = await ask(address, command, timeout_s)
        is_send = command.code == RequestCode.SEND_BATCH_MESSAGE
        if is_send and address == mortal and not killed:
            killed.append(address)
            second.kill()
            back.start()
            raise ConnectionClosed(address, "the broker was killed")
        return answer

    monkeypatch.setattr(instance.remote, "call", lossy)
    run_task(made, [pa.record_batch({"body": ROWS})])
    monkeypatch.undo()
    back.join()
    assert bodies(first.namesrv, "T") == ROWS
