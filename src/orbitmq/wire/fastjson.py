"""Bodies in the JSON of fastjson, the library of the originals.

In: a body's bytes and the type wanted, or a value. Out: the other one, or RemoteProtocolError.

Rules:
1. Standard JSON is read first, by msgspec. Only what it refuses is read again, tolerantly: integers
   and objects as keys of objects, members that are null (as absent), `{"$ref":...}` (as absent).
2. A flat object that is a key becomes the text of that object, keys sorted, no blanks;
   `bodies_client.read_queue_key` gives it back as a MessageQueue.
3. Reading is linear and bounded: the tolerant reader refuses deep nesting and too many tokens;
   msgspec refuses nesting that the interpreter's stack cannot hold.
4. Writing: keys of structs alphabetically, None left out, integer keys without quotes unless the
   reader wants standard JSON, structs as keys always as objects (only Java reads such bodies).
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, TypeVar

import msgspec

from orbitmq.errors import RemoteProtocolError

NESTING_MAX = 64
"""The deepest body of the originals has seven levels."""

TOKEN_COUNT_MAX = 1_000_000
"""A register body of 30,000 topics; about a second of reading."""

REQUEST_BYTES_MAX = 2_097_152
"""Of what clients and tools ask a broker: a heartbeat with thousands of subscriptions."""

REQUEST_TOKENS_MAX = 20_000
"""The same, where it must be read tolerantly: some 15 ms of reading, while everybody else waits."""

T = TypeVar("T")


def read_request(data: bytes, body_type: type[T]) -> T:
    """Return a request's body as `read_json` does, within limits that hold up nobody else."""
    if len(data) > REQUEST_BYTES_MAX:
        raise _refusal(f"{len(data)} bytes, limit {REQUEST_BYTES_MAX}")
    return read_json(data, body_type, REQUEST_TOKENS_MAX)


def read_json(data: bytes, body_type: type[T], token_count_max: int | None = None) -> T:
    """Return a body as a value of `body_type`; raises RemoteProtocolError when it is not one."""
    try:
        value: T = _decoder(body_type).decode(data)
        return value
    except (ValueError, RecursionError):
        pass  # msgspec.DecodeError and UnicodeDecodeError are both ValueErrors
    parsed = _parse(data, token_count_max or TOKEN_COUNT_MAX)
    try:
        return msgspec.convert(parsed, body_type, strict=False, str_keys=True)
    except (msgspec.ValidationError, RecursionError) as error:
        raise _refusal(f"{_name(body_type)}: {_first_line(error)}") from None


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def _decoder(body_type: Any) -> msgspec.json.Decoder[Any]:
    """Return the decoder of a type, made once; there are as many as types in the source."""
    if body_type not in _decoders:
        _decoders[body_type] = msgspec.json.Decoder(body_type, strict=False)
    return _decoders[body_type]


def _name(body_type: type) -> str:
    return getattr(body_type, "__name__", str(body_type))


def _refusal(detail: str) -> RemoteProtocolError:
    return RemoteProtocolError("body-json", detail)


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0][:200] if lines else type(error).__name__


# --- the tolerant reader ---

_TOKEN = re.compile(
    rb"""[ \t\r\n]*+(?:
        (?P<mark>[{}\[\]:,])
        |(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")
        |(?P<number>-?[0-9][0-9.eE+-]*+)
        |(?P<word>true|false|null)
        |(?P<end>\Z)
        |(?P<wrong>.)
    )""",
    re.VERBOSE | re.DOTALL,
)
_Token = re.Match[bytes]
_WORDS = {b"true": True, b"false": False, b"null": None}
_ABSENT = object()
"""What a `$ref` is read as: its place is left out."""


def _parse(data: bytes, token_count_max: int) -> Any:
    tokens = _tokens(data, token_count_max)
    value = _value(next(tokens), tokens, 0)
    end = next(tokens)
    if end.lastgroup != "end":
        raise _misplaced(end)
    return None if value is _ABSENT else value


def _tokens(data: bytes, count_max: int) -> Iterator[_Token]:
    for count, token in enumerate(_TOKEN.finditer(data)):
        if count > count_max:
            raise _refusal(f"more than {count_max} tokens in what is not standard JSON of its kind")
        yield token


def _misplaced(token: _Token) -> RemoteProtocolError:
    if token.lastgroup == "end":
        return _refusal(f"it ends too early, at byte {token.end()}")
    return _refusal(f"unexpected {_text(token)[:40]!r} at byte {token.start(token.lastgroup or 0)}")


def _text(token: _Token) -> bytes:
    return token[token.lastgroup or 0]


def _value(token: _Token, tokens: Iterator[_Token], depth: int) -> Any:
    kind, text = token.lastgroup, _text(token)
    if kind in ("string", "number"):
        return _scalar(text)
    if kind == "word":
        return _WORDS[text]
    if text not in (b"{", b"["):
        raise _misplaced(token)
    if depth == NESTING_MAX:
        raise _refusal(f"more than {NESTING_MAX} levels")
    return (_object if text == b"{" else _array)(tokens, depth + 1)


def _scalar(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except ValueError as error:
        raise _refusal(_first_line(error)) from None


def _array(tokens: Iterator[_Token], depth: int) -> list[Any]:
    items: list[Any] = []
    token = next(tokens)
    if _text(token) == b"]":
        return items
    while True:
        item = _value(token, tokens, depth)
        if item is not _ABSENT:
            items.append(item)
        if _closes(next(tokens), b"]"):
            return items
        token = next(tokens)


def _object(tokens: Iterator[_Token], depth: int) -> Any:
    members: dict[str, Any] = {}
    token = next(tokens)
    if _text(token) == b"}":
        return members
    while True:
        key = _key(token, tokens, depth)
        colon = next(tokens)
        if _text(colon) != b":":
            raise _misplaced(colon)
        item = _value(next(tokens), tokens, depth)
        if item is not None and item is not _ABSENT:
            members[key] = item
        if _closes(next(tokens), b"}"):
            return _ABSENT if "$ref" in members else members
        token = next(tokens)


def _closes(token: _Token, mark: bytes) -> bool:
    """Whether the object or array ends here; raises when it neither ends nor goes on."""
    text = _text(token)
    if text == mark:
        return True
    if text != b",":
        raise _misplaced(token)
    return False


def _key(token: _Token, tokens: Iterator[_Token], depth: int) -> str:
    """Read a key. An object as key must be flat: keys in keys would double with every level."""
    if token.lastgroup == "number":
        return _text(token).decode()
    if token.lastgroup != "string" and _text(token) != b"{":
        raise _misplaced(token)
    key = _value(token, tokens, max(depth, NESTING_MAX - 1))
    if key is _ABSENT:
        raise _misplaced(token)
    return key if isinstance(key, str) else msgspec.json.encode(key, order="sorted").decode()


# --- the writer ---

_encode = msgspec.json.Encoder().encode


def write_json(value: object, *, standard: bool) -> bytes:
    """Return a value as a body; with `standard`, integer keys are quoted."""
    parts: list[bytes] = []
    _write(value, parts, standard=standard)
    return b"".join(parts)


def _write(value: object, parts: list[bytes], *, standard: bool) -> None:
    if isinstance(value, msgspec.Struct):
        members = ((prefix, getattr(value, name)) for prefix, name in _sorted_members(type(value)))
        _write_members(members, parts, standard=standard)
    elif isinstance(value, dict):
        keyed = ((_write_key(key, standard=standard), item) for key, item in value.items())
        _write_members(keyed, parts, standard=standard)
    elif isinstance(value, list | tuple | set | frozenset):
        separator = b"["
        for item in value:
            parts.append(separator)
            _write(item, parts, standard=standard)
            separator = b","
        parts.append(b"]" if value else b"[]")
    else:
        parts.append(_encode(value))


def _write_members(
    members: Iterator[tuple[bytes, object]], parts: list[bytes], *, standard: bool
) -> None:
    separator = b"{"
    for prefix, item in members:
        if item is None:
            continue
        parts.append(separator)
        parts.append(prefix)
        _write(item, parts, standard=standard)
        separator = b","
    parts.append(b"}" if separator == b"," else b"{}")


def _write_key(key: object, *, standard: bool) -> bytes:
    if isinstance(key, msgspec.Struct):
        return write_json(key, standard=standard) + b":"
    if isinstance(key, int) and not standard:
        return b"%d:" % key
    return _encode(str(key)) + b":"


@cache
def _sorted_members(struct: type[msgspec.Struct]) -> tuple[tuple[bytes, str], ...]:
    """Return the members in the order of their wire names: name as written, attribute."""
    pairs = zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True)
    return tuple((_encode(wire_name) + b":", name) for wire_name, name in sorted(pairs))
