"""The store folder of a running original, read by `rocketmq_log` while the broker writes in it."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from orbitmq import Message, Producer
from orbitmq.arrow.columns import arrow_schema
from orbitmq.spark.log_options import log_options
from orbitmq.spark.log_source import LogReader
from orbitmq.spark.log_stream import LogStreamReader
from tests.foreign.asking import await_claim
from tests.foreign.peers import original_broker, require_tool

TOPIC = "LiveLog"
COUNT = 1_500
TOGETHER = 20
ALL = ReadAllAvailable()
SCHEMA = arrow_schema(["topic", "keys", "body", "physicalOffset"])

pytestmark = [
    pytest.mark.foreign,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]


class Writer(threading.Thread):
    """Sends numbered messages of many sizes, some by one and some together."""

    def __init__(self, namesrv: str) -> None:
        super().__init__(name="writer")
        self._namesrv = namesrv
        self.sent = 0

    def run(self) -> None:
        with Producer(namesrv=self._namesrv, group="writer") as producer:
            while self.sent < COUNT:
                numbers = range(self.sent, self.sent + TOGETHER)
                messages = [message(number) for number in numbers]
                if self.sent % (3 * TOGETHER):
                    producer.send_batch(messages, timeout=30)
                else:
                    for each in messages:
                        producer.send(each, timeout=30)
                self.sent += TOGETHER


def kept_in(store: Path) -> dict[str, str]:
    """Settings of a broker that keeps its files there, and small ones."""
    return {
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
        "mappedFileSizeCommitLog": "131072",
    }


def message(number: int) -> Message:
    body = f"{number} ".encode() * (1 + number % 90)
    return Message(TOPIC, body, keys=[str(number)])


@pytest.fixture(params=["4.9.7", pytest.param("5.5.0", marks=pytest.mark.nightly("spark"))])
def live(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, Writer]]:
    """The folder of an original whose log files are small, and who writes to it."""
    require_tool("mvn")
    store = tmp_path / "store"
    with original_broker(request.param, **kept_in(store)) as original:
        writer = Writer(original.namesrv)
        writer.start()
        yield store, writer
        writer.join()


def numbers_of(batches: Iterator[Any]) -> list[int]:
    """Return which messages these rows are; each must be whole."""
    rows = [row for batch in batches for row in batch.to_pylist() if row["topic"] == TOPIC]
    for row in rows:
        assert row["body"] == message(int(row["keys"])).body
    return [int(row["keys"]) for row in rows]


def batch_of(store: Path, **given: str) -> list[int]:
    options = log_options({"path": str(store), "verifyCrc": "true", **given})
    reader = LogReader(options, SCHEMA)
    return numbers_of(batch for part in reader.partitions() for batch in reader.read(part))


def test_a_folder_is_read_as_batch_and_as_stream_while_an_original_writes(
    live: tuple[Path, Writer],
) -> None:
    store, writer = live
    options = log_options({"path": str(store), "verifyCrc": "true", "maxBytesPerTrigger": "100000"})
    reader = LogStreamReader(options, SCHEMA)
    at = reader.initialOffset()
    streamed: list[int] = []
    looks = 0
    while writer.is_alive() or len(streamed) < COUNT:
        end = reader.latestOffset(at, reader.getDefaultReadLimit())
        parts = reader.partitions(at, end)
        streamed += numbers_of(batch for part in parts for batch in reader.read(part))
        at = end
        if writer.is_alive():
            acknowledged, looks = writer.sent, looks + 1
            given = {} if looks % 2 else {"topic": TOPIC, "splitSizeBytes": "65536"}
            found = batch_of(store, **given)
            assert len(set(found)) == len(found) >= acknowledged
            assert set(found) >= set(range(acknowledged))
    assert looks > 3
    assert sorted(streamed) == list(range(COUNT))
    assert sorted(batch_of(store)) == list(range(COUNT))
    assert sorted(batch_of(store, topic=TOPIC)) == list(range(COUNT))
    assert len(list((store / "commitlog").iterdir())) > 3
    assert reader.latestOffset(at, ALL) == at


@pytest.mark.nightly("spark")
def test_the_disk_of_a_slave_has_the_rows_of_its_master(tmp_path: Path) -> None:
    require_tool("mvn")
    stores = tmp_path / "master", tmp_path / "slave"
    leads = {"brokerRole": "ASYNC_MASTER", **kept_in(stores[0])}
    follows = {"brokerRole": "SLAVE", "brokerId": "1", **kept_in(stores[1])}
    with (
        original_broker("4.9.7", **leads) as master,
        original_broker("4.9.7", master.namesrv, **follows),
    ):
        with Producer(namesrv=master.namesrv, group="writer") as producer:
            for number in range(300):
                producer.send(message(number), timeout=30)
        await_claim(lambda: len(batch_of(stores[1])) == 300, "the slave has all messages", 60)
        assert batch_of(stores[1]) == batch_of(stores[0]) == list(range(300))
        assert batch_of(stores[1], topic=TOPIC) == list(range(300))
