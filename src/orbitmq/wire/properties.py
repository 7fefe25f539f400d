"""Message properties: names, and the string that carries them.

In: the properties string of a header (text) or of a record (bytes), or a dict. Out: the other one.
Form: name 0x01 value 0x02 name 0x01 value 0x02 …; the last 0x02 may be missing (4.9 Java leaves it
out; 5.5 Java, C++, Go and Node keep it).

Rules:
1. Reading never fails on what is inside: entries without a name or a value are dropped, of two
   entries with one name the last counts, bytes that are not UTF-8 become U+FFFD. All this as in the
   original: a message that is stored must not block those who read it.
2. Writing is strict: what would read back differently is a LocalProtocolError.
3. Each property name has one constant here; `RESERVED` are those that users may not set.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from orbitmq.errors import LocalProtocolError

PROPERTIES_SIZE_MAX = 32_767
"""The record holds the size in a signed 16-bit number."""

REASON_CHARS_MAX = 500

NAME_END = "\x01"
ENTRY_END = "\x02"
KEY_SEPARATOR = " "

# What a message is called by and filtered by.
KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
UNIQ_KEY: Final = "UNIQ_KEY"
SHARDING_KEY: Final = "__SHARDINGKEY"

# What the producer asks for.
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
PRIORITY: Final = "_SYS_MSG_PRIORITY_"

# Where it came from and where it belongs.
CLUSTER: Final = "CLUSTER"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
INSTANCE_ID: Final = "INSTANCE_ID"
RETRY_TOPIC: Final = "RETRY_TOPIC"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
ORIGIN_GROUP: Final = "ORIGIN_GROUP"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
DLQ_REASON: Final = "DLQ_REASON"
"""Why a message became a dead letter; only OrbitMQ's clients and brokers write it."""
BORN_HOST: Final = "__BORNHOST"
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"

# Transactions.
TRAN_MSG: Final = "TRAN_MSG"
PGROUP: Final = "PGROUP"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRAN_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_ID: Final = "__transactionId__"

# What the consuming client keeps with a message.
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"

# Request and reply.
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
MSG_TYPE: Final = "MSG_TYPE"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
ARRIVE_TIME: Final = "ARRIVE_TIME"

# Pop.
POP_CK: Final = "POP_CK"
POP_CK_OFFSET: Final = "POP_CK_OFFSET"
FIRST_POP_TIME: Final = "1ST_POP_TIME"

# What the broker's timer writes.
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"

# Light message queues and inner batches.
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
INNER_NUM: Final = "INNER_NUM"
INNER_BASE: Final = "INNER_BASE"
LITE_TOPIC: Final = "__LITE_TOPIC"

# Of no use to us; the names are taken.
CRC32: Final = "__CRC32#"
EXTEND_UNIQ_INFO: Final = "EXTEND_UNIQ_INFO"
DUP_INFO: Final = "DUP_INFO"
TRANSFER_FLAG: Final = "TRANSFER_FLAG"
CORRECTION_FLAG: Final = "CORRECTION_FLAG"
MQ2_FLAG: Final = "MQ2_FLAG"
BUYER_ID: Final = "BUYER_ID"
TRACE_CONTEXT: Final = "TRACE_CONTEXT"
REDIRECT: Final = "REDIRECT"
FORWARD_QUEUE_ID: Final = "PROPERTY_FORWARD_QUEUE_ID"
TRANSIENT_PREFIX: Final = "__RMQ.TRANSIENT."

RESERVED: frozenset[str] = frozenset(
    {
        KEYS,
        TAGS,
        UNIQ_KEY,
        WAIT,
        DELAY,
        TIMER_DELAY_SEC,
        TIMER_DELAY_MS,
        TIMER_DELIVER_MS,
        PRIORITY,
        CLUSTER,
        MSG_REGION,
        TRACE_ON,
        INSTANCE_ID,
        RETRY_TOPIC,
        REAL_TOPIC,
        REAL_QID,
        ORIGIN_MESSAGE_ID,
        ORIGIN_GROUP,
        DLQ_ORIGIN_TOPIC,
        DLQ_ORIGIN_MESSAGE_ID,
        BORN_HOST,
        BORN_TIMESTAMP,
        TRAN_MSG,
        PGROUP,
        TRAN_PREPARED_QUEUE_OFFSET,
        MIN_OFFSET,
        MAX_OFFSET,
        CONSUME_START_TIME,
        RECONSUME_TIME,
        MAX_RECONSUME_TIMES,
        CORRELATION_ID,
        REPLY_TO_CLIENT,
        TTL,
        MSG_TYPE,
        PUSH_REPLY_TIME,
        ARRIVE_TIME,
        POP_CK,
        POP_CK_OFFSET,
        FIRST_POP_TIME,
        TIMER_OUT_MS,
        TIMER_ENQUEUE_MS,
        TIMER_DEQUEUE_MS,
        TIMER_ROLL_TIMES,
        TIMER_DEL_UNIQKEY,
        TIMER_DELAY_LEVEL,
        INNER_MULTI_QUEUE_OFFSET,
        LITE_TOPIC,
        CRC32,
        EXTEND_UNIQ_INFO,
        DUP_INFO,
        TRANSFER_FLAG,
        CORRECTION_FLAG,
        MQ2_FLAG,
        BUYER_ID,
    }
)
"""What the Java client of 5.5.0 refuses as a user property (4.9.7 refuses a part of it).

Users set CHECK_IMMUNITY_TIME_IN_SECONDS, INNER_MULTI_DISPATCH and __SHARDINGKEY themselves.
"""


def is_reserved(name: str) -> bool:
    """Whether a user may not set a property of this name."""
    return name in RESERVED or name == DLQ_REASON or name.startswith(TRANSIENT_PREFIX)


def reason_text(reason: str) -> str:
    """Return the reason for a dead letter as its property holds it: one line, bounded.

    >>> reason_text("no such\\n customer")
    'no such customer'
    """
    words = reason[: 4 * REASON_CHARS_MAX].replace(NAME_END, " ").replace(ENTRY_END, " ").split()
    return " ".join(words)[:REASON_CHARS_MAX].encode(errors="replace").decode()


def parse_properties(text: str | bytes) -> dict[str, str]:
    """Return the properties in a properties string, the text of a header or the bytes of a record.

    >>> parse_properties("KEYS\\x01k1 k2\\x02TAGS\\x01TagA")
    {'KEYS': 'k1 k2', 'TAGS': 'TagA'}
    """
    if not isinstance(text, str):
        text = text.decode(errors="replace")
    properties: dict[str, str] = {}
    for entry in text.split(ENTRY_END):
        name, _, value = entry.partition(NAME_END)
        if name and value:
            properties[name] = value
    return properties


def stored_property(stored: bytes, name: bytes) -> str:
    """Return one property of a record without reading the others; an empty text when it has none.

    >>> stored_property(b"KEYS\\x01k1\\x02TAGS\\x01TagA", b"TAGS")
    'TagA'
    """
    start = stored.rfind(b"\x02%b\x01" % name)
    if start < 0 and not stored.startswith(b"%b\x01" % name):
        return ""
    start += len(name) + 2
    end = stored.find(b"\x02", start)
    value = stored[start:end] if end >= 0 else stored[start:]
    # An entry without a value does not count, but one before it may.
    return value.decode(errors="replace") or parse_properties(stored).get(name.decode(), "")


def format_properties(properties: Mapping[str, str], *, is_closed: bool = False) -> str:
    """Return the properties string; `is_closed` adds the last 0x02.

    Raises LocalProtocolError for what a reader would drop or read as something else.
    """
    if not properties:
        return ""
    for name, value in properties.items():
        _check_entry(name, value)
    text = ENTRY_END.join(f"{name}{NAME_END}{value}" for name, value in properties.items())
    return text + ENTRY_END if is_closed else text


def encode_properties(properties: Mapping[str, str], *, is_closed: bool = False) -> bytes:
    """Return the properties string as a record holds it; checks its size as well."""
    try:
        data = format_properties(properties, is_closed=is_closed).encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"a property holds half a character: {error.reason}") from None
    if len(data) > PROPERTIES_SIZE_MAX:
        raise LocalProtocolError(
            f"properties of {len(data)} bytes, limit {PROPERTIES_SIZE_MAX};"
            " move what is large into the body"
        )
    return data


def _check_entry(name: str, value: str) -> None:
    if not name or not value:
        raise LocalProtocolError(
            f"property {name[:80]!r} has no {'value' if name else 'name'}: leave it out, readers do"
        )
    if NAME_END in name or ENTRY_END in name or ENTRY_END in value:
        raise LocalProtocolError(
            f"property {name[:80]!r} holds a separator;"
            " a name may not hold 0x01 or 0x02, a value not 0x02"
        )


def split_keys(value: str) -> list[str]:
    """Return the index keys in the value of KEYS: words between single spaces."""
    return [key for key in value.split(KEY_SEPARATOR) if key]


def join_keys(keys: Iterable[str]) -> str:
    """The value of KEYS; raises LocalProtocolError for a key that is empty or has a space."""
    keys = list(keys)
    for key in keys:
        if not key or KEY_SEPARATOR in key:
            raise LocalProtocolError(
                f"key {key[:80]!r} is empty or holds a space, which parts keys"
            )
    return KEY_SEPARATOR.join(keys)
