"""The stored message record: what the log holds and what consumers receive, byte for byte.

In: bytes of a log or of a pull answer, or Record values. Out: the other one.
Layout: the fixed fields of FIELDS | body | topic size and topic | properties size and properties.

Rules:
1. FIELD is the one place that knows positions; whoever else parses records takes them from there.
2. A record is whole or it is a CorruptRecord: magic, sizes that add up to the byte, limits, topic
   in UTF-8 and without zero bytes, CRC of the body. Numbers inside (queue ids, times, ports) are
   kept as they are.
3. Encoding computes the CRC and sets the host bits of the sysFlag: nobody can get them wrong.
   Hence encode(decode(x)) = x for every x that decodes with its CRC checked.
4. Names of topics and what properties mean are judged elsewhere (names.py, properties.py).
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from orbitmq.ensure import ensure
from orbitmq.errors import CorruptRecord, LocalProtocolError
from orbitmq.wire.checksum import body_crc
from orbitmq.wire.frame import FRAME_SIZE_MAX
from orbitmq.wire.host import V4_SIZE, V6_SIZE, Host, pack_ip, unpack_ip
from orbitmq.wire.properties import PROPERTIES_SIZE_MAX
from orbitmq.wire.sysflag import BORN_HOST_V6, STORE_HOST_V6, with_host_bits

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
"""Of 5.x, for topics longer than 127 bytes. Clients of 4.x take it for version 1 and fail."""

BLANK_MAGIC = 0xCBD43194
BLANK_SIZE = 8

AROUND_BODY_MAX = 65_536
"""More than a record has besides its body, as the original reckons."""

RECORD_SIZE_MAX = 2 * FRAME_SIZE_MAX
"""No record is longer; a greater size is damage. Nobody else decides this: what one reader takes
for a record must not be damage to another. Our maxMessageSize needs less; that of an original is
bounded by the frame alone, and there the bound of the frame can be raised."""

Bytes = bytes | bytearray | memoryview


class Field(NamedTuple):
    """One fixed field: where it is when both hosts are IPv4, its size, its code in `struct`."""

    name: str
    position: int
    size: int
    code: str

    def of(self, data: Bytes, start: int = 0) -> int:
        """Return this field, a number, of the record that begins at `start`."""
        return int(struct.unpack_from(">" + self.code, data, start + self.position)[0])


FIELDS = (
    Field("total_size", 0, 4, "i"),
    Field("magic", 4, 4, "I"),
    Field("crc", 8, 4, "I"),
    Field("queue_id", 12, 4, "i"),
    Field("flag", 16, 4, "i"),
    Field("queue_offset", 20, 8, "q"),
    Field("log_offset", 28, 8, "q"),
    Field("sys_flag", 36, 4, "i"),
    Field("born_ms", 40, 8, "q"),
    Field("born_ip", 48, 4, "4s"),
    Field("born_port", 52, 4, "i"),
    Field("store_ms", 56, 8, "q"),
    Field("store_ip", 64, 4, "4s"),
    Field("store_port", 68, 4, "i"),
    Field("reconsume_times", 72, 4, "i"),
    Field("prepared_offset", 76, 8, "q"),
    Field("body_size", 84, 4, "i"),
)
"""The fixed fields, in order and without gaps. The body follows the last one."""

FIELD = {field.name: field for field in FIELDS}
"""The same by name. Positions are right for IPv4 hosts; up to `born_ip` they always are."""

PREFIX = struct.Struct(">" + FIELD["total_size"].code + FIELD["magic"].code)
"""Size and magic, which tell a record, a blank and nothing apart."""

TOPIC_SIZE_CODES = {MAGIC_V1: "b", MAGIC_V2: "h"}
"""How the topic's size, right behind the body, is stored: signed, so at most 127 or 32,767."""

PROPERTIES_SIZE_CODE = "h"


class Layout(NamedTuple):
    """The fixed fields at their positions for one pair of host widths."""

    fields: tuple[Field, ...]
    head: struct.Struct


def _layout(born_ip_size: int, store_ip_size: int) -> Layout:
    sizes = {"born_ip": born_ip_size, "store_ip": store_ip_size}
    fields: list[Field] = []
    position = 0
    for field in FIELDS:
        size = sizes.get(field.name, field.size)
        code = f"{size}s" if field.name in sizes else field.code
        fields.append(Field(field.name, position, size, code))
        position += size
    return Layout(tuple(fields), struct.Struct(">" + "".join(field.code for field in fields)))


LAYOUTS = (
    _layout(V4_SIZE, V4_SIZE),
    _layout(V6_SIZE, V4_SIZE),
    _layout(V4_SIZE, V6_SIZE),
    _layout(V6_SIZE, V6_SIZE),
)
"""All four layouts; `layout_of` picks one by the host bits of a sysFlag."""

_HOST_BITS = BORN_HOST_V6 | STORE_HOST_V6
_HOST_SHIFT = 4
PREFIX = struct.Struct(">iI")  # total size, magic
_BODY_SIZE = struct.Struct(">" + FIELD["body_size"].code)
_TOPIC_SIZES = {magic: struct.Struct(">" + code) for magic, code in TOPIC_SIZE_CODES.items()}
_TOPIC_SIZES_MAX = {magic: (1 << (size.size * 8 - 1)) - 1 for magic, size in _TOPIC_SIZES.items()}
_PROPERTIES_SIZE = struct.Struct(">" + PROPERTIES_SIZE_CODE)
HEAD_SIZE_MAX = LAYOUTS[-1].head.size
RECORD_SIZE_MIN = LAYOUTS[0].head.size + _TOPIC_SIZES[MAGIC_V1].size + _PROPERTIES_SIZE.size


def layout_of(sys_flag: int) -> Layout:
    """Return the layout that the host bits of `sys_flag` ask for."""
    return LAYOUTS[(sys_flag & _HOST_BITS) >> _HOST_SHIFT]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One stored message. `properties` is the properties string as stored; `crc` is the body's."""

    topic: str
    body: bytes
    properties: bytes = b""
    queue_id: int = 0
    queue_offset: int = 0
    log_offset: int = 0
    flag: int = 0
    sys_flag: int = 0
    born_ms: int = 0
    born_host: Host
    store_ms: int = 0
    store_host: Host
    reconsume_times: int = 0
    prepared_offset: int = 0
    crc: int = 0
    magic: int = MAGIC_V1


class _Damage(Exception):
    """Why bytes are not a record; the caller adds where."""


# --- Reading ---


def decode_record(
    data: Bytes,
    start: int = 0,
    *,
    base_offset: int = 0,
    is_crc_checked: bool = True,
) -> tuple[Record, int]:
    """Return the record that begins at `start` of `data`, and its size.

    `base_offset` is the log offset of data[0]; it serves the error only. Raises CorruptRecord when
    there is no whole record, also for a blank one.
    """
    ensure(start >= 0, "a record begins inside the data")
    try:
        return _decode(data, start, is_crc_checked=is_crc_checked)
    except _Damage as damage:
        raise CorruptRecord(base_offset + start, str(damage)) from None


def scan_records(
    data: Bytes, *, base_offset: int = 0, is_crc_checked: bool = True
) -> Iterator[Record]:
    """Return the records that lie back to back in `data`, up to its end or to a blank record.

    Raises CorruptRecord at the first that is not whole; those before it were given.
    """
    start = 0
    while start < len(data) and not is_blank(data, start):
        record, size = decode_record(
            data, start, base_offset=base_offset, is_crc_checked=is_crc_checked
        )
        yield record
        start += size


def is_blank(data: Bytes, start: int = 0) -> bool:
    """Whether a blank record begins at `start`: the log goes on in its next file."""
    if len(data) - start < BLANK_SIZE:
        return False
    return bool(PREFIX.unpack_from(data, start)[1] == BLANK_MAGIC)


def _total_size(data: Bytes, start: int) -> int:
    """Check what can be known before the fields are read."""
    left = len(data) - start
    if left < PREFIX.size:
        raise _Damage(f"only {left} bytes are left")
    total_size, magic = PREFIX.unpack_from(data, start)
    if magic == BLANK_MAGIC:
        raise _Damage("a blank record: the log goes on in the next file")
    if magic not in TOPIC_SIZE_CODES:
        raise _Damage(f"unknown magic {magic:#010x}")
    if total_size < RECORD_SIZE_MIN:
        raise _Damage(f"size {total_size}, the least is {RECORD_SIZE_MIN}")
    if total_size > RECORD_SIZE_MAX:
        raise _Damage(f"size {total_size}, limit {RECORD_SIZE_MAX}")
    if total_size > left:
        raise _Damage(f"size {total_size}, only {left} bytes are left")
    return int(total_size)


def _decode(data: Bytes, start: int, *, is_crc_checked: bool) -> tuple[Record, int]:
    total_size = _total_size(data, start)
    head = layout_of(FIELD["sys_flag"].of(data, start)).head
    body_start = start + head.size
    end = start + total_size
    if body_start > end:
        raise _Damage(f"size {total_size} for fixed fields of {head.size} bytes")
    (
        _,
        magic,
        crc,
        queue_id,
        flag,
        queue_offset,
        log_offset,
        sys_flag,
        born_ms,
        born_ip,
        born_port,
        store_ms,
        store_ip,
        store_port,
        reconsume_times,
        prepared_offset,
        body_size,
    ) = head.unpack_from(data, start)
    body_end = body_start + body_size
    topic, properties = _tail(data, body_start, body_end, end, _TOPIC_SIZES[magic])
    body = bytes(data[body_start:body_end])
    if is_crc_checked and body_crc(body) != crc:
        raise _Damage(f"CRC of the body is {body_crc(body):#010x}, stored is {crc:#010x}")
    record = Record(
        topic=topic,
        body=body,
        properties=properties,
        queue_id=queue_id,
        queue_offset=queue_offset,
        log_offset=log_offset,
        flag=flag,
        sys_flag=sys_flag,
        born_ms=born_ms,
        born_host=Host(unpack_ip(born_ip), born_port),
        store_ms=store_ms,
        store_host=Host(unpack_ip(store_ip), store_port),
        reconsume_times=reconsume_times,
        prepared_offset=prepared_offset,
        crc=crc,
        magic=magic,
    )
    return record, total_size


def _tail(
    data: Bytes, body_start: int, body_end: int, end: int, topic_size_code: struct.Struct
) -> tuple[str, bytes]:
    """Read topic and properties, which must end where the record ends."""
    topic_start = body_end + topic_size_code.size
    if body_end < body_start or topic_start > end:
        raise _Damage(f"body of {body_end - body_start} bytes does not fit the record")
    (topic_size,) = topic_size_code.unpack_from(data, body_end)
    topic_end = topic_start + topic_size
    properties_start = topic_end + _PROPERTIES_SIZE.size
    if topic_size < 1 or properties_start > end:
        raise _Damage(f"topic of {topic_size} bytes")
    (properties_size,) = _PROPERTIES_SIZE.unpack_from(data, topic_end)
    if properties_start + properties_size != end:
        raise _Damage(
            f"properties of {properties_size} bytes, the record has {end - properties_start} left"
        )
    try:
        topic = str(data[topic_start:topic_end], "utf-8")
    except UnicodeDecodeError:
        raise _Damage("the topic is not UTF-8") from None
    if "\0" in topic:  # no topic has it, but what is left of a record that was cut off may
        raise _Damage("the topic holds a zero byte")
    return topic, bytes(data[properties_start:end])


def log_offset_of(data: Bytes) -> int:
    """Return where in the log a record says that it lies; nothing is checked."""
    return FIELD["log_offset"].of(data)


def body_place(data: Bytes, start: int = 0) -> tuple[int, int]:
    """Return where the body of the record at `start` begins and ends, by its own fields.

    Nothing is checked; HEAD_SIZE_MAX bytes must be there.
    """
    body_start = start + layout_of(FIELD["sys_flag"].of(data, start)).head.size
    (body_size,) = _BODY_SIZE.unpack_from(data, body_start - _BODY_SIZE.size)
    return body_start, body_start + int(body_size)


def properties_of(data: Bytes) -> bytes:
    """Return the properties of one whole record as stored; nothing is checked.

    For filters, which look at many records that were checked when they were written or read.
    """
    _, body_end = body_place(data)
    topic_size_code = _TOPIC_SIZES[FIELD["magic"].of(data)]
    (topic_size,) = topic_size_code.unpack_from(data, body_end)
    start = body_end + topic_size_code.size + topic_size + _PROPERTIES_SIZE.size
    return bytes(data[start:])


# --- Writing ---


def encode_record(record: Record) -> bytes:
    """Return the bytes of a record, with the body's CRC and the host bits of the sysFlag.

    Raises LocalProtocolError when a value does not fit.
    """
    topic = _topic_bytes(record)
    if len(record.properties) > PROPERTIES_SIZE_MAX:
        raise LocalProtocolError(
            f"properties of {len(record.properties)} bytes, limit {PROPERTIES_SIZE_MAX}"
        )
    born_ip, store_ip = pack_ip(record.born_host.ip), pack_ip(record.store_host.ip)
    sys_flag = with_host_bits(
        record.sys_flag,
        born_is_v6=len(born_ip) == V6_SIZE,
        store_is_v6=len(store_ip) == V6_SIZE,
    )
    layout = layout_of(sys_flag)
    topic_size = _TOPIC_SIZES[record.magic].pack(len(topic))
    properties_size = _PROPERTIES_SIZE.pack(len(record.properties))
    parts = (record.body, topic_size, topic, properties_size, record.properties)
    total_size = layout.head.size + sum(map(len, parts))
    if total_size > RECORD_SIZE_MAX:
        raise LocalProtocolError(f"record of {total_size} bytes, limit {RECORD_SIZE_MAX}")
    values = (
        total_size,
        record.magic,
        body_crc(record.body),
        record.queue_id,
        record.flag,
        record.queue_offset,
        record.log_offset,
        sys_flag,
        record.born_ms,
        born_ip,
        record.born_host.port,
        record.store_ms,
        store_ip,
        record.store_host.port,
        record.reconsume_times,
        record.prepared_offset,
        len(record.body),
    )
    try:
        return b"".join((layout.head.pack(*values), *parts))
    except struct.error:
        raise LocalProtocolError(_misfit(layout, values)) from None


def encode_blank(left: int) -> bytes:
    """Return the record that fills the last `left` bytes of a log file; only 8 are written."""
    ensure(left >= BLANK_SIZE, "a log file always keeps room for a blank record")
    return PREFIX.pack(left, BLANK_MAGIC)


def _topic_bytes(record: Record) -> bytes:
    if record.magic not in TOPIC_SIZE_CODES:
        raise LocalProtocolError(f"unknown record magic {record.magic:#x}")
    try:
        topic = record.topic.encode()
    except UnicodeEncodeError:
        raise LocalProtocolError("the topic holds half a character") from None
    if b"\0" in topic:
        raise LocalProtocolError("the topic holds a zero byte")
    limit = _TOPIC_SIZES_MAX[record.magic]
    if not 1 <= len(topic) <= limit:
        raise LocalProtocolError(
            f"topic of {len(topic)} bytes; a record with this magic holds 1 to {limit}"
        )
    return topic


def _misfit(layout: Layout, values: tuple[int | bytes, ...]) -> str:
    """Name the first value that its field cannot hold."""
    pairs = zip(layout.fields, values, strict=True)
    return next(
        f"{field.name} {value!r} does not fit {field.size} bytes"
        for field, value in pairs
        if not _fits(field, value)
    )


def _fits(field: Field, value: int | bytes) -> bool:
    try:
        struct.pack(">" + field.code, value)
    except struct.error:
        return False
    return True
