"""The small state objects of the hot path: log tail, queue, topic, subscription, origin.

In: what the store and the broker set up. Out: what append, gather and handle_one_read work on.

Rules:
1. This state lives here once. Both implementations of the core use these objects; nobody keeps
   copies of their values.
2. The store owns their lives: it makes tails and queues, publishes what was written and takes back
   what was refused. The broker owns topics and subscriptions.
3. `next_offset` counts what is staged, `readable_offset` what may be seen. Between turns of the
   loop the two are equal, unless what may be seen waits for a sync.
"""

import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

import msgspec

from orbitmq.core.admit import cluster_entry
from orbitmq.errors import SettingError
from orbitmq.watermark import Watermark
from orbitmq.wire.command import FLAG_RESPONSE, LANGUAGE, VERSION, Command, encode_command
from orbitmq.wire.frame import BINARY, PREFIX_SIZE
from orbitmq.wire.record import MAGIC_V1, MAGIC_V2, layout_of
from orbitmq.wire.sysflag import BORN_HOST_V6, STORE_HOST_V6

ENTRY = struct.Struct(">qiq")
"""A queue entry: log offset, record size, tags code."""

ENTRY_SIZE = ENTRY.size
REGION_CHARS_MAX = 64

GOT_MAX = 10_000
"""Pairs of topic and group whose pulls are counted apart."""

BULK_COUNT_MAX = 1_024
"""Records in one answer to a pull that asks for much at a time."""

SCAN_COUNT_LEAST = 800
"""A filtered pull looks at 800 entries, or as many as it asks for, as the original does."""


class LogTail:
    """The end of the log: where the next record goes and what is staged for the next write."""

    __slots__ = (
        "copy_count",
        "end_offset",
        "file_size",
        "grown",
        "hot_offset",
        "left_out",
        "refusal",
        "rows",
        "staged",
        "staged_count",
        "store_ms",
        "views",
        "visible",
        "written",
    )

    def __init__(self, file_size: int, end_offset: int) -> None:
        self.file_size = file_size
        self.end_offset = end_offset
        """Where the next record goes, behind everything staged."""
        self.written = Watermark(end_offset)
        """The end of what the kernel has; what lies between it and `end_offset` is in `staged`."""
        self.visible = Watermark(end_offset)
        """The end of what may be seen: the least of the marks that the store requires."""
        self.hot_offset = end_offset
        """Records from here on are recent and were written or checked by this process: `views` has
        them. What lies before is read from the files, in a thread."""
        self.refusal = ""
        """Why no record is taken now; empty when they are."""
        self.staged = bytearray()
        self.staged_count = 0
        """How many records are staged."""
        self.copy_count = 0
        """How many entries of them are staged in light queues, besides those in their own."""
        self.grown: set[Queue] = set()
        """The queues that have entries of what is staged."""
        self.rows = bytearray()
        """What is staged for the key index: see `plain_rows`."""
        self.left_out = 0
        """Keys of what is staged that are not filed."""
        self.store_ms = 0
        """The store time of the next record; never goes back, whatever the wall clock does."""
        self.views: dict[int, memoryview] = {}
        """File number (first offset // file_size) to the file as memory, for the hot part."""

    def advance_clock(self, now_ms: int) -> None:
        """Let the next record have this store time, unless one had a later one."""
        self.store_ms = max(self.store_ms, now_ms)

    def refuse(self, reason: str) -> None:
        """Take no record any more, for this reason; empty: take them again."""
        self.refusal = reason

    def cool(self, log_offset: int) -> None:
        """Leave what lies before an offset to those who read files."""
        self.hot_offset = max(self.hot_offset, log_offset)

    def take(self) -> "Staged":
        """Return what is staged, to be written; from here on the next write is staged."""
        grown = [(queue, queue.next_offset) for queue in self.grown]
        counts = (self.staged_count, self.copy_count, self.left_out)
        staged = Staged(self.staged, grown, bytes(self.rows), *counts)
        self._empty()
        return staged

    def take_back(self, grown: "Iterable[tuple[Queue, int]]") -> None:
        """Go back to what is written: nothing is staged, and queues end where they did then."""
        self._empty()
        self.end_offset = self.written.number
        for queue, next_offset in grown:
            queue.take_back(next_offset)

    def _empty(self) -> None:
        self.staged, self.grown, self.rows = bytearray(), set(), bytearray()
        self.staged_count = self.copy_count = self.left_out = 0

    def skip(self, size: int) -> None:
        """Let the log end so much later: these bytes come from another log, or are zeros."""
        self.end_offset += size

    def forget(self, queue: "Queue") -> None:
        """Let a queue that is gone not count as one that grew."""
        self.grown.discard(queue)

    @property
    def written_offset(self) -> int:
        """Where the next write goes."""
        return self.written.number

    @property
    def visible_offset(self) -> int:
        """Where what may be seen ends."""
        return self.visible.number


class Staged(NamedTuple):
    """What one write brings."""

    data: bytes | bytearray | memoryview
    grown: "list[tuple[Queue, int]]"
    """Each queue with its next offset behind this write."""
    rows: bytes
    """What the key index gets: see `plain_rows`."""
    message_count: int
    copy_count: int = 0
    """Entries in light queues: their messages count in their own."""
    left_out: int = 0
    """Keys that are not filed: their messages have too many."""


class Queue:
    """One queue of a topic: what is in it and the newest part of its entries."""

    __slots__ = (
        "base_offset",
        "entries",
        "flushed_offset",
        "magic",
        "min_offset",
        "next_offset",
        "put_bytes",
        "put_count",
        "queue_id",
        "readable_offset",
        "topic",
        "topic_field",
    )

    def __init__(self, topic: str, queue_id: int, next_offset: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.magic, self.topic_field = topic_field(topic)
        self.next_offset = next_offset
        self.readable_offset = next_offset
        self.min_offset = 0
        self.base_offset = next_offset
        """The queue offset of the first entry in `entries`; the hot path looks no further back."""
        self.flushed_offset = next_offset
        """Entries before it are in the queue's files; the newest of them are in `entries`, too."""
        self.entries = bytearray()
        self.put_count = 0
        """Messages that became readable since this process began."""
        self.put_bytes = 0
        """Bytes of records that were appended since then."""

    def read_entries(self, queue_offset: int, count: int) -> bytes:
        """Return up to `count` readable entries, from `base_offset` or a later offset on."""
        count = min(count, self.readable_offset - queue_offset)
        start = (queue_offset - self.base_offset) * ENTRY_SIZE
        return bytes(self.entries[start : start + count * ENTRY_SIZE])

    def put_entry(self, log_offset: int, size: int, code: int) -> None:
        """Enter a record."""
        self.entries += ENTRY.pack(log_offset, size, code)
        self.put_bytes += size
        self.next_offset += 1

    def take_back(self, next_offset: int) -> None:
        """Drop the entries from this offset on: their records were not written."""
        start = (next_offset - self.base_offset) * ENTRY_SIZE
        self.put_bytes -= sum(size for _, size, _ in ENTRY.iter_unpack(self.entries[start:]))
        del self.entries[start:]
        self.next_offset = next_offset

    def publish(self, next_offset: int) -> int:
        """Let what lies before this offset be seen; return how many messages that adds."""
        count = next_offset - self.readable_offset
        self.readable_offset = next_offset
        self.put_count += count
        return count

    def note_flushed(self, end_offset: int) -> None:
        """Take in that entries before this offset are in the queue's files."""
        self.flushed_offset = end_offset

    def drop_before(self, queue_offset: int) -> None:
        """Let memory go of entries before this offset that are in the queue's files."""
        count = min(queue_offset, self.flushed_offset) - self.base_offset
        if count > 0:
            del self.entries[: count * ENTRY_SIZE]
            self.base_offset += count

    def begin_at(self, min_offset: int) -> None:
        """Let the queue begin here; what lies before is gone."""
        self.min_offset = max(self.min_offset, min_offset)


@lru_cache(maxsize=4_096)
def topic_field(topic: str) -> tuple[int, bytes]:
    """Return the magic, and length and name of the topic, as a record carries them.

    All queues of a topic share one value.
    """
    name = topic.encode()
    is_long = len(name) > 127
    field = len(name).to_bytes(2 if is_long else 1, "big") + name
    return (MAGIC_V2 if is_long else MAGIC_V1), field


class Topic:
    """What the hot path must know of a topic. Only queues that were used are in `queues`."""

    __slots__ = (
        "is_plain",
        "is_readable",
        "name",
        "queues",
        "read_queue_count",
        "send_queue_count",
    )

    def __init__(
        self,
        name: str,
        read_queue_count: int,
        *,
        is_plain: bool,
        is_readable: bool,
        send_queue_count: int | None = None,
    ) -> None:
        self.name = name
        self.queues: dict[int, Queue] = {}
        self.read_queue_count = read_queue_count
        self.send_queue_count = read_queue_count if send_queue_count is None else send_queue_count
        """Queues from here on take nothing: the topic had more of them once."""
        self.is_plain = is_plain
        """Whether a send needs no check beyond those of the hot path (no retry or system topic)."""
        self.is_readable = is_readable


RecordFilter = Callable[[memoryview], bool]
"""Whether a whole record passes."""


class Subscription(NamedTuple):
    """What a group's members have subscribed to of one topic."""

    version: int
    codes: frozenset[int] | None
    """The tag codes that pass, or None for all."""
    accepts: RecordFilter | None = None
    """Which of their records pass, or None for all. Only the compiled core serves these."""


class Got:
    """What pulls of one group got of one topic since this process began."""

    __slots__ = ("count", "pulls", "size")

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        self.pulls = 0


Parts = list[bytes | memoryview]
"""Answers, in pieces."""


class Origin:
    """Where the messages of one connection come from and how their records begin."""

    __slots__ = (
        "born_host",
        "fixed_size",
        "host_bits",
        "is_guarded",
        "pack",
        "store_host",
    )

    def __init__(self, born_host: bytes, store_host: bytes) -> None:
        self.born_host = born_host
        self.store_host = store_host
        self.host_bits = (BORN_HOST_V6 if len(born_host) > 8 else 0) | (
            STORE_HOST_V6 if len(store_host) > 8 else 0
        )
        head = _head(self.host_bits)
        self.pack: Callable[..., bytes] = head.pack
        self.fixed_size = head.size + 2
        """The record without body, topic field and properties."""
        self.is_guarded = False
        """Whether the table of requests serves all that this connection asks. The hot path knows
        nothing of rights. `Topic.is_plain` and `is_readable` say the same of one topic.
        """


def _head(host_bits: int) -> struct.Struct:
    """Return the fixed fields of a record, each address and its port as one piece of bytes."""
    codes = []
    for field in layout_of(host_bits).fields:
        if field.name.endswith("_ip"):
            codes.append(f"{field.size + 4}s")
        elif not field.name.endswith("_port"):
            codes.append(field.code)
    return struct.Struct(">" + "".join(codes))


class CoreState:
    """Everything one broker's hot path looks at."""

    __slots__ = (
        "body_size_max",
        "bulk_bytes_max",
        "cluster_property",
        "got",
        "got_other",
        "groups",
        "is_pull_plain",
        "is_sync_flush",
        "offsets",
        "pull_bytes_max",
        "pull_count_max",
        "send_answer",
        "send_from_ms",
        "store_id",
        "subscriptions",
        "tail",
        "topics",
    )

    def __init__(self, tail: LogTail, cluster: str, region: str) -> None:
        self.tail = tail
        self.topics: dict[str, Topic] = {}
        self.groups: set[str] = set()
        """Groups that exist and may consume."""
        self.subscriptions: dict[tuple[str, str], Subscription] = {}
        """(group, topic) to what the group's members have subscribed to."""
        self.offsets: dict[str, dict[int, int]] = {}
        """`topic@group` to queue id to next offset to consume, as consumerOffset.json has it."""
        self.got: dict[tuple[str, str], Got] = {}
        """(topic, group) to what its pulls got; at most GOT_MAX."""
        self.got_other = Got()
        """What all others got together."""
        self.cluster_property = cluster_entry(cluster)
        """What the properties of every record end with: see `admit`."""
        self.body_size_max = 4_194_304
        self.is_sync_flush = False
        """Whether answers wait for the disk, unless a message says that it does not."""
        self.send_from_ms = 0
        """Before this time no send is taken (startAcceptSendRequestTimeStamp)."""
        self.is_pull_plain = True
        """Whether pulls need no check or choice beyond those of the hot path."""
        self.pull_count_max = 32
        self.pull_bytes_max = 262_144
        self.bulk_bytes_max = 524_288
        """For pulls that ask for much at a time; 0: they are like others."""
        self.set_answer(region, is_traced=True)
        self.store_id = b""
        """The store host in upper-case hex: the constant beginning of offset message ids. See
        `set_store_id`."""

    def pull_limits(self, *, is_bulk: bool) -> tuple[int, int]:
        """Return how many records, and how many bytes of them, a pull gets at most."""
        if is_bulk and self.bulk_bytes_max:
            return BULK_COUNT_MAX, self.bulk_bytes_max
        return self.pull_count_max, self.pull_bytes_max

    def set_answer(self, region: str, *, is_traced: bool) -> None:
        """Say what producers are told with each answer: the region, and whether to trace."""
        self.send_answer = send_answer_template(send_answer_parts(region, is_traced=is_traced))

    def set_store_id(self, store_id: bytes) -> None:
        """Say what message ids begin with."""
        self.store_id = store_id

    def note_got(self, topic: str, group: str, count: int, size: int) -> None:
        """Count the messages that one pull got."""
        got = self.got.get((topic, group))
        if got is None:
            if len(self.got) < GOT_MAX:
                got = self.got[topic, group] = Got()
            else:
                got = self.got_other
        got.count += count
        got.size += size
        got.pulls += 1


def send_answer_parts(region: str, *, is_traced: bool) -> tuple[bytes, ...]:
    """Return what stands in a send's answer before, between and behind its numbers.

    These are: message id, queue id, queue offset, opaque.
    """
    if len(region) > REGION_CHARS_MAX:
        raise SettingError(f"regionId has {len(region)} characters, limit {REGION_CHARS_MAX}")
    fields = b'","MSG_REGION":' + msgspec.json.encode(region)
    fields += b',"TRACE_ON":"true"' if is_traced else b',"TRACE_ON":"false"'
    return (
        b'{"code":0,"extFields":{"msgId":"',
        b'","queueId":"',
        b'","queueOffset":"',
        fields + b'},"flag":1,"language":"' + LANGUAGE.encode() + b'","opaque":',
        b',"serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION,
    )


_ANSWERED = Command(0, flag=FLAG_RESPONSE, serialization=BINARY)

BINARY_ANSWER_BEGIN = encode_command(_ANSWERED)[PREFIX_SIZE:][:5]
"""Code, language and version of an answer in a binary header."""


def binary_send_answer_end(region: str, *, is_traced: bool) -> bytes:
    """Return the last entries of a send's answer in a binary header: what does not vary."""
    fields = {"MSG_REGION": region, "TRACE_ON": "true" if is_traced else "false"}
    answered = msgspec.structs.replace(_ANSWERED, fields=fields)
    return encode_command(answered)[len(encode_command(_ANSWERED)) :]


def send_answer_template(parts: Iterable[bytes]) -> bytes:
    """Return the template of an answer: message id, queue id, queue offset, opaque."""
    begin, *rest = (part.replace(b"%", b"%%") for part in parts)
    return begin + b"%b" + b"%d".join(rest)
