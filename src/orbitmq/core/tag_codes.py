"""The code of a message's tag, read from its properties.

In: a properties string as bytes, of a request or of a record. Out: Java's hash of the tag, 0
without one. Queue entries hold it, and pulls filter by it.

Rules:
1. The code is that of the tag that `parse_properties` finds: the last TAGS entry with a value.
2. The tag is searched in the bytes. Where TAGS stands twice, at the end of another name, or with an
   odd value, the properties are parsed.
"""

from functools import lru_cache

from orbitmq.wire.expression import CACHED_TAG_CHARS_MAX, tag_code
from orbitmq.wire.properties import TAGS, parse_properties

_TAGS = TAGS.encode() + b"\x01"
_NAME_END = b"\x01"
_ENTRY_END = 0x02


def tag_code_in(properties: bytes) -> int:
    """Return the code of the tag in a properties string.

    >>> tag_code_in(b"KEYS\\x01k\\x02TAGS\\x01a\\x02")
    97
    """
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


@lru_cache(maxsize=4_096)
def _code_of(tag: bytes) -> int:
    return tag_code(tag.decode("utf-8", "replace"))
