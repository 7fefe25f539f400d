"""Which keys a message is filed under, and their hashes.

In: messages as the core leaves them: topic, log offset, store time, and properties as the record
holds them or, when it has no other key, the 32 characters of its unique id alone. Out: one row per
key: hash, log offset, store time; UNIQ_KEY first, then the words of KEYS.

Rules:
1. The hash is Java's over `topic#key`, made absolute (0 where that does not fit).
2. Properties are searched, not parsed, as long as each name stands there once and at the start of
   an entry. Whatever looks otherwise is left to `keys_in`: both ways give the same keys.
3. Ids and words are hashed for many messages at once; of messages that are alike only the
   characters in which they differ (`core.alike`). The hashes of topics are remembered, and
   forgotten when they reach their limit.
4. Which keys a message has says `core.record_keys`. Words beyond its limit are counted in
   `left_out` and not filed.
5. 32 characters without NAME_END are an id alone.
"""

import struct
from array import array
from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from typing import NamedTuple

from orbitmq.core.alike import Alike, alike
from orbitmq.core.record_keys import WORDS_MAX, keys_in
from orbitmq.wire.java import index_hash, string_hash
from orbitmq.wire.properties import (
    ENTRY_END,
    KEY_SEPARATOR,
    KEYS,
    NAME_END,
    UNIQ_KEY,
)

Keyed = tuple[str, int, int, bytes]
"""Topic, log offset, store time in ms, properties or id."""
Row = tuple[int, int, int]
"""Key hash, log offset, store time in ms."""


class Rows(NamedTuple):
    """Rows by columns: a batch has thousands, and each column goes into the index as a whole."""

    hashes: Sequence[int]
    log_offsets: Sequence[int]
    times_ms: Sequence[int]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "Rows":
        """Return rows by columns."""
        return cls(*zip(*rows, strict=True)) if rows else cls((), (), ())

    @property
    def row_count(self) -> int:
        """How many there are."""
        return len(self.hashes)

    def each(self) -> list[Row]:
        """Yield them one by one."""
        return list(zip(*self, strict=True))

    def between(self, start: int, end: int | None = None) -> "Rows":
        """Return those from `start` on, up to `end`."""
        return Rows(*(column[start:end] for column in self))


REMEMBERED_MAX = 10_000
BATCH_MAX = 512
"""So many messages are hashed together: see `_hashes`."""

_UNIQ_MARK = (UNIQ_KEY + NAME_END).encode()
_KEYS_MARK = (KEYS + NAME_END).encode()
_MARK_SIZE = len(_UNIQ_MARK)
_KEYS_MARK_SIZE = len(_KEYS_MARK)
_NEXT_KEYS = ENTRY_END.encode() + _KEYS_MARK
_KEY = b"KEY"
_NAME_END = NAME_END.encode()
_END = ENTRY_END.encode()
_END_BYTE = ord(ENTRY_END)
_KEY_SIZE = 32
"""Unique ids have so many characters, and words up to so many are hashed together with others."""
_ID_END = _MARK_SIZE + _KEY_SIZE
_NO_KEY = bytes(_KEY_SIZE)
_SEPARATOR = KEY_SEPARATOR.encode()
_NO_CHARS = _NAME_END + _END + _SEPARATOR
"""Characters that a key which is one word does not have."""
_MASK = 0xFFFFFFFF
_INT_MAX = 0x7FFFFFFF
_INT_MIN_ABSOLUTE = 2**31
_FIRST_WORD = struct.Struct(f"<i{_KEY_SIZE - 4}x")
_POWERS = tuple(pow(31, exponent, 2**32) for exponent in range(_KEY_SIZE + 1))


class _Cut:
    """A batch of messages, cut into what their keys' hashes are made of."""

    __slots__ = ("ids", "left_out", "slow", "words")

    def __init__(self) -> None:
        self.ids: list[bytes] = []
        """For each message its id."""
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
        self.left_out = 0
        """Words of KEYS that were not filed: their messages have too many."""

    def rows(self, messages: Sequence[Keyed]) -> Rows:
        """Return the rows of messages, in their order."""
        if len(messages) <= BATCH_MAX:
            return self._batch(messages) if messages else Rows.of(())
        starts = range(0, len(messages), BATCH_MAX)
        parts = [self._batch(messages[start : start + BATCH_MAX]) for start in starts]
        return Rows(*(list(chain.from_iterable(columns)) for columns in zip(*parts, strict=True)))

    def _batch(self, messages: Sequence[Keyed]) -> Rows:
        topics, offsets, times, texts = zip(*messages, strict=True)
        ids = b"".join(texts)
        cut = None
        if _NAME_END in ids or set(map(len, texts)) != {_KEY_SIZE}:
            rows = self._alike_rows(topics, offsets, times, texts)
            if rows is not None:
                return rows
            pairs = _one_word_each(texts)
            if pairs is not None:
                by_id = self._row_hashes(topics, pairs[0])
                by_word = self._row_hashes(topics, _aligned(pairs[1]), list(map(len, pairs[1])))
                return Rows(_in_turn(by_id, by_word), _in_turn(offsets), _in_turn(times))
            cut = _cut(texts)
            ids = b"".join(cut.ids)
        if not ids.isascii():
            return Rows.of([row for message in messages for row in self._slow_rows(message)])
        if cut is not None and (cut.slow or cut.words):
            self.left_out += cut.left_out
            return self._mixed(messages, cut, _hashes(ids))
        return Rows(self._row_hashes(topics, ids), offsets, times)

    def _alike_rows(
        self,
        topics: Sequence[str],
        offsets: Sequence[int],
        times: Sequence[int],
        texts: Sequence[bytes],
    ) -> Rows | None:
        """The rows of messages of one topic that are alike in all but their keys' characters.

        None when they are not, or have not an id and one word.
        """
        columns = alike(texts)
        word = _word_place(columns) if columns is not None else None
        if columns is None or word is None or topics.count(topics[0]) != len(topics):
            return None
        before = self._topic_hash(topics[0])
        by_id = columns.hashes(_MARK_SIZE, _ID_END, _NO_CHARS, before)
        by_word = columns.hashes(*word, _NO_CHARS, before)
        if by_id is None or by_word is None:
            return None
        hashes = array("i", bytes(2 * by_id.itemsize * len(by_id)))
        hashes[::2], hashes[1::2] = _absolutes(by_id), _absolutes(by_word)
        is_one_time = times.count(times[0]) == len(times)
        both = (times[0],) * (2 * len(times)) if is_one_time else _in_turn(times)
        return Rows(hashes, _in_turn(offsets), both)

    def _row_hashes(
        self, topics: Sequence[str], texts: bytes, sizes: Sequence[int] | None = None
    ) -> Sequence[int]:
        """Return the hashes of keys of these topics as the index has them.

        The keys are texts of 32 characters, or of these sizes with zeros in front.
        """
        value = _hashed(texts) + int.from_bytes(self._topic_parts(topics, sizes), "little")
        # A sum of two hashes stays in the room of its key: 32 bytes.
        return _absolutes(_first_words(value, len(texts)))

    def _topic_parts(self, topics: Sequence[str], sizes: Sequence[int] | None) -> bytes:
        """Return what the topics add to the hashes of keys of these sizes."""
        topic, size_set = topics[0], set(sizes or (_KEY_SIZE,))
        if set(topics) != {topic}:
            pairs = zip(topics, sizes or repeat(_KEY_SIZE), strict=False)
            return b"".join([self._topic_block(*pair) for pair in pairs])
        blocks = {size: self._topic_block(topic, size) for size in size_set}
        if sizes is None or len(blocks) == 1:
            return blocks.popitem()[1] * len(topics)
        return b"".join(map(blocks.__getitem__, sizes))

    def _topic_block(self, topic: str, size: int) -> bytes:
        """Return what a topic adds to the hash of a key of this size, in the room of a key."""
        part = self._topic_hash(topic) * _POWERS[size] & _MASK
        return part.to_bytes(_KEY_SIZE, "little")

    def _mixed(self, messages: Sequence[Keyed], cut: _Cut, hashes: Sequence[int]) -> Rows:
        """Return the rows of messages of which some have KEYS and some need care."""
        words = self._word_hashes(messages, cut.words)
        rows: list[Row] = []
        for number, message in enumerate(messages):
            if number in cut.slow:
                rows += self._slow_rows(message)
                continue
            topic, log_offset, store_ms, _ = message
            topic_part = self._topic_hash(topic) * _POWERS[_KEY_SIZE]
            rows.append((_absolute(topic_part + hashes[number]), log_offset, store_ms))
            rows += [(word, log_offset, store_ms) for word in words.get(number, ())]
        return Rows.of(rows)

    def _word_hashes(
        self, messages: Sequence[Keyed], words: list[tuple[int, bytes]]
    ) -> dict[int, list[int]]:
        """Return the hashes of words by the numbers of their messages."""
        found: dict[int, list[int]] = {}
        for start in range(0, len(words), BATCH_MAX):
            batch = words[start : start + BATCH_MAX]
            hashes = _hashes(_aligned([word for _, word in batch]))
            for (number, word), value in zip(batch, hashes, strict=True):
                topic_part = self._topic_hash(messages[number][0]) * _POWERS[len(word)]
                found.setdefault(number, []).append(_absolute(topic_part + value))
        return found

    def _slow_rows(self, message: Keyed) -> list[Row]:
        topic, log_offset, store_ms, text = message
        keys, left_out = ([text.decode()], []) if _is_id(text) else keys_in(text)
        self.left_out += len(left_out)
        return [(index_hash(f"{topic}#{key}"), log_offset, store_ms) for key in keys]

    def _topic_hash(self, topic: str) -> int:
        value = self._topics.get(topic)
        if value is None:
            if len(self._topics) >= REMEMBERED_MAX:
                self._topics.clear()
            value = self._topics[topic] = string_hash(topic + "#") & _MASK
        return value


def _in_turn(first: Sequence[int], second: Sequence[int] | None = None) -> list[int]:
    """Return numbers of two columns in turn; each of one column twice."""
    column = [0] * (2 * len(first))
    column[::2] = first
    column[1::2] = first if second is None else second
    return column


def _absolutes(hashes: Iterable[int]) -> "array[int]":
    """Return hashes of Java's as the index has them."""
    found = list(map(abs, hashes))
    if _INT_MIN_ABSOLUTE in found:
        found = [0 if each == _INT_MIN_ABSOLUTE else each for each in found]
    return array("i", found)


def _word_place(columns: Alike) -> tuple[int, int] | None:
    """Return where all texts have the value of KEYS; None unless they begin with an id of 32.

    Names stand where the first text has them, and KEY in no other: nothing comes twice.
    """
    first = columns.first
    at = first.find(_NEXT_KEYS)
    start = at + len(_NEXT_KEYS)
    end = first.find(_END, start)
    if at < _ID_END or columns.joined.count(_KEY) != 2 * columns.count:
        return None
    has_names = (
        columns.has(_UNIQ_MARK, 0)
        and columns.has(_END, _ID_END)
        and columns.has(_NEXT_KEYS, at)
        and (end < 0 or columns.has(_END, end))
    )
    return (start, end if end >= 0 else columns.size) if has_names else None


def _is_id(text: bytes) -> bool:
    return len(text) == _KEY_SIZE and _NAME_END not in text


def _one_word_each(texts: Sequence[bytes]) -> tuple[bytes, list[bytes]] | None:
    """Return all ids, and the one word of each message's KEYS; None when one is any different.

    All have as many entries: first the id, at the same place KEYS, and KEY in no other.
    """
    entries = list(map(bytes.split, texts, repeat(_END)))
    place = next((at for at, one in enumerate(entries[0]) if one.startswith(_KEYS_MARK)), 0)
    if not place or len(set(map(len, entries))) > 1:
        return None
    if _END.join(texts).count(b"KEY") != 2 * len(texts):
        return None
    ids = _ids_of([one[0] for one in entries])
    keys = [one[place] for one in entries]
    if ids is None or not all(map(bytes.startswith, keys, repeat(_KEYS_MARK))):
        return None
    words = [entry[_KEYS_MARK_SIZE:] for entry in keys]
    sizes, all_words = set(map(len, words)), b"".join(words)
    is_usual = min(sizes) > 0 and max(sizes) <= _KEY_SIZE and _SEPARATOR not in all_words
    return (ids, words) if is_usual and (ids + all_words).isascii() else None


def _ids_of(entries: Sequence[bytes]) -> bytes | None:
    """Return the ids of entries that are ids, back to back; None when one of them is none."""
    if set(map(len, entries)) != {_ID_END}:
        return None
    joined = b"".join(entries)
    for place in range(_MARK_SIZE):
        if joined[place::_ID_END] != _UNIQ_MARK[place : place + 1] * len(entries):
            return None
    ids = joined.replace(_UNIQ_MARK, b"")
    return ids if len(ids) == _KEY_SIZE * len(entries) else None


def _aligned(words: Sequence[bytes]) -> bytes:
    """Return words with zeros in front, 32 characters each, back to back."""
    return b"".join(map(bytes.rjust, words, repeat(_KEY_SIZE), repeat(b"\0")))


def _cut(texts: Sequence[bytes]) -> _Cut:
    cut = _Cut()
    ids = cut.ids
    for text in texts:
        at = text.find(_UNIQ_MARK) + _MARK_SIZE
        if _is_id(text):
            ids.append(text)
        elif (
            text.find(_END, at) == at + _KEY_SIZE
            and (at == _MARK_SIZE or text[at - _MARK_SIZE - 1] == _END_BYTE)
            and at >= _MARK_SIZE
            # With KEY in it once there is no second id and no KEYS: one search for both.
            and (text.count(b"KEY") == 1 or _add_words(cut, text))
        ):
            ids.append(text[at : at + _KEY_SIZE])
        else:
            cut.slow.add(len(ids))
            ids.append(_NO_KEY)
    return cut


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
    if not value.isascii() or max(map(len, words), default=0) > _KEY_SIZE:
        return False
    number = len(cut.ids)
    cut.words += [(number, word) for word in words[:WORDS_MAX]]
    cut.left_out += max(0, len(words) - WORDS_MAX)
    return True


def _absolute(value: int) -> int:
    """Return the absolute value of what a hash is as an int of Java's; 0 for -2^31."""
    value &= _MASK
    return value if value <= _INT_MAX else -value & _INT_MAX


# ---- many hashes at once -------------------------------------------------------------------------

_BATCH_BYTES = BATCH_MAX * _KEY_SIZE


def _every(size: int, of: int) -> int:
    """Return the mask of the first `size` bytes of every `of` bytes of a batch."""
    return int.from_bytes((b"\xff" * size).ljust(of, b"\0") * (_BATCH_BYTES // of), "little")


_CHARS, _PAIRS, _FOURS = _every(1, 2), _every(2, 4), _every(4, 8)
_EIGHTS, _SIXTEENS = _every(4, 16), _every(4, 32)


def _hashes(texts: bytes) -> Sequence[int]:
    """The hashes of ASCII texts of 32 characters that lie back to back, as ints of Java's."""
    return _first_words(_hashed(texts), len(texts))


def _hashed(texts: bytes) -> int:
    """Return the same hashes, not wrapped, in one number.

    All in one number: from neighbouring hashes of n characters each follow those of 2n, for the
    whole batch with a few operations on one number of 16 KB; Python handles that far faster than
    hundreds of small ones. Each hash stays in the room of its characters. A text that is shorter
    is filled with zeros in front, which add nothing.
    """
    value = int.from_bytes(texts, "little")
    value = (value & _CHARS) * 31 + (value >> 8 & _CHARS)
    value = (value & _PAIRS) * 31**2 + (value >> 16 & _PAIRS)
    value = (value & _FOURS) * 31**4 + (value >> 32 & _FOURS)
    # From here on a hash may be longer than its 32 bits: of the parts, only these count.
    value = (value & _EIGHTS) * _POWERS[8] + (value >> 64 & _EIGHTS)
    return (value & _SIXTEENS) * _POWERS[16] + (value >> 128 & _SIXTEENS)


def _first_words(value: int, size: int) -> Sequence[int]:
    """Return the lowest 32 bits of every 32 bytes of a number of `size` bytes, signed."""
    return [each for (each,) in _FIRST_WORD.iter_unpack(value.to_bytes(size, "little"))]


def waiting_keys(text: bytes) -> list[str]:
    """Return the keys of a message that waits to be filed, by its properties or its id."""
    return [text.decode()] if _is_id(text) else keys_in(text).filed


# ---- what filing costs ---------------------------------------------------------------------------

_FREE_BYTES = 256
_BYTES_OF_A_COST = 32


def affordable(messages: Sequence[Keyed], budget: int) -> tuple[int, int]:
    """Return how many messages may be filed for `budget`, one at least, and what they cost.

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
