"""Bodies as values: JSON, text, bytes, or a class of the program's own.

In: a body and the type a handler wants, or a value to send. Out: the value, or the body.

Rules:
1. `bytes` stay bytes, `str` is UTF-8; everything else is JSON: plain values, dataclasses, typed
   dicts, msgspec structs, and pydantic models where pydantic is installed, alone or inside lists,
   dicts, unions and fields of the others. The type decides, never the body.
2. A body that is not what its handler wants is a BodyError with the place of the mistake: trying it
   again would not help.
"""

import importlib
import importlib.util
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any, cast, get_args

import msgspec

from orbitmq.errors import MQError

Decode = Callable[[bytes], Any]


class BodyError(MQError):
    """A body cannot be read as the type that a handler wants."""

    def __init__(self, wanted: str, cause: str) -> None:
        super().__init__(f"the body is no {wanted}: {cause}")
        self.wanted = wanted
        self.cause = cause


def decoder(wanted: Any) -> Decode:
    """Return the function that reads a body as `wanted`; it raises BodyError."""
    if wanted is bytes:
        return bytes
    if wanted is str:
        return _text
    if _names_pydantic(wanted):
        return _guarded(_pydantic().TypeAdapter(wanted).validate_json, wanted)
    plain = Any if wanted is inspect.Parameter.empty else wanted
    return _guarded(msgspec.json.Decoder(plain, dec_hook=_read_model).decode, plain)


def encode(value: Any) -> bytes:
    """Return the body of a value; raises TypeError for one that no JSON can hold."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    if _is_pydantic(type(value)):
        text: str = value.model_dump_json()
        return text.encode()
    return msgspec.json.encode(value, enc_hook=_write_model)


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise BodyError("text", f"byte {error.start} is not UTF-8") from None


def _guarded(decode: Decode, wanted: Any) -> Decode:
    name = getattr(wanted, "__name__", str(wanted))

    def read(body: bytes) -> Any:
        try:
            return decode(body)
        except (ValueError, RecursionError) as error:  # msgspec's and pydantic's are ValueErrors
            raise BodyError(name, " ".join(str(error).split())[:500]) from error

    return read


# --- pydantic, where it is installed ---


def _names_pydantic(kind: Any) -> bool:
    """Whether a type is a pydantic model, or a list, dict or union of such."""
    return _is_pydantic(kind) or any(map(_names_pydantic, get_args(kind)))


def _is_pydantic(kind: Any) -> bool:
    pydantic = _pydantic()
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def _read_model(kind: type, value: Any) -> Any:
    """Read a model that is the field of another class."""
    if _is_pydantic(kind):
        return cast("Any", kind).model_validate(value)
    raise NotImplementedError


def _write_model(value: Any) -> Any:
    """Return a model inside another value as values that JSON has."""
    if _is_pydantic(type(value)):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is nothing that JSON can hold")


@cache
def _pydantic() -> Any:
    """Return pydantic; None where it is not installed."""
    if importlib.util.find_spec("pydantic") is None:
        return None
    return importlib.import_module("pydantic")
