"""The records of a pull answer as received messages: the consumer's hot path.

In: a pull answer's body and the queue it is of. Out: its messages, in order.

Rules:
1. Plain records (version 1, IPv4 hosts) are read here in one go; all others by `wire.record`, which
   also says what is wrong with one that is not whole. Every body's CRC is checked.
2. A body that cannot be decompressed does not hold up its queue: the message is given out with the
   body as it is stored, so that its handler fails and it ends as a dead letter. A decompressor that
   is not installed is a MissingExtra: nothing of the answer is given out.
3. A retry message gets back the topic it was sent to; topics lose the namespace.
"""

import logging
import struct

from orbitmq.client.message import ReceivedMessage
from orbitmq.core.checksum import crc32
from orbitmq.errors import CorruptRecord, RemoteProtocolError
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.compression import plain_body
from orbitmq.wire.host import Host, unpack_ip
from orbitmq.wire.names import is_retry_topic, unwrap_namespace
from orbitmq.wire.properties import RETRY_TOPIC, stored_property
from orbitmq.wire.record import FIELDS, MAGIC_V1, Record, decode_record
from orbitmq.wire.sysflag import BORN_HOST_V6, COMPRESSED, STORE_HOST_V6

log = logging.getLogger(__name__)

CRC_MASK = 0x7FFFFFFF
_HOST_BITS = BORN_HOST_V6 | STORE_HOST_V6
_CODES = {"born_ip": "8s", "born_port": "", "store_ip": "8s", "store_port": "", "queue_id": "4x"}
"""Address and port of a host are read as one: whose they are is remembered. The queue is known."""
_HEAD = struct.Struct(">" + "".join(_CODES.get(field.name, field.code) for field in FIELDS))
_PROPERTIES_SIZE = struct.Struct(">h")
_RETRY_TOPIC = RETRY_TOPIC.encode()


HOSTS_MAX = 4_096
_hosts: dict[bytes, Host] = {}
"""Of hosts that were seen; a look costs less than half of a call."""


def _host(packed: bytes) -> Host:
    if len(_hosts) >= HOSTS_MAX:
        _hosts.clear()
    host = Host(unpack_ip(packed[:4]), int.from_bytes(packed[4:], "big", signed=True))
    _hosts[packed] = host
    return host


class Decoder:
    """Reads the answers about one queue: what it knows of the queue is worked out once."""

    def __init__(self, queue: MessageQueue, namespace: str) -> None:
        self._queue = queue
        self._namespace = namespace
        self._topic = unwrap_namespace(namespace, queue.topic)
        self._is_retry = is_retry_topic(queue.topic)
        self._topic_tail = bytes((len(queue.topic.encode()) & 0xFF,)) + queue.topic.encode()

    def decode(
        self, body: bytes, min_offset: int, max_offset: int, offset_delta: int = 0
    ) -> list[ReceivedMessage]:
        """Return the messages of an answer's body.

        Raises RemoteProtocolError when it holds something else than whole records, MissingExtra
        when a decompressor is not installed.
        """
        messages: list[ReceivedMessage] = []
        position, end = 0, len(body)
        while position < end:
            message, size = self._plain(body, position) or self._other(body, position)
            message.min_offset, message.max_offset = min_offset, max_offset
            if offset_delta:
                message.queue_offset += offset_delta
            messages.append(message)
            position += size
        return messages

    def _plain(self, body: bytes, start: int) -> tuple[ReceivedMessage, int] | None:
        """Read a record as most are; None for any other."""
        if len(body) - start < _HEAD.size:
            return None
        (
            size,
            magic,
            crc,
            flag,
            queue_offset,
            log_offset,
            sys_flag,
            born_ms,
            born_host,
            store_ms,
            store_host,
            reconsume_times,
            prepared_offset,
            content_size,
        ) = _HEAD.unpack_from(body, start)
        content_start = start + _HEAD.size
        content_end = content_start + content_size
        topic_tail = self._topic_tail
        properties_start = content_end + len(topic_tail) + 2
        end = start + size
        if (
            magic != MAGIC_V1
            or sys_flag & _HOST_BITS
            or not content_start <= content_end < properties_start <= end <= len(body)
            or not body.startswith(topic_tail, content_end)
            or _PROPERTIES_SIZE.unpack_from(body, properties_start - 2)[0] != end - properties_start
        ):
            return None
        content = body[content_start:content_end]
        if crc32(content) & CRC_MASK != crc:
            return None
        properties = body[properties_start:end]
        message = ReceivedMessage(
            topic=self._original_topic(properties) if self._is_retry else self._topic,
            body=content if not sys_flag & COMPRESSED else self._decompressed(content, sys_flag),
            stored_properties=properties,
            queue=self._queue,
            queue_offset=queue_offset,
            log_offset=log_offset,
            born_ms=born_ms,
            born_host=_hosts.get(born_host) or _host(born_host),
            store_ms=store_ms,
            store_host=_hosts.get(store_host) or _host(store_host),
            reconsume_times=reconsume_times,
            flag=flag,
            sys_flag=sys_flag,
            prepared_offset=prepared_offset,
        )
        return message, size

    def _other(self, body: bytes, start: int) -> tuple[ReceivedMessage, int]:
        """Read a record that is not a plain one of this queue, or say what is wrong with it."""
        try:
            record, size = decode_record(body, start)
        except CorruptRecord as error:
            raise RemoteProtocolError(
                "pull-answer",
                f"{self._queue} at byte {error.log_offset} of {len(body)}: {error.detail}",
            ) from None
        return self.message_of(record), size

    def message_of(self, record: Record) -> ReceivedMessage:
        """Return one record as a message of this queue."""
        properties = record.properties
        is_retry = is_retry_topic(record.topic)
        return ReceivedMessage(
            topic=(
                self._original_topic(properties)
                if is_retry
                else unwrap_namespace(self._namespace, record.topic)
            ),
            body=self._decompressed(record.body, record.sys_flag),
            stored_properties=properties,
            queue=self._queue,
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

    def _original_topic(self, properties: bytes) -> str:
        topic = stored_property(properties, _RETRY_TOPIC) or self._queue.topic
        return unwrap_namespace(self._namespace, topic)

    def _decompressed(self, body: bytes, sys_flag: int) -> bytes:
        try:
            return plain_body(body, sys_flag)
        except RemoteProtocolError as error:
            log.error(
                "a message of %s comes with its body as it is stored, which cannot be unpacked: %s",
                self._queue,
                error,
            )
            return body
