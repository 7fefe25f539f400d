"""The two ids of a message: where it is stored, and what its producer called it.

In: host and log offset, or address, process, salt and time. Out: upper-case hexadecimal text, or
the other way round.
Offset id: IP (4 or 16 bytes) | port (4) | log offset (8): 32 or 56 characters.
Unique id: IP (4 or 16) | process id, low 16 bits (2) | salt (4) | ms since the month began (4) |
counter (2): 32 or 56 characters.

Rules:
1. The broker treats unique ids as opaque: clients of other languages use other layouts.
2. Months begin in the producer's local time, as in the original, whose tools search for a unique id
   by the time in it. The zone is an argument.
"""

import itertools
import struct
from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple

from orbitmq.ensure import ensure
from orbitmq.errors import LocalProtocolError, RemoteProtocolError
from orbitmq.wire.host import V4_SIZE, V6_SIZE, Host, pack_ip, unpack_ip

_PLACE = struct.Struct(">IQ")  # port, log offset
_UNIQUE = struct.Struct(">HIIH")  # process id, salt, ms in the month, counter
_COUNTER_MAX = 0xFFFF
_PORT_MAX = 0xFFFF
_OFFSET_MAX = 2**63 - 1


class OffsetId(NamedTuple):
    """What an offset message id says: which broker has the message, and where in its log."""

    host: Host
    log_offset: int


class UniqueId(NamedTuple):
    """What a unique id of the Java layout says."""

    ip: str
    pid: int
    salt: int
    month_ms: int
    counter: int


def encode_offset_id(host: Host, log_offset: int) -> str:
    """Return the offset message id.

    >>> encode_offset_id(Host("127.0.0.1", 10911), 0)
    '7F00000100002A9F0000000000000000'
    """
    if not 0 <= host.port <= _PORT_MAX or not 0 <= log_offset <= _OFFSET_MAX:
        raise LocalProtocolError(f"no message can be at {host}, log offset {log_offset}")
    return (pack_ip(host.ip) + _PLACE.pack(host.port, log_offset)).hex().upper()


def decode_offset_id(text: str) -> OffsetId:
    """Return what an offset message id says; raises RemoteProtocolError when it is none."""
    packed, ip_size = _unhex(text, _PLACE.size)
    port, log_offset = _PLACE.unpack_from(packed, ip_size)
    if port > _PORT_MAX or log_offset > _OFFSET_MAX:
        raise RemoteProtocolError("message-id", f"{text} has port {port}, log offset {log_offset}")
    return OffsetId(Host(unpack_ip(packed[:ip_size]), port), log_offset)


def encode_unique_id(unique_id: UniqueId) -> str:
    """Return a unique id in the Java layout; process id and counter keep their low 16 bits."""
    ip, pid, salt, month_ms, counter = unique_id
    try:
        tail = _UNIQUE.pack(pid & 0xFFFF, salt & 0xFFFFFFFF, month_ms, counter & _COUNTER_MAX)
    except struct.error:
        raise LocalProtocolError(f"{month_ms} ms since the month began") from None
    return (pack_ip(ip) + tail).hex().upper()


def decode_unique_id(text: str) -> UniqueId:
    """What a unique id of the Java layout says; raises RemoteProtocolError for other text."""
    packed, ip_size = _unhex(text, _UNIQUE.size)
    return UniqueId(unpack_ip(packed[:ip_size]), *_UNIQUE.unpack_from(packed, ip_size))


def unique_id_born_ms(unique_id: UniqueId, now_ms: int, zone: tzinfo) -> int:
    """Return when a unique id was made: in this month, or in the last if that would lie ahead."""
    start = _month_start(_as_time(now_ms, zone))
    born_ms = _as_ms(start) + unique_id.month_ms
    if born_ms <= now_ms:
        return born_ms
    return _as_ms(_month_start(start - timedelta(days=1))) + unique_id.month_ms


class UniqueIds:
    """Makes the unique ids of one process. `salt` tells two makers in one process apart."""

    def __init__(self, ip: str, pid: int, salt: int, zone: tzinfo) -> None:
        self._zone = zone
        self._prefix = encode_unique_id(UniqueId(ip, pid, salt, 0, 0))[:-12]
        self._counter = itertools.count()  # threads may share a maker: `next` is one step
        self._now_ms = -1
        self._begin = ""
        """The prefix and the time of the last id: many ids have the same millisecond."""
        self._start_ms = 0
        self._next_start_ms = 0

    def next_id(self, now_ms: int) -> str:
        """Return an id that no other call gives within 65,536 ids of one millisecond."""
        if now_ms != self._now_ms:
            self._enter(now_ms)
        return f"{self._begin}{next(self._counter) & _COUNTER_MAX:04X}"

    def _enter(self, now_ms: int) -> None:
        if not self._start_ms <= now_ms < self._next_start_ms:
            self._enter_month(now_ms)
        self._begin = f"{self._prefix}{now_ms - self._start_ms:08X}"
        self._now_ms = now_ms

    def _enter_month(self, now_ms: int) -> None:
        start = _month_start(_as_time(now_ms, self._zone))
        self._start_ms = _as_ms(start)
        self._next_start_ms = _as_ms(_month_start(start + timedelta(days=32)))
        ensure(self._start_ms <= now_ms < self._next_start_ms, "a time lies in its own month")


def _as_time(ms: int, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(ms / 1000, zone)


def _as_ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def _month_start(time: datetime) -> datetime:
    return time.replace(day=1, hour=0, minute=0, second=0, microsecond=0, fold=0)


def _unhex(text: str, tail_size: int) -> tuple[bytes, int]:
    """Return the bytes of an id and how many of them are the address."""
    sizes = {(size + tail_size) * 2: size for size in (V4_SIZE, V6_SIZE)}
    ip_size = sizes.get(len(text))
    if ip_size is None:
        raise RemoteProtocolError(
            "message-id", f"{text[:80]!r} has {len(text)} characters, not 32 or 56"
        )
    try:
        packed = bytes.fromhex(text)
    except ValueError:
        packed = b""
    # fromhex skips spaces, so the length is looked at again.
    if len(packed) != ip_size + tail_size:
        raise RemoteProtocolError("message-id", f"{text!r} is not hexadecimal")
    return packed, ip_size
