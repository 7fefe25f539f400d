"""A page of text over HTTP, for the one thing clients look up that way: where name servers are.

In: an http or https address. Out: the text behind it, or a ConnectFailed that names the cause.
Rules:
1. It runs in a thread of the loop's own, and takes at most `timeout_s` a step of the exchange.
2. At most TEXT_SIZE_MAX bytes are read, and nothing but http and https is opened.
"""

import asyncio
import urllib.error
import urllib.request
from http.client import HTTPException

from orbitmq.errors import ConnectFailed, SettingError

TEXT_SIZE_MAX = 65_536
_SCHEMES = ("http://", "https://")


async def fetch_text(url: str, timeout_s: float) -> str:
    """Give the text at `url`; raises ConnectFailed, or SettingError for what is no http address."""
    if not url.startswith(_SCHEMES):
        raise SettingError(f"{url[:200]!r} is not an http address; write http://host:port/path")
    return await asyncio.get_running_loop().run_in_executor(None, _fetch, url, timeout_s)


def _fetch(url: str, timeout_s: float) -> str:
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:  # noqa: S310 - see rule 2
            data: bytes = answer.read(TEXT_SIZE_MAX)
    except (OSError, ValueError, HTTPException) as error:
        cause = getattr(error, "reason", None) or str(error) or type(error).__name__
        raise ConnectFailed(f"nothing came from {url}: {cause}") from error
    return data.decode(errors="replace").strip()
