"""Advertised addresses: which address of a broker belongs to which clients, as one line of text.

In: `10.0.0.0/8=10.1.2.3:10911,from:192.168.0.0/16=192.168.7.1:10911,0.0.0.0/0=mq.example:31911`.
Out: for a client, the address that it is told, or None: then it is told the broker's usual one.

Rules:
1. A network on the left is one that holds the name server's own address, the one by which the
   client reached it. With `from:` before it, it is one that holds the client's address.
2. The first entry that holds decides; the order is the writer's.
3. The text is a setting of the broker and an ext field of its registration (103): both ends read it
   by this module, and both refuse what it refuses.
"""

import ipaddress
import re
from typing import NamedTuple

from orbitmq.errors import SettingError

FIELD = "advertisedAddresses"
"""The ext field of 103; originals pass over fields that they do not know."""

ENTRIES_MAX = 32
TEXT_CHARS_MAX = 4_096
FROM_MARK = "from:"

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_PORT = re.compile(r"[0-9]{1,5}")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Reached(NamedTuple):
    """How a client reached the name server: the IP address it dialled, and its own."""

    local_ip: str
    client_ip: str


class Entry(NamedTuple):
    """One address and the clients that it is for."""

    network: Network
    is_of_client: bool
    address: str

    def __str__(self) -> str:
        """Return it as it is written."""
        return f"{FROM_MARK if self.is_of_client else ''}{self.network}={self.address}"


class Advertised(NamedTuple):
    """The addresses of one broker, in the order in which they are tried."""

    entries: tuple[Entry, ...]

    def __str__(self) -> str:
        """Return them as they travel."""
        return ",".join(map(str, self.entries))

    def address_for(self, reached: Reached) -> str | None:
        """Return the address for a client, or None when no entry holds."""
        local, client = _ip(reached.local_ip), _ip(reached.client_ip)
        for entry in self.entries:
            ip = client if entry.is_of_client else local
            if ip is not None and ip in entry.network:
                return entry.address
        return None


def read_advertised(text: str, port: int | None = None) -> Advertised | None:
    """Return the addresses that a text names, None for an empty one; raises SettingError.

    `port` is for addresses without one; without it each must have its own.
    """
    if len(text) > TEXT_CHARS_MAX:
        raise SettingError(f"{FIELD} has {len(text)} characters, limit {TEXT_CHARS_MAX}")
    words = [word.strip() for word in text.split(",") if word.strip()]
    if len(words) > ENTRIES_MAX:
        raise SettingError(f"{FIELD} has {len(words)} entries, limit {ENTRIES_MAX}")
    return Advertised(tuple(_entry(word, port) for word in words)) if words else None


def _entry(word: str, port: int | None) -> Entry:
    key, equals, address = word.partition("=")
    key, address = key.strip(), address.strip()
    is_of_client = key.startswith(FROM_MARK)
    try:
        network = ipaddress.ip_network(key.removeprefix(FROM_MARK).strip())
    except ValueError as error:
        raise _bad(word, str(error)) from None
    if not equals:
        raise _bad(word, "there is no = in it")
    return Entry(network, is_of_client, _address(word, address, port))


def _address(word: str, address: str, port: int | None) -> str:
    """Return `host:port`, an IPv6 address in brackets."""
    host, port_text = address, ""
    if address.startswith("["):
        host, bracket, rest = address[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise _bad(word, "the bracket does not close")
        port_text = rest[1:]
    elif address.count(":") == 1:
        host, _, port_text = address.partition(":")
    if not port_text and port is not None and not address.endswith(":"):
        port_text = str(port)
    if not _PORT.fullmatch(port_text) or not 0 < int(port_text) < 65_536:
        raise _bad(word, "it has no port from 1 to 65535")
    return f"{_host(word, host)}:{int(port_text)}"


def _host(word: str, host: str) -> str:
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        if _HOST.fullmatch(host):
            return host
        raise _bad(word, "its host is neither a name nor an IP address") from None
    return f"[{ip}]" if ip.version == 6 else str(ip)


def _bad(word: str, cause: str) -> SettingError:
    shown = "".join(one if one.isprintable() else "?" for one in word[:80])
    return SettingError(
        f"{FIELD}: {shown!r} cannot be used: {cause[:120]!r}; write network=host:port, or"
        " from:network=host:port for clients' own networks"
    )


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an address; IPv4 in IPv6 clothes as IPv4."""
    try:
        ip = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(ip, "ipv4_mapped", None) or ip
