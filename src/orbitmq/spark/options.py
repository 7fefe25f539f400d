"""Options of Spark sources and sinks: text in, typed values out, every mistake named.

In: the options of a reader or writer, as Spark gives them (names in any case, values as text).
Out: one frozen value whose class is the table that the documentation is made from.

Rules:
1. A source's options are one class that derives from `Options`: a field each, its type made by
   `doc` with its meaning. Users write the field's name in camel case.
2. An option that nobody knows is an error that names the nearest one: a misspelt limit must not
   be ignored. Names that begin with one of the class's PREFIXES are kept in `others`. A table of
   Spark's catalog is refused: its options come when it is made, and never again.
3. Values of secret options are in no error, no plan and no log.
4. Options that only streams have a use for are marked so. A batch checks them and warns that they
   change nothing, as Spark's own sources do: one set of options serves both.
"""

import difflib
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, TypeVar, get_args

import msgspec

from orbitmq.errors import SettingError

log = logging.getLogger(__name__)

T = TypeVar("T", bound="Options")

TABLES_OWN = frozenset({"provider", "owner"})
"""Spark puts these beside the options of a table that is made in its catalog."""

SPARKS_OWN = frozenset({"path", "checkpointlocation", "queryname"})
"""Spark puts these beside a source's options; a source that wants one has a field for it."""


Count = Annotated[int, msgspec.Meta(ge=1)]
"""A number of things of which there must be one at least."""


def doc(meaning: str, *, is_secret: bool = False, is_for_streams: bool = False) -> msgspec.Meta:
    """Return what `Annotated` adds to the type of an option: its meaning."""
    marks = {"is_secret": is_secret, "is_for_streams": is_for_streams}
    return msgspec.Meta(description=meaning, extra=marks)


class Options(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The common part of all options."""

    PREFIXES: ClassVar[tuple[str, ...]] = ()

    others: dict[str, str] = {}
    """Options that only their beginning names, by their names in lower case."""


def option_fields(kind: type[Options]) -> dict[str, msgspec.structs.FieldInfo]:
    """Return the options of a class by the names that users write, in their order."""
    fields = msgspec.structs.fields(kind)
    return {field.encode_name: field for field in fields if field.name != "others"}


def read_options(kind: type[T], given: Mapping[str, str], source: str) -> T:
    """Return the options that a user gave to `source`, the format's name.

    Raises SettingError that names the option, its value and what would be right.
    """
    fields = option_fields(kind)
    spelt = {name.lower(): name for name in fields}
    if TABLES_OWN.issubset(map(str.lower, given)):
        raise SettingError(
            f"{source}: Spark forgets the options of a table when it reads or writes it; use "
            f"CREATE TEMPORARY VIEW ... USING {source} OPTIONS (...) instead of CREATE TABLE"
        )
    values: dict[str, Any] = {"others": {}}
    for name, text in given.items():
        lower = name.lower()
        if lower in spelt:
            values[spelt[lower]] = _value(fields[spelt[lower]], text, source)
        elif lower.startswith(kind.PREFIXES):
            values["others"][lower] = text
        elif lower not in SPARKS_OWN:
            raise SettingError(_unknown(name, spelt, source))
    missing = [name for name, field in fields.items() if field.required and name not in values]
    if missing:
        raise SettingError(f"{source} needs the option {missing[0]!r}")
    return msgspec.convert(values, kind)


def _value(field: msgspec.structs.FieldInfo, text: str, source: str) -> Any:
    try:
        return msgspec.convert(text, field.type, strict=False)
    except msgspec.ValidationError as error:
        shown = "" if is_secret(field) else f" {text!r}"
        raise SettingError(
            f"{source}: option {field.encode_name!r}:{shown} is not right: {_why(field, error)}"
        ) from None


def read_time_ms(option: str, text: str, source: str) -> int:
    """Return the milliseconds of an option that is a number of them, or ISO 8601 (UTC unless set).

    Raises SettingError that names the option.
    """
    text = text.strip()
    if text.removeprefix("-").isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise SettingError(
            f"{source}: option {option!r}: {text!r} is not right: it is milliseconds since 1970, "
            "or a time such as 2026-01-31T12:00:00Z"
        ) from None
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(zoned.timestamp() * 1_000)


def warn_of_streams_options(kind: type[Options], given: Mapping[str, str], source: str) -> None:
    """Say which options of a batch change nothing (rule 4)."""
    names = {name.lower() for name in given}
    fields = option_fields(kind).items()
    idle = [name for name, field in fields if is_for_streams(field) and name.lower() in names]
    if idle:
        quoted = ", ".join(map(repr, idle))
        log.warning("%s: only streams have a use for %s: no effect in a batch", source, quoted)


def is_secret(field: msgspec.structs.FieldInfo) -> bool:
    """Whether nobody may see the option's value."""
    return _is_marked(field, "is_secret")


def is_for_streams(field: msgspec.structs.FieldInfo) -> bool:
    """Whether the option changes nothing in a batch."""
    return _is_marked(field, "is_for_streams")


def _is_marked(field: msgspec.structs.FieldInfo, mark: str) -> bool:
    return any(
        isinstance(each, msgspec.Meta) and bool((each.extra or {}).get(mark))
        for each in get_args(field.type)[1:]
    )


def choices_of(kind: Any) -> tuple[str, ...]:
    """Return the words that a type made of Literal allows, or nothing."""
    inner = [each for each in get_args(kind) if not isinstance(each, msgspec.Meta)]
    if inner and all(isinstance(each, str) for each in inner):
        return tuple(inner)
    return next((found for each in inner if (found := choices_of(each))), ())


def _why(field: msgspec.structs.FieldInfo, error: msgspec.ValidationError) -> str:
    words = choices_of(field.type)
    return f"it is one of {', '.join(words)}" if words else str(error)


def _unknown(name: str, spelt: Mapping[str, str], source: str) -> str:
    near = difflib.get_close_matches(name.lower(), spelt, n=1)
    hint = (
        f"; did you mean {spelt[near[0]]!r}?"
        if near
        else f"; there are {', '.join(spelt.values())}"
    )
    return f"{source} has no option {name!r}{hint}"
