"""What follows from a record: the code of its queue entry, and whether the index has it.

In: a record as the walk gives it. Out: the numbers that queues and index keep of it.

Rules:
1. The code is the hash of the tag, 0 without one. In the schedule topic it is the time at which the
   message is due: its store time and the delay of its level.
2. A record may be in light queues as well: its properties say so, whatever the settings are now.
   The code there is that of its tag. Of a delayed one the original takes the time there, too.
3. The tag is found in the bytes. Whatever looks odd there (the name at the end of another name, the
   property twice) is left to the exact parser: both always agree.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat

from orbitmq.core import ID_END, Walked, leading_ids
from orbitmq.core.alike import alike
from orbitmq.wire.expression import CACHED_TAG_CHARS_MAX, tag_code
from orbitmq.wire.light_queues import light_places
from orbitmq.wire.names import SCHEDULE_TOPIC
from orbitmq.wire.properties import DELAY, TAGS, parse_properties
from orbitmq.wire.sysflag import OUTSIDE_QUEUE, TRANSACTION_MASK, Transaction

FEW_PARTS = 32
"""So many different endings of properties are looked at as they are: else only their tags are."""

SAME_MAX = 64
"""Endings up to so many characters are compared character by character, all texts at once."""

UNKNOWN_LEVEL_DELAY_MS = 1_000
"""What the original takes for a level that its table does not have."""

_TAGS = TAGS.encode() + b"\x01"
_NEXT_TAGS = b"\x02" + _TAGS
_NAME_END = b"\x01"
_END = b"\x02"
_ENTRY_END = 0x02
_LEVEL_MAX = 2**31 - 1
_LEVEL_DIGITS_MAX = 10
_ROLLBACK = int(Transaction.ROLLBACK)


def is_indexed(sys_flag: int, properties: bytes) -> bool:
    """Whether the key index may have the record: rolled back ones nobody looks for."""
    return _NAME_END in properties and sys_flag & TRANSACTION_MASK != _ROLLBACK


def light_copies(walked: Walked) -> list[Walked]:
    """Return a record as each light queue has it that it is in besides its own."""
    if walked.sys_flag & OUTSIDE_QUEUE:
        return []
    places = light_places(walked.properties)
    return [walked._replace(topic=name, queue_id=0, queue_offset=at) for name, at in places]


def entry_code(walked: Walked, delays_ms: Sequence[int]) -> int:
    """Return the code of the record's queue entry."""
    if walked.topic == SCHEDULE_TOPIC:
        code = due_code(walked.properties, walked.store_ms, delays_ms)
        if code is not None:
            return code
    return properties_code(walked.properties)


def due_code(properties: bytes, store_ms: int, delays_ms: Sequence[int]) -> int | None:
    """Return when a message of the schedule topic is due; None when it names no level."""
    level = _delay_level(properties, len(delays_ms))
    if not level:
        return None
    is_known = level <= len(delays_ms)
    return store_ms + (delays_ms[level - 1] if is_known else UNKNOWN_LEVEL_DELAY_MS)


def properties_code(properties: bytes) -> int:
    """Return the hash of the tag in a properties string, 0 without one."""
    at = properties.find(_TAGS)
    if at < 0:
        return 0
    start = at + len(_TAGS)
    end = properties.find(_ENTRY_END, start)
    tag = properties[start : end if end >= 0 else None]
    is_odd = (at and properties[at - 1] != _ENTRY_END) or properties.find(_TAGS, start) >= 0
    if is_odd or not 0 < len(tag) <= CACHED_TAG_CHARS_MAX or _NAME_END in tag:
        return tag_code(parse_properties(properties).get(TAGS, ""))
    return _code_of(tag)


def properties_codes(texts: Sequence[bytes]) -> list[int]:
    """Return the codes of many properties strings; what is alike in them is looked at once.

    Those of one sender begin with the message's id and are mostly alike behind it, or at least
    have a tag each, and few different ones.
    """
    parts: Sequence[bytes] | None = _tag_parts(texts)
    if parts is None:
        parts = [text[ID_END:] for text in texts] if leading_ids(texts) else texts
    known = {part: properties_code(part) for part in set(parts)}
    return list(map(known.__getitem__, parts)) if len(known) > 1 else [*known.values()] * len(parts)


def _tag_parts(texts: Sequence[bytes]) -> list[bytes] | None:
    """Return of each text the entry that is its tag; None unless each has one behind another entry.

    Where TAGS stands as often as there are texts, and in each of them, it is in each of them once.
    """
    parts = _alike_tag_parts(texts)
    if parts is None:
        starts = list(map(bytes.find, texts, repeat(_NEXT_TAGS)))
        if min(starts) < 0 or _END.join(texts).count(_TAGS) != len(texts):
            return None
        parts = [text[start + 1 :] for text, start in zip(texts, starts, strict=True)]
    if len(set(parts)) <= FEW_PARTS:  # what follows the tag is alike, or there is nothing
        return parts
    return [part.partition(_END)[0] for part in parts]


def _alike_tag_parts(texts: Sequence[bytes]) -> list[bytes] | None:
    """Return of each text its tag and what follows; None unless all have it at the same place."""
    columns = alike(texts)
    start = columns.first.find(_NEXT_TAGS) if columns is not None else -1
    if columns is None or start < 0 or columns.joined.count(_TAGS) != len(texts):
        return None
    if not columns.has(_NEXT_TAGS, start):
        return None
    if columns.size - start <= SAME_MAX and columns.is_same(start, columns.size):
        return [columns.first[start + 1 :]] * len(texts)
    return columns.parts(start + 1, columns.size)


@lru_cache(maxsize=4_096)
def _code_of(tag: bytes) -> int:
    return tag_code(tag.decode("utf-8", "replace"))


def parse_level(text: str) -> int | None:
    """The delay level that a property names, as Java reads a number; None when it is none."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isascii() or not digits.isdigit() or len(digits) > _LEVEL_DIGITS_MAX:
        return None
    level = int(text)
    return level if -_LEVEL_MAX - 1 <= level <= _LEVEL_MAX else None


def _delay_level(properties: bytes, level_max: int) -> int:
    """Return the level the message waits for, at most the highest one; 0 when it names none."""
    level = parse_level(parse_properties(properties).get(DELAY, "")) or 0
    if level <= 0:
        return 0
    return min(level, level_max) if level_max else level
