"""Messages as programs see them: one to send, and one that was received.

In: what a program puts into a Message, or the records of a pull. Out: properties for the wire, or
ReceivedMessages.

Rules:
1. A Message is never changed by sending it: id, compression and retries are the producer's own.
2. What a user sets through a named field (tag, keys, delay) cannot be set through `properties`, and
   names that the system uses are refused: a broker would obey them.
3. A received message has the topic it was sent to, also when it comes from a retry topic, and its
   body as it was before compression.
4. A received message's properties are read when somebody looks at them: most handlers look at none.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import get_type_hints

import msgspec

from orbitmq.client.arguments import check_arguments
from orbitmq.errors import LocalProtocolError
from orbitmq.wire import properties as names
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.compression import plain_body
from orbitmq.wire.host import Host
from orbitmq.wire.message_id import encode_offset_id
from orbitmq.wire.properties import (
    is_reserved,
    join_keys,
    parse_properties,
    split_keys,
    stored_property,
)
from orbitmq.wire.record import Record

DELAY_LEVEL_MAX = 18
"""Of the original's default levels; a broker takes a greater one for its greatest."""
UNKNOWN_OFFSET = -1
BODY_SHOWN_CHARS = 80
_TAGS = names.TAGS.encode()


class Message(msgspec.Struct):
    """A message to send.

    >>> Message("orders", b'{"id": 1}', tag="paid", keys=["1"])
    """

    topic: str
    body: bytes
    tag: str = ""
    """What consumers filter by; at most one."""
    keys: Sequence[str] = ()
    """What the message is found by; none may hold a space."""
    properties: dict[str, str] = {}
    """Of the program's own; SQL filters see them."""
    delay_level: int = 0
    """1 to 18: delivered after 1 s, 5 s, 10 s, 30 s, 1 to 10 min, 20 min, 30 min, 1 h, 2 h."""
    sharding_key: str = ""
    """Messages of one key go to one queue, in order."""
    flag: int = 0
    """A number that nobody interprets."""
    waits_for_store: bool = True
    """False: a broker with synchronous flush or slaves answers before they have it."""

    def wire_properties(self) -> dict[str, str]:
        """Return all properties that travel; raises LocalProtocolError for what may not be set."""
        for name in self.properties:
            if is_reserved(name):
                raise LocalProtocolError(
                    f"property {name!r} belongs to the system; choose another name"
                )
        if type(self.delay_level) is not int or self.delay_level < 0:
            raise LocalProtocolError(
                f"delay_level is {self.delay_level!r}; give a number from 1 to {DELAY_LEVEL_MAX}"
            )
        found = dict(self.properties)
        keys: object = self.keys
        if keys and not isinstance(keys, Sequence):
            self.check()
        if self.keys:
            found[names.KEYS] = self.keys if isinstance(self.keys, str) else join_keys(self.keys)
        if self.tag:
            found[names.TAGS] = self.tag
        if self.delay_level:
            found[names.DELAY] = str(self.delay_level)
        if self.sharding_key:
            found[names.SHARDING_KEY] = self.sharding_key
        found[names.WAIT] = "true" if self.waits_for_store else "false"
        if any(type(text) is not str for text in found.values()):
            self.check()
        return found

    def check(self) -> None:
        """Raise ArgumentError when a field is not what it must be."""
        fields = msgspec.structs.asdict(self)
        if isinstance(self.keys, str):
            del fields["keys"]  # one key: it stays as it is
        check_arguments(fields, get_type_hints(Message), "the message's ")


class ReceivedMessage(msgspec.Struct, kw_only=True, dict=True):
    """A message that was pulled, looked up or handed to a handler."""

    topic: str
    """Where it was sent to, without the namespace."""
    body: bytes
    stored_properties: bytes = b""
    """The properties as they are stored; `properties` is what they say."""
    queue: MessageQueue
    """Where it lies; its topic is the retry topic for a message that comes again."""
    queue_offset: int
    log_offset: int
    born_ms: int
    born_host: Host
    store_ms: int
    store_host: Host
    reconsume_times: int = 0
    """How often it was delivered before without being consumed."""
    flag: int = 0
    sys_flag: int = 0
    prepared_offset: int = 0
    min_offset: int = UNKNOWN_OFFSET
    """The offset of the oldest message in its queue, when it was pulled."""
    max_offset: int = UNKNOWN_OFFSET
    """The offset that the queue's next message was to get, when it was pulled."""
    consume_start_ms: int = 0
    """When its handler got it, in wall ms; 0 while none has."""

    def __repr__(self) -> str:
        """Show what people look for, the program's own properties included."""
        body = repr(self.body)
        if len(body) > BODY_SHOWN_CHARS:
            body = f"{body[:BODY_SHOWN_CHARS]}… ({len(self.body)} bytes)"
        own = {name: text for name, text in self.properties.items() if not is_reserved(name)}
        parts = [f"topic={self.topic!r}", f"body={body}"]
        parts += [f"tag={self.tag!r}"] if self.tag else []
        parts += [f"keys={self.keys}"] if self.keys else []
        parts += [f"properties={own}"] if own else []
        parts += [f"reconsume_times={self.reconsume_times}"] if self.reconsume_times else []
        parts += [
            f"queue={self.queue.broker_name}/{self.queue.queue_id}",
            f"queue_offset={self.queue_offset}",
            f"message_id={self.message_id!r}",
        ]
        return f"ReceivedMessage({', '.join(parts)})"

    @cached_property
    def properties(self) -> dict[str, str]:
        """All of its properties, the system's included."""
        found = parse_properties(self.stored_properties)
        if self.max_offset != UNKNOWN_OFFSET:
            found[names.MIN_OFFSET] = str(self.min_offset)
            found[names.MAX_OFFSET] = str(self.max_offset)
        if self.consume_start_ms:
            found[names.CONSUME_START_TIME] = str(self.consume_start_ms)
        return found

    def begin_consuming(self, now_ms: int) -> None:
        """Note when a handler gets it (called by consumers)."""
        self.consume_start_ms = now_ms
        if "properties" in self.__dict__:
            self.properties[names.CONSUME_START_TIME] = str(now_ms)

    @property
    def tag(self) -> str:
        """Its tag, or an empty text."""
        return stored_property(self.stored_properties, _TAGS)

    @property
    def keys(self) -> list[str]:
        """What it is found by."""
        return split_keys(self.properties.get(names.KEYS, ""))

    @cached_property
    def offset_id(self) -> str:
        """The id that says where it is stored."""
        return encode_offset_id(self.store_host, self.log_offset)

    @property
    def message_id(self) -> str:
        """The id its producer gave it, or the one that says where it is stored."""
        return self.properties.get(names.UNIQ_KEY) or self.offset_id

    @property
    def delay_level(self) -> int:
        """The delay it was sent with."""
        level = self.properties.get(names.DELAY, "")
        return int(level) if level.isascii() and level.isdigit() else 0

    @property
    def sharding_key(self) -> str:
        """What its queue was chosen by, or an empty text."""
        return self.properties.get(names.SHARDING_KEY, "")


def received(record: Record, broker_name: str) -> ReceivedMessage:
    """Return a stored record as a received message, with the topic it lies in.

    Raises RemoteProtocolError when its body cannot be decompressed.
    """
    return ReceivedMessage(
        topic=record.topic,
        body=plain_body(record.body, record.sys_flag),
        stored_properties=record.properties,
        queue=MessageQueue(record.topic, broker_name, record.queue_id),
        queue_offset=record.queue_offset,
        log_offset=record.log_offset,
        born_ms=record.born_ms,
        born_host=record.born_host,
        store_ms=record.store_ms,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times,
        flag=record.flag,
        sys_flag=record.sys_flag,
        prepared_offset=record.prepared_offset,
    )
