"""What an accepted connection begins with: a proxy's preamble, a TLS hello, or a frame.

In: the first bytes, as they come. Out: the addresses that a proxy gave, the TLS side if the peer
speaks TLS, and the bytes that follow; or why the connection is refused. No I/O.

Rules:
1. The first byte tells TLS, plain and a preamble apart; see world.tls, proxy_protocol.
2. A preamble may come once, before anything else, and may be cut anywhere.
"""

from typing import NamedTuple

from orbitmq.net.proxy_protocol import FIRST_BYTES, Preamble, Proxies, read_preamble
from orbitmq.world.tls import HANDSHAKE_BYTE, ServerTls, TlsMode, TlsPipe


class Begun(NamedTuple):
    """What the first bytes have said so far."""

    left: bytes = b""
    """What follows; empty while there is more to come."""
    preamble: Preamble | None = None
    """What a proxy said, once it has said all."""
    tls: TlsPipe | None = None
    """Our side of TLS if the peer speaks it."""
    refusal: str | None = None
    """Why the connection is to be closed."""


class Opening:
    """The beginning of one accepted connection."""

    __slots__ = ("_preamble", "_proxies", "_tls")

    def __init__(self, proxies: Proxies | None, tls: ServerTls | None) -> None:
        self._proxies = proxies
        self._tls = tls
        self._preamble = b""

    @property
    def held_bytes(self) -> int:
        """How many bytes of an unfinished preamble are held."""
        return len(self._preamble)

    def feed(self, data: bytes, ip: str) -> Begun:
        """Look at the next bytes of a peer at `ip`; raises RemoteProtocolError."""
        preamble = None
        if self._proxies is not None and (self._preamble or data[0] in FIRST_BYTES):
            data, self._preamble = self._preamble + data, b""
            self._proxies.check(ip)
            preamble = read_preamble(data)
            if preamble is None:
                self._preamble = data
                return Begun()
            self._proxies = None
            data = data[preamble.size :]
            if not data:
                return Begun(preamble=preamble)
        return self._choose(data, preamble)

    def _choose(self, data: bytes, preamble: Preamble | None) -> Begun:
        """Speak TLS if the peer does."""
        if data[0] == HANDSHAKE_BYTE:
            pipe = self._tls.pipe() if self._tls is not None else None
            refusal = "tls-unavailable" if pipe is None else None
            return Begun(data, preamble, pipe, refusal)
        if self._tls is not None and self._tls.mode is TlsMode.ENFORCING:
            return Begun(data, preamble, refusal="tls-required")
        return Begun(data, preamble)
