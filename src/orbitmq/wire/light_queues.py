"""Light queues: further queues that one record is in, named by its properties.

In: the value of INNER_MULTI_DISPATCH, `%LMQ%a,%LMQ%b`, and, written by the broker when it stores
the message, INNER_MULTI_QUEUE_OFFSET, `7,0`: the record's number in each of them. Out: names and
numbers, or what is wrong with them.

Rules:
1. A light queue is queue 0 below its name; the name begins with %LMQ%. It is no topic: it has no
   settings, and no route leads to it.
2. The names are those of folders, and `topic@group` is the key of an offset. Whatever would lead to
   another folder or key is no name. MQTT's topics are: their `+` and `#` are taken.
3. Reading never fails: of a stored record only what is surely meant counts.
"""

from collections.abc import Sequence

from orbitmq.wire.names import LIGHT_QUEUE_PREFIX
from orbitmq.wire.properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    NAME_END,
    parse_properties,
)

LIGHT_COUNT_MAX = 1_000
"""Light queues of one message."""

NAME_BYTES_MAX = 255
"""What file systems take."""

_SEPARATOR = ","
_FORBIDDEN = "/,@"
LIGHT_MARK = f"{INNER_MULTI_QUEUE_OFFSET}{NAME_END}".encode()
"""Records without it are in their own queue only."""
_NUMBER_DIGITS_MAX = 18


def is_light(name: str) -> bool:
    """Whether this is a light queue's name, or a group's that consumes such queues."""
    return name.startswith(LIGHT_QUEUE_PREFIX)


def light_fault(name: str) -> str | None:
    """Say what is wrong with a light queue's name, or None."""
    shown = repr(name[:40])
    if not is_light(name) or len(name) == len(LIGHT_QUEUE_PREFIX):
        return f"{shown} is no light queue: write {LIGHT_QUEUE_PREFIX} and a name"
    if len(name.encode(errors="replace")) > NAME_BYTES_MAX:
        return f"light queue {shown}… has more than {NAME_BYTES_MAX} bytes"
    if not name.isprintable() or any(one in name for one in _FORBIDDEN):
        return (
            f"light queue {shown} has a character that is not allowed, such as one of {_FORBIDDEN}"
        )
    return None


def split_names(value: str) -> list[str]:
    """Return the names in INNER_MULTI_DISPATCH; commas at its end do not count, as in Java."""
    return value.rstrip(_SEPARATOR).split(_SEPARATOR)


def names_fault(names: Sequence[str]) -> str | None:
    """Say what is wrong with the light queues that a message names, or None."""
    if len(names) > LIGHT_COUNT_MAX:
        return f"{len(names)} light queues, limit {LIGHT_COUNT_MAX}"
    faults = filter(None, map(light_fault, names))
    if (fault := next(faults, None)) is not None:
        return fault
    if len(set(names)) < len(names):
        return "it names a light queue twice"
    return None


def numbers_text(numbers: Sequence[int]) -> str:
    """Return the value of INNER_MULTI_QUEUE_OFFSET."""
    return _SEPARATOR.join(map(str, numbers))


def light_places(properties: bytes) -> list[tuple[str, int]]:
    """Return the light queues that a stored record is in, with its number in each.

    Of a name that stands there twice the first counts, as in the original.

    >>> light_places(b"INNER_MULTI_DISPATCH\\x01%LMQ%a\\x02INNER_MULTI_QUEUE_OFFSET\\x017")
    [('%LMQ%a', 7)]
    """
    if LIGHT_MARK not in properties:
        return []
    table = parse_properties(properties)
    names = split_names(table.get(INNER_MULTI_DISPATCH, ""))
    numbers = split_names(table.get(INNER_MULTI_QUEUE_OFFSET, ""))
    if len(names) != len(numbers) or not all(map(_is_number, numbers)):
        return []
    places: dict[str, int] = {}
    for name, number in zip(names, numbers, strict=True):
        if light_fault(name) is None:
            places.setdefault(name, int(number))
    return list(places.items())


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _NUMBER_DIGITS_MAX
