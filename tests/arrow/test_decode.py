"""The Arrow decoder agrees with `wire.record` row by row, and loses nothing in silence."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from orbitmq.arrow.columns import COLUMN_OF, COLUMNS, arrow_schema
from orbitmq.arrow.decode import BatchDecoder
from orbitmq.arrow.starts import walk
from orbitmq.ensure import BrokenInvariant
from orbitmq.errors import CorruptRecord, SettingError
from orbitmq.wire.record import MAGIC_V2, RECORD_SIZE_MIN, Record, decode_record
from orbitmq.wire.sysflag import Compression
from tests.arrow.made import RECORDS, compressed, damaged_crc, laid, plain, row_of, time_of
from tests.golden.store import described, log_files, stored_records

ALL = arrow_schema()


def positions(starts: list[int]) -> Any:
    return np.array(starts, dtype=np.int64)


def rows(data: bytes, starts: list[int], schema: Any = ALL, **choices: Any) -> list[dict[str, Any]]:
    decoded = BatchDecoder(schema, **choices).decode(data, positions(starts))
    assert decoded.damage == []
    decoded.batch.validate(full=True)
    assert decoded.batch.schema.equals(schema, check_metadata=True)
    return list(decoded.batch.to_pylist())


def expected(data: bytes, starts: list[int]) -> list[dict[str, Any]]:
    return [row_of(*decode_record(data, start)) for start in starts]


SPARK_TYPES: dict[str, DataType] = {
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
    "map<string,string>": MapType(StringType(), StringType()),
}


def test_the_schema_is_the_one_that_spark_makes_of_the_same_columns() -> None:
    fields = [StructField(each.name, SPARK_TYPES[each.ddl], each.is_nullable) for each in COLUMNS]
    spark = to_arrow_schema(StructType(fields), timezone="UTC")
    assert ALL.equals(spark, check_metadata=True)


def test_the_golden_log_has_the_rows_that_were_recorded() -> None:
    found: list[dict[str, Any]] = []
    for base, data in log_files():
        starts = walk(data, base=base).positions.tolist()
        assert rows(data, starts) == expected(data, starts)
        found += [described(*decode_record(data, start)) for start in starts]
    assert found == list(stored_records())


@given(st.lists(RECORDS, max_size=8))
def test_every_kind_of_record_has_the_row_that_the_slow_codec_gives(records: list[Record]) -> None:
    data, starts = laid(records)
    assert rows(data, starts) == expected(data, starts)


@given(st.lists(RECORDS, min_size=1, max_size=6), st.data())
def test_of_damaged_records_every_one_is_a_row_or_is_reported(
    records: list[Record], data: st.DataObject
) -> None:
    stored, starts = laid(records)
    torn = bytearray(stored)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(torn) - 1))
        torn[at] = data.draw(st.integers(0, 255))
    is_checked = data.draw(st.booleans())
    decoder = BatchDecoder(ALL, verifies_crc=is_checked, decompresses=False)
    found = decoder.decode(bytes(torn), positions(starts))
    whole: list[dict[str, Any]] = []
    bad: list[tuple[int, str]] = []
    for start, end in zip(starts, [*starts[1:], len(torn)], strict=True):
        try:
            one = decode_record(bytes(torn)[:end], start, is_crc_checked=is_checked)
            whole.append(row_of(*one, decompresses=False))
        except CorruptRecord as error:
            bad.append((start, error.detail))
    assert found.batch.to_pylist() == whole
    assert [(each.position, each.why) for each in found.damage] == bad


@given(st.binary(max_size=400), st.lists(st.integers(0, 420), max_size=5, unique=True))
def test_any_bytes_give_rows_or_damage_and_nothing_else(data: bytes, starts: list[int]) -> None:
    found = BatchDecoder(ALL).decode(data, positions(sorted(starts)))
    assert found.batch.num_rows + len(found.damage) == len(starts)


@pytest.mark.parametrize("name", COLUMN_OF)
def test_a_column_asked_for_alone_is_the_same(name: str) -> None:
    records = [plain(1), plain(2, magic=MAGIC_V2), compressed(Compression.ZLIB), plain(4)]
    data, starts = laid(records)
    alone = rows(data, starts, arrow_schema([name]))
    assert alone == [{name: each[name]} for each in expected(data, starts)]


@pytest.mark.parametrize("kind", Compression)
def test_compressed_bodies_are_plain_unless_they_are_wanted_as_they_are(kind: Compression) -> None:
    record = compressed(kind)
    data, starts = laid([plain(1), record, plain(2)])
    body = arrow_schema(["body"])
    assert [each["body"] for each in rows(data, starts, body)][1] == b"again and again " * 20
    as_stored = rows(data, starts, body, decompresses=False)
    assert as_stored[1]["body"] == record.body


def test_a_body_that_cannot_be_decompressed_is_damage_that_says_how_to_get_it() -> None:
    data, starts = laid([plain(1), plain(2, sys_flag=1, body=b"no zlib"), plain(3)])
    found = BatchDecoder(ALL).decode(data, positions(starts))
    assert found.batch.column("keys").to_pylist() == ["k1", "k3"]
    assert found.damage[0].position == starts[1]
    assert "decompress=false" in found.damage[0].why
    assert len(rows(data, starts, arrow_schema(["topic"]))) == 3


def test_a_wrong_crc_is_damage_only_when_it_is_to_be_verified() -> None:
    data, starts = laid([plain(1), plain(2), plain(3)])
    data = damaged_crc(data, starts[1])
    assert len(rows(data, starts)) == 3
    found = BatchDecoder(ALL, verifies_crc=True).decode(data, positions(starts))
    assert [each.position for each in found.damage] == [starts[1]]
    assert found.damage[0].size == starts[2] - starts[1]
    assert "CRC" in found.damage[0].why


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"a\x01b",
        b"a\x01b\x02",
        b"a\x01b\x02c\x01d",
        b"a\x01b\x02a\x01c\x02",
        b"a\x01b\x01c\x02d\x01e\x02",
        b"a\x02b\x01c",
        b"\x02a\x01b",
        b"\x01b\x02a\x01b",
        b"a\x01\x02c\x01d",
        b"\xff\x01b\x02c\x01d",
        b"c\x01\xff",
        b"TAGS\x01\xff",
        b"a\x01b\x00\x02",
        b"".join(b"%d\x01v\x02" % number for number in range(80)),
        b"".join(b"%d\x01v\x02" % (number % 79) for number in range(80)),
    ],
)
def test_odd_properties_read_as_the_slow_parser_reads_them(stored: bytes) -> None:
    others = [b"TAGS\x01x", b"", b"KEYS\x01y\x02TAGS\x01z\x02"]
    for number in range(len(others) + 1):
        stored_rows = [*others[:number], stored, *others[number:], stored]
        data, starts = laid([plain(properties=each) for each in stored_rows])
        assert rows(data, starts) == expected(data, starts)
    data, starts = laid([plain(properties=stored)] * 3)
    assert rows(data, starts) == expected(data, starts)


def test_properties_and_bodies_as_text_keep_what_is_no_text_as_replaced_characters() -> None:
    records = [
        plain(1, body="ä".encode(), properties=b"a\x01b"),
        plain(2, body=b"\xff", properties=b"\xff\x01b"),
    ]
    data, starts = laid(records)
    texts = arrow_schema(["body", "properties"], body="string", properties="string")
    assert rows(data, starts, texts) == [
        {"body": "ä", "properties": "a\x01b"},
        {"body": "\ufffd", "properties": "\ufffd\x01b"},
    ]
    mixed, starts = laid([*records, plain(3, magic=MAGIC_V2, body=b"\xff")])
    assert rows(mixed, starts, texts)[2]["body"] == "\ufffd"


def test_times_that_no_calendar_has_become_the_nearest_ones() -> None:
    for time_ms in (-(2**63), 2**63 - 1, -62_135_596_800_001, 253_402_300_800_000):
        data, starts = laid([plain(1, born_ms=time_ms), plain(2, magic=MAGIC_V2, born_ms=time_ms)])
        found = [each["bornTimestamp"] for each in rows(data, starts)]
        assert found == [time_of(time_ms)] * 2


def test_whole_records_are_given_as_they_are_stored() -> None:
    data, starts = laid([plain(1), plain(2, magic=MAGIC_V2), plain(3)])
    raw = [each["raw"] for each in rows(data, starts, arrow_schema(["raw"]))]
    assert b"".join(raw) == data
    assert raw[1] == data[starts[1] : starts[2]]


def test_the_broker_is_the_one_the_caller_names() -> None:
    data, starts = laid([plain(1), plain(2, magic=MAGIC_V2)])
    found = rows(data, starts, arrow_schema(["brokerName"]), broker_name="broker-a")
    assert found == [{"brokerName": "broker-a"}] * 2


def test_a_record_that_reaches_into_the_next_one_is_damage() -> None:
    data, starts = laid([plain(1), plain(2)])
    found = BatchDecoder(ALL).decode(data, positions([starts[0], starts[0] + RECORD_SIZE_MIN]))
    assert len(found.damage) == 2


def test_bytes_of_every_kind_of_memory_are_read() -> None:
    data, starts = laid([plain(1), plain(2)])
    for memory in (data, bytearray(data), memoryview(data)):
        found = BatchDecoder(ALL).decode(memory, positions(starts))
        assert found.batch.to_pylist() == expected(data, starts)


def test_no_records_give_an_empty_batch_of_the_same_schema() -> None:
    assert rows(b"", []) == []


def test_positions_that_do_not_ascend_are_a_mistake_of_the_caller() -> None:
    data, starts = laid([plain(1), plain(2)])
    with pytest.raises(BrokenInvariant, match="ascend"):
        BatchDecoder(ALL).decode(data, positions(starts[::-1]))


def test_a_column_that_no_record_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(SettingError, match=r"no column 'bdy'; there are topic, .*body"):
        BatchDecoder(pa.schema([pa.field("bdy", pa.binary())]))


def test_a_column_of_another_type_is_refused_with_the_right_one() -> None:
    with pytest.raises(SettingError, match="column 'queueId' is int32, not string"):
        BatchDecoder(pa.schema([pa.field("queueId", pa.string())]))
    with pytest.raises(SettingError, match="column 'body' is binary or string, not int32"):
        BatchDecoder(pa.schema([pa.field("body", pa.int32())]))
