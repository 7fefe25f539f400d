"""An ASGI application that runs an App beside another ASGI application, for frameworks without a
lifespan argument.

In: an App and the inner ASGI application. Out: an ASGI application; on `lifespan` it starts and
stops the App around the inner one's own start and stop.
Rule: everything but `lifespan` goes straight to the inner application.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from orbitmq.app.app import App

Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
AsgiApp = Callable[[Event, Receive, Send], Awaitable[None]]


def with_app(app: App, inner: AsgiApp) -> AsgiApp:
    """Give `inner` with `app` running as long as it does.

    >>> asgi = with_app(app, web)  # uvicorn module:asgi
    """

    async def outer(scope: Event, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await inner(scope, receive, send)
            return
        await inner(scope, receive, _Around(app, send).send)

    return outer


class _Around:
    """Starts the App before the inner application says that it has started, and stops it after."""

    def __init__(self, app: App, send: Send) -> None:
        self._app = app
        self._send = send

    async def send(self, event: Event) -> None:
        kind = event["type"]
        if kind == "lifespan.startup.complete":
            try:
                await self._app.start()
            except Exception as error:  # the server reports it and ends
                await self._send({"type": "lifespan.startup.failed", "message": str(error)})
                return
        elif kind in ("lifespan.shutdown.complete", "lifespan.shutdown.failed"):
            await self._app.close()
        await self._send(event)
