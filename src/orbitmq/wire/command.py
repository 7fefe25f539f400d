"""A command: the one value that travels, as request, one-way request or response.

In: a frame's header and body in either serialization, or the fields of a new command.
Out: Command values and whole frames.

Rules:
1. Reading is tolerant of what real clients send: ext fields may be numbers, booleans or null, keys
   may be unknown or missing, white space may follow. All else is a RemoteProtocolError.
2. Writing is strict: every ext field is text, header keys are in alphabetical order as Java writes
   them, `extFields` is always there (the Rust client cannot read a header without it).
3. A response is written in the serialization of its request.
4. Cost is bounded before parsing: a header has a size limit and a limit of fields.
"""

import struct
from typing import Annotated, Any

import msgspec

from orbitmq.errors import LocalProtocolError, RemoteProtocolError
from orbitmq.wire.codes import Language, ResponseCode
from orbitmq.wire.frame import BINARY, JSON, Frame, encode_frame

VERSION = 407
"""What we answer as: the ordinal of 4.9.7 (DESIGN.md 1)."""

LANGUAGE = "JAVA"
"""What we answer as: the one name that every client knows. None of them looks at it."""

HEADER_SIZE_MAX = 262_144
"""Properties travel in headers: 32 KiB of them, at worst six characters for each byte."""

FIELD_COUNT_MAX = 1_024
"""The richest request of the originals has 17 fields."""

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2

_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class Command(msgspec.Struct):
    """One request or response. `fields` are the ext fields, all as text."""

    code: int
    opaque: int = 0
    flag: int = 0
    fields: dict[str, str] = msgspec.field(default_factory=dict)
    body: bytes = b""
    remark: str | None = None
    language: str = LANGUAGE
    version: int = VERSION
    serialization: int = JSON

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """Whether this is a request that must get no answer."""
        return bool(self.flag & FLAG_ONEWAY)


def reply_to(
    request: Command,
    code: int = ResponseCode.SUCCESS,
    remark: str | None = None,
    *,
    fields: dict[str, str] | None = None,
    body: bytes = b"",
) -> Command:
    """Return the response to `request`, with its opaque and its serialization."""
    return Command(
        code=int(code),
        opaque=request.opaque,
        flag=FLAG_RESPONSE,
        fields=fields if fields is not None else {},
        body=body,
        remark=remark,
        serialization=request.serialization,
    )


def decode_command(frame: Frame, header_size_max: int = HEADER_SIZE_MAX) -> Command:
    """Read a frame's header; raises RemoteProtocolError when it is not one."""
    if len(frame.header) > header_size_max:
        raise RemoteProtocolError(
            "header-oversize", f"{len(frame.header)} bytes, limit {header_size_max}"
        )
    if frame.serialization == JSON:
        return _decode_json(frame)
    return _decode_binary(frame)


def encode_command(command: Command) -> bytes:
    """Return the whole frame of a command in its serialization."""
    encode = _encode_json if command.serialization == JSON else _encode_binary
    return encode_frame(command.serialization, encode(command), command.body)


# --- JSON ---


class _JsonIn(msgspec.Struct):
    code: _Int32
    opaque: _Int32 = 0
    flag: _Int32 = 0
    version: _Int32 = 0
    language: Any = None
    remark: str | None = None
    extFields: dict[str, Any] | None = None  # noqa: N815 - the wire's name


class _JsonOut(msgspec.Struct, kw_only=True, omit_defaults=True):
    code: int
    extFields: dict[str, str]  # noqa: N815 - the wire's name
    flag: int
    language: str
    opaque: int
    remark: str | None = None
    serializeTypeCurrentRPC: str  # noqa: N815 - the wire's name
    version: int


_json_in = msgspec.json.Decoder(_JsonIn, strict=False)
_json_out = msgspec.json.Encoder()


def _decode_json(frame: Frame) -> Command:
    try:
        header = _json_in.decode(frame.header)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise RemoteProtocolError("header-json", _first_line(error)) from None
    language = header.language
    return Command(
        header.code,
        header.opaque,
        header.flag,
        _fields_as_text(header.extFields) if header.extFields else {},
        frame.body,
        header.remark,
        language if isinstance(language, str) else Language.OTHER.name,
        header.version,
        JSON,
    )


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0][:200] if lines else type(error).__name__


def _fields_as_text(fields: dict[str, Any]) -> dict[str, str]:
    if len(fields) > FIELD_COUNT_MAX:
        raise RemoteProtocolError("header-fields", f"{len(fields)}, limit {FIELD_COUNT_MAX}")
    return {name: _as_text(name, value) for name, value in fields.items() if value is not None}


def _as_text(name: str, value: Any) -> str:
    """Write a value as Java would have: C++ and Node send numbers and booleans instead of text."""
    if type(value) is str:
        return value
    if value is True:
        return "true"
    if value is False:
        return "false"
    if type(value) is int or type(value) is float:
        try:
            return str(value)
        except ValueError:  # Python refuses to write integers of more than 4,300 digits
            raise RemoteProtocolError("header-field", f"number in {name[:80]} too long") from None
    raise RemoteProtocolError("header-field", f"{name[:80]} is neither text, number nor boolean")


def _encode_json(command: Command) -> bytes:
    return _json_out.encode(
        _JsonOut(
            code=command.code,
            extFields=command.fields,
            flag=command.flag,
            language=command.language,
            opaque=command.opaque,
            remark=command.remark,
            serializeTypeCurrentRPC="JSON",
            version=command.version,
        )
    )


# --- ROCKETMQ binary ---

_FIXED = struct.Struct(">hBhiii")  # code, language, version, opaque, flag, remark length
_LENGTH_16 = struct.Struct(">h")
_LENGTH_32 = struct.Struct(">i")
_LANGUAGE_NAMES = {language.value: language.name for language in Language}
_LANGUAGE_VALUES = {language.name: language.value for language in Language}


def _decode_binary(frame: Frame) -> Command:
    header = frame.header
    try:
        code, language, version, opaque, flag, remark_size = _FIXED.unpack_from(header)
        remark, position = _text_at(header, _FIXED.size, remark_size)
        (fields_size,) = _LENGTH_32.unpack_from(header, position)
        position += _LENGTH_32.size
        if fields_size < 0 or position + fields_size != len(header):
            raise RemoteProtocolError("header-binary", f"ext fields of {fields_size} bytes")
        fields = _binary_fields(header, position)
    except struct.error:
        raise RemoteProtocolError("header-binary", "the header ends inside a field") from None
    except UnicodeDecodeError:
        raise RemoteProtocolError("header-binary", "text is not UTF-8") from None
    return Command(
        code,
        opaque,
        flag,
        fields,
        frame.body,
        remark or None,
        _LANGUAGE_NAMES.get(language, Language.OTHER.name),
        version,
        BINARY,
    )


def _text_at(header: bytes, start: int, size: int) -> tuple[str, int]:
    end = start + size
    if size < 0 or end > len(header):
        raise RemoteProtocolError("header-binary", f"text of {size} bytes at {start}")
    return header[start:end].decode(), end


def _binary_fields(header: bytes, position: int) -> dict[str, str]:
    """Read the entries up to the end. An empty name or value is null in Java: it is dropped."""
    fields: dict[str, str] = {}
    count = 0
    while position < len(header):
        count += 1
        if count > FIELD_COUNT_MAX:
            raise RemoteProtocolError("header-fields", f"more than {FIELD_COUNT_MAX}")
        (name_size,) = _LENGTH_16.unpack_from(header, position)
        name, position = _text_at(header, position + _LENGTH_16.size, name_size)
        (value_size,) = _LENGTH_32.unpack_from(header, position)
        value, position = _text_at(header, position + _LENGTH_32.size, value_size)
        if name and value:
            fields[name] = value
    return fields


def _encode_binary(command: Command) -> bytes:
    remark = (command.remark or "").encode()
    parts = [b"", remark, b""]
    fields_size = 0
    for name, value in command.fields.items():
        name_bytes, value_bytes = name.encode(), value.encode()
        if not name_bytes or not value_bytes:
            continue  # Java reads both as null, that is as absent
        if len(name_bytes) > 32_767:
            raise LocalProtocolError(f"ext field name of {len(name_bytes)} bytes, limit 32767")
        entry = (
            _LENGTH_16.pack(len(name_bytes)),
            name_bytes,
            _LENGTH_32.pack(len(value_bytes)),
            value_bytes,
        )
        parts.extend(entry)
        fields_size += 6 + len(name_bytes) + len(value_bytes)
    try:
        parts[0] = _FIXED.pack(
            command.code,
            _LANGUAGE_VALUES.get(command.language, Language.OTHER.value),
            command.version,
            command.opaque,
            command.flag,
            len(remark),
        )
    except struct.error:
        raise LocalProtocolError(
            f"code {command.code} or version {command.version} does not fit a binary header"
        ) from None
    parts[2] = _LENGTH_32.pack(fields_size)
    return b"".join(parts)
