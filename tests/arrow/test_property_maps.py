"""Properties by columns are those of the slow parser, and usual ones never need the slow parser."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.arrow import property_maps
from orbitmq.arrow.property_maps import Properties
from orbitmq.wire.properties import parse_properties

NAMES = ("KEYS", "TAGS", "WAIT", "é")


def check(stored: list[bytes]) -> None:
    found = Properties(pa.array(stored, type=pa.binary()), are_all_wanted=True)
    wanted = [parse_properties(each) for each in stored]
    found.maps().validate(full=True)
    assert found.maps().to_pylist() == [list(each.items()) for each in wanted]
    for name in (*NAMES, "none"):
        assert found.column(name).to_pylist() == [each.get(name) for each in wanted]
        alone = Properties(pa.array(stored, type=pa.binary()), are_all_wanted=False)
        assert alone.column(name).to_pylist() == [each.get(name) for each in wanted]


def together(number: int, tag: str = "x") -> bytes:
    """Return the properties of a message that was sent with others."""
    text = f"KEYS\x01k{number}\x02WAIT\x01no\x02TAGS\x01{tag}\x02WAIT\x01true\x02CLUSTER\x01c"
    return text.encode()


@pytest.mark.parametrize(
    "stored",
    [
        [together(number) for number in range(9)],
        [together(number) for number in range(99)],
        [together(7), b"A\x01b\x02", together(8), b"", together(9, "long")],
    ],
    ids=["alike", "of two lengths", "of several kinds"],
)
def test_messages_that_were_sent_together_are_not_read_one_by_one(
    stored: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: WAIT is in them twice, and reading their properties took ten times as long."""

    def refuse(_: bytes) -> Any:
        raise AssertionError("read one by one")

    monkeypatch.setattr(property_maps, "parse_properties", refuse)
    check(stored)


@given(
    st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 3)), min_size=1, max_size=5),
    st.integers(1, 6),
    st.booleans(),
    st.data(),
)
def test_rows_of_one_length_read_as_the_slow_parser_reads_them(
    shape: list[tuple[str, int]], count: int, is_closed: bool, data: st.DataObject
) -> None:
    """Also where a value of a row has a separator, a zero, or bytes that are no text."""
    value = st.sampled_from([b"a", b"a", b"a", b"b", b"\x00", b"\x01", b"\x02", b"\xff"])
    stored = [
        b"\x02".join(
            name.encode() + b"\x01" + b"".join(data.draw(value) for _ in range(size))
            for name, size in shape
        )
        + b"\x02" * is_closed
        for _ in range(count)
    ]
    check(stored)


def test_a_name_that_differs_in_one_row_is_seen() -> None:
    check([b"KEYS\x01a\x02TAGS\x01b", b"KEYS\x01c\x02TAGX\x01d", b"KEYS\x01e\x02TAGS\x01f"])
