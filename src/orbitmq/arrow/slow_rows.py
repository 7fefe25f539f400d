"""Rare records, one by one: what `wire.record` makes of them, as columns.

In: bytes and the position of a record that is not plain. Out: a Record with its body as wanted, or
why it is damaged; and columns of such records.

Rules:
1. `wire.record` alone judges what is a record and what is damage.
2. Numbers and texts are the same as those of plain records.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from orbitmq.arrow.segments import text_of
from orbitmq.arrow.starts import Bytes
from orbitmq.errors import CorruptRecord, RemoteProtocolError
from orbitmq.wire.compression import plain_body
from orbitmq.wire.properties import KEYS, TAGS, UNIQ_KEY, parse_properties
from orbitmq.wire.record import FIELD, PREFIX, Record, decode_record

TIME_MS_MIN = -62_135_596_800_000
TIME_MS_MAX = 253_402_300_799_999
"""The years 1 to 9999: Spark and Python know no others, and a producer may claim any time."""


class Damage(NamedTuple):
    """A record that is none: where, how many bytes it claims to have (0: nobody knows), and why."""

    position: int
    size: int
    why: str


class SlowRow(NamedTuple):
    """A whole record and the bytes it takes."""

    record: Record
    size: int
    raw: bytes


class Reading(NamedTuple):
    """How bodies are to be looked at."""

    is_crc_checked: bool
    is_decompressed: bool
    is_raw_wanted: bool


def slow_row(data: Bytes, position: int, reading: Reading) -> SlowRow | Damage:
    """Return the record at `position`, or why there is none."""
    try:
        record, size = decode_record(data, position, is_crc_checked=reading.is_crc_checked)
    except CorruptRecord as error:
        return Damage(position, _claimed_size(data, position), error.detail)
    raw = bytes(data[position : position + size]) if reading.is_raw_wanted else b""
    if not reading.is_decompressed:
        return SlowRow(record, size, raw)
    try:
        body = plain_body(record.body, record.sys_flag)
    except RemoteProtocolError as error:
        why = (
            f"the body cannot be decompressed ({error.detail}); decompress=false gives it as it is"
        )
        return Damage(position, size, why)
    return SlowRow(msgspec.structs.replace(record, body=body), size, raw)


def slow_column(rows: Sequence[SlowRow], field: Any, broker_name: str | None) -> Any:
    """Return one column of such records, by its field in the schema."""
    if field.name == "brokerName":
        return pa.array([broker_name] * len(rows), type=field.type)
    values = [_VALUES[field.name](row) for row in rows]
    if pa.types.is_map(field.type):
        values = [list(parse_properties(each).items()) for each in values]
    elif pa.types.is_string(field.type):
        values = [text_of(each) if isinstance(each, bytes) else each for each in values]
    return pa.array(values, type=field.type)


def clamped_us(time_ms: int) -> int:
    """Return a record's time in microseconds, within the years that there are."""
    return min(max(time_ms, TIME_MS_MIN), TIME_MS_MAX) * 1_000


def _claimed_size(data: Bytes, position: int) -> int:
    left = len(data) - position
    size = FIELD["total_size"].of(data, position) if left >= PREFIX.size else 0
    return size if 0 < size <= left else 0


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def _property(name: str) -> Callable[[SlowRow], str | None]:
    return lambda row: parse_properties(row.record.properties).get(name)


_VALUES: dict[str, Callable[[SlowRow], Any]] = {
    "topic": lambda row: row.record.topic,
    "queueId": lambda row: row.record.queue_id,
    "queueOffset": lambda row: row.record.queue_offset,
    "physicalOffset": lambda row: row.record.log_offset,
    "size": lambda row: row.size,
    "tags": _property(TAGS),
    "keys": _property(KEYS),
    "msgId": _property(UNIQ_KEY),
    "properties": lambda row: row.record.properties,
    "body": lambda row: row.record.body,
    "flag": lambda row: row.record.flag,
    "sysFlag": lambda row: row.record.sys_flag,
    "crc": lambda row: _signed(row.record.crc),
    "bornTimestamp": lambda row: clamped_us(row.record.born_ms),
    "bornHost": lambda row: str(row.record.born_host),
    "storeTimestamp": lambda row: clamped_us(row.record.store_ms),
    "storeHost": lambda row: str(row.record.store_host),
    "reconsumeTimes": lambda row: row.record.reconsume_times,
    "preparedTransactionOffset": lambda row: row.record.prepared_offset,
    "raw": lambda row: row.raw,
}
