"""What Arrow columns are encoded to is what `wire` makes of the same rows, byte for byte."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.arrow.columns import arrow_schema
from orbitmq.arrow.decode import BatchDecoder
from orbitmq.arrow.encode import bytes_between, encode_messages, property_strings
from orbitmq.arrow.encode_records import encode_stored
from orbitmq.errors import LocalProtocolError
from orbitmq.wire.batch import BatchMessage, encode_batch
from orbitmq.wire.properties import encode_properties
from orbitmq.wire.record import MAGIC_V1, MAGIC_V2, RECORD_SIZE_MAX, Record, encode_record
from tests.arrow.made import INT32, RECORDS, laid, plain

MESSAGES = st.builds(BatchMessage, st.binary(max_size=50), st.binary(max_size=50), INT32)
TEXTS = st.text("ab é\x01", min_size=1, max_size=5)
NAMES = st.text("abcKEYS", min_size=1, max_size=4)
STORED = arrow_schema()
STORED = STORED.set(
    STORED.get_field_index("properties"), pa.field("properties", pa.binary(), nullable=False)
)


def binary(values: list[bytes]) -> Any:
    return pa.array(values, type=pa.binary())


@given(st.lists(MESSAGES, min_size=1, max_size=8), st.data())
def test_any_run_of_messages_is_the_body_of_a_batch(
    messages: list[BatchMessage], data: st.DataObject
) -> None:
    begin = data.draw(st.integers(0, len(messages) - 1))
    end = data.draw(st.integers(begin + 1, len(messages)))
    encoded = encode_messages(
        binary([each.body for each in messages]),
        binary([each.properties for each in messages]),
        [each.flag for each in messages],
    )
    assert bytes_between(encoded, begin, end) == encode_batch(messages[begin:end])


def test_messages_of_a_part_of_an_array_are_those_of_the_part() -> None:
    bodies = binary([b"a", b"bb", b"ccc"]).slice(1)
    encoded = encode_messages(bodies, binary([b"", b"x", b"y\x01z"]).slice(1))
    both = [BatchMessage(b"bb", b"x"), BatchMessage(b"ccc", b"y\x01z")]
    assert bytes_between(encoded, 0, 2) == encode_batch(both)
    assert bytes_between(encoded.slice(1), 0, 1) == encode_batch(both[1:])


def stored_batch(records: list[Record]) -> tuple[Any, bytes]:
    """A batch of records with properties and bodies as they are stored, and their bytes."""
    data, starts = laid(records)
    decoder = BatchDecoder(arrow_schema(), decompresses=False)
    batch = decoder.decode(data, np.array(starts, dtype=np.int64)).batch
    place = batch.schema.get_field_index("properties")
    properties = binary([each.properties for each in records])
    return batch.set_column(place, STORED.field("properties"), properties), data


CALENDAR = st.integers(-62_135_596_800_000, 253_402_300_799_999)


@given(st.lists(RECORDS, max_size=6), CALENDAR)
def test_records_are_encoded_as_they_were_stored(records: list[Record], time_ms: int) -> None:
    settled = [
        Record(
            **{
                **{name: getattr(each, name) for name in Record.__struct_fields__},
                "born_ms": time_ms,
                "store_ms": time_ms,
                "magic": MAGIC_V1,
            }
        )
        for each in records
    ]
    batch, data = stored_batch(settled)
    encoded = encode_stored(batch)
    assert b"".join(encoded.to_pylist()) == data


def test_a_topic_too_long_for_the_first_magic_gets_the_second() -> None:
    long = plain(2, topic="T" * 200, magic=MAGIC_V2)
    batch, data = stored_batch([plain(1), long, plain(3)])
    assert b"".join(encode_stored(batch).to_pylist()) == data


def test_a_record_too_long_for_any_log_is_refused_with_its_row() -> None:
    records = [plain(1), plain(2, body=bytes(RECORD_SIZE_MAX - 200))]
    batch, _ = stored_batch(records)
    bodies = binary([b"", bytes(RECORD_SIZE_MAX)])
    place = batch.schema.get_field_index("body")
    with pytest.raises(LocalProtocolError, match=r"in row 1, limit"):
        encode_stored(batch.set_column(place, batch.schema.field(place), bodies))
    with pytest.raises(LocalProtocolError):
        encode_record(plain(1, body=bytes(RECORD_SIZE_MAX)))


@given(st.lists(st.tuples(st.none() | TEXTS, st.dictionaries(NAMES, TEXTS, max_size=4))))
def test_property_strings_are_those_of_the_slow_writer(
    rows: list[tuple[str | None, dict[str, str]]],
) -> None:
    keys = pa.array([key for key, _ in rows], type=pa.string())
    maps = pa.array([list(each.items()) for _, each in rows], pa.map_(pa.string(), pa.string()))
    found = property_strings({"KEYS": keys}, maps).to_pylist()
    assert found == [
        encode_properties(
            ({"KEYS": key} if key is not None else {})
            | {name: value for name, value in each.items() if name != "KEYS"}
        )
        for key, each in rows
    ]


@pytest.mark.parametrize(
    ("columns", "entries", "message"),
    [
        ({"TAGS": "a\x02b"}, {}, "property 'TAGS' in row 0"),
        ({"TAGS": ""}, {}, "property 'TAGS' in row 0"),
        ({"TA\x01GS": "a"}, {}, "cannot be called"),
        ({}, {"": "x"}, "cannot be called ''"),
        ({}, {"a\x01": "x"}, "cannot be called"),
        ({}, {"a": ""}, "null leaves a property out"),
        ({}, {"a": "x" * 40_000}, "limit 32767"),
    ],
)
def test_properties_that_would_read_back_differently_are_refused(
    columns: dict[str, str], entries: dict[str, str], message: str
) -> None:
    arrays = {name: pa.array([value], type=pa.string()) for name, value in columns.items()}
    maps = pa.array([list(entries.items())], type=pa.map_(pa.string(), pa.string()))
    with pytest.raises(LocalProtocolError, match=message):
        property_strings(arrays, maps)


def test_a_property_that_is_null_in_a_map_is_left_out() -> None:
    maps = pa.array([[("a", None), ("b", "x")], None], type=pa.map_(pa.string(), pa.string()))
    assert property_strings({}, maps).to_pylist() == [b"b\x01x", b""]
