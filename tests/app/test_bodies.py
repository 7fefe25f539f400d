"""Bodies are read as the handler's annotation says, and written as the value says."""

import inspect
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.app import bodies
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


class Other(pydantic.BaseModel):
    name: str


@dataclass
class Holding:
    """A dataclass with pydantic models in it."""

    one: Checked
    more: list[Checked]


class Packed(msgspec.Struct):
    by_name: dict[str, Checked]
    last: Checked | None = None


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
    ("wanted", "body", "value"),
    [
        (list[Checked], b'[{"id":1},{"id":2}]', [Checked(id=1), Checked(id=2)]),
        (dict[str, Checked], b'{"a":{"id":1}}', {"a": Checked(id=1)}),
        (Checked | None, b"null", None),
        (Checked | None, b'{"id":1}', Checked(id=1)),
        (Checked | Other, b'{"name":"n"}', Other(name="n")),
        (list[dict[str, Checked | None]], b'[{"a":null}]', [{"a": None}]),
        (Annotated[list[Checked], "whatever"], b'[{"id":1}]', [Checked(id=1)]),
        (Holding, b'{"one":{"id":1},"more":[{"id":2}]}', Holding(Checked(id=1), [Checked(id=2)])),
        (Packed, b'{"by_name":{"a":{"id":1}},"last":null}', Packed({"a": Checked(id=1)})),
        (list[Holding], b'[{"one":{"id":1},"more":[]}]', [Holding(Checked(id=1), [])]),
    ],
)
def test_pydantic_models_inside_other_types_were_not_read(
    wanted: Any, body: bytes, value: Any
) -> None:
    assert decoder(wanted)(body) == value
    assert encode(value).replace(b" ", b"") == body


@pytest.mark.parametrize(
    ("wanted", "body", "said"),
    [
        (Plain, b'{"id":"x"}', "Plain.*id"),
        (Quick, b"{", "Quick"),
        (Checked, b"{}", "Checked.*id"),
        (str, b"\xff", "text.*byte 0"),
        (int, b"1.5", "int"),
        (dict, b"[" * 100_000, "dict"),
        (list[Checked], b'[{"id":1},{"id":"x"}]', "list.*1.id"),
        (Holding, b'{"one":{"id":"x"},"more":[]}', r"Holding.*\$\.one"),
    ],
)
def test_a_body_that_does_not_fit_says_where(wanted: Any, body: bytes, said: str) -> None:
    with pytest.raises(BodyError, match=said):
        decoder(wanted)(body)


@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(), st.lists))
def test_json_values_come_back(value: Any) -> None:
    if not isinstance(value, str):  # a text is sent as it is
        assert decoder(Any)(encode(value)) == value


def test_a_program_without_pydantic_reads_and_writes_all_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setattr(bodies, "_pydantic", bodies._pydantic.__wrapped__)
    assert decoder(Plain)(b'{"id":1}') == Plain(1)
    assert encode([Quick(1)]) == b'[{"id":1}]'
    with pytest.raises(TypeError, match="Checked is nothing that JSON can hold"):
        encode(Checked(id=1))


def test_what_no_json_can_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="object is nothing that JSON can hold"):
        encode([object()])
