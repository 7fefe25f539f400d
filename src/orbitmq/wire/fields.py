"""Typed headers: the ext fields of one request or response as a value with named fields.

In: the text fields of a Command, or a typed header. Out: the other one.

Rules:
1. A header is a class derived from Header; its wire names are its field names in camelCase, or what
   `msgspec.field(name=...)` says. Required fields have no default; optional ones default to None or
   to the original's default. Numbers are Int32 or Int64, never a bare int, which has no limit.
2. Fields nobody declared are ignored (5.x clients add `bname`, `ns`, `ReqT` and others).
3. A missing or unreadable field is a RemoteProtocolError that names it.
4. Numbers are read as Java reads them (`+7`, `007`) and with blanks around them; an empty text is
   an absent number or boolean.
5. Booleans: `true` in any case and `1` are true (C++ 1.x marks its batches with `1`), any other
   text is false, as in Java.
"""

import re
from functools import cache
from typing import Annotated, TypeVar

import msgspec
from msgspec import inspect

from orbitmq.errors import RemoteProtocolError

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Header(msgspec.Struct, rename="camel", frozen=True):
    """The base of every typed header; a subclass repeats `frozen`, for the type checker."""


H = TypeVar("H", bound=Header)


def read_header(header_type: type[H], fields: dict[str, str]) -> H:
    """Return `fields` as a typed header; raises RemoteProtocolError that names the wrong field."""
    try:
        return msgspec.convert(fields, header_type, strict=False)
    except msgspec.ValidationError:
        pass  # what Java would still read is mended, at the cost of a second try
    try:
        return msgspec.convert(_mend(header_type, fields), header_type, strict=False)
    except msgspec.ValidationError as error:
        raise RemoteProtocolError("header-field", f"{header_type.__name__}: {error}") from None


def write_header(header: Header) -> dict[str, str]:
    """Return a typed header as text fields; what is None is left out."""
    values = msgspec.to_builtins(header)
    return {name: _text(value) for name, value in values.items() if value is not None}


def _text(value: object) -> str:
    if type(value) is str:
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


# --- what msgspec refuses and Java reads ---

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")


def _mend(header_type: type[Header], fields: dict[str, str]) -> dict[str, str]:
    mended = dict(fields)
    for name, kind in _kinds(header_type).items():
        text = mended.get(name)
        if text is None:
            continue
        text = text.strip()
        if not text:
            del mended[name]
        elif kind is bool:
            mended[name] = "true" if text.lower() in ("true", "1") else "false"
        elif _NUMBER.fullmatch(text):
            mended[name] = str(int(text))
    return mended


@cache
def _kinds(header_type: type[Header]) -> dict[str, type]:
    """Return the wire names of the header's numbers and booleans, with which of the two each is."""
    kinds: dict[str, type] = {}
    info = inspect.type_info(header_type)
    if not isinstance(info, inspect.StructType):
        return kinds
    for field in info.fields:
        members = field.type.types if isinstance(field.type, inspect.UnionType) else (field.type,)
        for member in members:
            if isinstance(member, inspect.IntType):
                kinds[field.encode_name] = int
            elif isinstance(member, inspect.BoolType):
                kinds[field.encode_name] = bool
    return kinds
