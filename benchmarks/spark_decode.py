"""How many stored records a core turns into Arrow batches in a second, without Spark.

In: how many records of which body size. Out: rows per CPU second for some choices of columns, each
beside the least that must be done for it. Rules:

1. The walk from record to record counts as well; the records are made before.
2. The least for columns with bodies is one copy of the records, batch by batch. For columns of the
   header it is one copy of the fixed headers, whose places are known.
3. Kinds take turns; the best of several rounds counts.
"""

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from orbitmq.arrow.columns import COLUMN_OF, arrow_schema
from orbitmq.arrow.decode import BatchDecoder
from orbitmq.arrow.frames import HEAD_SIZE
from orbitmq.arrow.segments import items_at
from orbitmq.arrow.starts import walk
from orbitmq.wire.host import Host
from orbitmq.wire.properties import encode_properties
from orbitmq.wire.record import Record, encode_record

ROWS = 200_000
BODY_SIZE = 1_024
BATCH_ROWS = 4_096
ROUNDS = 5
SEED = 7

COPY, HEADS = "bare copy of the records", "bare copy of the fixed headers"
ALL = "all columns"
FOUR = ("topic", "queueId", "queueOffset", "storeTimestamp")


class Choice(NamedTuple):
    """Columns, other types of theirs, and what they are compared with."""

    columns: Sequence[str]
    types: dict[str, str]
    beside: str
    is_mixed: bool = False


CHOICES = {
    ALL: Choice(tuple(COLUMN_OF), {}, COPY),
    "all columns, bodies and keys of many lengths": Choice(tuple(COLUMN_OF), {}, COPY, True),
    "all columns, properties as stored": Choice(tuple(COLUMN_OF), {"properties": "string"}, COPY),
    "body alone": Choice(("body",), {}, COPY),
    "four header columns": Choice(FOUR, {}, HEADS),
    "four numbers": Choice(("queueId", "queueOffset", "physicalOffset", "size"), {}, HEADS),
}


def make_log(rows: int = ROWS, body_size: int = BODY_SIZE, *, is_mixed: bool = False) -> bytes:
    """Return records back to back, as a log file holds them; mixed ones differ in length."""
    chance = random.Random(SEED)
    records: list[bytes] = []
    offset = 0
    for number in range(rows):
        size = chance.randrange(body_size // 2, body_size * 3 // 2) if is_mixed else body_size
        key = f"order{chance.randrange(10 ** chance.randrange(1, 9))}" if is_mixed else ""
        record = encode_record(_record(number, offset, size, key or f"order{number:08}"))
        records.append(record)
        offset += len(record)
    return b"".join(records)


def _record(number: int, offset: int, body_size: int, key: str) -> Record:
    properties = {
        "KEYS": key,
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
    """Decode a whole log in batches; return how many rows there were."""
    rows, begin = 0, 0
    while begin < len(data):
        starts = walk(data, begin, base=0, count_max=BATCH_ROWS)
        rows += decoder.decode(data, starts.positions).batch.num_rows
        begin = starts.end
    return rows


def copy_all(data: bytes, rows: int) -> int:
    """Copy all records in pieces as long as a batch."""
    view, size = memoryview(data), len(data) // rows * BATCH_ROWS
    for begin in range(0, len(data), size):
        bytes(view[begin : begin + size])
    return rows


def copy_heads(data: bytes, rows: int) -> int:
    """Copy the fixed headers of all records of one size."""
    memory, size = np.frombuffer(data, dtype=np.uint8), len(data) // rows
    for begin in range(0, rows, BATCH_ROWS):
        places = np.arange(begin, min(begin + BATCH_ROWS, rows), dtype=np.int64) * size
        items_at(memory, places, HEAD_SIZE)
    return rows


def decode_rates(rows: int = ROWS, body_size: int = BODY_SIZE) -> dict[str, float]:
    """Return the best rows per CPU second of each choice of columns and of what is beside them."""
    even, mixed = make_log(rows, body_size), make_log(rows, body_size, is_mixed=True)
    kinds: dict[str, Callable[[], int]] = {
        COPY: partial(copy_all, even, rows),
        HEADS: partial(copy_heads, even, rows),
    }
    for name, choice in CHOICES.items():
        decoder = BatchDecoder(arrow_schema(choice.columns, **choice.types))
        kinds[name] = partial(decode_all, mixed if choice.is_mixed else even, decoder)
    best = dict.fromkeys(kinds, 0.0)
    for _ in range(ROUNDS):
        for name, run in kinds.items():
            best[name] = max(best[name], _rate(run))
    return best


def _rate(run: Callable[[], int]) -> float:
    before_s = time.process_time()
    rows = run()
    return rows / (time.process_time() - before_s)


def to_bare(rates: dict[str, float], name: str) -> float | None:
    """Return rows per CPU second against the least that must be done; None for that itself."""
    return rates[name] / rates[CHOICES[name].beside] if name in CHOICES else None


if __name__ == "__main__":
    found = decode_rates()
    for name, rate in found.items():
        ratio = to_bare(found, name)
        shown = "" if ratio is None else f"{ratio:8.2f} of {CHOICES[name].beside}"
        print(f"{name:46} {rate:12,.0f} rows/s/core {shown}")
