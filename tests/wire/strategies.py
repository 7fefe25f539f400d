"""Hypothesis strategies for every typed header and body, made from the types themselves.

In: a msgspec struct type. Out: a strategy for values of it, with the limits that the type states.
A new header or body is covered as soon as it is declared.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from orbitmq.wire import (
    bodies_client,
    bodies_namesrv,
    headers_client,
    headers_consume,
    headers_namesrv,
)
from orbitmq.wire.fields import Header

HEADER_TYPES: list[type[Header]] = sorted(Header.__subclasses__(), key=lambda each: each.__name__)

BODY_TYPES: list[type[msgspec.Struct]] = sorted(
    (
        each
        for module in (bodies_client, bodies_namesrv)
        for name, each in vars(module).items()
        if isinstance(each, type)
        and issubclass(each, msgspec.Struct)
        and each.__module__ == module.__name__
        and not name.startswith("_")
    ),
    key=lambda each: each.__name__,
)

assert headers_client.PullMessage in HEADER_TYPES
assert headers_consume.ResetOffset in HEADER_TYPES
assert headers_namesrv.RegisterBroker in HEADER_TYPES

texts = st.text(max_size=12)
int64s = st.integers(-(2**63), 2**63 - 1)
json_values = st.recursive(
    st.booleans() | int64s | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
"""What an untyped part of a body may hold; null is not written, so it is not in here."""


def values(struct: type[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for values of a struct type."""
    return _of(inspect.type_info(struct))


def _of(info: inspect.Type) -> st.SearchStrategy[Any]:
    return _MAKERS[type(info)](info)


def _struct(info: Any) -> st.SearchStrategy[Any]:
    return st.builds(info.cls, **{field.name: _of(field.type) for field in info.fields})


def _integers(info: Any) -> st.SearchStrategy[Any]:
    assert info.ge is not None, "a number without limits"
    assert info.le is not None, "a number without limits"
    return st.integers(info.ge, info.le)


def _dictionaries(info: Any) -> st.SearchStrategy[Any]:
    return st.dictionaries(_of(info.key_type), _of(info.value_type), max_size=3)


_MAKERS: dict[type[inspect.Type], Callable[[Any], st.SearchStrategy[Any]]] = {
    inspect.StructType: _struct,
    inspect.UnionType: lambda info: st.one_of([_of(member) for member in info.types]),
    inspect.DictType: _dictionaries,
    inspect.ListType: lambda info: st.lists(_of(info.item_type), max_size=3),
    inspect.IntType: _integers,
    inspect.EnumType: lambda info: st.sampled_from(list(info.cls)),
    inspect.BoolType: lambda _: st.booleans(),
    inspect.StrType: lambda _: texts,
    inspect.NoneType: lambda _: st.none(),
    inspect.AnyType: lambda _: json_values,
}
