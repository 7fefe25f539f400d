"""Sends whose headers are known by heart: the same text as before, but for four places.

In: the frames of one read. Out: their records staged and their answers, as `plain` would have done
it, at a little more than half of its price.

A producer's headers differ in born time, unique id and opaque only, and in the queue. So a header
that was decoded once is cut into `head [born] middle [id] rest [opaque] last`, and what decoding
gave is remembered under `head` and `rest`. A later header of the same size is cut at the same
places, and looked up.

Rules:
1. Nothing is guessed: a header is taken only when every byte of it is compared or checked. The four
   parts are learnt by a strict pattern, so that any of them go together; see `_HEADER`.
2. Learning costs as much as handling a message. `credit` sees to it that messages which are all
   different cost little more than without: what is learnt must be used before more is learnt.
3. The record is put together here once more, as in `append`; tests compare the two.
"""

import re
import struct
from functools import lru_cache

from orbitmq.core.checksum import crc32
from orbitmq.core.state import CREDIT_MAX, ENTRY, CoreState, Head, Origin, Rest, Shape
from orbitmq.wire.frame import FRAME_SIZE_MAX
from orbitmq.wire.record import BLANK_SIZE

LEARNT_MAX = 4_096
"""So many texts of a kind are remembered."""
LEARNT_SIZE_MAX = 1_024
SHAPES_MAX = 64
"""So many sizes of headers, per connection."""
LEARNING_COST = 16
MISS_COST = 4

_HEADER = re.compile(
    rb'(\{"code":310,"extFields":\{"a":"[^"\\]*","b":"[^"\\]*","c":"[^"\\]*","d":"\d+","e":"\d+",'
    rb'"f":"\d+","g":")([1-9]\d{12})(","h":"0","i":"UNIQ_KEY\\u0001)([0-9A-Za-z]{32})'
    rb'((\\u0002(?:[^"\\]|\\u000[12])*")(?:,"[j-n]":"[^"\\]*")*\},"flag":0,"language":"[^"\\]*",'
    rb'"opaque":)([1-9]\d{0,9})(,"serializeTypeCurrentRPC":"JSON","version":\d+\})'
)
"""All its parts, in their order; the sixth lies in the fifth: how the properties go on."""

_MIDDLE = rb'","h":"0","i":"UNIQ_KEY\u0001'
_UNIQ_MARK = b"UNIQ_KEY\x01"
_UNIQ_SIZE = 32
_BORN_LEAST = b"1000000000000"
_OPAQUE_MOST = b"2147483647"
_LENGTH_MAX = FRAME_SIZE_MAX - 4
_PREFIX = struct.Struct(">iI")
PREFIXES = [_PREFIX.pack(4 + size, size) for size in range(1024)]
"""The first eight bytes of a frame without body, by header size."""


def learn(state: CoreState, origin: Origin, header: bytes, route: tuple[str, int, int]) -> None:
    """Remember the header of a send that was taken, if it is of the usual form.

    `route` is what it says of topic, queue id and sysFlag.
    """
    known = state.known
    known.credit -= LEARNING_COST
    found = _HEADER.fullmatch(header) if len(header) <= LEARNT_SIZE_MAX else None
    if found is None:
        return
    head, born, middle, unique, rest, behind, opaque, last = found.groups()
    judged = state.judged.get(behind)
    digits = len(opaque)
    if judged is None or b"KEY" in judged[1] or (digits > 9 and opaque > _OPAQUE_MOST):
        return
    known.forget_others(state.store_id)
    for table in (known.heads, known.rests):
        if len(table) >= LEARNT_MAX:
            table.clear()
    if len(origin.shapes) >= SHAPES_MAX:
        origin.shapes.clear()
    sizes = tuple(map(len, (head, born, middle, unique, rest, opaque, last)))
    origin.shapes[len(header)] = _shape(sizes, digits)
    known.heads[head] = (*route, state.known_answer(route[1]))
    code, stored = judged
    size = len(_UNIQ_MARK) + _UNIQ_SIZE + len(stored)
    known.rests[rest] = (size, size.to_bytes(2, "big") + _UNIQ_MARK, stored, code, last)


@lru_cache(maxsize=LEARNT_MAX)
def _shape(sizes: tuple[int, ...], digits: int) -> Shape:
    """Give how to cut a header; connections of a kind share it."""
    return (
        struct.Struct("".join(f"{size}s" for size in sizes)).unpack_from,
        b"1".ljust(digits, b"0"),
        _OPAQUE_MOST if digits > 9 else b"9" * digits,
    )


def take_known(
    state: CoreState, data: bytes, position: int, origin: Origin, answers: list[bytes | memoryview]
) -> tuple[int, int]:
    """Handle the known sends from `position` on; give where they end and how many they are."""
    known = state.known
    if known.store_id != state.store_id:
        known.forget_others(state.store_id)
    tail = state.tail
    is_refused = tail.refusal or tail.store_ms < state.send_from_ms
    found = [] if is_refused else _recognise(state, data, position, origin.shapes)
    count = _stage(state, data, found, origin, answers) if found else 0
    if not count:
        known.credit -= MISS_COST
        return position, 0
    if known.credit < CREDIT_MAX:
        known.credit += count
    return found[count - 1][-1], count


_Found = tuple[Head, Rest, bytes, bytes, int, int, int]
"""Head, rest, unique id, opaque, born time; where the body begins, where it ends."""


def _recognise(
    state: CoreState, data: bytes, position: int, shapes: dict[int, Shape]
) -> list[_Found]:
    """Give the whole frames from `position` on, up to the first whose header is not known."""
    known, end, body_size_max = state.known, len(data), state.body_size_max
    heads, rests = known.heads, known.rests
    last_born, born_ms = b"", 0
    all_found: list[_Found] = []
    while end - position >= 8:
        length, header_size = _PREFIX.unpack_from(data, position)
        shape = shapes.get(header_size)
        body_start, frame_end = position + 8 + header_size, position + 4 + length
        if shape is None or frame_end > end or length > _LENGTH_MAX:
            break
        if not body_start <= frame_end <= body_start + body_size_max:
            break
        unpack, opaque_least, opaque_most = shape
        head, born, middle, unique, rest, opaque, last = unpack(data, position + 8)
        route, form = heads.get(head), rests.get(rest)
        if route is None or form is None or middle != _MIDDLE or not unique.isalnum():
            break
        is_number = opaque.isdigit() and opaque_least <= opaque <= opaque_most
        if not is_number or last != form[-1]:
            break
        if born != last_born:  # many messages have the same millisecond
            if not born.isdigit() or born < _BORN_LEAST:
                break
            last_born, born_ms = born, int(born)
        all_found.append((route, form, unique, opaque, born_ms, body_start, frame_end))
        position = frame_end
    return all_found


def _stage(
    state: CoreState,
    data: bytes,
    all_found: list[_Found],
    origin: Origin,
    answers: list[bytes | memoryview],
) -> int:
    """Stage the messages with their answers; give how many, up to one that is not to be taken."""
    tail, topics = state.tail, state.topics
    staged, store_ms, fixed_size = tail.staged, tail.store_ms, origin.fixed_size
    constant = origin.born_host + store_ms.to_bytes(8, "big") + origin.constant_end
    file_end = tail.end_offset - tail.end_offset % tail.file_size + tail.file_size - BLANK_SIZE
    pieces: list[bytes] = []
    for head, rest, unique, opaque, born_ms, body_start, body_end in all_found:
        name, queue_id, sys_flag, template = head
        properties_size, mark, stored, code, _ = rest
        topic = topics.get(name)
        queue = topic.queues.get(queue_id) if topic is not None and topic.is_plain else None
        if topic is None or queue is None or queue_id >= topic.send_queue_count:
            break
        body, topic_field, log_offset = (
            data[body_start:body_end],
            queue.topic_field,
            tail.end_offset,
        )
        size = fixed_size + len(body) + len(topic_field) + properties_size
        if log_offset + size > file_end:
            break  # `append` begins the next file
        crc, flags, offset = (
            crc32(body) & 0x7FFFFFFF,
            sys_flag | origin.host_bits,
            queue.next_offset,
        )
        staged += origin.pack_known(
            size,
            queue.magic,
            crc,
            queue_id,
            0,
            offset,
            log_offset,
            flags,
            born_ms,
            constant,
            len(body),
        )
        # Growing in small steps costs less than putting them together first.
        staged += body
        staged += topic_field
        staged += mark
        staged += unique
        staged += stored
        tail.end_offset = log_offset + size
        tail.grown.add(queue)
        tail.keyed.append((queue.topic, log_offset, store_ms, unique))
        queue.entries += ENTRY.pack(log_offset, size, code)
        queue.put_bytes += size
        queue.next_offset = offset + 1
        answer = template % (log_offset, offset, opaque)
        pieces += (PREFIXES[len(answer)], answer)
    count = len(pieces) // 2
    tail.staged_count += count
    if count:
        answers.append(b"".join(pieces))
    return count
