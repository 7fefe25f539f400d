"""The PROXY protocol, versions 1 and 2: what a proxy says of the connection it passes on.

In: the first bytes of a connection. Out: the addresses that it has on the proxy's other side, how
many bytes say so, or RemoteProtocolError; None while it is not whole. No I/O.

Rules:
1. Nothing is guessed: a frame would have to be 1.3 GB long, or 218 MB, to begin like a preamble,
   and TLS begins with another byte.
2. Version 2's LOCAL, version 1's UNKNOWN and families without an IP address keep the real address.
3. What follows the addresses in version 2 (TLVs) is passed over; its size has a limit.
4. Who may say it is `Proxies`' word: whoever may, can claim to be anyone.
"""

import ipaddress
import struct
from collections.abc import Sequence
from typing import NamedTuple

from orbitmq.errors import RemoteProtocolError, SettingError

V1_MARK = b"PROXY "
V2_MARK = b"\r\n\r\n\0\r\nQUIT\n"
FIRST_BYTES = frozenset((V1_MARK[0], V2_MARK[0]))
"""A preamble begins with one of these, and nothing else of ours does."""

V1_SIZE_MAX = 107
"""The longest line of version 1, its end included, as the protocol's description counts it."""

V2_EXTRA_MAX = 4_096
"""Addresses and TLVs of version 2: room for a certificate's names, as proxies send them."""

NETWORKS_MAX = 64

_V2_HEAD = struct.Struct(">12sBBH")
_V2_VERSION = 2
_LOCAL, _PROXY = 0, 1
_TCP4, _TCP6 = 0x11, 0x21
_WITHOUT_IP = frozenset((0x00, 0x12, 0x22, 0x31, 0x32))
_IP_SIZES = {_TCP4: 4, _TCP6: 16}

Address = tuple[str, int]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Preamble(NamedTuple):
    """What a proxy said; without addresses the connection is the proxy's own."""

    size: int
    source: Address | None = None
    destination: Address | None = None


class Proxies(NamedTuple):
    """Who may send a preamble: everyone when there are no networks."""

    networks: tuple[Network, ...] = ()

    def check(self, ip: str) -> None:
        """Raise RemoteProtocolError unless a peer at `ip` may."""
        if self.networks and not is_inside(ip, self.networks):
            raise _bad(f"{ip} is no proxy by the setting proxyProtocolFrom", "proxy-untrusted")


def read_networks(text: str, setting: str) -> tuple[Network, ...]:
    """Return the networks of a comma list; raises SettingError that names `setting`."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if len(words) > NETWORKS_MAX:
        raise SettingError(f"{setting} has {len(words)} networks, limit {NETWORKS_MAX}")
    try:
        return tuple(ipaddress.ip_network(word) for word in words)
    except ValueError as error:
        raise SettingError(
            f"{setting}: {str(error)[:200]}; write networks as 10.0.0.0/8,192.168.1.7"
        ) from None


def is_inside(ip: str, networks: Sequence[Network]) -> bool:
    """Whether an address lies in one of the networks; IPv4 in IPv6 clothes counts as IPv4."""
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:  # the peer is gone already, or not on IP
        return False
    plain = getattr(address, "ipv4_mapped", None) or address
    return any(plain in network for network in networks)


def read_preamble(data: bytes) -> Preamble | None:
    """Read a preamble at the start of `data`; None: there is more to come."""
    if data.startswith(V1_MARK[: len(data)]):
        return _read_v1(data)
    if data.startswith(V2_MARK[: len(data)]):
        return _read_v2(data)
    raise _bad("begins like a preamble and is none")


def _bad(detail: str, reason: str = "proxy-malformed") -> RemoteProtocolError:
    return RemoteProtocolError(reason, f"PROXY protocol: {detail}")


# --- version 1: a line of text ---


def _read_v1(data: bytes) -> Preamble | None:
    end = data.find(b"\r\n", 0, V1_SIZE_MAX)
    if end < 0:
        if len(data) >= V1_SIZE_MAX:
            raise _bad(f"no end of line in {V1_SIZE_MAX} bytes", "proxy-oversize")
        return None
    words = data[:end].split(b" ")
    family = words[1]
    if family == b"UNKNOWN":
        return Preamble(end + 2)
    version = {b"TCP4": 4, b"TCP6": 6}.get(family)
    if version is None or len(words) != 6:
        raise _bad("a line of version 1 is PROXY TCP4|TCP6 source destination port port")
    source_ip, destination_ip = _text_ip(words[2], version), _text_ip(words[3], version)
    return Preamble(
        end + 2, (source_ip, _text_port(words[4])), (destination_ip, _text_port(words[5]))
    )


def _text_ip(word: bytes, version: int) -> str:
    try:
        address = ipaddress.ip_address(word.decode("ascii"))
    except ValueError:
        raise _bad("no IP address where one belongs") from None
    if address.version != version or getattr(address, "scope_id", None):
        raise _bad(f"an address that is not of family {version}")
    return str(address)


def _text_port(word: bytes) -> int:
    is_number = word.isdigit() and len(word) <= 5 and (word == b"0" or word[:1] != b"0")
    if not is_number or int(word) > 65_535:
        raise _bad("no port where one belongs")
    return int(word)


# --- version 2: bytes ---


def _read_v2(data: bytes) -> Preamble | None:
    if len(data) < _V2_HEAD.size:
        return None
    _, version_command, family, extra = _V2_HEAD.unpack_from(data)
    version, command = version_command >> 4, version_command & 15
    if version != _V2_VERSION or command not in (_LOCAL, _PROXY):
        raise _bad(f"version {version} command {command} is not known", "proxy-version")
    if extra > V2_EXTRA_MAX:
        raise _bad(f"{extra} bytes behind the head, limit {V2_EXTRA_MAX}", "proxy-oversize")
    size = _V2_HEAD.size + extra
    ip_size = _IP_SIZES.get(family)
    if command == _PROXY:
        _check_family(family, extra, ip_size)
    if len(data) < size:
        return None
    if command == _LOCAL or ip_size is None:
        return Preamble(size)
    start = _V2_HEAD.size
    source_ip, destination_ip, source_port, destination_port = struct.unpack_from(
        f">{ip_size}s{ip_size}sHH", data, start
    )
    return Preamble(
        size, (_packed_ip(source_ip), source_port), (_packed_ip(destination_ip), destination_port)
    )


def _check_family(family: int, extra: int, ip_size: int | None) -> None:
    if ip_size is None and family not in _WITHOUT_IP:
        raise _bad(f"family 0x{family:02x} is not known")
    if ip_size is not None and extra < 2 * ip_size + 4:
        raise _bad(f"{extra} bytes are too few for the addresses of family 0x{family:02x}")


def _packed_ip(packed: bytes) -> str:
    return str(ipaddress.ip_address(packed))
