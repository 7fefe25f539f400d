"""Properties: read as the original reads them, written so that they read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import LocalProtocolError
from orbitmq.wire.properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    KEYS,
    PROPERTIES_SIZE_MAX,
    UNIQ_KEY,
    encode_properties,
    format_properties,
    is_reserved,
    join_keys,
    parse_properties,
    split_keys,
)

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1)
VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x02"), min_size=1)


@given(st.dictionaries(NAMES, VALUES, max_size=10), st.booleans())
def test_what_is_written_reads_back(properties: dict[str, str], is_closed: bool) -> None:
    text = format_properties(properties, is_closed=is_closed)
    data = encode_properties(properties, is_closed=is_closed)
    assert parse_properties(text) == properties
    assert parse_properties(data) == properties
    assert text.endswith("\x02") == (is_closed and bool(properties))


# Expected values: what MessageDecoder of 4.9.7 and 5.5.0 makes of these strings.
@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("a\x01b", {"a": "b"}),
        ("a\x01b\x02", {"a": "b"}),
        ("a\x01\x02", {}),
        ("\x01b\x02", {}),
        ("ab\x02", {}),
        ("a\x01b\x01c\x02", {"a": "b\x01c"}),
        ("a\x01b\x02a\x01c", {"a": "c"}),
        ("\x02\x02a\x01b", {"a": "b"}),
        ("a\x01b\x02\x02", {"a": "b"}),
        ("a b\x01 \x02", {"a b": " "}),
        ("\x01\x01a\x02", {}),
        ("a\x01\x01", {"a": "\x01"}),
    ],
)
def test_reading_drops_and_keeps_what_the_original_does(
    text: str, properties: dict[str, str]
) -> None:
    assert parse_properties(text) == properties


@given(st.binary())
def test_reading_arbitrary_bytes_never_fails(data: bytes) -> None:
    properties = parse_properties(data)
    assert parse_properties(format_properties(properties)) == properties


def test_bytes_that_are_not_utf_8_do_not_hide_the_other_properties() -> None:
    assert parse_properties(b"a\x01\xff\x02KEYS\x01k") == {"a": "\ufffd", "KEYS": "k"}


@pytest.mark.parametrize(
    ("properties", "detail"),
    [
        ({"": "v"}, "has no name"),
        ({"n": ""}, "'n' has no value"),
        ({"a\x01b": "v"}, "separator"),
        ({"a\x02b": "v"}, "separator"),
        ({"n": "v\x02"}, "separator"),
    ],
)
def test_what_would_read_back_differently_is_not_written(
    properties: dict[str, str], detail: str
) -> None:
    with pytest.raises(LocalProtocolError, match=detail):
        format_properties(properties)


def test_the_size_limit_is_counted_in_bytes() -> None:
    fits = {"key": "€" * ((PROPERTIES_SIZE_MAX - 4) // 3)}
    assert len(encode_properties(fits)) == PROPERTIES_SIZE_MAX
    with pytest.raises(LocalProtocolError, match="32768 bytes, limit 32767"):
        encode_properties(fits, is_closed=True)


def test_half_a_character_is_not_written() -> None:
    with pytest.raises(LocalProtocolError, match="half a character"):
        encode_properties({"n": "\ud800"})


def test_keys_are_parted_by_single_spaces() -> None:
    assert split_keys("order1 user1") == ["order1", "user1"]
    assert split_keys(" a  b ") == ["a", "b"]
    assert split_keys("") == []


@given(st.lists(st.text(min_size=1).filter(lambda key: " " not in key)))
def test_joined_keys_split_into_the_same(keys: list[str]) -> None:
    assert split_keys(join_keys(keys)) == keys


@pytest.mark.parametrize("key", ["", "a b"])
def test_a_key_that_would_be_parted_or_lost_is_refused(key: str) -> None:
    with pytest.raises(LocalProtocolError, match="empty or holds a space"):
        join_keys(["fine", key])


def test_users_may_not_set_what_the_system_sets() -> None:
    assert is_reserved(KEYS)
    assert is_reserved(UNIQ_KEY)
    assert is_reserved("__RMQ.TRANSIENT.TOPIC_SYS_FLAG")
    assert not is_reserved("colour")
    assert not is_reserved(CHECK_IMMUNITY_TIME_IN_SECONDS)
