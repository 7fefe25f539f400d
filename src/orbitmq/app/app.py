"""An application: functions that consume topics, and a way to send, put together by decorators.

In: decorated functions, settings. Out: one consumer for each listener and one producer, from
`start` to `close`; or nothing of that, under a TestClient.

Rules:
1. Nothing touches the network before `start`: a module with an App can be imported anywhere.
2. A listener that is switched off (`enabled = false`, ORBITMQ_LISTENER_NAME_ENABLED=false) is not
   started. Two listeners of one name, or of one group with different topics, are refused.
3. `close` lets handlers finish, then says goodbye: consumers first, the producer last, for handlers
   may send.
"""

import asyncio
import difflib
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Protocol, Self, TypedDict, Unpack, get_type_hints

from orbitmq.app.bodies import encode
from orbitmq.app.calling import call_of
from orbitmq.app.listeners import F, Listener
from orbitmq.app.settings import FILE_OPTIONS, Loaded, load
from orbitmq.client.arguments import check_arguments, fault_of, unknown
from orbitmq.client.instance import NAME_RANGE
from orbitmq.client.message import Message
from orbitmq.client.producer import Producer
from orbitmq.client.push import PushConsumer
from orbitmq.client.push_settings import PushConsumerOptions
from orbitmq.client.send_result import SendResult
from orbitmq.client.settings import ClientOptions, ClientSettings, settings_from
from orbitmq.client.subscriptions import Selector
from orbitmq.errors import ClientStateError, SettingError
from orbitmq.wire.bodies_client import MessageModel
from orbitmq.world.chance import SystemChance
from orbitmq.world.files import SystemFiles

log = logging.getLogger(__name__)


class Sender(Protocol):
    """What sends for an application: its producer, or a test client."""

    async def send(self, message: Message, *, timeout: float | None = None) -> SendResult:
        """Send a message and give where it is stored."""
        ...

    async def send_oneway(self, message: Message) -> None:
        """Send a message that gets no answer."""
        ...

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        timeout: float | None = None,
        key: str | int | None = None,
    ) -> list[SendResult]:
        """Send many messages of one topic together."""
        ...


class SendOptions(TypedDict, total=False):
    """What a message has beside its value: keyword arguments of `App.message` and `App.send`."""

    tag: str
    keys: Sequence[str]
    headers: dict[str, str]
    delay_level: int
    sharding_key: str


class ListenerOptions(PushConsumerOptions, total=False):
    """Keyword arguments of `App.listener`: those of a PushConsumer, and these."""

    name: str
    namesrv: str
    retries_bad_bodies: bool


class App:
    """Listeners and a producer under one name server.

    >>> app = App(namesrv="127.0.0.1:9876", group="shop")
    >>> @app.listener("orders", selector="paid")
    ... async def ship(order: Order, key: str) -> None:
    ...     await app.send("shipments", Shipment(order.id), keys=[key])
    """

    def __init__(
        self,
        namesrv: str = "",
        group: str = "orbitmq_app",
        *,
        file: str | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """Make an application; nothing is connected before `start`.

        `file` is a TOML file with settings; without it ORBITMQ_FILE or ./orbitmq.toml. The options
        (`namespace`, `tls` ...) are those of every client, for the producer and all listeners.
        """
        self._options: dict[str, Any] = dict(options)
        settings_from(ClientSettings, self._options, namesrv=namesrv)
        check_arguments({"group": group, "file": file}, {"group": str, "file": str | None})
        self._given = {"namesrv": namesrv, "group": group} | {
            name: self._options.pop(name) for name in FILE_OPTIONS if name in self._options
        }
        self._file = file
        self._listeners: dict[str, Listener] = {}
        self._sender: Sender | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._producer: Producer | None = None
        self._consumers: list[PushConsumer] = []

    # --- declaring ---

    def listener(
        self,
        topic: str,
        *,
        group: str = "",
        selector: Selector | str = "*",
        **options: Unpack[ListenerOptions],
    ) -> Callable[[F], F]:
        """Have the decorated function consume a topic.

        `group` is the consumer group (without one: the application's group and the function's
        name), `selector` a tag expression or a Selector; `${NAME}` and `${NAME:otherwise}` in them
        stand for variables of the environment at the start. Raises SettingError for what cannot
        work.
        """

        check_arguments({"topic": topic, "group": group, "selector": selector}, _LISTENER_HINTS)
        _check_options(options)

        def decorate(function: F) -> F:
            given: dict[str, Any] = dict(options)
            listener = Listener(
                name=given.pop("name", None) or function.__name__,
                topic=topic,
                group=group,
                selector=selector if isinstance(selector, Selector) else Selector(selector),
                call=call_of(function),
                namesrv=given.pop("namesrv", ""),
                retries_bad_bodies=given.pop("retries_bad_bodies", False),
                options=given,
            )
            if listener.name in self._listeners:
                raise SettingError(f"two listeners are called {listener.name}; give one a name=")
            self._listeners[listener.name] = listener
            return function

        return decorate

    def use_file(self, path: str) -> None:
        """Read settings from this file, whatever was said before."""
        self._file = path

    def settings(self) -> Loaded:
        """Return the settings that would be in force now; raises SettingError."""
        return load(self._given, SystemFiles(), self._file)

    def listeners(self) -> list[Listener]:
        """Return the listeners that are switched on, as the settings want them."""
        settings = self.settings()
        self._refuse_unknown(settings)
        found = [
            listener.with_settings(settings.of(listener.name), settings.app.group)
            for listener in self._listeners.values()
            if settings.of(listener.name).enabled
        ]
        _refuse_shared_groups(found)
        return found

    def _refuse_unknown(self, settings: Loaded) -> None:
        """Refuse a file that speaks of a listener there is none of: somebody relies on it."""
        known = {name.upper(): name for name in self._listeners}
        for name in settings.named_in_file:
            if name.upper() not in known:
                near = difflib.get_close_matches(name, known.values(), 1)
                advice = f"did you mean {near[0]}?" if near else f"there are {_listed(known)}"
                raise SettingError(f"the settings file has a listener {name}, {advice}")

    # --- sending ---

    def message(self, topic: str, value: Any, /, **options: Unpack[SendOptions]) -> Message:
        """Return a value as a message: bytes and text as they are, everything else as JSON."""
        given: dict[str, Any] = dict(options)
        properties = given.pop("headers", {})
        return Message(topic, encode(value), properties=properties, **given)

    async def send(
        self,
        topic: str,
        value: Any,
        /,
        *,
        timeout: float | None = None,
        **options: Unpack[SendOptions],
    ) -> SendResult:
        """Send a value as `message` has it, and wait until it is stored.

        `timeout` is in seconds, for all attempts together. Raises the errors of Producer.send.
        """
        sender = self._sending()
        return await sender.send(self.message(topic, value, **options), timeout=timeout)

    def send_blocking(
        self,
        topic: str,
        value: Any,
        /,
        *,
        timeout: float | None = None,
        **options: Unpack[SendOptions],
    ) -> SendResult:
        """Do what `send` does, for plain functions: they run in threads and cannot await."""
        self._sending()
        loop = self._loop
        if loop is None or _is_running_here(loop):
            raise ClientStateError(
                "send_blocking would hold up the event loop: `await app.send(...)` there"
            )
        work = self.send(topic, value, timeout=timeout, **options)
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    async def send_oneway(self, topic: str, value: Any, /, **options: Unpack[SendOptions]) -> None:
        """Send a value and wait for nothing: nobody learns whether it was stored."""
        await self._sending().send_oneway(self.message(topic, value, **options))

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        timeout: float | None = None,
        key: str | int | None = None,
    ) -> list[SendResult]:
        """Send many messages of one topic in few requests; with a `key` all to its queue.

        Raises the errors of Producer.send_batch.

        >>> await app.send_batch([app.message("orders", order) for order in orders])
        """
        return await self._sending().send_batch(messages, timeout=timeout, key=key)

    def _sending(self) -> Sender:
        if self._sender is None:
            raise ClientStateError("the application is not running: start it before it sends")
        return self._sender

    # --- life ---

    async def start(self, *, consumes: bool = True) -> Self:
        """Connect, and begin to consume; with `consumes=False` only send, and start no listener."""
        if self._sender is not None:
            raise ClientStateError("the application is running already")
        settings, listeners = self.settings().app, self.listeners() if consumes else []
        shared = f"{os.getpid()}#{SystemChance().below(NAME_RANGE)}"  # one connection for all
        names: dict[str, Any] = {
            "instance_name": shared,
            **self._options,
            **{name: getattr(settings, name) for name in FILE_OPTIONS},
        }
        self._producer = Producer(settings.namesrv or None, settings.group, **names)
        self._sender, self._loop = self._producer, asyncio.get_running_loop()
        try:
            await self._producer.start()
            for listener in listeners:
                await self._start_listener(settings.namesrv, listener, names)
        except BaseException:
            await self.close()
            raise
        return self

    async def _start_listener(
        self, namesrv: str, listener: Listener, names: dict[str, Any]
    ) -> None:
        options: dict[str, Any] = names | listener.options
        namesrv = listener.namesrv or namesrv
        consumer = PushConsumer(namesrv or None, listener.group, listener.handler(), **options)
        await consumer.subscribe(listener.topic, listener.selector)
        self._consumers.append(consumer)
        await consumer.start()
        log.info("listener %s consumes %s as %s", listener.name, listener.topic, listener.group)

    async def close(self) -> None:
        """Finish what is under way and disconnect; a second call does nothing."""
        consumers, self._consumers = self._consumers, []
        closing = [consumer.close() for consumer in consumers]
        try:
            ends = await asyncio.gather(*closing, return_exceptions=True)
        finally:
            producer, self._producer, self._sender = self._producer, None, None
            if producer is not None:
                await producer.close()
        for end in ends:
            if end is not None:
                raise end

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def run(self) -> None:
        """Run until cancelled."""
        async with self:
            await asyncio.get_running_loop().create_future()

    @asynccontextmanager
    async def only_sending(self) -> AsyncIterator[Self]:
        """Run without listeners, for programs that only send.

        >>> async with app.only_sending():
        ...     await app.send("orders", order)
        """
        await self.start(consumes=False)
        try:
            yield self
        finally:
            await self.close()

    @asynccontextmanager
    async def lifespan(self, _asgi_app: object = None) -> AsyncIterator[None]:
        """Run inside an ASGI application: `FastAPI(lifespan=app.lifespan)`."""
        async with self:
            yield

    @asynccontextmanager
    async def sending_through(self, sender: Sender) -> AsyncIterator[None]:
        """Have another sender take what handlers send, for tests; listeners are not started."""
        if self._sender is not None:
            raise ClientStateError("the application is running: a test client needs it stopped")
        self._sender, self._loop = sender, asyncio.get_running_loop()
        try:
            yield
        finally:
            self._sender = None


_LISTENER_HINTS: dict[str, Any] = {"topic": str, "group": str, "selector": Selector | str}


def _check_options(options: Mapping[str, Any]) -> None:
    """Refuse options that a listener cannot have, by name, type or meaning."""
    hints = get_type_hints(ListenerOptions) | _LISTENER_HINTS
    for name, value in options.items():
        if name not in hints:
            raise SettingError(unknown(name, hints))
        if (fault := fault_of(name, value, hints[name])) is not None:
            raise SettingError(fault)
    _refuse_impossible(options)


def _refuse_impossible(options: Mapping[str, Any]) -> None:
    """Refuse options of a PushConsumer that no listener can have."""
    if options.get("consume_batch_size", 1) != 1:
        raise SettingError(
            "consume_batch_size: a listener gets one message at a time; use a PushConsumer for a "
            "handler of lists"
        )
    if options.get("subscriptions"):
        raise SettingError(
            "subscriptions: a listener consumes the topic that it is decorated with; write one "
            "function for each topic, or use a PushConsumer"
        )
    is_broadcasting = options.get("message_model") is MessageModel.BROADCASTING
    if is_broadcasting and options.get("is_orderly"):
        raise SettingError(
            "a listener that broadcasts cannot be orderly: no broker keeps its place or its lock; "
            "leave out is_orderly or message_model"
        )


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the caller is on that loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _listed(names: Mapping[str, str]) -> str:
    return ", ".join(sorted(names.values())) or "none at all"


def _refuse_shared_groups(listeners: Sequence[Listener]) -> None:
    """Refuse two listeners in one group: brokers keep one subscription for all its members."""
    seen: dict[str, Listener] = {}
    for listener in listeners:
        other = seen.setdefault(listener.group, listener)
        if other is not listener:
            raise SettingError(
                f"listeners {other.name} and {listener.name} are both in group {listener.group}, "
                "and members of a group share their subscriptions; give each a group of its own"
            )
