"""What the settings of push and pull consumers have in common: their group, and ranges.

In: settings of a consumer. Out: the same, checked.

Rules:
1. A consumer has a group of its own, whose name fits its retry topic's rules.
2. A value outside of its range is a SettingError that names it.
3. A broadcasting consumer without an instance name takes the original's, DEFAULT: its offsets are
   in a file that is named after it, and would be lost with a new name at each start.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from orbitmq.errors import SettingError
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.names import group_fault, wrap_namespace

MIB = 1_048_576
DEFAULT_GROUP = "DEFAULT_CONSUMER"
DEFAULT_INSTANCE = "DEFAULT"
HALF_HOUR_MS = 1_800_000

QueueListener = Callable[[str, list[MessageQueue], list[MessageQueue]], None]
"""Called with a topic, all its queues and the consumer's own, whenever its own have changed."""


class Range(NamedTuple):
    """From where to where a value may be."""

    lowest: float
    highest: float


def check_group_of(kind: str, group: str, namespace: str) -> None:
    """Raise SettingError for a group that a consumer of this kind cannot have."""
    if not group or group == DEFAULT_GROUP:
        raise SettingError(
            "a consumer needs a group of its own: its members share messages, so give it the name "
            f'of your service, as in {kind}(group="billing")'
        )
    fault = group_fault(wrap_namespace(namespace, group))
    if fault is not None:
        raise SettingError(fault)


def check_ranges(settings: object, ranges: Mapping[str, Range]) -> None:
    """Raise SettingError for a value outside of its range; None is always allowed."""
    for name, (lowest, highest) in ranges.items():
        value = getattr(settings, name)
        if value is not None and not (lowest <= value <= highest and math.isfinite(value)):
            raise SettingError(f"{name}={value}: it may be from {lowest:g} to {highest:g}")


def from_ms(from_time_s: float | None, now_ms: int) -> int:
    """Where CONSUME_FROM_TIMESTAMP begins: half an hour ago unless somebody says otherwise."""
    return now_ms - HALF_HOUR_MS if from_time_s is None else round(from_time_s * 1000)
