"""An ASGI application that runs an App beside another ASGI application, for frameworks without a
lifespan argument.

In: an App and the inner ASGI application. Out: an ASGI application; on `lifespan` it starts and
stops the App around the inner one's own start and stop.

Rules:
1. Everything but `lifespan` goes straight to the inner application.
2. One that knows no lifespan (it raises or returns before it has started, as Django's does) needs
   none: the App is started and stopped all the same.
3. However the inner one ends, the App is closed.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from orbitmq.app.app import App

Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
AsgiApp = Callable[[Event, Receive, Send], Awaitable[None]]


def with_app(app: App, inner: AsgiApp) -> AsgiApp:
    """Return `inner` with `app` running as long as it does.

    >>> asgi = with_app(app, web)  # uvicorn module:asgi
    """

    async def outer(scope: Event, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await inner(scope, receive, send)
            return
        try:
            await _Around(app, receive, send).run(inner, scope)
        finally:
            await app.close()

    return outer


class _Around:
    """Starts the App before the inner application says that it has started, and stops it after."""

    def __init__(self, app: App, receive: Receive, send: Send) -> None:
        self._app = app
        self._receive = receive
        self._send = send
        self._is_asked = self._has_answered = False

    async def run(self, inner: AsgiApp, scope: Event) -> None:
        try:
            await inner(scope, self.receive, self.send)
        except Exception:
            if self._has_answered:
                raise
        if not self._has_answered:
            await self._run_alone()

    async def receive(self) -> Event:
        event = await self._receive()
        self._is_asked = True
        return event

    async def send(self, event: Event) -> None:
        self._has_answered = True
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

    async def _run_alone(self) -> None:
        """Say what the inner application does not know to say (rule 2)."""
        if not self._is_asked:
            await self._receive()
        await self.send({"type": "lifespan.startup.complete"})
        await self._receive()
        await self.send({"type": "lifespan.shutdown.complete"})
