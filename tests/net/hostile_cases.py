"""Slow, broken and hostile peers, as a table that can be pointed at any running port.

In: host, port and how long the server may take to act. Out: nothing; a case returns when the
server has dealt with it as it should, and fails otherwise. Each case names the reason under which
the server counts its close (`orbitmq_net_closes_total{reason=...}`), or None when the server has no
reason to close: then the peer itself ends the connection and it is counted as `peer`.

Requests carry a code that no server knows, so every server answers them with code 3.
"""

import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from orbitmq.wire.command import FLAG_ONEWAY, FLAG_RESPONSE, Command, decode_command, encode_command
from orbitmq.wire.frame import FRAME_SIZE_MAX, FrameDecoder, encode_frame

UNKNOWN_CODE = 29_999
IDLE_COUNT = 5_000
CONNECTS_PER_SECOND = 500
ONEWAY_COUNT = 20_000
UNASKED_COUNT = 1_000

Act = Callable[[str, int, float], None]


@dataclass(frozen=True)
class HostileCase:
    """One kind of bad peer."""

    name: str
    act: Act
    reason: str | None
    count: int = 1
    """How many connections are closed for that reason."""
    waits_for: str | None = None
    """The field of Limits whose time must pass before the server acts."""
    unasked: int = 0
    """How many responses nobody asked for are counted."""
    needs_tls: bool = False
    """Whether the port must enforce TLS; all other cases are for a port without TLS."""


def request(opaque: int = 1, *, body: bytes = b"", flag: int = 0) -> bytes:
    """A well-formed request that every server answers with code 3."""
    return encode_command(Command(UNKNOWN_CODE, opaque=opaque, body=body, flag=flag))


# --- how a peer behaves ---


@contextmanager
def dialled(host: str, port: int, patience_s: float) -> Iterator[socket.socket]:
    with socket.create_connection((host, port), timeout=patience_s) as peer:
        yield peer


def read_answers(peer: socket.socket, count: int) -> list[Command]:
    """Read until `count` commands have come."""
    decoder, answers = FrameDecoder(), list[Command]()
    while len(answers) < count:
        data = peer.recv(65536)
        assert data, f"closed after {len(answers)} of {count} answers"
        answers += map(decode_command, decoder.feed(data))
    assert len(answers) == count
    return answers


def read_end(peer: socket.socket) -> None:
    """Read until the server has closed; fails when it does not do so in time."""
    try:
        while peer.recv(65536):
            pass
    except ConnectionError:
        pass


def sends(data: bytes) -> Act:
    """A peer that sends these bytes and is closed."""

    def act(host: str, port: int, patience_s: float) -> None:
        with dialled(host, port, patience_s) as peer:
            try:
                peer.sendall(data)
            except ConnectionError:
                return  # closed while we were still sending
            read_end(peer)

    return act


def sends_after_one_request(data: bytes) -> Act:
    """A peer that first behaves, then sends these bytes and is closed."""

    def act(host: str, port: int, patience_s: float) -> None:
        with dialled(host, port, patience_s) as peer:
            peer.sendall(request())
            read_answers(peer, 1)
            peer.sendall(data)
            read_end(peer)

    return act


def sends_slowly(data: bytes, *, after_request: bool) -> Act:
    """A peer that sends one byte at a time and is closed before it is done."""

    def act(host: str, port: int, patience_s: float) -> None:
        with dialled(host, port, patience_s) as peer:
            if after_request:
                peer.sendall(request())
                read_answers(peer, 1)
            for number in range(len(data)):
                readable, _, _ = select.select([peer], [], [], patience_s / 500)
                if readable:
                    read_end(peer)
                    return
                peer.sendall(data[number : number + 1])
            raise AssertionError(f"{len(data)} bytes, one by one, were all accepted")

    return act


def asks(data: bytes, count: int = 1) -> Act:
    """A peer whose bytes are odd but allowed: it gets `count` answers and leaves."""

    def act(host: str, port: int, patience_s: float) -> None:
        with dialled(host, port, patience_s) as peer:
            peer.sendall(data)
            assert {answer.code for answer in read_answers(peer, count)} == {3}

    return act


def never_reads(host: str, port: int, patience_s: float) -> None:
    """Asks as much as it can, reads nothing, and is cut off."""
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.settimeout(patience_s)
        peer.connect((host, port))
        requests = request() * 500
        try:
            while True:  # ends with the server's patience, or with ours
                peer.sendall(requests)
        except ConnectionError:
            return


def asks_with_one_opaque(host: str, port: int, patience_s: float) -> None:
    with dialled(host, port, patience_s) as peer:
        peer.sendall(request(7) + request(7))
        assert [answer.opaque for answer in read_answers(peer, 2)] == [7, 7]


def floods_one_way(host: str, port: int, patience_s: float) -> None:
    with dialled(host, port, patience_s) as peer:
        peer.sendall(request(1, flag=FLAG_ONEWAY) * ONEWAY_COUNT + request(2))
        (answer,) = read_answers(peer, 1)
        assert answer.opaque == 2


def idles_many(host: str, port: int, patience_s: float) -> None:
    peers = [socket.create_connection((host, port), patience_s) for _ in range(IDLE_COUNT)]
    try:
        for peer in peers:
            read_end(peer)
    finally:
        for peer in peers:
            peer.close()


def connects_often(host: str, port: int, patience_s: float) -> None:
    """Connects at a steady rate for one second; every other one asks something first."""
    pause = threading.Event()
    for number in range(CONNECTS_PER_SECOND):
        with dialled(host, port, patience_s) as peer:
            if number % 2:
                peer.sendall(request())
                read_answers(peer, 1)
        pause.wait(1 / CONNECTS_PER_SECOND)


def vanishes(host: str, port: int, patience_s: float) -> None:
    """Resets the connection instead of closing it, in the middle of a frame."""
    with dialled(host, port, patience_s) as peer:
        peer.sendall(request())
        read_answers(peer, 1)
        peer.sendall(request()[:20])
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


# --- what it sends ---


def _length(value: int) -> bytes:
    return struct.pack(">i", value)


def _frame_of_size(size: int) -> bytes:
    empty = request()
    return request(body=bytes(size - len(empty)))


def _json_header(header: bytes) -> bytes:
    return encode_frame(0, header, b"")


def _nested(depth: int) -> bytes:
    nested = b"[" * depth + b"]" * depth
    return _json_header(b'{"code":%d,"extFields":{"a":%s}}' % (UNKNOWN_CODE, nested))


def _fields(count: int) -> bytes:
    fields = b",".join(b'"f%d":"1"' % number for number in range(count))
    return _json_header(b'{"code":%d,"extFields":{%s}}' % (UNKNOWN_CODE, fields))


def _number_field(digits: int) -> bytes:
    return _json_header(b'{"code":%d,"extFields":{"a":%s}}' % (UNKNOWN_CODE, b"9" * digits))


def _number_code(digits: int) -> bytes:
    return _json_header(b'{"code":%s}' % (b"9" * digits))


_HEADER_BEYOND_FRAME = _length(20) + b"\x00\x00\x00\x11" + bytes(16)
_HEADER_HUGE = _length(20) + b"\x00\xff\xff\xff" + bytes(16)
_HEADER_TO_COME = _length(400_000) + b"\x00" + (300_000).to_bytes(3, "big")
_UNKNOWN_SERIALIZATION = _length(20) + b"\x02\x00\x00\x10" + bytes(16)
_BINARY_GARBAGE = _length(24) + b"\x01\x00\x00\x14" + b"\x7f" * 20
_TLS_HELLO = bytes.fromhex("160301004a010000460303") + bytes(32) + bytes.fromhex("00000002c02f0100")
_RDP = bytes.fromhex("030000130ee000000000000100080003000000")
_SMB = bytes.fromhex("00000054ff534d4272000000001801280000000000000000000000000000")
_UNASKED = b"".join(
    encode_command(Command(0, opaque=number, flag=FLAG_RESPONSE)) for number in range(UNASKED_COUNT)
)
_BIG = request(body=bytes(5_000))


CASES = [
    HostileCase("frame length 0", sends(_length(0)), "frame-length"),
    HostileCase("frame length 1", sends(_length(1) + b"x"), "frame-length"),
    HostileCase("frame length 3", sends(_length(3) + b"xyz"), "frame-length"),
    HostileCase("frame length -1", sends(_length(-1)), "frame-length"),
    HostileCase("frame length -2^31", sends(_length(-(2**31))), "frame-length"),
    HostileCase("frame length 2^31-1", sends(_length(2**31 - 1)), "frame-oversize"),
    HostileCase("frame of the limit", asks(_frame_of_size(FRAME_SIZE_MAX)), None),
    HostileCase("frame of the limit + 1", sends(_length(FRAME_SIZE_MAX - 3)), "frame-oversize"),
    HostileCase("zeros", sends(bytes(4096)), "frame-length"),
    HostileCase("header longer than its frame", sends(_HEADER_BEYOND_FRAME), "frame-header"),
    HostileCase("header of 16 MiB in a small frame", sends(_HEADER_HUGE), "frame-header"),
    HostileCase("header over its limit, only begun", sends(_HEADER_TO_COME), "header-oversize"),
    HostileCase("unknown serialization", sends(_UNKNOWN_SERIALIZATION), "frame-serialization"),
    HostileCase("garbage as a binary header", sends(_BINARY_GARBAGE), "header-binary"),
    HostileCase("garbage as a JSON header", sends(_json_header(b"}{")), "header-json"),
    HostileCase("empty header", sends(_json_header(b"")), "header-json"),
    HostileCase("JSON nested 10^5 deep", sends(_nested(100_000)), "header-json"),
    HostileCase("10^6 fields", sends(_fields(1_000_000)), "header-oversize"),
    HostileCase("2,000 fields", sends(_fields(2_000)), "header-fields"),
    HostileCase("a number of 10^6 digits", sends(_number_field(1_000_000)), "header-oversize"),
    HostileCase("a number of 10^5 digits", sends(_number_field(100_000)), "header-json"),
    HostileCase("a code of 10^5 digits", sends(_number_code(100_000)), "header-json"),
    HostileCase(
        "one byte at a time from the start",
        sends_slowly(_BIG, after_request=False),
        "first-frame-timeout",
        waits_for="first_frame_s",
    ),
    HostileCase(
        "one byte at a time",
        sends_slowly(_BIG, after_request=True),
        "frame-timeout",
        waits_for="begun_frame_s",
    ),
    HostileCase(
        "half a first frame and silence",
        sends(_BIG[:2_000]),
        "first-frame-timeout",
        waits_for="first_frame_s",
    ),
    HostileCase(
        "half a frame and silence",
        sends_after_one_request(_BIG[:2_000]),
        "frame-timeout",
        waits_for="begun_frame_s",
    ),
    HostileCase(
        "connect and silence", sends(b""), "first-frame-timeout", waits_for="first_frame_s"
    ),
    HostileCase("asks and never reads", never_reads, "slow-reader", waits_for="blocked_s"),
    HostileCase("the same opaque twice", asks_with_one_opaque, None),
    HostileCase(
        "responses nobody asked for", asks(_UNASKED + request()), None, unasked=UNASKED_COUNT
    ),
    HostileCase(
        "many idle connections",
        idles_many,
        "first-frame-timeout",
        count=IDLE_COUNT,
        waits_for="first_frame_s",
    ),
    HostileCase("500 connects in a second", connects_often, None, count=CONNECTS_PER_SECOND),
    HostileCase("one-way flood", floods_one_way, None),
    HostileCase("reset in the middle of a frame", vanishes, "reset"),
    HostileCase("TLS hello on a plain port", sends(_TLS_HELLO), "tls-unavailable"),
    HostileCase("HTTP GET", sends(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), "frame-oversize"),
    HostileCase("SSH banner", sends(b"SSH-2.0-OpenSSH_9.2\r\n"), "frame-oversize"),
    HostileCase("RDP connection request", sends(_RDP), "frame-oversize"),
    HostileCase("SMB negotiation", sends(_SMB), "frame-serialization"),
    HostileCase("blank lines", sends(b"\r\n\r\n"), "frame-oversize"),
    HostileCase("plain on a TLS port", sends(request()), "tls-required", needs_tls=True),
    HostileCase(
        "HTTP on a TLS port", sends(b"GET / HTTP/1.1\r\n\r\n"), "tls-required", needs_tls=True
    ),
    HostileCase(
        "broken TLS hello",
        sends(b"\x16\x03\x01\x00\x05" + b"\xff" * 5),
        "tls-handshake",
        needs_tls=True,
    ),
    HostileCase(
        "TLS hello and silence",
        sends(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
        "first-frame-timeout",
        waits_for="first_frame_s",
        needs_tls=True,
    ),
]


class WellBehaved:
    """A client beside the bad ones: asks one thing after the other and must get every answer."""

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self._socket = connect()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._talk)
        self.answered = 0
        self.error: Exception | None = None

        self._thread.start()

    def stop(self) -> None:
        """Ask no more. Waits for the last answer: not to be called where the server runs."""
        self._stop.set()
        self._thread.join()
        self._socket.close()

    def check(self) -> None:
        """Fail unless it was served all the time."""
        assert self.error is None, self.error
        assert self.answered > 0

    def _talk(self) -> None:
        try:
            while not self._stop.wait(0.002):
                opaque = self.answered + 1
                self._socket.sendall(request(opaque) + request(opaque))
                answers = read_answers(self._socket, 2)
                assert [answer.opaque for answer in answers] == [opaque, opaque]
                self.answered += 1
        except Exception as error:
            self.error = error
