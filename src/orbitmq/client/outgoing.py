"""From a program's message to what travels: checks, unique id, properties, compression.

In: a Message and the producer's settings. Out: body, properties and sysFlag for a request, or a
LocalProtocolError or LimitExceeded that says what is wrong with the message.

Rules:
1. The Message stays as it is; sending it twice makes two messages with two ids.
2. The unique id is the first property: brokers find it there without reading the others.
3. A body is compressed from `compress_from_bytes` on, never in a batch. For zlib the type bits stay
   empty, as clients before 5.0 wrote it: every consumer can read that.
"""

from orbitmq.client.message import Message
from orbitmq.errors import LimitExceeded, LocalProtocolError
from orbitmq.wire.compression import COMPRESSION_LEVEL, compress
from orbitmq.wire.names import check_topic, is_closed_to_clients
from orbitmq.wire.properties import (
    ENTRY_END,
    NAME_END,
    PROPERTIES_SIZE_MAX,
    UNIQ_KEY,
    WAIT,
    format_properties,
)
from orbitmq.wire.sysflag import COMPRESSED, Compression, with_compression

_ID_BEGIN = f"{UNIQ_KEY}{NAME_END}"
_WAITS = {
    is_waiting: f"{ENTRY_END}{WAIT}{NAME_END}{'true' if is_waiting else 'false'}"
    for is_waiting in (True, False)
}
_UTF8_SIZE_MAX = 4


def check_sendable(topic: str) -> None:
    """Raise LocalProtocolError when clients cannot send to a topic."""
    check_topic(topic)
    if is_closed_to_clients(topic):
        raise LocalProtocolError(f"topic {topic} belongs to the system: nobody sends to it")


def check_body(body: object, bytes_max: int) -> None:
    """Raise LocalProtocolError or LimitExceeded when this cannot be a message's body."""
    if not isinstance(body, bytes):
        advice = "; encode it: body.encode()" if isinstance(body, str) else ""
        raise LocalProtocolError(f"the body is {type(body).__name__}, it must be bytes{advice}")
    if not body:
        raise LocalProtocolError("the body is empty: brokers refuse such a message")
    if len(body) > bytes_max:
        raise LimitExceeded(
            f"the body has {len(body)} bytes, limit {bytes_max} (message_bytes_max; brokers have a "
            "limit of their own, maxMessageSize)",
            bytes_max,
            "message_bytes_max",
        )


def properties_text(message: Message, unique_id: str, namespace_entry: str = "") -> str:
    """Return the properties string of a message; raises LocalProtocolError for what may not be."""
    text = f"{_ID_BEGIN}{unique_id}"
    if message.tag or message.keys or message.properties or _is_special(message):
        text = f"{text}{ENTRY_END}{_own_properties(message)}{namespace_entry}"
    else:
        text = f"{text}{_WAITS[message.waits_for_store]}{namespace_entry}"
    if len(text) * _UTF8_SIZE_MAX > PROPERTIES_SIZE_MAX:
        encode_text(text)
    return text


def _own_properties(message: Message) -> str:
    try:
        return format_properties(message.wire_properties())
    except (TypeError, AttributeError, ValueError):  # what is no text fails somewhere in there
        message.check()
        raise


def batch_properties(first: Message) -> str:
    """A batch's own properties. Brokers add them to each message's, so there is no id here."""
    return _WAITS[first.waits_for_store][len(ENTRY_END) :]


def _is_special(message: Message) -> bool:
    return bool(message.delay_level or message.sharding_key)


def encode_text(text: str) -> bytes:
    """Return a properties string as bytes; raises LocalProtocolError when it is too long."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"a property holds half a character: {error.reason}") from None
    if len(data) > PROPERTIES_SIZE_MAX:
        raise LocalProtocolError(
            f"properties of {len(data)} bytes, limit {PROPERTIES_SIZE_MAX};"
            " move what is large into the body"
        )
    return data


def compressed(body: bytes, kind: Compression, level: int = COMPRESSION_LEVEL) -> tuple[bytes, int]:
    """Return a body compressed, and the sysFlag that says so.

    One that grows by it stays as it is: a body of the greatest size would be refused by brokers.
    """
    packed = compress(body, kind, level)
    if len(packed) >= len(body):
        return body, 0
    return packed, COMPRESSED if kind is Compression.ZLIB else with_compression(0, kind)
