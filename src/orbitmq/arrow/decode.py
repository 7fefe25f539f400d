"""Stored records as one Arrow batch: many at a time, only the columns that are asked for.

In: bytes that hold records and where they begin. Out: a batch of exactly the schema asked for, its
rows in the order of the positions, and the records that are damaged.

Rules:
1. Every position gives a row or a Damage; nothing is dropped in silence. What counts as damage is
   `wire.record`'s word, whatever columns are asked for; only bodies that cannot be decompressed
   count when bodies are asked for, and CRCs when they are to be verified.
2. Plain records are read by columns, rare ones (IPv6 hosts, the second magic, compressed bodies)
   one by one; both are put in order at the end, in batches that have rare ones.
3. Times outside of the years 1 to 9999 become the nearest ones inside: no calendar holds others.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from orbitmq.arrow.columns import COLUMN_OF, RAW, arrow_type, check_schema
from orbitmq.arrow.frames import Frames, Mask, frames_of
from orbitmq.arrow.property_maps import Properties
from orbitmq.arrow.segments import (
    as_text,
    bytes_of,
    is_ascii,
    parts,
    plain_array,
    repeated,
    text_array,
)
from orbitmq.arrow.slow_rows import (
    TIME_MS_MAX,
    TIME_MS_MIN,
    Damage,
    Reading,
    SlowRow,
    slow_column,
    slow_row,
)
from orbitmq.arrow.starts import Bytes, Positions
from orbitmq.ensure import ensure
from orbitmq.wire.checksum import body_crc
from orbitmq.wire.host import Host, unpack_ip
from orbitmq.wire.properties import KEYS, TAGS, UNIQ_KEY
from orbitmq.wire.sysflag import COMPRESSED

__all__ = ["BatchDecoder", "Damage", "Decoded"]

_NUMBERS = {
    "queueId": "queue_id",
    "queueOffset": "queue_offset",
    "physicalOffset": "log_offset",
    "size": "total_size",
    "flag": "flag",
    "sysFlag": "sys_flag",
    "crc": "crc",
    "reconsumeTimes": "reconsume_times",
    "preparedTransactionOffset": "prepared_offset",
}
_TIMES = {"bornTimestamp": "born_ms", "storeTimestamp": "store_ms"}
_HOSTS = {"bornHost": "born_host", "storeHost": "store_host"}
_PROPERTY_OF = {"tags": TAGS, "keys": KEYS, "msgId": UNIQ_KEY}


class Decoded(NamedTuple):
    """A batch, and which of the asked records are damaged and have no row in it."""

    batch: Any
    damage: list[Damage]


class BatchDecoder:
    """Makes batches of one schema."""

    def __init__(
        self,
        schema: Any,
        *,
        broker_name: str | None = None,
        decompresses: bool = True,
        verifies_crc: bool = False,
    ) -> None:
        """Raises SettingError for a schema with columns or types that records do not have."""
        check_schema(schema)
        names = set(schema.names)
        self._schema = schema
        self._broker_name = broker_name
        self._reading = Reading(verifies_crc, decompresses and "body" in names, RAW.name in names)

    def decode(self, data: Bytes, positions: Positions) -> Decoded:
        """Return the records that begin at `positions` of `data`; positions ascend."""
        ensure(bool((positions[1:] > positions[:-1]).all()), "positions of records ascend")
        frames, is_plain = frames_of(data, positions)
        topics = parts(pa.py_buffer(data), frames.topic_start, frames.topic_end)
        is_kept = self._kept(data, frames, topics)
        if not is_kept.all():
            is_plain[is_plain] = is_kept
            frames, topics = frames.only(is_kept), topics.filter(pa.array(is_kept))
        plain = _PlainRows(data, frames, topics, self._broker_name)
        columns = plain.columns(self._schema)
        if is_plain.all():
            return Decoded(pa.RecordBatch.from_arrays(columns, schema=self._schema), [])
        return self._merged(data, positions, is_plain, columns)

    def _kept(self, data: Bytes, frames: Frames, topics: Any) -> Mask:
        """Say which plain records can be read by columns; the others may be damaged."""
        is_kept = _are_texts(topics)
        if self._reading.is_decompressed:
            is_kept &= (frames.head["sys_flag"] & COMPRESSED) == 0
        if self._reading.is_crc_checked:
            is_kept &= _has_right_crc(data, frames)
        return is_kept

    def _merged(
        self, data: Bytes, positions: Positions, is_plain: Mask, columns: list[Any]
    ) -> Decoded:
        """Read the records that are not plain, and put all rows in order."""
        rows: list[SlowRow] = []
        damage: list[Damage] = []
        order = np.cumsum(is_plain) - 1
        plain_count = int(is_plain.sum())
        for at in np.flatnonzero(~is_plain).tolist():
            row = slow_row(_up_to_next(data, positions, at), int(positions[at]), self._reading)
            if isinstance(row, Damage):
                damage.append(row)
                order[at] = -1
            else:
                order[at] = plain_count + len(rows)
                rows.append(row)
        if rows:
            in_order = pa.array(order[order >= 0])
            for number, field in enumerate(self._schema):
                slow = slow_column(rows, field, self._broker_name)
                columns[number] = pa.concat_arrays([columns[number], slow]).take(in_order)
        return Decoded(pa.RecordBatch.from_arrays(columns, schema=self._schema), damage)


class _PlainRows:
    """Columns of plain records; what several of them need is made once."""

    def __init__(self, data: Bytes, frames: Frames, topics: Any, broker_name: str | None) -> None:
        self._memory = pa.py_buffer(data)
        self._frames = frames
        self._topics = topics
        self._broker_name = broker_name
        self._stored_properties: Any = None
        self._properties: Properties | None = None

    def columns(self, schema: Any) -> list[Any]:
        """Return the columns of a schema."""
        types = dict(zip(schema.names, schema.types, strict=True))
        is_map = "properties" in types and pa.types.is_map(types["properties"])
        if "properties" in types or not _PROPERTY_OF.keys().isdisjoint(types):
            frames = self._frames
            self._stored_properties = parts(self._memory, frames.properties_start, frames.end)
        if is_map or not _PROPERTY_OF.keys().isdisjoint(types):
            self._properties = Properties(self._stored_properties, are_all_wanted=is_map)
        return [self._column(field) for field in schema]

    def _column(self, field: Any) -> Any:
        name = field.name
        if name in _NUMBERS:
            return plain_array(self._frames.head[_NUMBERS[name]].astype(_NATIVE[name]), field.type)
        if name in _TIMES:
            return self._times(_TIMES[name])
        if name in _HOSTS:
            return _host_texts(self._frames.head[_HOSTS[name]])
        if name in _PROPERTY_OF and self._properties is not None:
            return self._properties.column(_PROPERTY_OF[name])
        return _PARTS[name](self, field)

    def _times(self, name: str) -> Any:
        time_ms = np.clip(self._frames.head[name].astype(np.int64), TIME_MS_MIN, TIME_MS_MAX)
        return plain_array(time_ms * 1_000, arrow_type("timestamp"))

    def topic(self, _field: Any) -> Any:
        return self._topics.view(pa.string())  # they were found to be texts

    def broker(self, field: Any) -> Any:
        count = len(self._frames.start)
        name = self._broker_name
        return pa.nulls(count, field.type) if name is None else repeated(name, count)

    def properties(self, field: Any) -> Any:
        if self._properties is not None and pa.types.is_map(field.type):
            return self._properties.maps()
        return as_text(self._stored_properties)

    def body(self, field: Any) -> Any:
        bodies = parts(self._memory, self._frames.body_start, self._frames.body_end)
        return as_text(bodies) if pa.types.is_string(field.type) else bodies

    def raw(self, _field: Any) -> Any:
        return parts(self._memory, self._frames.start, self._frames.end)


_PARTS: dict[str, Callable[[_PlainRows, Any], Any]] = {
    "topic": _PlainRows.topic,
    "brokerName": _PlainRows.broker,
    "properties": _PlainRows.properties,
    "body": _PlainRows.body,
    RAW.name: _PlainRows.raw,
}
_NATIVE = {name: arrow_type(COLUMN_OF[name].ddl).to_pandas_dtype() for name in _NUMBERS}


def _host_texts(hosts: NDArray[Any]) -> Any:
    """Return hosts as text: there are few, so each is put into words once."""
    if len(hosts) and (hosts == hosts[0]).all():
        return repeated(_host_text(int(hosts[0])), len(hosts))
    encoded = plain_array(hosts.astype(np.int64), pa.int64()).dictionary_encode()
    words = [_host_text(each) for each in encoded.dictionary.to_pylist()]
    return text_array(words).take(encoded.indices)


def _host_text(number: int) -> str:
    packed = number.to_bytes(8, "big", signed=True)
    return str(Host(unpack_ip(packed[:4]), int.from_bytes(packed[4:], "big", signed=True)))


def _are_texts(texts: Any) -> Mask:
    """Say which are UTF-8 without zero bytes."""
    memory, _ = bytes_of(texts)
    are_texts = np.ones(len(texts), dtype=np.bool_)
    if is_ascii(memory) and memory.all():  # as nearly always
        return are_texts
    for at, text in enumerate(texts.to_pylist()):
        try:
            are_texts[at] = "\0" not in text.decode()
        except UnicodeDecodeError:
            are_texts[at] = False
    return are_texts


def _has_right_crc(data: Bytes, frames: Frames) -> Mask:
    view = memoryview(data)
    borders = zip(frames.body_start.tolist(), frames.body_end.tolist(), strict=True)
    sums = np.array([body_crc(view[start:end]) for start, end in borders], dtype=np.uint32)
    is_right: Mask = sums == frames.head["crc"]
    return is_right


def _up_to_next(data: Bytes, positions: Positions, at: int) -> memoryview:
    """Return the data without the next record: none reaches into it."""
    end = len(data) if at + 1 == len(positions) else int(positions[at + 1])
    return memoryview(data)[:end]
