"""Messages as commands show them: one line each for people, one JSON object for programs.

In: received messages. Out: lines and values.

Rules:
1. A body that is text is shown as text, on one line; any other as its first bytes in hexadecimal.
2. In JSON a body that is UTF-8 is `body`, any other `body_base64`: nothing is lost.
3. Properties of the system are in JSON only.
"""

from base64 import b64encode

from orbitmq.cli.screen import DIM, GREEN, Screen, printable
from orbitmq.cli.times import time_text
from orbitmq.client.message import ReceivedMessage
from orbitmq.wire.properties import is_reserved

SHOWN_BYTES_MAX = 64
"""Of a body that is not text."""


def body_text(body: bytes) -> str:
    """Return a body as one line for people.

    >>> body_text(b"\\xff\\x00")
    '2 bytes: ff00'
    """
    try:
        return printable(body.decode())
    except UnicodeDecodeError:
        shown = body[:SHOWN_BYTES_MAX].hex()
        return f"{len(body):,} bytes: {shown}{'…' if len(body) > SHOWN_BYTES_MAX else ''}"


def message_value(message: ReceivedMessage) -> dict[str, object]:
    """Return a message as a value for JSON."""
    value: dict[str, object] = {
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queue_id": message.queue.queue_id,
        "queue_offset": message.queue_offset,
        "message_id": message.message_id,
        "offset_id": message.offset_id,
        "tag": message.tag,
        "keys": message.keys,
        "properties": message.properties,
        "born_ms": message.born_ms,
        "born_host": str(message.born_host),
        "store_ms": message.store_ms,
        "store_host": str(message.store_host),
        "reconsume_times": message.reconsume_times,
    }
    try:
        value["body"] = message.body.decode()
    except UnicodeDecodeError:
        value["body_base64"] = b64encode(message.body).decode()
    return value


def own_properties(message: ReceivedMessage) -> dict[str, str]:
    """Return the properties that the sender's program has set."""
    return {name: value for name, value in message.properties.items() if not is_reserved(name)}


def show_message(screen: Screen, message: ReceivedMessage) -> None:
    """Write one message, as a line."""
    if screen.is_json:
        screen.json_line(message_value(message))
        return
    queue = message.queue
    place = f"{queue.broker_name}/{queue.queue_id}@{message.queue_offset}"
    words = [screen.colour(time_text(message.store_ms), DIM), screen.colour(place, DIM)]
    if message.tag:
        words.append(screen.colour(printable(message.tag), GREEN))
    if message.keys:
        words.append(screen.colour(f"key={printable(','.join(message.keys))}", DIM))
    screen.line("  ".join([*words, body_text(message.body)]))
