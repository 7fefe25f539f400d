"""The address of a peer as records and message ids hold it.

In: address text or its 4 or 16 bytes. Out: the other one.

Rules:
1. Inside, an address is a Host with the usual short text (`127.0.0.1`, `2001:db8::1`).
2. The port keeps the four bytes it has in a record, so damaged or odd ports survive a round trip.
"""

import ipaddress
from functools import lru_cache
from typing import NamedTuple

from orbitmq.errors import LocalProtocolError

V4_SIZE = 4
V6_SIZE = 16


class Host(NamedTuple):
    """An IP address as text and a port.

    >>> str(Host("127.0.0.1", 10911)), str(Host("::1", 10911))
    ('127.0.0.1:10911', '[::1]:10911')
    """

    ip: str
    port: int

    def __str__(self) -> str:
        """Return `ip:port`, an IPv6 address in brackets."""
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"


@lru_cache(maxsize=1024)
def pack_ip(ip: str) -> bytes:
    """Return an address as 4 or 16 bytes; raises LocalProtocolError when the text is none."""
    try:
        return ipaddress.ip_address(ip).packed
    except ValueError:
        raise LocalProtocolError(
            f"{ip[:80]!r} is not an IPv4 or IPv6 address; resolve host names first"
        ) from None


@lru_cache(maxsize=1024)
def unpack_ip(packed: bytes) -> str:
    """Return 4 or 16 bytes as address text."""
    return str(ipaddress.ip_address(packed))


def pack_host(host: Host) -> bytes:
    """Return address and port as a record holds them: 4 or 16 bytes and a 32-bit port."""
    return pack_ip(host.ip) + host.port.to_bytes(4, "big")
