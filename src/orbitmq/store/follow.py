"""What follows from a record: which queues it is in, and the codes of its entries there.

In: a record as the walk gives it. Out: the queues it is in, and the numbers that they keep of it.

Rules:
1. The code is the hash of the tag, 0 without one. In the schedule topic it is the time at which the
   message is due: its store time and the delay of its level.
2. A record may be in light queues as well: its properties say so, whatever the settings are now.
   The code there is that of its tag. Of a delayed one the original takes the time there, too.
"""

from collections.abc import Sequence

from orbitmq.core import Walked, may_have_keys, parse_level, rows_of, tag_code_in
from orbitmq.wire.light_queues import LIGHT_MARK, light_places
from orbitmq.wire.names import SCHEDULE_TOPIC
from orbitmq.wire.properties import DELAY, stored_property
from orbitmq.wire.sysflag import OUTSIDE_QUEUE

_DELAY = DELAY.encode()
UNKNOWN_LEVEL_DELAY_MS = 1_000
"""What the original takes for a level that its table does not have."""


def in_queues(walked: Walked) -> Sequence[Walked]:
    """Return a record as each queue has it that it is in: its own first, then light queues."""
    if walked.sys_flag & OUTSIDE_QUEUE:
        return ()
    if LIGHT_MARK not in walked.properties:
        return (walked,)
    places = light_places(walked.properties)
    lights = [walked._replace(topic=name, queue_id=0, queue_offset=at) for name, at in places]
    return (walked, *lights)


def entry_code(walked: Walked, delays_ms: Sequence[int]) -> int:
    """Return the code of the record's queue entry."""
    if walked.topic == SCHEDULE_TOPIC:
        code = due_code(walked.properties, walked.store_ms, delays_ms)
        if code is not None:
            return code
    return tag_code_in(walked.properties)


def due_code(properties: bytes, store_ms: int, delays_ms: Sequence[int]) -> int | None:
    """Return when a message of the schedule topic is due; None when it names no level."""
    level = _delay_level(properties, len(delays_ms))
    if not level:
        return None
    is_known = level <= len(delays_ms)
    return store_ms + (delays_ms[level - 1] if is_known else UNKNOWN_LEVEL_DELAY_MS)


def _delay_level(properties: bytes, level_max: int) -> int:
    """Return the level the message waits for, at most the highest one; 0 when it names none."""
    level = parse_level(stored_property(properties, _DELAY)) or 0
    if level <= 0:
        return 0
    return min(level, level_max) if level_max else level


def index_rows(walked: Walked) -> tuple[bytes, int]:
    """Return what the key index gets of a record, and how many keys are left out."""
    if not may_have_keys(walked.sys_flag, walked.properties):
        return b"", 0
    return rows_of(walked.topic, walked.log_offset, walked.store_ms, walked.properties)
