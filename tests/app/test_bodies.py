"""Bodies are read as the handler's annotation says, and written as the value says."""

import inspect
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.app.bodies import BodyError, decoder, encode


@dataclass
class Plain:
    id: int


class Quick(msgspec.Struct):
    id: int


class Checked(pydantic.BaseModel):
    id: int


class Loose(TypedDict):
    id: int


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        (bytes, b'{"id":1}'),
        (str, '{"id":1}'),
        (dict, {"id": 1}),
        (dict[str, int], {"id": 1}),
        (Any, {"id": 1}),
        (inspect.Parameter.empty, {"id": 1}),
        (Plain, Plain(1)),
        (Quick, Quick(1)),
        (Checked, Checked(id=1)),
        (Loose, {"id": 1}),
    ],
)
def test_a_body_is_read_as_the_annotation_says_and_written_again(wanted: Any, value: Any) -> None:
    assert decoder(wanted)(b'{"id":1}') == value
    assert encode(value).replace(b" ", b"") == b'{"id":1}'


@pytest.mark.parametrize(
    ("wanted", "body", "said"),
    [
        (Plain, b'{"id":"x"}', "Plain.*id"),
        (Quick, b"{", "Quick"),
        (Checked, b"{}", "Checked.*id"),
        (str, b"\xff", "text.*byte 0"),
        (int, b"1.5", "int"),
        (dict, b"[" * 100_000, "dict"),
    ],
)
def test_a_body_that_does_not_fit_says_where(wanted: Any, body: bytes, said: str) -> None:
    with pytest.raises(BodyError, match=said):
        decoder(wanted)(body)


@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(), st.lists))
def test_json_values_come_back(value: Any) -> None:
    if not isinstance(value, str):  # a text is sent as it is
        assert decoder(Any)(encode(value)) == value


def test_what_no_json_can_hold_is_refused() -> None:
    with pytest.raises(TypeError):
        encode(object())
