"""Typed headers: the ext fields of one request or response as a value with named fields.

In: the text fields of a Command, or a typed header. Out: the other one.

Rules:
1. A header is a class derived from Header; its wire names are its field names in camelCase, or what
   `msgspec.field(name=...)` says. Required fields have no default; optional ones default to None or
   to the original's default.
2. Fields nobody declared are ignored (5.x clients add `bname`, `ns`, `ReqT` and others).
3. A missing or unreadable field is a RemoteProtocolError that names it.
4. Booleans: `true`, `1` and what msgspec takes for true are true; see protocol.md 23.
"""

from typing import TypeVar

import msgspec

from orbitmq.errors import RemoteProtocolError


class Header(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """The base of every typed header."""


H = TypeVar("H", bound=Header)


def read_header(header_type: type[H], fields: dict[str, str]) -> H:
    """Give `fields` as a typed header; raises RemoteProtocolError that names the wrong field."""
    try:
        return msgspec.convert(fields, header_type, strict=False)
    except msgspec.ValidationError as error:
        raise RemoteProtocolError("header-field", str(error)) from None


def write_header(header: Header) -> dict[str, str]:
    """Give a typed header as text fields; what is None is left out."""
    wire_names = header.__struct_encode_fields__
    values = (getattr(header, name) for name in header.__struct_fields__)
    return {
        name: _text(value)
        for name, value in zip(wire_names, values, strict=True)
        if value is not None
    }


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    return str(value)
