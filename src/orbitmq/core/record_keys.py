"""Which keys of a record go to the key index: one rule for storing, recovery, check and dump.

In: a record's sysFlag and properties. Out: its keys, in the order of their index entries.

Rules:
1. The unique id (UNIQ_KEY) comes first, then the words of KEYS as they stand there, also repeated
   ones. Of two properties of one name the last with a value counts.
2. Of the words the first WORDS_MAX are filed, the others only counted: a message of 32 KB could
   bring thousands, and each costs the loop's time and room in memory. The original has no limit.
3. Rolled back messages have no keys: nobody looks for them.
4. Properties are searched, and parsed only where a name stands twice or at the end of another one.
"""

from typing import NamedTuple

from orbitmq.wire.properties import (
    ENTRY_END,
    KEYS,
    NAME_END,
    UNIQ_KEY,
    parse_properties,
    split_keys,
)
from orbitmq.wire.sysflag import TRANSACTION_MASK, Transaction

WORDS_MAX = 64

_UNIQ_MARK = (UNIQ_KEY + NAME_END).encode()
_KEYS_MARK = (KEYS + NAME_END).encode()
_NAME_END = NAME_END.encode()
_END = ENTRY_END.encode()
_ROLLBACK = int(Transaction.ROLLBACK)


class RecordKeys(NamedTuple):
    """The keys of one record."""

    filed: list[str]
    left_out: list[str]
    """Words of KEYS beyond WORDS_MAX."""


def may_have_keys(sys_flag: int, properties: bytes) -> bool:
    """Whether a record may have keys, by a look that costs little."""
    return _NAME_END in properties and sys_flag & TRANSACTION_MASK != _ROLLBACK


def keys_of_record(sys_flag: int, properties: bytes) -> RecordKeys:
    """Return the keys of a record."""
    return keys_in(properties) if may_have_keys(sys_flag, properties) else RecordKeys([], [])


def keys_in(properties: bytes) -> RecordKeys:
    """Return the keys that the properties of a record name, unless it was rolled back.

    >>> keys_in(b"KEYS\\x01a b\\x02UNIQ_KEY\\x01u\\x02").filed
    ['u', 'a', 'b']
    """
    unique, words = _value(properties, _UNIQ_MARK), _value(properties, _KEYS_MARK)
    if unique is None or words is None:
        parsed = parse_properties(properties)
        unique, words = parsed.get(UNIQ_KEY, ""), parsed.get(KEYS, "")
    keys = split_keys(words)
    filed = keys[:WORDS_MAX]
    return RecordKeys([unique, *filed] if unique else filed, keys[WORDS_MAX:])


def _value(properties: bytes, mark: bytes) -> str | None:
    """Return a property's value, "" when it is not there, None when only parsing can tell."""
    before, found, rest = properties.partition(mark)
    if not found:
        return ""
    if mark in rest or (before and not before.endswith(_END)):
        return None
    return rest.partition(_END)[0].decode(errors="replace")
