"""What the properties of a message that is sent may say, and what the broker reads in them.

In: properties as they came. Out: the delay level and the tag's code, or RequestFailed that names
what no message may have.

Rules:
1. Timed messages come with a later issue: until then they are refused by name, never stored as
   something else.
2. Names that begin with INNER_ are the broker's own. See `light_queues` for the one exception.
"""

from orbitmq.errors import RequestFailed
from orbitmq.store.follow import parse_level
from orbitmq.wire import properties as names
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.expression import tag_code

_HINTS = {
    names.INNER_MULTI_DISPATCH: " (light queues need enableLmq and enableMultiDispatch, and take no"
    " batches and no delayed messages)"
}
_TIMED = (names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS)


def needs_check(text: bytes) -> bool:
    """Whether properties, of one message or of many, may have what none may have."""
    return b"\0" in text or b"TIMER_" in text or b"INNER_" in text


def is_text(data: bytes) -> bool:
    """Whether these are characters; what is none is stored as the replacement character."""
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False


def delay_level(properties: dict[str, str]) -> int:
    """Return the delay level, 0 without one."""
    text = properties.get(names.DELAY)
    if text is None:
        return 0
    level = parse_level(text)
    if level is None:
        raise RequestFailed(
            ResponseCode.SYSTEM_ERROR,
            f"property {names.DELAY} is {text[:40]!r}: a delay level is a whole number",
        )
    return level


def check_properties(text: bytes, properties: dict[str, str], *, is_light: bool = False) -> None:
    """Refuse what no message may have; `text` is what `properties` were read from.

    One that goes to light queues names them.
    """
    if b"\0" in text:
        # A CRC covers the body only: zeros in properties look like a record that a crash cut short.
        raise RequestFailed(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message's properties contain a NUL character (U+0000); send it without",
        )
    is_timed = b"TIMER_" in text  # seldom: a cheap look before the exact one
    if is_timed and any(properties.get(name, "0") != "0" for name in _TIMED):
        raise unsupported("timed messages")
    for name in properties if b"INNER_" in text else ():
        if name.startswith("INNER_") and not (is_light and name == names.INNER_MULTI_DISPATCH):
            raise RequestFailed(
                ResponseCode.MESSAGE_ILLEGAL,
                f"property {name} is reserved for the broker{_HINTS.get(name, '')}",
            )


def tags_code_of(properties: dict[str, str]) -> int:
    """Return the code of the message's tag, 0 without one."""
    tag = properties.get(names.TAGS)
    return tag_code(tag) if tag else 0


def unsupported(kind: str) -> RequestFailed:
    """Return the refusal of messages that come with a later issue."""
    return RequestFailed(
        ResponseCode.MESSAGE_ILLEGAL, f"this version of OrbitMQ does not take {kind} yet"
    )
