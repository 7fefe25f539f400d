"""Overload: late, behind its disk or short of memory, the broker refuses; the rest goes on.

In: one note per read, one look every tenth of a second. Out: the reason in the store's refusals,
which the hot path obeys, and quick answers with code 2 that name the cause and the setting.

Rules:
1. Sends, pulls and heartbeats are late when one turn of the loop has lasted longer than the time
   set for each (waitTimeMillsIn...Queue): what is read then has waited so long. It ends with the
   turn. Sends are refused, too, in the turn after a slow write (osPageCacheBusyTimeOutMills). With
   brokerFastFailureEnable=false all of them wait as long as it takes.
2. Memory is short when the process's own is above memoryBytesMax. It ends at the next look.
3. A refusal costs less than what it refuses, else refusing would not help.
4. Nothing is done per message while there is no overload: a clock per read, compared with `look_s`.
"""

import asyncio
import math
import struct
from collections.abc import Callable, Collection
from typing import NamedTuple

import msgspec

from orbitmq.config import BrokerSettings
from orbitmq.errors import RequestFailed
from orbitmq.metrics import Registry
from orbitmq.net.connection import Connection, Parts
from orbitmq.net.turn import Turn
from orbitmq.store.refusals import RefusalKind
from orbitmq.store.store import Store
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import FLAG_ONEWAY, HEADER_SIZE_MAX, LANGUAGE, VERSION
from orbitmq.wire.fields import Int32
from orbitmq.wire.frame import FRAME_SIZE_MAX
from orbitmq.world.clock import Clock
from orbitmq.world.memory import allowed_bytes, give_back, own_bytes

LOOK_S = 0.1
READS_LOOK_S = 0.001
GIVE_BACK_S = 1.0
MEMORY_SHARE = 0.6
"""Of the memory there is; the rest is for the log's pages, the system, and the next look."""

_MIB = 1_048_576
_US = 1_000_000
_PREFIX = struct.Struct(">iI")

SLOW_WRITE_S = 0.01
"""The least osPageCacheBusyTimeOutMills: nobody asks about shorter writes."""


class _Kind(NamedTuple):
    """A kind of request that can be late: its name, how its frames begin, what sets its time."""

    name: str
    beginnings: tuple[bytes, ...]
    key: str
    patience_ms: Callable[[BrokerSettings], int]


_SEND = _Kind(
    "send",
    (b'{"code":310,', b'{"code":10,', b'{"code":320,'),
    "waitTimeMillsInSendQueue",
    lambda settings: settings.wait_time_mills_in_send_queue,
)
_PULL = _Kind(
    "pull",
    (b'{"code":11,', b'{"code":361,'),
    "waitTimeMillsInPullQueue",
    lambda settings: settings.wait_time_mills_in_pull_queue,
)
_HEARTBEAT = _Kind(
    "heartbeat",
    (b'{"code":34,',),
    "waitTimeMillsInHeartbeatQueue",
    lambda settings: settings.wait_time_mills_in_heartbeat_queue,
)
_KINDS = (_SEND, _PULL, _HEARTBEAT)


class _Asked(msgspec.Struct, gc=False):
    """What the refusal of a request needs to know of it."""

    opaque: Int32
    flag: int


_decode = msgspec.json.Decoder(_Asked).decode


class Overload:
    """Watches the loop and the memory of one broker."""

    def __init__(
        self,
        store: Store,
        turn: Turn,
        clock: Clock,
        settings: Callable[[], BrokerSettings],
        registry: Registry,
    ) -> None:
        """`settings` gives those in force."""
        self._store = store
        self._turn = turn
        self.now_s = clock.monotonic_s
        self._settings = settings
        self._began_s = 0.0
        """When the first read of this turn was."""
        self._late_s = math.inf
        """When the next kind of request will have waited too long in this turn."""
        self.look_s = -math.inf
        """When to call `note_read`: at the first read of a turn, and every millisecond of it."""
        self._patiences_of: BrokerSettings | None = None
        self._patiences: list[tuple[float, _Kind]] = []
        """How long each kind may wait, the shortest first, by those settings."""
        self._first_patience_s = math.inf
        self._late: dict[_Kind, str] = {}
        """The kinds that are late in this turn, with what they are told."""
        self.is_late = False
        """Whether pulls are late, or heartbeats; of sends the store's refusal tells."""
        self.on_late: Callable[[], None] = lambda: None
        """Called when pulls begin to be late, and when that is over."""
        self._slow_write: tuple[float, str] | None = None
        """When a slow write ended, and what those are told who wait behind it."""
        self._is_behind = False
        self._short_of_memory = ""
        self._memory_default = int(allowed_bytes() * MEMORY_SHARE)
        self._memory_bytes = 0
        self._looked_s = 0.0
        self._gave_back_s = 0.0
        self._lag_s = 0.0
        self._refused = registry.counters(
            "orbitmq_broker_refused_sends_total", "Sends refused as busy, by cause.", "cause"
        )
        self._refused_late = registry.counters(
            "orbitmq_broker_refused_late_total",
            "Pulls and heartbeats refused as busy, for they had waited too long.",
            "kind",
        )
        self._lags = registry.histogram(
            "orbitmq_broker_loop_lag_seconds",
            "How late the loop came to what it does every tenth of a second.",
            bits=24,
            scale=1 / _US,
        )
        registry.gauge(
            "orbitmq_broker_loop_late_seconds", "The same, the last time.", lambda: self._lag_s
        )
        registry.gauge(
            "orbitmq_broker_own_memory_bytes",
            "Resident memory of the process without files.",
            lambda: self._memory_bytes,
        )
        turn.before_write(self.end_turn)

    # --- the loop ---

    def note_read(self, now_s: float) -> None:
        """Note that input is about to be handled; call it for a read from `look_s` on."""
        if self.look_s == -math.inf:
            self._began_s = now_s
            settings = self._settings()
            if settings is not self._patiences_of:
                self._learn_patiences(settings)
            self._late_s = now_s + self._first_patience_s
            if self._slow_write is not None:
                self._obey_slow_write(now_s, *self._slow_write)
            self._turn.request()
        elif now_s > self._late_s:
            self._fall_behind(now_s)
        self.look_s = now_s + READS_LOOK_S

    def end_turn(self) -> None:
        """Begin anew: the next read is the first of another turn."""
        self.look_s = -math.inf
        if self._is_behind:
            self._is_behind = False
            self._store.note_busy(self._short_of_memory)
        if self._late:
            self._late.clear()
            self._note_late()

    def _learn_patiences(self, settings: BrokerSettings) -> None:
        self._patiences_of = settings
        self._patiences = sorted(
            (kind.patience_ms(settings) / 1000, kind)
            for kind in _KINDS
            if settings.broker_fast_failure_enable
        )
        self._first_patience_s = self._patiences[0][0] if self._patiences else math.inf

    def _fall_behind(self, now_s: float) -> None:
        """Refuse from here on what has waited too long, and look out for the next kind."""
        self._late_s = math.inf
        for patience_s, kind in self._patiences:
            if kind in self._late:
                continue
            if now_s <= self._began_s + patience_s:
                self._late_s = self._began_s + patience_s
                break
            self._late[kind] = text = self._late_text(kind, now_s)
            if kind is _SEND:
                self._is_behind = True
                self._store.note_busy(self._short_of_memory or text)
        self._note_late()

    def _note_late(self) -> None:
        self.is_late = _PULL in self._late or _HEARTBEAT in self._late
        self.on_late()

    def _late_text(self, kind: _Kind, now_s: float) -> str:
        late_ms = int((now_s - self._began_s) * 1000)
        limit_ms = kind.patience_ms(self._settings())
        return (
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue:"
            f" {late_ms}ms, size of queue: {self._store.tail.staged_count}; the broker's loop is"
            f" {late_ms} ms behind, limit {limit_ms} ms ({kind.key}): more comes in"
            " than one broker can do"
        )

    @property
    def late_pull(self) -> str:
        """What a pull is told that has waited too long; empty when none has."""
        return self._late.get(_PULL, "")

    @property
    def late_heartbeat(self) -> str:
        """What a heartbeat is told that has waited too long; empty when none has."""
        return self._late.get(_HEARTBEAT, "")

    def check_pull(self) -> None:
        """Raise RequestFailed for a pull that has waited too long."""
        if self.is_late and self.late_pull:
            raise self._too_late(_PULL)

    def check_heartbeat(self) -> None:
        """Raise RequestFailed for a heartbeat that has waited too long."""
        if self.is_late and self.late_heartbeat:
            raise self._too_late(_HEARTBEAT)

    def _too_late(self, kind: _Kind) -> RequestFailed:
        self._refused_late.add(kind.name)
        return RequestFailed(ResponseCode.SYSTEM_BUSY, self._late[kind])

    # --- the disk ---

    def note_slow_write(self, lasted_s: float) -> None:
        """Note that writing the log took that long; call it for more than SLOW_WRITE_S."""
        settings = self._settings()
        limit_ms = settings.os_page_cache_busy_time_out_mills
        lasted_ms = int(lasted_s * 1000)
        if lasted_ms > limit_ms and settings.broker_fast_failure_enable:
            text = (
                "[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue:"
                f" {lasted_ms}ms, size of queue: 0; writing the log took {lasted_ms} ms, limit"
                f" {limit_ms} ms (osPageCacheBusyTimeOutMills): the disk is too slow"
            )
            self._slow_write = self.now_s(), text

    def _obey_slow_write(self, now_s: float, ended_s: float, text: str) -> None:
        """Refuse the sends of this turn: they came while the write lasted, or just behind it."""
        self._slow_write = None
        if now_s - ended_s < LOOK_S:
            self._is_behind = True
            self._store.note_busy(self._short_of_memory or text)

    # --- memory, and what is shown ---

    async def look(self) -> None:
        """Look how late the loop and how big the process is; call it every LOOK_S."""
        now_s = self.now_s()
        if self._looked_s:
            self._lag_s = max(0.0, now_s - self._looked_s - LOOK_S)
            self._lags.observe(int(self._lag_s * _US))
        self._memory_bytes = own_bytes()
        self._check_memory()
        if self._short_of_memory and now_s - self._gave_back_s > GIVE_BACK_S:
            self._gave_back_s = now_s
            await asyncio.to_thread(give_back)
        self._looked_s = self.now_s()

    def _check_memory(self) -> None:
        limit = self._settings().memory_bytes_max or self._memory_default
        text = ""
        if self._memory_bytes > limit:
            text = (
                "[OVERLOAD]system busy, start flow control for a while: the broker uses"
                f" {self._memory_bytes // _MIB} MiB of memory, limit {limit // _MIB} MiB"
                " (memoryBytesMax)"
            )
        if text or self._short_of_memory:
            self._short_of_memory = text
            if not self._is_behind:
                self._store.note_busy(text)

    # --- refusing ---

    def refuse(self, connection: Connection, data: bytes, start: int) -> int:
        """Refuse the requests that `data` has from `start` on, up to the first that is none of it.

        Gives where that begins. What is not refused as busy, or has a header of another form than
        most, is left where it is: the hot path leaves late requests alone, handlers refuse them.
        """
        answer_to = self._answers()
        answers: Parts = []
        counts = dict.fromkeys(answer_to, 0)
        position = start
        while (asked := _request_at(data, position, answer_to)) is not None:
            kind, (opaque, flag), position = asked
            counts[kind] += 1
            if not flag:
                header = answer_to[kind] % opaque
                answers.append(_PREFIX.pack(4 + len(header), len(header)) + header)
        if position > start:
            self._count(counts)
            connection.traffic.frames.value += sum(counts.values())
            connection.traffic.failures.add(ResponseCode.SYSTEM_BUSY, len(answers))
            connection.send_parts(answers)
        return position

    def _answers(self) -> dict[_Kind, bytes]:
        """Return what each kind of request is answered that is refused now."""
        answer_to = {kind: _answer(text) for kind, text in self._late.items() if kind is not _SEND}
        if self._store.refusal_kind in (RefusalKind.BUSY, RefusalKind.BEHIND):
            answer_to[_SEND] = _answer(self._store.tail.refusal)
        return answer_to

    def _count(self, counts: dict[_Kind, int]) -> None:
        for kind, count in counts.items():
            if count and kind is _SEND:
                self.note_refused(count)
            elif count:
                self._refused_late.add(kind.name, count)

    def note_refused(self, count: int = 1) -> None:
        """Count sends that were refused as busy."""
        is_slow_write = self._is_behind and _SEND not in self._late
        is_disk = self._store.refusal_kind is RefusalKind.BEHIND or is_slow_write
        cause = "memory" if self._short_of_memory else "disk" if is_disk else "loop"
        self._refused.add(cause, count)


def _request_at(
    data: bytes, position: int, kinds: Collection[_Kind]
) -> tuple[_Kind, tuple[int, int], int] | None:
    """Return kind, opaque and flag of a whole request with a JSON header, and where it ends."""
    if len(data) - position < _PREFIX.size:
        return None
    length, header_size = _PREFIX.unpack_from(data, position)
    if header_size > HEADER_SIZE_MAX or not header_size <= length - 4 <= FRAME_SIZE_MAX - 8:
        return None
    end = position + 4 + length
    header = data[position + 8 : position + 8 + header_size]
    kind = next((kind for kind in kinds if header.startswith(kind.beginnings)), None)
    if end > len(data) or kind is None:
        return None
    try:
        asked = _decode(header)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return None if asked.flag & ~FLAG_ONEWAY else (kind, (asked.opaque, asked.flag), end)


def _answer(remark: str) -> bytes:
    """Return the header of a refusal, in which only the opaque is open."""
    return (
        b'{"code":%d,"extFields":{},"flag":1,"language":"%b","opaque":%%d,"remark":'
        % (ResponseCode.SYSTEM_BUSY, LANGUAGE.encode())
        + msgspec.json.encode(remark).replace(b"%", b"%%")
        + b',"serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION
    )
