"""The record codec: what it writes it reads, what is not whole it refuses."""

import contextlib
import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.ensure import BrokenInvariant
from orbitmq.errors import CorruptRecord, LocalProtocolError
from orbitmq.wire.checksum import body_crc
from orbitmq.wire.host import Host
from orbitmq.wire.record import (
    BLANK_MAGIC,
    FIELDS,
    LAYOUTS,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_MAX,
    RECORD_SIZE_MIN,
    Layout,
    Record,
    decode_record,
    encode_blank,
    encode_record,
    is_blank,
    layout_of,
    scan_records,
)
from orbitmq.wire.sysflag import BORN_HOST_V6, STORE_HOST_V6

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
HOSTS = st.builds(Host, st.ip_addresses().map(str), INT32)
TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30
)

RECORDS = st.builds(
    Record,
    topic=TEXT,
    body=st.binary(max_size=200),
    properties=st.binary(max_size=200),
    queue_id=INT32,
    queue_offset=INT64,
    log_offset=INT64,
    flag=INT32,
    sys_flag=INT32,
    born_ms=INT64,
    born_host=HOSTS,
    store_ms=INT64,
    store_host=HOSTS,
    reconsume_times=INT32,
    prepared_offset=INT64,
    magic=st.sampled_from([MAGIC_V1, MAGIC_V2]),
)

BROKER = Host("127.0.0.1", 10911)
PLAIN = Record(
    topic="TopicA", body=b"body", properties=b"a\x01b", born_host=BROKER, store_host=BROKER
)


def settled(record: Record) -> Record:
    """What encoding settles: the CRC and the host bits."""
    sys_flag = record.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6)
    sys_flag |= BORN_HOST_V6 if ":" in record.born_host.ip else 0
    sys_flag |= STORE_HOST_V6 if ":" in record.store_host.ip else 0
    return msgspec.structs.replace(record, crc=body_crc(record.body), sys_flag=sys_flag)


@given(RECORDS)
def test_what_is_encoded_decodes_to_the_same_record(record: Record) -> None:
    data = encode_record(record)
    assert decode_record(data) == (settled(record), len(data))
    assert encode_record(decode_record(data)[0]) == data


@given(st.lists(RECORDS, max_size=5), st.sampled_from([bytes, bytearray, memoryview]))
def test_records_back_to_back_are_scanned_in_order(
    records: list[Record], buffer: type[bytes] | type[bytearray] | type[memoryview]
) -> None:
    data = b"".join(map(encode_record, records))
    assert list(scan_records(buffer(data))) == list(map(settled, records))


def test_a_scan_ends_at_a_blank_record() -> None:
    data = encode_record(PLAIN) + encode_blank(100) + b"\xff" * 92
    assert list(scan_records(data)) == [settled(PLAIN)]


def test_a_scan_gives_what_is_whole_before_it_names_the_place_that_is_not() -> None:
    first = encode_record(PLAIN)
    scan = scan_records(first + first[:-1], base_offset=1_000)
    assert next(scan) == settled(PLAIN)
    with pytest.raises(CorruptRecord, match="only") as caught:
        next(scan)
    assert caught.value.log_offset == 1_000 + len(first)


def test_positions_are_those_of_the_original() -> None:
    positions = {field.name: field.position for field in FIELDS}
    assert positions == {
        "total_size": 0,
        "magic": 4,
        "crc": 8,
        "queue_id": 12,
        "flag": 16,
        "queue_offset": 20,
        "log_offset": 28,
        "sys_flag": 36,
        "born_ms": 40,
        "born_ip": 48,
        "born_port": 52,
        "store_ms": 56,
        "store_ip": 64,
        "store_port": 68,
        "reconsume_times": 72,
        "prepared_offset": 76,
        "body_size": 84,
    }
    assert LAYOUTS[0].fields == FIELDS
    assert RECORD_SIZE_MIN == 91


@pytest.mark.parametrize("layout", LAYOUTS)
def test_fields_follow_each_other_without_gaps(layout: Layout) -> None:
    position = 0
    for field in layout.fields:
        assert field.position == position
        assert struct.calcsize(">" + field.code) == field.size
        position += field.size
    assert layout.head.size == position


def test_host_bits_choose_the_layout() -> None:
    sizes = [layout_of(flag).head.size for flag in (0, BORN_HOST_V6, STORE_HOST_V6, 0x30)]
    assert sizes == [88, 100, 100, 112]


def test_encoding_overrules_wrong_host_bits() -> None:
    record = msgspec.structs.replace(PLAIN, sys_flag=BORN_HOST_V6 | STORE_HOST_V6 | 0x301)
    assert decode_record(encode_record(record))[0].sys_flag == 0x301


def test_a_topic_above_127_bytes_needs_version_2() -> None:
    record = msgspec.structs.replace(PLAIN, topic="t" * 128)
    with pytest.raises(LocalProtocolError, match=r"128 bytes.* 127"):
        encode_record(record)
    data = encode_record(msgspec.structs.replace(record, magic=MAGIC_V2))
    assert decode_record(data)[0].topic == "t" * 128


def damaged(position: int, replacement: bytes) -> bytes:
    data = bytearray(encode_record(PLAIN))
    data[position : position + len(replacement)] = replacement
    return bytes(data)


SIZE = len(encode_record(PLAIN))


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (b"", "only 0 bytes"),
        (encode_record(PLAIN)[:-1], f"only {SIZE - 1} bytes"),
        (bytes(200), "unknown magic 0x00000000"),
        (encode_blank(200) + bytes(192), "blank"),
        (damaged(0, struct.pack(">i", 90)), "the least is 91"),
        (damaged(0, struct.pack(">i", -1)), "the least is 91"),
        (damaged(0, struct.pack(">i", RECORD_SIZE_MAX + 1)), f"limit {RECORD_SIZE_MAX}"),
        (damaged(0, struct.pack(">i", SIZE - 1)), "properties of 3 bytes"),
        (damaged(39, b"\x30"), "fixed fields of 112|does not fit"),
        (damaged(84, struct.pack(">i", -1)), "body of -1 bytes"),
        (damaged(84, struct.pack(">i", 2**31 - 1)), "does not fit the record"),
        (damaged(88, b"X"), "CRC of the body"),
        (damaged(8, b"\xff"), "CRC of the body"),
        (damaged(92, b"\x00"), "topic of 0 bytes"),
        (damaged(92, b"\xff"), "topic of -1 bytes"),
        (damaged(92, b"\x7f"), "topic of 127 bytes"),
        (damaged(93, b"\xff"), "not UTF-8"),
        (damaged(99, b"\xff\xff"), "properties of -1 bytes"),
        (damaged(99, b"\x00\x02"), "properties of 2 bytes"),
    ],
)
def test_damage_is_named(data: bytes, detail: str) -> None:
    with pytest.raises(CorruptRecord, match=detail):
        decode_record(data)


def test_an_ipv6_flag_on_a_short_record_is_damage() -> None:
    record = Record(topic="t", body=b"", born_host=BROKER, store_host=BROKER)
    data = bytearray(encode_record(record))
    data[39] = BORN_HOST_V6 | STORE_HOST_V6
    with pytest.raises(CorruptRecord, match="fixed fields of 112 bytes"):
        decode_record(data)


def test_the_crc_may_be_left_unchecked() -> None:
    record, _ = decode_record(damaged(88, b"X"), is_crc_checked=False)
    assert (record.body, record.crc) == (b"Xody", body_crc(b"body"))


def test_the_error_names_the_place_in_the_log() -> None:
    with pytest.raises(CorruptRecord, match="log offset 5007") as caught:
        decode_record(bytes(100), 7, base_offset=5_000)
    assert caught.value.log_offset == 5_007


def test_a_record_is_written_and_read_up_to_the_one_limit() -> None:
    around = SIZE - len(PLAIN.body)
    record = msgspec.structs.replace(PLAIN, body=bytes(RECORD_SIZE_MAX - around))
    data = encode_record(record)
    assert len(data) == decode_record(data)[1] == RECORD_SIZE_MAX
    with pytest.raises(LocalProtocolError, match=f"limit {RECORD_SIZE_MAX}"):
        encode_record(msgspec.structs.replace(record, body=record.body + b"x"))


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"queue_id": 2**31}, "queue_id 2147483648 does not fit 4 bytes"),
        ({"born_ms": 2**63}, "born_ms .* does not fit 8 bytes"),
        ({"born_host": Host("::1", 2**31)}, "born_port .* does not fit"),
        ({"store_host": Host("broker-a", 1)}, "'broker-a' is not an IPv4 or IPv6 address"),
        ({"topic": ""}, "topic of 0 bytes"),
        ({"topic": "\ud800"}, "half a character"),
        ({"properties": bytes(32_768)}, "properties of 32768 bytes, limit 32767"),
        ({"magic": 5}, "unknown record magic 0x5"),
    ],
)
def test_a_value_that_does_not_fit_is_named(change: dict[str, object], detail: str) -> None:
    with pytest.raises(LocalProtocolError, match=detail):
        encode_record(msgspec.structs.replace(PLAIN, **change))


def test_a_blank_record_is_size_and_magic() -> None:
    assert encode_blank(716) == struct.pack(">iI", 716, BLANK_MAGIC)
    assert is_blank(encode_blank(8))
    assert not is_blank(encode_blank(8)[:-1])
    assert not is_blank(encode_record(PLAIN))
    with pytest.raises(BrokenInvariant):
        encode_blank(7)


@given(st.binary(max_size=300), st.integers(0, 20))
def test_arbitrary_bytes_are_a_record_or_corrupt(data: bytes, start: int) -> None:
    with contextlib.suppress(CorruptRecord):
        record, size = decode_record(data, start)
        assert encode_record(record) == data[start : start + size]


@given(RECORDS, st.data())
def test_a_record_with_one_changed_byte_never_passes_for_another_size(
    record: Record, draw: st.DataObject
) -> None:
    data = bytearray(encode_record(record))
    position = draw.draw(st.integers(0, len(data) - 1))
    data[position] ^= draw.draw(st.integers(1, 255))
    try:
        changed, size = decode_record(data)
    except CorruptRecord:
        return
    assert size == len(data)
    assert encode_record(changed) == data
