"""Names of topics and groups: what is allowed, what is derived, what belongs to the system.

In: names as text. Out: verdicts and other names.

Rules:
1. Letters, digits, `%`, `|`, `-` and `_` only, so that every name is also a safe file name.
2. A `…_fault` function gives a sentence or None, for those who answer a peer; the `check_…`
   function beside it raises LocalProtocolError with that sentence, for callers of our own.
3. Derived names: `%RETRY%group`, `%DLQ%group`, `%RETRY%group_topic` (pop), `namespace%name`. The
   namespace goes behind the prefix of a retry or dead-letter topic. Names of the system have none.
"""

import re

from orbitmq.errors import LocalProtocolError

TOPIC_LENGTH_MAX = 127
"""What a record of version 1 holds."""

RETRY_TOPIC_LENGTH_MAX = 255
"""What 5.x allows for retry and dead-letter topics, in records of version 2."""

GROUP_LENGTH_MAX = 255
"""The original's limit. Above 120 the group's retry topic no longer fits a record of version 1."""

RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"
LIGHT_QUEUE_PREFIX = "%LMQ%"
NAMESPACE_END = "%"

TEMPLATE_TOPIC = "TBW102"
"""Topics that clients create by sending to them take their settings from this one."""

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
SCHEDULE_CONSUMER = "SCHEDULE_CONSUMER"
"""The group under which figures show what was delivered of it."""

BENCHMARK_TOPIC = "BenchmarkTest"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
TIMER_TOPIC = "rmq_sys_wheel_timer"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"

SYSTEM_TOPICS = frozenset(
    {
        TEMPLATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        TRACE_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    }
)
"""Those with fixed names; see `is_system_topic` and `broker_topics` for the others."""

UNSENDABLE_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    }
)
"""Clients may not send to these; the template topic takes ordinary messages."""

TOOLS_GROUP = "TOOLS_CONSUMER"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"

SYSTEM_GROUPS = frozenset(
    {
        TOOLS_GROUP,
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
    }
)
"""Groups that exist from the start."""

_FORBIDDEN = re.compile(r"[^%|a-zA-Z0-9_-]")


# --- What is allowed ---


def topic_fault(name: str, length_max: int = TOPIC_LENGTH_MAX) -> str | None:
    """Say what is wrong with a topic's name, or None."""
    return _fault("topic", name, length_max)


def group_fault(name: str, length_max: int = GROUP_LENGTH_MAX) -> str | None:
    """Say what is wrong with a group's name, or None."""
    return _fault("group", name, length_max)


def check_topic(name: str) -> None:
    """Raise LocalProtocolError when `name` cannot be a topic's name."""
    if (fault := topic_fault(name)) is not None:
        raise LocalProtocolError(fault)


def check_group(name: str) -> None:
    """Raise LocalProtocolError when `name` cannot be a group's name."""
    if (fault := group_fault(name)) is not None:
        raise LocalProtocolError(fault)


def _fault(kind: str, name: str, length_max: int) -> str | None:
    if not name:
        return f"the {kind} has no name"
    if len(name) > length_max:
        return f"{kind} {name[:40]}… has {len(name)} characters, limit {length_max}"
    wrong = _FORBIDDEN.search(name)
    if wrong is None:
        return None
    shown = name if len(name) <= GROUP_LENGTH_MAX else f"{name[:40]}…"
    return (
        f"{kind} {shown!r} has {wrong.group()!r} at position {wrong.start()};"
        " allowed are letters a-z and A-Z, digits, and % | - _"
    )


# --- What is derived ---


def retry_topic(group: str) -> str:
    """Return the topic that holds what `group` could not consume yet."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Return the topic that holds what `group` could not consume at all."""
    return DEAD_LETTER_PREFIX + group


def pop_retry_topic(group: str, topic: str) -> str:
    """Return the retry topic of one group and topic that pop uses."""
    return f"{RETRY_PREFIX}{group}_{topic}"


def pop_retry_topic_v2(group: str, topic: str) -> str:
    """Return the same as 5.2 and newer may write it; users cannot give a name with its `+`."""
    return f"{RETRY_PREFIX}{group}+{topic}"


def is_retry_topic(topic: str) -> bool:
    """Whether the topic is a retry topic."""
    return topic.startswith(RETRY_PREFIX)


def is_dead_letter_topic(topic: str) -> bool:
    """Whether the topic is a dead-letter topic."""
    return topic.startswith(DEAD_LETTER_PREFIX)


def retry_group(topic: str) -> str | None:
    """Return the group whose retry or dead-letter topic this is, or None."""
    prefix, rest = _split_prefix(topic)
    return rest if prefix else None


def _split_prefix(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


# --- Namespaces ---


def wrap_namespace(namespace: str, name: str) -> str:
    """Return `name` inside `namespace`; what is inside already, or the system's, stays as it is.

    >>> wrap_namespace("shop", "%RETRY%group")
    '%RETRY%shop%group'
    """
    prefix, rest = _split_prefix(name)
    if not namespace or not name or _has_no_namespace(name):
        return name
    if rest.startswith(namespace + NAMESPACE_END):
        return name
    return f"{prefix}{namespace}{NAMESPACE_END}{rest}"


def unwrap_namespace(namespace: str, name: str) -> str:
    """Return `name` without `namespace`; a name outside of it stays as it is."""
    prefix, rest = _split_prefix(name)
    wrapping = namespace + NAMESPACE_END
    if not namespace or _has_no_namespace(name) or not rest.startswith(wrapping):
        return name
    return prefix + rest[len(wrapping) :]


def namespace_of(name: str) -> str:
    """Return the namespace that `name` is in, or an empty text."""
    namespace, end, _ = _split_prefix(name)[1].partition(NAMESPACE_END)
    return namespace if end and not _has_no_namespace(name) else ""


def _has_no_namespace(name: str) -> bool:
    return is_system_topic(name) or name.startswith(SYSTEM_GROUP_PREFIX)


# --- What belongs to the system ---


def is_closed_to_clients(topic: str) -> bool:
    """Whether clients may not send to the topic."""
    return topic in UNSENDABLE_TOPICS


def is_system_topic(name: str) -> bool:
    """Whether the topic is the system's in every cluster; see `broker_topics` for the others."""
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_TOPIC_PREFIX)


def reply_topic(cluster: str) -> str:
    """Return the topic of replies to requests."""
    return f"{cluster}_REPLY_TOPIC"


def revive_topic(cluster: str) -> str:
    """Return the topic in which pop keeps what it gave out."""
    return f"{SYSTEM_TOPIC_PREFIX}REVIVE_LOG_{cluster}"


def broker_topics(cluster: str, broker: str) -> frozenset[str]:
    """Return the system topics that are named after a cluster and a broker."""
    return frozenset({cluster, broker, reply_topic(cluster)})


def is_system_group(name: str) -> bool:
    """Whether the group is the system's."""
    return name in SYSTEM_GROUPS or name.startswith(SYSTEM_GROUP_PREFIX)
