"""What settings of topics and groups an operator may give, and the words that refuse others.

In: names and settings from the wire. Out: RequestFailed with the original's code and the range that
is allowed, or nothing. The original takes -1 and 2147483647 queues and permission 999.
"""

from typing import NamedTuple

import msgspec

from orbitmq.broker.system_topics import belongs_to_system
from orbitmq.broker.topics import QUEUE_COUNT_MAX
from orbitmq.config import BrokerSettings
from orbitmq.errors import RequestFailed
from orbitmq.wire.bodies_namesrv import SubscriptionGroupConfig, TopicConfig
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.names import (
    RETRY_TOPIC_LENGTH_MAX,
    TOPIC_LENGTH_MAX,
    group_fault,
    is_dead_letter_topic,
    is_retry_topic,
    topic_fault,
)

FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")
ATTRIBUTES_MAX = 64
ATTRIBUTE_CHARS_MAX = 1_024
LIST_COUNT_MAX = 1_000
"""Topics or groups in one request."""

_LONG_MAX = 2**63 - 1
_INT_MAX = 2**31 - 1


class _Range(NamedTuple):
    name: str
    least: int
    most: int
    meaning: str


_TOPIC_RANGES = {
    "read_queue_count": _Range("readQueueNums", 1, QUEUE_COUNT_MAX, "queues that are read"),
    "write_queue_count": _Range("writeQueueNums", 1, QUEUE_COUNT_MAX, "queues that are sent to"),
    "perm": _Range("perm", 0, 7, "4 read + 2 write + 1 inherit"),
    "topic_sys_flag": _Range("topicSysFlag", 0, 3, "1 unit + 2 unit subscription"),
}
_GROUP_RANGES = {
    "retry_queue_count": _Range("retryQueueNums", 1, QUEUE_COUNT_MAX, "queues of the retry topic"),
    "retry_max_times": _Range("retryMaxTimes", -1, _INT_MAX, "deliveries after the first"),
    "broker_id": _Range("brokerId", 0, _LONG_MAX, "0 is the master"),
    "which_broker_when_consume_slowly": _Range(
        "whichBrokerWhenConsumeSlowly", 0, _LONG_MAX, "a broker id"
    ),
    "consume_timeout_minute": _Range("consumeTimeoutMinute", 1, _INT_MAX, "minutes"),
}


def check_name(topic: str, settings: BrokerSettings) -> None:
    """Raise RequestFailed when an operator may not make, change or delete this topic."""
    is_derived = is_retry_topic(topic) or is_dead_letter_topic(topic)
    check_text(topic, RETRY_TOPIC_LENGTH_MAX if is_derived else TOPIC_LENGTH_MAX)
    if belongs_to_system(topic, settings):
        raise _refusal(f"The topic[{topic}] is conflict with system topic.")


def check_text(topic: str, length_max: int = TOPIC_LENGTH_MAX) -> None:
    """Raise RequestFailed when this cannot be a topic's name; in the original's words and order."""
    if not topic.strip():
        raise _refusal("The specified topic is blank.")
    fault = topic_fault(topic, len(topic))
    if fault is not None:
        raise _refusal(
            "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
            f" {fault}"
        )
    fault = topic_fault(topic, length_max)
    if fault is not None:
        raise _refusal(f"The specified topic is longer than topic max length. {fault}")


def check_count(count: int, kind: str) -> None:
    """Raise RequestFailed when so many topics or groups are too many for one request."""
    if count > LIST_COUNT_MAX:
        raise _refusal(
            f"{count} {kind} in one request, limit {LIST_COUNT_MAX}; send several requests"
        )


def check_config(config: TopicConfig) -> None:
    """Raise RequestFailed that names the setting of a topic that cannot be, and its range."""
    _check_ranges(f"topic {config.topic_name}", config, _TOPIC_RANGES)
    if config.topic_filter_type not in FILTER_TYPES:
        raise _refusal(
            f"topicFilterType = [{config.topic_filter_type}] value invalid, allowed are"
            f" {' and '.join(FILTER_TYPES)}"
        )
    attributes = config.attributes or {}
    if len(attributes) > ATTRIBUTES_MAX or any(
        len(key) + len(value) > ATTRIBUTE_CHARS_MAX for key, value in attributes.items()
    ):
        raise _refusal(
            f"topic {config.topic_name}: at most {ATTRIBUTES_MAX} attributes of at most"
            f" {ATTRIBUTE_CHARS_MAX} characters each"
        )


def check_group(config: SubscriptionGroupConfig) -> None:
    """Raise RequestFailed that names what is wrong with a group, and what is allowed."""
    fault = group_fault(config.group_name)
    if fault is not None:
        raise _refusal(fault)
    _check_ranges(f"group {config.group_name}", config, _GROUP_RANGES)


def with_attributes(config: TopicConfig, changes: str | None) -> TopicConfig:
    """Return a topic with changed attributes: `+key=value` sets one, `-key` takes one away."""
    if not changes:
        return config
    attributes = dict(config.attributes or {})
    for change in changes.split(","):
        word = change.strip()
        key, equals, value = word[1:].partition("=")
        if word.startswith("+") and key and equals:
            attributes[key.strip()] = value.strip()
        elif word.startswith("-") and key and not equals:
            attributes.pop(key.strip(), None)
        else:
            raise _refusal(
                f"attributes {changes[:80]!r}: {word[:40]!r} is neither +key=value nor -key"
            )
    return msgspec.structs.replace(config, attributes=attributes)


def _check_ranges(whose: str, config: msgspec.Struct, ranges: dict[str, _Range]) -> None:
    for field, (name, least, most, meaning) in ranges.items():
        value = getattr(config, field)
        if value is not None and not least <= value <= most:
            raise _refusal(f"{whose}: {name} is {value}, allowed are {least} to {most} ({meaning})")


def _refusal(remark: str) -> RequestFailed:
    return RequestFailed(ResponseCode.SYSTEM_ERROR, remark)
