"""The metrics port: `GET /metrics` in Prometheus' text format, and nothing else.

In: one HTTP request a connection. Out: the registry as text, 404 for any other path, then the end.
Rules: a request has a size and a time limit, the number of connections is bounded; it is meant for
the machine itself or a trusted network, as it asks for no name or password.
"""

import asyncio
import logging
from typing import cast

from orbitmq.metrics import Registry
from orbitmq.world.net import listen, listening_port

logger = logging.getLogger(__name__)

REQUEST_SIZE_MAX = 8_192
REQUEST_S = 5.0
CONNECTIONS_MAX = 32

_TEXT = "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"


class _Scrape(asyncio.Protocol):
    """One scrape."""

    _transport: asyncio.Transport
    _timer: asyncio.TimerHandle

    def __init__(self, registry: Registry, open_scrapes: set["_Scrape"]) -> None:
        self._registry = registry
        self._open_scrapes = open_scrapes
        self._request = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._timer = asyncio.get_running_loop().call_later(REQUEST_S, self._transport.abort)
        if len(self._open_scrapes) >= CONNECTIONS_MAX:
            self._transport.abort()
        else:
            self._open_scrapes.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._open_scrapes.discard(self)

    def data_received(self, data: bytes) -> None:
        self._request += data
        if len(self._request) > REQUEST_SIZE_MAX:
            self._answer("431 Request Header Fields Too Large", "request too long\n")
        elif b"\r\n\r\n" in self._request:
            self._handle(self._request.split(b"\r\n", 1)[0])

    def _handle(self, request_line: bytes) -> None:
        method, _, rest = request_line.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method != b"GET" or path != b"/metrics":
            self._answer("404 Not Found", "only GET /metrics is here\n")
            return
        try:
            text = self._registry.render()
        except Exception:  # a gauge's function failed: a bug of ours that must not stay unseen
            logger.exception("the metrics cannot be shown")
            self._answer("500 Internal Server Error", "a metric cannot be read; see the log\n")
            return
        self._answer("200 OK", text, _METRICS)

    def _answer(self, status: str, text: str, content_type: str = _TEXT) -> None:
        body = text.encode()
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self._transport.pause_reading()
        self._transport.write(head.encode() + body)
        self._transport.close()


async def start_metrics(registry: Registry, host: str, port: int) -> tuple[asyncio.Server, int]:
    """Listen for scrapes; return the server and its real port. Raises SettingError."""
    open_scrapes: set[_Scrape] = set()
    loop = asyncio.get_running_loop()
    server = await listen(loop, lambda: _Scrape(registry, open_scrapes), host, port)
    return server, listening_port(server)
