"""A page of text over HTTP, for the one thing clients look up that way: where name servers are.

In: an http or https address. Out: the text behind it, or a ConnectFailed that names the cause.
Rules:
1. All of it, redirections too, takes at most `timeout_s`, however slowly bytes come; then nothing
   of it is left. It runs on the loop, without a thread.
2. At most ANSWER_SIZE_MAX bytes are read, and nothing but http and https is opened.
3. The environment's proxies are not used: name servers are as near as the look-up's address.
"""

import asyncio
import io
from http.client import HTTPException, HTTPResponse
from typing import Any, cast
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from orbitmq.errors import ConnectFailed, SettingError

ANSWER_SIZE_MAX = 65_536
REDIRECTIONS_MAX = 3
_MOVED = (301, 302, 303, 307, 308)
_OK = 200
_PORTS = {"http": 80, "https": 443}
_BEGINNINGS = tuple(f"{scheme}://" for scheme in _PORTS)
_SAFE_IN_PATHS = "/%?=&+:@!$'()*,;~"


async def fetch_text(url: str, timeout_s: float) -> str:
    """The text at `url`; raises ConnectFailed, or SettingError for what is no http address."""
    if not url.startswith(_BEGINNINGS):
        raise SettingError(f"{url[:200]!r} is not an http address; write http://host:port/path")
    try:
        async with asyncio.timeout(timeout_s):
            return await _text_at(url)
    except TimeoutError:
        raise ConnectFailed(f"nothing came from {url}: no answer within {timeout_s:g} s") from None
    except (OSError, ValueError, HTTPException) as error:
        cause = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ConnectFailed(f"nothing came from {url}: {cause}") from error


async def _text_at(url: str) -> str:
    for _ in range(1 + REDIRECTIONS_MAX):
        answer = await _get(urlsplit(url))
        if answer.status not in _MOVED:
            break
        url = urljoin(url, answer.headers["Location"] or "")
        if not url.startswith(_BEGINNINGS):
            raise ValueError(f"it leads to {url[:200]!r}, which is no http address")
    if answer.status != _OK:
        raise ValueError(f"it answers {answer.status} {answer.reason}")
    return answer.read().decode(errors="replace").strip()


async def _get(url: SplitResult) -> HTTPResponse:
    """Return the answer to one request, read whole."""
    reader, writer = await asyncio.open_connection(
        url.hostname, url.port or _PORTS[url.scheme], ssl=url.scheme == "https" or None
    )
    try:
        path = quote(url.path or "/", _SAFE_IN_PATHS)
        query = f"?{quote(url.query, _SAFE_IN_PATHS)}" if url.query else ""
        host = url.netloc.rpartition("@")[2]
        writer.write(
            f"GET {path}{query} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
            "Accept: text/plain, */*\r\nUser-Agent: orbitmq\r\n\r\n".encode()
        )
        data = await _read_whole(reader)
    finally:
        writer.transport.abort()
    answer = HTTPResponse(cast("Any", _Read(data)))
    answer.begin()
    return answer


async def _read_whole(reader: asyncio.StreamReader) -> bytes:
    data = b""
    while more := await reader.read(ANSWER_SIZE_MAX):
        data += more
        if len(data) > ANSWER_SIZE_MAX:
            raise ValueError(f"it answers with more than {ANSWER_SIZE_MAX} bytes")
    return data


class _Read:
    """What was read, as the socket that http.client wants to read from."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)
