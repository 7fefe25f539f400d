"""Overload: behind or short of memory, the broker refuses sends; everything else goes on.

In: one note per read, one look every tenth of a second. Out: the reason in the store's refusals,
which the hot path obeys, and quick answers with code 2 that name the cause and the setting.

Rules:
1. The loop is behind when one turn of it has lasted longer than waitTimeMillsInSendQueue: what is
   read after that has waited so long at least. It ends with the turn. With
   brokerFastFailureEnable=false nobody is refused for that, and senders wait as long as it takes.
2. Memory is short when the process's own is above memoryBytesMax. It ends at the next look.
3. A refusal costs less than what it refuses, else refusing would not help.
4. Nothing is done per message while there is no overload; one clock is read per read, and compared
   with `look_s`.
"""

import asyncio
import math
import struct
from collections.abc import Callable

import msgspec

from orbitmq.config import BrokerSettings
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
_SENDS = (b'{"code":310,', b'{"code":10,', b'{"code":320,')
_PREFIX = struct.Struct(">iI")


class _Asked(msgspec.Struct, gc=False):
    """What the refusal of a send needs to know of it."""

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
        """When this turn has lasted too long."""
        self.look_s = -math.inf
        """When to call `note_read`: at the first read of a turn, and every millisecond of it."""
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
            self._late_s = now_s + self._patience_s()
            self._turn.request()
        elif now_s > self._late_s:
            self._is_behind = True
            self._late_s = math.inf
            self._store.note_busy(self._short_of_memory or self._behind_text(now_s))
        self.look_s = now_s + READS_LOOK_S

    def end_turn(self) -> None:
        """Begin anew: the next read is the first of another turn."""
        self.look_s = -math.inf
        if self._is_behind:
            self._is_behind = False
            self._store.note_busy(self._short_of_memory)

    def _patience_s(self) -> float:
        settings = self._settings()
        if not settings.broker_fast_failure_enable:
            return math.inf
        return settings.wait_time_mills_in_send_queue / 1000

    def _behind_text(self, now_s: float) -> str:
        late_ms = int((now_s - self._began_s) * 1000)
        limit_ms = self._settings().wait_time_mills_in_send_queue
        return (
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue:"
            f" {late_ms}ms, size of queue: {self._store.tail.staged_count}; the broker's loop is"
            f" {late_ms} ms behind, limit {limit_ms} ms (waitTimeMillsInSendQueue): more comes in"
            " than one broker can do"
        )

    # --- memory, and what is shown ---

    async def look(self) -> None:
        """Look how late the loop and how big the process is; call it every LOOK_S."""
        now_s = self.now_s()
        if self._looked_s:
            self._lag_s = max(0.0, now_s - self._looked_s - LOOK_S)
            self._lags.observe(int(self._lag_s * _US))
        self._memory_bytes = own_bytes()
        self._judge_memory()
        if self._short_of_memory and now_s - self._gave_back_s > GIVE_BACK_S:
            self._gave_back_s = now_s
            await asyncio.to_thread(give_back)
        self._looked_s = self.now_s()

    def _judge_memory(self) -> None:
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
        """Refuse the sends that `data` has from `start` on, up to the first other frame.

        Gives where that begins. What is not refused as busy, or has a header that the hot path
        would not read either, is left where it is.
        """
        kind = self._store.refusal_kind
        if kind is not RefusalKind.BUSY and kind is not RefusalKind.BEHIND:
            return start
        answer = _answer(self._store.tail.refusal)
        answers: Parts = []
        position, count = start, 0
        while (asked := _send_at(data, position)) is not None:
            (opaque, flag), position = asked
            count += 1
            if not flag:
                header = answer % opaque
                answers.append(_PREFIX.pack(4 + len(header), len(header)) + header)
        if count:
            self.note_refused(count)
            connection.traffic.frames.value += count
            connection.traffic.failures.add(ResponseCode.SYSTEM_BUSY, len(answers))
            connection.send_parts(answers)
        return position

    def note_refused(self, count: int = 1) -> None:
        """Count sends that were refused as busy."""
        is_disk = self._store.refusal_kind is RefusalKind.BEHIND
        cause = "disk" if is_disk else "memory" if self._short_of_memory else "loop"
        self._refused.add(cause, count)


def _send_at(data: bytes, position: int) -> tuple[tuple[int, int], int] | None:
    """Give opaque and flag of a whole send with a JSON header, and where it ends."""
    if len(data) - position < _PREFIX.size:
        return None
    length, header_size = _PREFIX.unpack_from(data, position)
    if header_size > HEADER_SIZE_MAX or not header_size <= length - 4 <= FRAME_SIZE_MAX - 8:
        return None
    end = position + 4 + length
    header = data[position + 8 : position + 8 + header_size]
    if end > len(data) or not header.startswith(_SENDS):
        return None
    try:
        asked = _decode(header)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return None if asked.flag & ~FLAG_ONEWAY else ((asked.opaque, asked.flag), end)


def _answer(remark: str) -> bytes:
    """Give the header of a refusal, in which only the opaque is open."""
    return (
        b'{"code":%d,"extFields":{},"flag":1,"language":"%b","opaque":%%d,"remark":'
        % (ResponseCode.SYSTEM_BUSY, LANGUAGE.encode())
        + msgspec.json.encode(remark).replace(b"%", b"%%")
        + b',"serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION
    )
