"""How much of what is there a micro-batch takes.

In: where each queue is, where it ends, and limits. Out: where the batch ends in each queue.

Rules:
1. A limit of messages is shared by backlog: every queue gets its part, the parts add up to the
   limit, and one that has anything gets at least one message as long as the limit lasts.
2. Too few messages wait for more, until the delay is over.
3. Nothing here asks a cluster or a clock.
"""

import re
from collections.abc import Mapping

from orbitmq.errors import SettingError
from orbitmq.spark.offsets import Offsets
from orbitmq.wire.bodies_client import MessageQueue

_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def admitted(
    begins: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int], count_max: int | None
) -> Offsets:
    """Return where a batch ends that takes `count_max` messages at most (rule 1)."""
    backlog = {queue: max(0, ends[queue] - begin) for queue, begin in begins.items()}
    total = sum(backlog.values())
    if count_max is None or total <= count_max:
        return {queue: begin + backlog[queue] for queue, begin in begins.items()}
    parts = {queue: count * count_max // total for queue, count in backlog.items()}
    left = count_max - sum(parts.values())
    for queue in sorted(parts, key=lambda each: (parts[each], -backlog[each], each)):
        if left and parts[queue] < backlog[queue]:
            parts[queue] += 1
            left -= 1
    return {queue: begin + parts[queue] for queue, begin in begins.items()}


def is_enough(count: int, count_min: int | None, waited_s: float, delay_s: float) -> bool:
    """Whether a batch of `count` messages is to begin now (rule 2)."""
    return count_min is None or count >= count_min or waited_s >= delay_s


def read_duration(option: str, text: str) -> float:
    """Return the seconds of a text like `15m`, `500ms`, `2h`; raises SettingError."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)\s*", text)
    if found is None:
        raise SettingError(f"option {option!r}: {text!r} is no duration like 500ms, 30s, 15m, 2h")
    return float(found[1]) * _UNIT_S[found[2]]
