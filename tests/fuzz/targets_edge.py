"""Fuzz targets of the edge: a proxy's preamble, and a broker's advertised addresses.

Each takes bytes and reads or refuses them. A preamble must be read alike however it is cut; what is
read of advertised addresses must be the same when it is written and read again.
"""

from orbitmq.errors import RemoteProtocolError, SettingError
from orbitmq.net.proxy_protocol import (
    FIRST_BYTES,
    V1_SIZE_MAX,
    V2_EXTRA_MAX,
    Preamble,
    read_preamble,
)
from orbitmq.wire.advertised import Reached, read_advertised

SIZE_MAX = max(V1_SIZE_MAX, V2_EXTRA_MAX + 16)


def preamble(data: bytes) -> None:
    if not data or data[0] not in FIRST_BYTES:
        return
    found = read_preamble(data)
    if found is None:
        assert len(data) < SIZE_MAX
        return
    assert found.size <= min(SIZE_MAX, len(data))
    assert _fed_by_bytes(data) == found


def _fed_by_bytes(data: bytes) -> Preamble | None:
    for size in range(1, len(data) + 1):
        found = read_preamble(data[:size])
        if found is not None:
            return found
    return None


def advertised(data: bytes) -> None:
    try:
        found = read_advertised(data.decode("latin-1"), 10_911)
    except SettingError:
        return
    if found is not None:
        assert read_advertised(str(found)) == found
        found.address_for(Reached("10.0.0.1", "::1"))


TARGETS = {"preamble": preamble, "advertised addresses": advertised}
ALLOWED = (RemoteProtocolError,)
_V4 = bytes.fromhex("0d0a0d0a000d0a515549540a2111000ccb0071070a000005dc042694")
SEEDS = {
    "preamble": [
        b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n",
        b"PROXY TCP6 2001:db8::1 ::1 1 65535\r\nrest",
        b"PROXY UNKNOWN\r\n",
        _V4,
        _V4[:14] + b"\0\x12" + _V4[16:] + b"\x04\0\x03abc",
        _V4[:12] + b"\x20\0\0\0rest",
    ],
    "advertised addresses": [
        b"10.0.0.0/8=10.1.2.3:10911,0.0.0.0/0=mq.example:31911",
        b"from:192.168.0.0/16=192.168.7.1, ::/0=[2001:db8::1]:10911",
    ],
}
