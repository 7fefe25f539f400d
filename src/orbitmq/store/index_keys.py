"""Which keys a message is filed under, and their hashes.

In: messages as the core leaves them: topic, log offset, store time, properties as the record holds
them. Out: one row per key: hash, log offset, store time; UNIQ_KEY first, then the words of KEYS.

Rules:
1. The hash is Java's over `topic#key`, made absolute (0 where that does not fit).
2. Properties are searched, not parsed, as long as each name stands there once and at the start of
   an entry. Whatever looks otherwise is left to `parse_properties`: both ways give the same keys.
3. Parts of hashes are remembered: of topics, and of the first 24 characters of the unique ids that
   clients make (address, process, hour). Both memories are emptied when they reach their limit.
   The other eight characters are hashed for many messages at once.
4. Of the words of KEYS the first 64 count. The others are counted in `left_out` and not filed: a
   message of 32 KB could bring thousands, and each costs the loop's time and room in memory.
"""

import struct
from collections.abc import Sequence

from orbitmq.wire.java import index_hash, string_hash
from orbitmq.wire.properties import (
    ENTRY_END,
    KEY_SEPARATOR,
    KEYS,
    NAME_END,
    UNIQ_KEY,
    parse_properties,
    split_keys,
)

Keyed = tuple[str, int, int, bytes]
"""Topic, log offset, store time in ms, properties."""
Row = tuple[int, int, int]
"""Key hash, log offset, store time in ms."""

REMEMBERED_MAX = 10_000
BATCH_MAX = 512
"""So many messages are hashed together: see `_hashes`."""

WORDS_MAX = 64
"""So many words of KEYS a message is filed under; the original sets no limit."""

_UNIQ_MARK = (UNIQ_KEY + NAME_END).encode()
_KEYS_MARK = (KEYS + NAME_END).encode()
_MARK_SIZE = len(_UNIQ_MARK)
_END = ENTRY_END.encode()
_END_BYTE = ord(ENTRY_END)
_UNIQ_SIZE = 32
_HEAD_SIZE = 24
_TAIL_SIZE = _UNIQ_SIZE - _HEAD_SIZE
_NO_TAIL = bytes(_TAIL_SIZE)
_WORD_SIZE = 32
_SEPARATOR = KEY_SEPARATOR.encode()
_MASK = 0xFFFFFFFF
_INT_MAX = 0x7FFFFFFF
_POWERS = tuple(pow(31, exponent, 2**32) for exponent in range(_WORD_SIZE + 1))
_UNIQ_POWER = _POWERS[_UNIQ_SIZE]


class _Cut:
    """A batch of messages, cut into what their keys' hashes are made of."""

    __slots__ = ("left_out", "parts", "slow", "tails", "words")

    def __init__(self) -> None:
        self.parts: list[int] = []
        """For each message, what topic and id's head add to the hash of its id."""
        self.tails: list[bytes] = []
        """For each message, the last characters of its id."""
        self.words: list[tuple[int, bytes]] = []
        """The words of KEYS, each with the number of its message."""
        self.slow: set[int] = set()
        """The numbers of the messages that are to be looked at with care."""
        self.left_out = 0
        """Words beyond the limit."""


class KeyHasher:
    """Turns messages into rows for the index."""

    def __init__(self) -> None:
        self._topics: dict[str, int] = {}
        self._heads: dict[bytes, int] = {}
        self.left_out = 0
        """Words of KEYS that were not filed: their messages have too many."""

    def rows(self, messages: Sequence[Keyed]) -> list[Row]:
        """Give the rows of messages, in their order."""
        rows: list[Row] = []
        for start in range(0, len(messages), BATCH_MAX):
            rows += self._batch(messages[start : start + BATCH_MAX])
        return rows

    def _batch(self, messages: Sequence[Keyed]) -> list[Row]:
        cut = self._cut(messages)
        tails = b"".join(cut.tails)
        if not tails.isascii():
            return [row for message in messages for row in self._slow_rows(message)]
        self.left_out += cut.left_out
        hashes = _hashes(tails, _TAIL_SIZE)
        if cut.slow or cut.words:
            return self._mixed(messages, cut, hashes)
        return [
            # As _absolute does it: a call costs as much as all the rest.
            (
                value if (value := (part + tail) & _MASK) <= _INT_MAX else -value & _INT_MAX,
                log_offset,
                store_ms,
            )
            for (_, log_offset, store_ms, _), part, tail in zip(
                messages, cut.parts, hashes, strict=True
            )
        ]

    def _cut(self, messages: Sequence[Keyed]) -> _Cut:
        cut = _Cut()
        parts, tails, heads = cut.parts, cut.tails, self._heads
        last_topic, topic_part = None, 0
        for topic, _, _, properties in messages:
            at = properties.find(_UNIQ_MARK) + _MARK_SIZE
            head_part = None
            # With KEY in it once there is no second id and there are no KEYS: one search for both.
            if (
                properties.find(_END, at) == at + _UNIQ_SIZE
                and (at == _MARK_SIZE or properties[at - _MARK_SIZE - 1] == _END_BYTE)
                and at >= _MARK_SIZE
                and (properties.count(b"KEY") == 1 or _add_words(cut, properties))
            ):
                head = properties[at : at + _HEAD_SIZE]
                head_part = heads.get(head)
                if head_part is None:
                    head_part = self._head_part(head)
            if head_part is None:
                cut.slow.add(len(parts))
                parts.append(0)
                tails.append(_NO_TAIL)
                continue
            if topic is not last_topic:
                last_topic, topic_part = topic, self._topic_hash(topic) * _UNIQ_POWER
            parts.append(topic_part + head_part)
            tails.append(properties[at + _HEAD_SIZE : at + _UNIQ_SIZE])
        return cut

    def _mixed(self, messages: Sequence[Keyed], cut: _Cut, hashes: Sequence[int]) -> list[Row]:
        """Give the rows of messages of which some have KEYS and some need care."""
        words = self._word_hashes(messages, cut.words)
        rows: list[Row] = []
        for number, message in enumerate(messages):
            if number in cut.slow:
                rows += self._slow_rows(message)
                continue
            _, log_offset, store_ms, _ = message
            rows.append((_absolute(cut.parts[number] + hashes[number]), log_offset, store_ms))
            rows += [(word, log_offset, store_ms) for word in words.get(number, ())]
        return rows

    def _word_hashes(
        self, messages: Sequence[Keyed], words: list[tuple[int, bytes]]
    ) -> dict[int, list[int]]:
        """Give the hashes of words by the numbers of their messages."""
        found: dict[int, list[int]] = {}
        for start in range(0, len(words), _WORDS_MAX):
            batch = words[start : start + _WORDS_MAX]
            padded = b"".join([word.rjust(_WORD_SIZE, b"\0") for _, word in batch])
            hashes = _hashes(padded, _WORD_SIZE)
            for (number, word), value in zip(batch, hashes, strict=True):
                topic_part = self._topic_hash(messages[number][0]) * _POWERS[len(word)]
                found.setdefault(number, []).append(_absolute(topic_part + value))
        return found

    def _slow_rows(self, message: Keyed) -> list[Row]:
        topic, log_offset, store_ms, properties = message
        keys, left_out = _keys_of(properties)
        self.left_out += left_out
        return [(index_hash(f"{topic}#{key}"), log_offset, store_ms) for key in keys]

    def _topic_hash(self, topic: str) -> int:
        value = self._topics.get(topic)
        if value is None:
            if len(self._topics) >= REMEMBERED_MAX:
                self._topics.clear()
            value = self._topics[topic] = string_hash(topic + "#") & _MASK
        return value

    def _head_part(self, head: bytes) -> int | None:
        """Give what the head of an id adds to the hash of it all; None when it is not ASCII."""
        if not head.isascii():
            return None
        if len(self._heads) >= REMEMBERED_MAX:
            self._heads.clear()
        part = self._heads[head] = (string_hash(head.decode()) * _POWERS[_TAIL_SIZE]) & _MASK
        return part


def _add_words(cut: _Cut, properties: bytes) -> bool:
    """Take the words of KEYS; False when only parsing can tell, or a word is none of the usual."""
    at = properties.find(_KEYS_MARK) + len(_KEYS_MARK)
    end = properties.find(_END, at)
    if (
        properties.count(b"KEY") != 2
        or at < len(_KEYS_MARK)
        or end < 0
        or (at > len(_KEYS_MARK) and properties[at - len(_KEYS_MARK) - 1] != _END_BYTE)
    ):
        return False
    value = properties[at:end]
    words = [word for word in value.split(_SEPARATOR) if word]
    if not value.isascii() or max(map(len, words), default=0) > _WORD_SIZE:
        return False
    number = len(cut.parts)
    cut.words += [(number, word) for word in words[:WORDS_MAX]]
    cut.left_out += max(0, len(words) - WORDS_MAX)
    return True


def _absolute(value: int) -> int:
    """Give the absolute value of what a hash is as an int of Java's; 0 for -2^31."""
    value &= _MASK
    return value if value <= _INT_MAX else -value & _INT_MAX


# ---- many hashes at once -------------------------------------------------------------------------

_BATCH_BYTES = BATCH_MAX * _TAIL_SIZE
_WORDS_MAX = _BATCH_BYTES // _WORD_SIZE


def _every(size: int, of: int) -> int:
    """Give the mask of the first `size` bytes of every `of` bytes of a batch."""
    return int.from_bytes((b"\xff" * size).ljust(of, b"\0") * (_BATCH_BYTES // of), "little")


_CHARS, _PAIRS, _FOURS = _every(1, 2), _every(2, 4), _every(4, 8)
_EIGHTS, _SIXTEENS = _every(4, 16), _every(4, 32)


def _hashes(texts: bytes, size: int) -> Sequence[int]:
    """Give the hashes, not wrapped, of ASCII texts of 8 or 32 characters that lie back to back.

    All in one number: from neighbouring hashes of n characters each follow those of 2n, for the
    whole batch with a few operations on one number of 4 KB; Python handles that far faster than
    hundreds of small ones. Each hash stays in the room of its characters. A text that is shorter
    is filled with zeros in front, which add nothing.
    """
    value = int.from_bytes(texts, "little")
    value = (value & _CHARS) * 31 + (value >> 8 & _CHARS)
    value = (value & _PAIRS) * 31**2 + (value >> 16 & _PAIRS)
    value = (value & _FOURS) * 31**4 + (value >> 32 & _FOURS)
    if size == _TAIL_SIZE:
        return struct.unpack(f"<{len(texts) // 8}Q", value.to_bytes(len(texts), "little"))
    # From here on a hash may be longer than its 32 bits: of the parts, only these count.
    value = (value & _EIGHTS) * _POWERS[8] + (value >> 64 & _EIGHTS)
    value = (value & _SIXTEENS) * _POWERS[16] + (value >> 128 & _SIXTEENS)
    return struct.unpack("<" + "Q24x" * (len(texts) // 32), value.to_bytes(len(texts), "little"))


def message_keys(properties: bytes) -> list[str]:
    """Give the keys under which a message with these properties is filed.

    >>> message_keys(b"KEYS\\x01a b\\x02UNIQ_KEY\\x01u\\x02")
    ['u', 'a', 'b']
    """
    return _keys_of(properties)[0]


def _keys_of(properties: bytes) -> tuple[list[str], int]:
    """Give a message's keys and how many more it has than are filed."""
    unique, words = _value(properties, _UNIQ_MARK), _value(properties, _KEYS_MARK)
    if unique is None or words is None:
        parsed = parse_properties(properties)
        unique, words = parsed.get(UNIQ_KEY, ""), parsed.get(KEYS, "")
    keys = split_keys(words) if words else []
    filed = keys[:WORDS_MAX]
    return ([unique, *filed] if unique else filed), len(keys) - len(filed)


def _value(properties: bytes, mark: bytes) -> str | None:
    """Give a property's value, "" when it is not there, None when only parsing can tell."""
    before, found, rest = properties.partition(mark)
    if not found:
        return ""
    if mark in rest or (before and not before.endswith(_END)):
        return None
    return rest.partition(_END)[0].decode(errors="replace")


# ---- what filing costs ---------------------------------------------------------------------------

_FREE_BYTES = 256
_BYTES_OF_A_COST = 32


def affordable(messages: Sequence[Keyed], budget: int) -> tuple[int, int]:
    """Give how many messages may be filed for `budget`, one at least, and what they cost.

    A key costs 1, about a microsecond; properties that are long cost for their length as well.
    """
    count = len(messages)
    texts = [message[3] for message in messages]
    if sum(map(len, texts)) <= _FREE_BYTES * count:  # the ordinary case, for all at once
        total = count + b"".join(texts).count(_SEPARATOR)
        if total <= budget:
            return count, total
    total = 0
    for number, properties in enumerate(texts):
        cost = _cost(properties)
        if number and total + cost > budget:
            return number, total
        total += cost
    return count, total


def _cost(properties: bytes) -> int:
    at = properties.find(_KEYS_MARK)
    spaces = properties.count(_SEPARATOR, at, properties.find(_END, at)) if at >= 0 else 0
    long_bytes = max(0, len(properties) - _FREE_BYTES)
    return 2 + min(spaces, WORDS_MAX) + long_bytes // _BYTES_OF_A_COST
