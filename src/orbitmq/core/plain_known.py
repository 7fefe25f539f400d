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
from orbitmq.core.state import CREDIT_MAX, ENTRY, CoreState, Origin, Parts, Shape
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
    """Return how to cut a header; connections of a kind share it."""
    return (
        struct.Struct("".join(f"{size}s" for size in sizes)).unpack_from,
        b"1".ljust(digits, b"0"),
        _OPAQUE_MOST if digits > 9 else b"9" * digits,
    )


def take_known(state: CoreState, data: bytes, position: int, origin: Origin, answers: Parts) -> int:
    """Stage the known sends from `position` on, each with an answer; give where they end."""
    known, tail, shapes, end = state.known, state.tail, origin.shapes, len(data)
    if known.credit < 0 or tail.refusal or tail.store_ms < state.send_from_ms:
        return position
    heads, rests, topics = known.heads, known.rests, state.topics
    staged, grown, keyed, store_ms = tail.staged, tail.grown, tail.keyed, tail.store_ms
    file_end = tail.end_offset - tail.end_offset % tail.file_size + tail.file_size - BLANK_SIZE
    last_born, born_ms, count = b"", 0, 0
    while end - position >= 8:
        length, header_size = _PREFIX.unpack_from(data, position)
        shape = shapes.get(header_size)
        start, frame_end = position + 8 + header_size, position + 4 + length
        if shape is None or not start <= frame_end <= end or length > _LENGTH_MAX:
            break
        unpack, opaque_least, opaque_most = shape
        head, born, middle, unique, rest, opaque, last = unpack(data, position + 8)
        route, form = heads.get(head), rests.get(rest)
        if route is None or form is None or middle != _MIDDLE or not unique.isalnum():
            break
        if last != form[-1] or not opaque.isdigit() or not opaque_least <= opaque <= opaque_most:
            break
        if born != last_born:  # many messages have the same millisecond
            if not born.isdigit() or born < _BORN_LEAST:
                break
            last_born, born_ms = born, int(born)
        name, queue_id, sys_flag, template = route
        properties_size, mark, stored, code, _ = form
        topic = topics.get(name)
        queue = topic.queues.get(queue_id) if topic is not None and topic.is_plain else None
        if topic is None or queue is None or queue_id >= topic.send_queue_count:
            break
        body, log_offset, offset = data[start:frame_end], tail.end_offset, queue.next_offset
        size = origin.fixed_size + len(body) + len(queue.topic_field) + properties_size
        if len(body) > state.body_size_max or log_offset + size > file_end:
            break  # where the file ends, `append` begins the next one
        staged += origin.pack_known(
            size,
            queue.magic,
            crc32(body) & 0x7FFFFFFF,
            queue_id,
            offset,
            log_offset,
            sys_flag | origin.host_bits,
            born_ms,
            origin.born_host,
            store_ms,
            origin.store_host,
            len(body),
        )
        # Growing in small steps costs less than putting them together first.
        staged += body
        staged += queue.topic_field
        staged += mark
        staged += unique
        staged += stored
        tail.end_offset, queue.next_offset = log_offset + size, offset + 1
        grown.add(queue)
        keyed.append((queue.topic, log_offset, store_ms, unique))
        queue.entries += ENTRY.pack(log_offset, size, code)
        queue.put_bytes += size
        answer = template % (log_offset, offset, opaque)
        answers.append(PREFIXES[len(answer)] + answer)
        position, count = frame_end, count + 1
    tail.staged_count += count
    known.credit += count if known.credit < CREDIT_MAX else 0
    return position
