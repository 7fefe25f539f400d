"""Records for the tests of Arrow batches, and what a batch of them must hold.

In: Hypothesis' choices, or records. Out: records of all kinds, plain ones most of all, their bytes
back to back, and their rows by the one-by-one codec `wire.record`.
"""

import zlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from orbitmq.arrow.columns import COLUMN_OF
from orbitmq.wire.compression import compress, plain_body
from orbitmq.wire.host import Host
from orbitmq.wire.properties import parse_properties
from orbitmq.wire.record import MAGIC_V1, MAGIC_V2, Record, encode_record
from orbitmq.wire.sysflag import Compression, is_compressed, with_compression

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST = datetime(1, 1, 1, tzinfo=UTC)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TIMES = st.integers(0, 2**41) | INT64
V4 = st.builds(Host, st.ip_addresses(v=4).map(str) | st.just("127.0.0.1"), INT32)
V6 = st.builds(Host, st.ip_addresses(v=6).map(str), INT32)
HOSTS = st.sampled_from([V4, V4, V4, V6]).flatmap(lambda each: each)
NAMES = st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "a", "名"]) | st.text("ab\x01\x02", max_size=3)
VALUES = st.text("ab\x01é ", max_size=4)
ENTRIES = st.lists(st.tuples(NAMES, VALUES), max_size=5)


def property_string(entries: Iterable[tuple[str, str]], *, is_closed: bool) -> bytes:
    """Return what a careless sender makes of entries: nothing is checked."""
    text = "\x02".join(f"{name}\x01{value}" for name, value in entries)
    return (text + "\x02" if is_closed else text).encode()


PROPERTIES = (
    st.builds(property_string, ENTRIES, is_closed=st.booleans())
    | st.binary(max_size=20)
    | st.just(b"KEYS\x01k1\x02TAGS\x01TagA\x02UNIQ_KEY\x01id")
)

TOPICS = st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=9)

RECORDS = st.builds(
    Record,
    topic=st.sampled_from(["TopicA", "TopicB"]) | TOPICS,
    body=st.binary(max_size=60),
    properties=PROPERTIES,
    queue_id=INT32,
    queue_offset=INT64,
    log_offset=INT64,
    flag=INT32,
    sys_flag=st.sampled_from([0, 0, 0, 8, 0x80]) | INT32.map(lambda flag: flag & ~1),
    born_ms=TIMES,
    born_host=HOSTS,
    store_ms=TIMES,
    store_host=HOSTS,
    reconsume_times=INT32,
    prepared_offset=INT64,
    magic=st.sampled_from([MAGIC_V1, MAGIC_V1, MAGIC_V1, MAGIC_V2]),
)

LOOPBACK = Host("127.0.0.1", 10_911)


def plain(number: int = 0, **changes: Any) -> Record:
    """Return a usual record."""
    values: dict[str, Any] = {
        "topic": "TopicA",
        "body": f"body {number}".encode(),
        "properties": f"KEYS\x01k{number}\x02TAGS\x01TagA\x02UNIQ_KEY\x01id{number}".encode(),
        "queue_id": number % 4,
        "queue_offset": number // 4,
        "born_ms": 1_700_000_000_000 + number,
        "born_host": LOOPBACK,
        "store_ms": 1_700_000_000_001 + number,
        "store_host": LOOPBACK,
    }
    return Record(**{**values, **changes})


def compressed(kind: Compression, number: int = 0) -> Record:
    """Return a record whose body is compressed."""
    body = compress(b"again and again " * 20, kind)
    return plain(number, body=body, sys_flag=with_compression(0, kind))


def laid(records: Sequence[Record], base: int = 0) -> tuple[bytes, list[int]]:
    """Return records as a log that begins at `base` holds them, and where they begin in it."""
    data, starts = bytearray(), []
    for record in records:
        starts.append(len(data))
        moved = Record(**{**_fields(record), "log_offset": base + len(data)})
        data += encode_record(moved)
    return bytes(data), starts


def _fields(record: Record) -> dict[str, Any]:
    return {name: getattr(record, name) for name in Record.__struct_fields__}


def row_of(record: Record, size: int, *, decompresses: bool = True) -> dict[str, Any]:
    """Return the row of a record as `wire` knows it."""
    properties = parse_properties(record.properties)
    is_packed = decompresses and is_compressed(record.sys_flag)
    values = {
        "topic": record.topic,
        "brokerName": None,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.log_offset,
        "size": size,
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "msgId": properties.get("UNIQ_KEY"),
        "properties": list(properties.items()),
        "body": plain_body(record.body, record.sys_flag) if is_packed else record.body,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "crc": record.crc - (1 << 32) if record.crc >> 31 else record.crc,
        "bornTimestamp": time_of(record.born_ms),
        "bornHost": str(record.born_host),
        "storeTimestamp": time_of(record.store_ms),
        "storeHost": str(record.store_host),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_offset,
    }
    assert list(values) == list(COLUMN_OF)
    return values


def time_of(time_ms: int) -> datetime:
    """Return a record's time, or the nearest one that the calendar has."""
    try:
        return EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return FIRST if time_ms < 0 else LAST


def damaged_crc(data: bytes, start: int) -> bytes:
    """Return the data with another CRC in the record at `start`."""
    other = zlib.crc32(data[start + 8 : start + 12]) & 0x7FFF_FFFF
    return data[: start + 8] + other.to_bytes(4, "big") + data[start + 12 :]
