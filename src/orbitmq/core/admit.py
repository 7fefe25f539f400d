"""What is stored of a message's properties, and what they ask for: one rule for every way in.

In: a properties string as it came. Out: `Admitted`, or the `Refusal` with the original's code.

Rules:
1. Entries are stored as they came, in their order. Left out are empty ones, the cluster's name that
   a message brings along, and WAIT=true of a single message that goes straight to its queue. The
   name of this broker's cluster stands last, without a separator: Node clients read on behind one.
2. Refused are NUL characters (zeros look like a record that a crash cut short), timed messages, a
   delay level that is no number, and names that begin with INNER_, the broker's own. A single
   message without a delay may have INNER_MULTI_DISPATCH where the broker takes light queues.
3. Each message of a batch is admitted with the properties of the whole behind its own; its delay
   level and its WAIT mean nothing, those of the whole count.
4. What comes from a record (`Way.AGAIN`) was admitted before: nothing is refused. It leaves the
   light queues behind, for it is in them once.
5. Of two entries with one name the last with a value counts. Bytes that are no UTF-8 become U+FFFD.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from orbitmq.core.tag_codes import tag_code_in
from orbitmq.wire import properties as names
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.expression import tag_code
from orbitmq.wire.properties import format_properties, parse_properties

_END = names.ENTRY_END.encode()
_CLUSTER = f"{names.CLUSTER}{names.NAME_END}".encode()
_WAIT = f"{names.WAIT}{names.NAME_END}".encode()
_WAIT_TRUE = _WAIT + b"true"
_ENTRY_WAIT_TRUE = _END + _WAIT_TRUE + _END
_DELAY = f"{names.DELAY}{names.NAME_END}".encode()
_TRAN_MSG = f"{names.TRAN_MSG}{names.NAME_END}".encode()
_INNER = b"INNER_"
_INNER_MULTI = b"INNER_MULTI_"
_TIMED = (names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS)
_LEVEL_MAX = 2**31 - 1
_LEVEL_DIGITS_MAX = 10
_LIGHT_HINT = (
    " (light queues need enableLmq and enableMultiDispatch, and take no batches and no delayed"
    " messages)"
)


NO_VALUES: Mapping[str, str] = MappingProxyType({})


class Way(Enum):
    """The way a message comes in."""

    SEND = "a single message of a client"
    BATCH = "one message of a batch"
    AGAIN = "from a record: sent back, or delivered after its delay"


class Admitted(NamedTuple):
    """Properties that are stored, and what they ask for."""

    own: bytes
    """The entries, each closed by 0x02; in the record the cluster's name follows them."""
    tags_code: int
    delay_level: int = 0
    """0 or less: it does not wait."""
    is_transactional: bool = False
    """Whether it is the half message of a transaction (TRAN_MSG)."""
    waits_for_sync: bool = True
    """Whether its sender waits for the disk where the broker does so (WAIT)."""
    light_names: str = ""
    """The light queues that it goes to besides its own (INNER_MULTI_DISPATCH)."""
    values: Mapping[str, str] = NO_VALUES
    """The properties by name, where they had to be parsed: always those of `Way.AGAIN`."""

    @property
    def is_ordinary(self) -> bool:
        """Whether it goes straight to its queue and nowhere else."""
        return self.delay_level <= 0 and not self.is_transactional and not self.light_names


class Refusal(NamedTuple):
    """Why a message is not stored."""

    code: ResponseCode
    remark: str


def admit(text: bytes, way: Way = Way.SEND, *, takes_lights: bool = False) -> Admitted | Refusal:
    """Return what is stored of properties that came this way.

    `takes_lights` says whether this broker dispatches to light queues.

    >>> admit(b"WAIT\\x01true\\x02TAGS\\x01a")
    Admitted(own=b'TAGS\\x01a\\x02', tags_code=97, delay_level=0, is_transactional=False, \
waits_for_sync=True, light_names='', values=mappingproxy({}))
    """
    if way is Way.AGAIN or _may_ask(text):
        return _admit_parsed(text, way, takes_lights=takes_lights)
    own = text if not text or text.endswith(_END) else text + _END
    if way is Way.SEND and _WAIT in own:
        own = (_END + own).replace(_ENTRY_WAIT_TRUE, _END)[1:]
        if _WAIT in own:
            return _admit_parsed(text, way, takes_lights=takes_lights)
    return Admitted(own, tag_code_in(own))


def cluster_entry(cluster: str) -> bytes:
    """Return what the properties of every record of a cluster end with."""
    return _CLUSTER + cluster.encode()


def with_entries(own: bytes, entries: Mapping[str, str]) -> bytes:
    """Return own properties with further entries, which replace those of the same names.

    >>> with_entries(b"A\\x01a\\x02B\\x01b\\x02", {"A": "c"})
    b'B\\x01b\\x02A\\x01c\\x02'
    """
    beginnings = tuple(f"{name}{names.NAME_END}".encode() for name in entries)
    kept = [entry for entry in _entries(own) if not entry.startswith(beginnings)]
    return _joined(kept) + format_properties(entries, is_closed=True).encode()


def parse_level(text: str) -> int | None:
    """The delay level that a property names, as Java reads a number; None when it is none."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isascii() or not digits.isdigit() or len(digits) > _LEVEL_DIGITS_MAX:
        return None
    level = int(text)
    return level if -_LEVEL_MAX - 1 <= level <= _LEVEL_MAX else None


def _may_ask(text: bytes) -> bool:
    """Whether the entries must be looked at one by one; a false alarm only costs time."""
    return (
        _DELAY in text
        or _TRAN_MSG in text
        or b"TIMER_D" in text
        or _INNER in text
        or _CLUSTER in text
        or b"\0" in text
        or _END + _END in text
        or text[:1] == _END
        or not text.isascii()
    )


def _admit_parsed(text: bytes, way: Way, *, takes_lights: bool) -> Admitted | Refusal:
    if not text.isascii():
        text = text.decode(errors="replace").encode()
    values = parse_properties(text)
    code = tag_code(values.get(names.TAGS, ""))
    if way is Way.AGAIN:
        kept = [entry for entry in _entries(text) if not entry.startswith((_CLUSTER, _INNER_MULTI))]
        return Admitted(_joined(kept), code, values=values)
    level = parse_level(values.get(names.DELAY, "0")) if way is Way.SEND else 0
    if level is None:
        return _no_level(values[names.DELAY])
    is_light = takes_lights and way is Way.SEND and level <= 0
    refusal = _refusal(text, values, is_light=is_light)
    if refusal is not None:
        return refusal
    kept = [entry for entry in _entries(text) if not entry.startswith(_CLUSTER)]
    if way is Way.SEND and level <= 0:
        kept = [entry for entry in kept if entry != _WAIT_TRUE]
    return Admitted(
        _joined(kept),
        code,
        level,
        values.get(names.TRAN_MSG, "").lower() == "true",
        way is not Way.SEND or values.get(names.WAIT) != "false",
        values.get(names.INNER_MULTI_DISPATCH, ""),
        values,
    )


def _refusal(text: bytes, values: Mapping[str, str], *, is_light: bool) -> Refusal | None:
    """Say why no message may have these properties, or None."""
    illegal = ResponseCode.MESSAGE_ILLEGAL
    if b"\0" in text:
        return Refusal(
            illegal, "the message's properties contain a NUL character (U+0000); send it without"
        )
    if any(values.get(name, "0") != "0" for name in _TIMED):
        return Refusal(illegal, "this version of OrbitMQ does not take timed messages yet")
    for name in values if _INNER in text else ():
        is_dispatch = name == names.INNER_MULTI_DISPATCH
        if name.startswith("INNER_") and not (is_light and is_dispatch):
            hint = _LIGHT_HINT if is_dispatch else ""
            return Refusal(illegal, f"property {name} is reserved for the broker{hint}")
    return None


def _no_level(text: str) -> Refusal:
    return Refusal(
        ResponseCode.SYSTEM_ERROR,
        f"property {names.DELAY} is {text[:40]!r}: a delay level is a whole number",
    )


def _entries(text: bytes) -> list[bytes]:
    return [entry for entry in text.split(_END) if entry]


def _joined(entries: list[bytes]) -> bytes:
    return _END.join((*entries, b""))
