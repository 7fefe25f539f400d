"""How many stored records a core turns into Arrow batches in a second, without Spark.

In: how many records of which body size. Out: rows per CPU second for some choices of columns.
Rule: the walk from record to record counts as well; the records are made before.
"""

import time
from collections.abc import Sequence

from orbitmq.arrow.columns import COLUMN_OF, arrow_schema
from orbitmq.arrow.decode import BatchDecoder
from orbitmq.arrow.starts import walk
from orbitmq.wire.host import Host
from orbitmq.wire.properties import encode_properties
from orbitmq.wire.record import Record, encode_record

ROWS = 200_000
BODY_SIZE = 1_024
BATCH_ROWS = 4_096
ROUNDS = 3

FOUR = ("topic", "queueId", "queueOffset", "storeTimestamp")
CHOICES: dict[str, tuple[Sequence[str], dict[str, str]]] = {
    "all columns": (tuple(COLUMN_OF), {}),
    "all columns, properties as stored": (tuple(COLUMN_OF), {"properties": "string"}),
    "four header columns": (FOUR, {}),
    "four numbers": (("queueId", "queueOffset", "physicalOffset", "size"), {}),
    "body alone": (("body",), {}),
}


def make_log(rows: int = ROWS, body_size: int = BODY_SIZE) -> bytes:
    """Give records back to back, as a log file holds them."""
    records: list[bytes] = []
    offset = 0
    for number in range(rows):
        record = encode_record(_record(number, offset, body_size))
        records.append(record)
        offset += len(record)
    return b"".join(records)


def _record(number: int, offset: int, body_size: int) -> Record:
    properties = {
        "KEYS": f"order{number}",
        "UNIQ_KEY": f"7F000001{number:024X}",
        "CLUSTER": "DefaultCluster",
        "WAIT": "true",
        "TAGS": f"Tag{number % 7}",
    }
    host = Host("127.0.0.1", 10_911)
    return Record(
        topic="TopicBench",
        body=number.to_bytes(8, "big") * (body_size // 8),
        properties=encode_properties(properties),
        queue_id=number % 8,
        queue_offset=number // 8,
        log_offset=offset,
        born_ms=1_700_000_000_000 + number,
        born_host=host,
        store_ms=1_700_000_000_001 + number,
        store_host=host,
    )


def decode_all(data: bytes, decoder: BatchDecoder) -> int:
    """Decode a whole log in batches; give how many rows there were."""
    rows, begin = 0, 0
    while begin < len(data):
        starts = walk(data, begin, base=0, count_max=BATCH_ROWS)
        rows += decoder.decode(data, starts.positions).batch.num_rows
        begin = starts.end
    return rows


def decode_rates(rows: int = ROWS, body_size: int = BODY_SIZE) -> dict[str, float]:
    """Give the best rows per CPU second of each choice of columns."""
    data = make_log(rows, body_size)
    return {
        name: max(_rate(data, BatchDecoder(arrow_schema(names, **types))) for _ in range(ROUNDS))
        for name, (names, types) in CHOICES.items()
    }


def _rate(data: bytes, decoder: BatchDecoder) -> float:
    before_s = time.process_time()
    rows = decode_all(data, decoder)
    return rows / (time.process_time() - before_s)


if __name__ == "__main__":
    for name, rate in decode_rates().items():
        print(f"{name:36} {rate:12,.0f} rows/s/core")
