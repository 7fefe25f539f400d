"""The producer: sends messages and says what became of each.

In: messages. Out: SendResults; or errors that tell "certainly not stored" (SendFailed, BrokerBusy,
RouteNotFound, ConnectFailed) from "nobody knows" (SendUnknown).

Rules:
1. `send` waits for the answer; `submit` gives a future at once, so that thousands are in flight on
   one connection; `send_oneway` gets no answer at all.
2. Messages to one queue leave in the order of the calls, as long as none fails. OrbitMQ's brokers
   store them in that order; the original's have several threads and may not. Whoever needs the
   order there awaits each `send` before the next.
3. At most `sends_in_flight_max` messages are in flight: at the limit all but `submit` wait for
   room, within their time-out, and `submit` raises LimitExceeded.
4. After `close` nothing is in flight, and no task or socket is left.
"""

import asyncio
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, Unpack

from orbitmq.client import instance as instances
from orbitmq.client.arguments import check_arguments, checks_arguments
from orbitmq.client.batch_results import Run, batch_results
from orbitmq.client.batches import check_batch, record_size, split
from orbitmq.client.message import Message
from orbitmq.client.outgoing import (
    batch_properties,
    check_body,
    check_sendable,
    compressed,
    encode_text,
    properties_text,
)
from orbitmq.client.producer_settings import (
    DEFAULT_GROUP,
    ProducerOptions,
    ProducerSettings,
    check_settings,
)
from orbitmq.client.publication import Publication
from orbitmq.client.queue_choice import QueueSelector, queue_of_key
from orbitmq.client.remote import Remote
from orbitmq.client.send_hooks import SendHook, SendMode
from orbitmq.client.send_result import SendResult, SendStatus
from orbitmq.client.sender import Sender
from orbitmq.client.sending import HookedSending, Sending
from orbitmq.client.settings import settings_from
from orbitmq.client.unique_ids import unique_ids
from orbitmq.errors import ClientStateError, LimitExceeded, MQError, SendFailed, SettingError
from orbitmq.wire.batch import BatchMessage, encode_batch
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.names import wrap_namespace
from orbitmq.wire.properties import ENTRY_END, INSTANCE_ID, NAME_END

__all__ = ["Producer", "SendResult", "SendStatus"]


@checks_arguments(but=("send", "submit", "submit_from_thread", "send_oneway"))
class Producer:
    """Sends messages to the topics of one cluster.

    >>> async with Producer("127.0.0.1:9876", group="shop") as producer:
    ...     result = await producer.send(Message("orders", b"{}", tag="paid", keys=["17"]))
    ...     print(result.message_id, result.queue.queue_id, result.queue_offset)

    Without `namesrv` the environment's NAMESRV_ADDR counts. All other keyword arguments are in
    ProducerOptions; ProducerSettings says what they mean.

    A producer belongs to the event loop that started it.
    """

    def __init__(
        self,
        namesrv: str | None = None,
        group: str = DEFAULT_GROUP,
        **options: Unpack[ProducerOptions],
    ) -> None:
        settings = settings_from(
            ProducerSettings, dict(options), namesrv=namesrv or "", group=group
        )
        check_settings(settings)
        self.settings: ProducerSettings = settings
        """What it was told, defaults included."""
        self.send_hooks: list[SendHook] = []
        """Called around every attempt to send."""
        self._group = wrap_namespace(settings.namespace, group)
        self._publications: dict[str, Publication] = {}
        self._instance: instances.Instance | None = None
        self._sender: Sender | None = None
        self._is_starting = self._is_closed = False

    # --- life ---

    async def start(self) -> Self:
        """Join the cluster. Raises SettingError when no name server is known.

        Raises ClientStateError when it was started before, or when its group is taken in a shared
        instance.
        """
        if self._is_closed or self._is_starting:
            state = "closed" if self._is_closed else "started already"
            raise ClientStateError(f"producer {self._group} is {state}; make a new one")
        self._is_starting = True
        try:
            await self._join()
        except BaseException:
            self._is_starting = False
            raise
        return self

    async def _join(self) -> None:
        instance = await instances.join(self.settings)
        try:
            if not self._is_closed:
                instance.add_producer(self)
                instance.routes.watch(self._route_changed)
                await instance.heartbeat()
        except BaseException:
            await self._leave(instance)
            raise
        if self._is_closed:
            await self._leave(instance)
            raise ClientStateError(f"producer {self._group} was closed while it started")
        self._sender = Sender(instance, self.settings, self.send_hooks)
        self._ids = unique_ids(instance.ip, instance.chance)
        self._instance = instance

    async def close(self) -> None:
        """Wait for what is in flight, then leave; a second call does nothing."""
        instance, sender = self._instance, self._sender
        self._is_closed, self._instance = True, None
        if instance is None or sender is None:
            return
        try:
            await sender.close()
        finally:
            await self._leave(instance)

    async def _leave(self, instance: instances.Instance) -> None:
        instance.routes.unwatch(self._route_changed)
        try:
            await instance.remove_producer(self)
        finally:
            await instance.leave()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # --- what a program asks ---

    async def send(
        self,
        message: Message,
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: str | int | None = None,
    ) -> SendResult:
        """Send a message and return the broker's answer.

        The queue is the next one in turn, or `queue`, or what `selector` chooses, or that of `key`
        (messages of one key meet in one queue, as with the original's SelectMessageQueueByHash);
        without any of them a message's `sharding_key` is its key. `timeout` is in seconds, for all
        attempts together.

        Raises SendFailed or BrokerBusy when no broker has stored it, RouteNotFound or ConnectFailed
        when there is nowhere to send it, SendUnknown when a broker may have stored it,
        LocalProtocolError or LimitExceeded when it cannot be sent as it is.
        """
        sender = self._running()
        timeout = self.settings.send_timeout_s if timeout is None else timeout
        if not sender.has_room:
            timeout = await self._wait_room(sender, timeout)
        sending = self._prepare(sender, message, SendMode.SEND, timeout)
        if queue is not None or selector is not None or key is not None or message.sharding_key:
            _fix_queue(sending, queue, selector, key)
        sender.launch(sending)
        result: SendResult = await sending.future
        return result

    def submit(
        self,
        message: Message,
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: str | int | None = None,
    ) -> "asyncio.Future[SendResult]":
        """Send a message and give its result's future at once; the arguments are those of `send`.

        Many may be in flight. An answer with an error code is final here, only a missing answer is
        tried again. The future has the errors of `send`.

        Raises LimitExceeded when `sends_in_flight_max` or `bytes_in_flight_max` is reached: wait
        for some of the futures, or for `room()`. LocalProtocolError for what is no message.

        >>> futures = []
        >>> for order in orders:
        ...     await producer.room()
        ...     futures.append(producer.submit(Message("orders", order)))
        >>> results = await asyncio.gather(*futures)
        """
        sender = self._running()
        if not sender.has_room:
            sender.refuse_more()
        timeout = self.settings.send_timeout_s if timeout is None else timeout
        sending = self._prepare(sender, message, SendMode.SUBMIT, timeout)
        if queue is not None or selector is not None or key is not None or message.sharding_key:
            _fix_queue(sending, queue, selector, key)
        sender.launch(sending)
        future: asyncio.Future[SendResult] = sending.future
        return future

    def submit_from_thread(
        self,
        message: Message,
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: str | int | None = None,
    ) -> Future[SendResult]:
        """Do what `submit` does, in any thread but the loop's; its future is one for threads.

        The message is prepared in the calling thread and handed to the loop without waiting for it.
        The future can be cancelled until the loop has taken the message.
        """
        sender, future = self._running(), Future[SendResult]()
        timeout = self.settings.send_timeout_s if timeout is None else timeout
        sending = self._prepare(sender, message, SendMode.SUBMIT, timeout, future)
        if queue is not None or selector is not None or key is not None or message.sharding_key:
            _fix_queue(sending, queue, selector, key)
        sender.handover.take(sending)
        return future

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: str | int | None = None,
    ) -> None:
        """Send a message that gets no answer: nobody learns whether it was stored.

        Raises SendFailed, RouteNotFound, ConnectFailed or LimitExceeded when it could not even be
        sent.
        """
        sender = self._running()
        timeout_s = self.settings.send_timeout_s
        if not sender.has_room:
            timeout_s = await self._wait_room(sender, timeout_s)
        sending = self._prepare(sender, message, SendMode.ONEWAY, timeout_s)
        if queue is not None or selector is not None or key is not None or message.sharding_key:
            _fix_queue(sending, queue, selector, key)
        sender.launch(sending)
        await sending.future
        await sender.wait_drained(sending)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: str | int | None = None,
    ) -> list[SendResult]:
        """Send many messages of one topic in as few requests as `batch_bytes_max` allows.

        Gives a result for each message, in their order. A request's messages are stored together or
        not at all, in one queue and one after the other; several requests are on their way at the
        same time. `selector` is asked with the first message of a request.

        Raises BatchFailed when some messages were certainly not stored, BatchUnknown when of some
        nobody knows; `outcomes` says for each message which. Raises LocalProtocolError when these
        messages cannot be a batch.
        """
        sender = self._running()
        check_batch(messages)
        timeout = self.settings.send_timeout_s if timeout is None else timeout
        now_ms = sender.clock.wall_ms()
        publication = self._publication(messages[0].topic)
        packed = [self._pack(publication, message, now_ms) for message in messages]
        sizes = [
            record_size(message, properties)
            for message, (_, _, properties) in zip(messages, packed, strict=True)
        ]
        sendings: list[Run] = []
        unsent: MQError | None = None
        for run in split(sizes, self.settings.batch_bytes_max):
            try:
                if not sender.has_room:
                    timeout = await self._wait_room(sender, timeout)
                sending = self._prepare_batch(sender, messages[run], packed[run], timeout)
            except (LimitExceeded, SendFailed) as error:
                unsent = error
                break
            if queue is not None or selector is not None or key is not None:
                _fix_queue(sending, queue, selector, key)
            sender.launch(sending)
            sendings.append((sending, run))
        unique_ids = [unique for unique, _, _ in packed]
        return await batch_results(messages[0].topic, unique_ids, sendings, unsent)

    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that messages of a topic may go to, by broker and number.

        Raises RouteNotFound or ConnectFailed.
        """
        sender = self._running()
        publication = self._publication(topic)
        if not publication.queues:
            await sender.find_route(publication)
        return list(publication.queues)

    @property
    def has_room(self) -> bool:
        """Whether `submit` would take a message now; see `room`."""
        return self._running().has_room

    async def room(self) -> None:
        """Return when `submit` will take a message: at once unless too much is in flight."""
        await self._running().wait_room()

    async def flush(self) -> None:
        """Return when everything that was sent so far is answered or has failed."""
        await self._running().wait_idle()

    @property
    def remote(self) -> Remote:
        """The connections: RPC hooks are added to its `before_request` and `after_answer`."""
        return self._running().remote

    # --- what the instance asks ---

    @property
    def group(self) -> str:
        """The producer group, with its namespace."""
        return self._group

    def topics(self) -> Collection[str]:
        """Return the topics that were sent to, with their namespace."""
        return [publication.topic for publication in list(self._publications.values())]

    # --- from a message to a Sending ---

    def _running(self) -> Sender:
        if self._instance is None or self._sender is None:
            advice = "call its start() first, or use it in a with block"
            if self._is_closed:
                advice = "it was closed; make a new one"
            raise ClientStateError(f"the producer of group {self._group} does not run: {advice}")
        return self._sender

    async def _wait_room(self, sender: Sender, timeout_s: float) -> float:
        """Wait for room within a time-out; return what is left of it."""
        began_s = sender.loop.time()
        try:
            async with asyncio.timeout(timeout_s):
                await sender.wait_room()
        except TimeoutError:
            sender.refuse_more()
        return timeout_s - (sender.loop.time() - began_s)

    def _prepare(
        self,
        sender: Sender,
        message: Message,
        mode: SendMode,
        timeout_s: float,
        future: Future[SendResult] | None = None,
    ) -> Sending:
        try:
            return self._sending(sender, message, mode, timeout_s, future)
        except (TypeError, AttributeError, KeyError):
            check_arguments({"message": message, "timeout": timeout_s}, _SENT)
            message.check()
            raise

    def _sending(
        self,
        sender: Sender,
        message: Message,
        mode: SendMode,
        timeout_s: float,
        future: Future[SendResult] | None,
    ) -> Sending:
        publication = self._publications.get(message.topic)
        if publication is None:
            publication = self._publication(message.topic)
        body, settings = message.body, self.settings
        if type(body) is not bytes or not 0 < len(body) <= settings.message_bytes_max:
            check_body(body, settings.message_bytes_max)
        template = publication.oneway if mode is SendMode.ONEWAY else publication.single
        sending = _kind(sender)(sender, publication, template, mode, future)
        now_ms = sender.clock.wall_ms()
        unique_id = sending.message_id = self._ids.next_id(now_ms)
        sending.properties = properties_text(message, unique_id, publication.properties_end)
        if len(body) >= settings.compress_from_bytes:
            sending.body, sending.sys_flag = compressed(
                body, settings.compression, settings.compression_level
            )
        else:
            sending.body = body
        if type(message.flag) is not int:
            message.check()
        sending.messages = (message,)
        sending.flag, sending.born_ms = message.flag, now_ms
        self._set_limits(sending, timeout_s)
        return sending

    def _pack(self, publication: Publication, message: Message, now_ms: int) -> "_Packed":
        """Return unique id, body and encoded properties of a batch's message."""
        check_body(message.body, self.settings.message_bytes_max)
        if type(message.flag) is not int or type(message.waits_for_store) is not bool:
            message.check()
        unique_id = self._ids.next_id(now_ms)
        text = properties_text(message, unique_id, publication.properties_end)
        return unique_id, message.body, encode_text(text)

    def _prepare_batch(
        self,
        sender: Sender,
        messages: Sequence[Message],
        packed: "Sequence[_Packed]",
        timeout_s: float,
    ) -> Sending:
        publication = self._publication(messages[0].topic)
        sending = _kind(sender)(sender, publication, publication.batch, SendMode.SEND)
        sending.messages = tuple(messages)
        sending.body = encode_batch(
            BatchMessage(body, properties, message.flag)
            for message, (_, body, properties) in zip(messages, packed, strict=True)
        )
        sending.born_ms = sender.clock.wall_ms()
        sending.properties = batch_properties(messages[0])
        self._set_limits(sending, timeout_s)
        return sending

    def _set_limits(self, sending: Sending, timeout_s: float) -> None:
        settings = self.settings
        if not timeout_s > 0:
            cause = f"its time-out of {timeout_s:g} s was over before the first attempt"
            raise SendFailed(sending.publication.public_topic, cause=cause)
        sending.timeout_s = timeout_s
        sending.deadline_s = sending.sender.loop.time() + timeout_s
        if sending.mode is SendMode.SEND:
            sending.retries_left = settings.retry_times_when_send_failed
        elif sending.mode is SendMode.SUBMIT:
            sending.retries_left = settings.retry_times_when_submit_failed

    # --- topics ---

    def _publication(self, topic: str) -> Publication:
        """Return what is kept of a topic; raises LocalProtocolError when it is no topic's name."""
        publication = self._publications.get(topic)
        if publication is None:
            made = self._new_publication(self._running(), topic)
            publication = self._publications.setdefault(topic, made)
        return publication

    def _new_publication(self, sender: Sender, topic: str) -> Publication:
        namespace = self.settings.namespace
        wrapped = wrap_namespace(namespace, topic)
        check_sendable(wrapped)
        publication = Publication(wrapped, topic, sender.chance)
        publication.write_templates(self._group, self.settings)
        if namespace:
            publication.properties_end = f"{ENTRY_END}{INSTANCE_ID}{NAME_END}{namespace}"
        return publication

    def _route_changed(self, topic: str) -> None:
        """Use a topic's new route (called by the routes)."""
        instance = self._instance
        route = instance.routes.known(topic) if instance is not None else None
        if route is None:
            return
        for publication in list(self._publications.values()):
            if publication.topic == topic:
                publication.take_route(route, uses_vip_channel=self.settings.use_vip_channel)


_SENT: dict[str, Any] = {"message": Message, "timeout": float}
_CHOICES: dict[str, Any] = {
    "queue": MessageQueue | None,
    "selector": QueueSelector | None,
    "key": str | int | None,
}
_Packed = tuple[str, bytes, bytes]
"""Unique id, body and encoded properties."""


def _kind(sender: Sender) -> type[Sending]:
    remote = sender.remote
    return HookedSending if remote.before_request or remote.after_answer else Sending


def _are_choices(queue: object, selector: object, key: object) -> bool:
    """Whether these are of the right types; quicker than to say what is wrong."""
    is_queue = queue is None or isinstance(queue, MessageQueue)
    return is_queue and callable(selector or print) and isinstance(key, str | int | None)


def _fix_queue(
    sending: Sending,
    queue: MessageQueue | None,
    selector: QueueSelector | None,
    key: str | int | None,
) -> None:
    """Have a Sending go to one queue and no other; raises SettingError for two choices at once."""
    if sum(choice is not None for choice in (queue, selector, key)) > 1:
        raise SettingError("give one of queue, selector and key, not several")
    if not _are_choices(queue, selector, key):
        check_arguments({"queue": queue, "selector": selector, "key": key}, _CHOICES)
    sending.is_fixed = True
    if queue is not None:
        sending.queue = queue
    elif selector is not None:
        sending.chooser = selector
    else:
        chosen_by = key if key is not None else sending.messages[0].sharding_key
        sending.chooser = lambda queues, _message: queue_of_key(queues, chosen_by)
