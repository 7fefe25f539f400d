"""`Producer` for programs without an event loop.

In: the calls of `orbitmq.aio.Producer`. Out: the same answers, waited for.
Rule: made by tools/blocking_source.py; change the asynchronous class and run that.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Unpack

from orbitmq import aio
from orbitmq.blocking.facade import Facade
from orbitmq.client.message import Message
from orbitmq.client.producer_settings import DEFAULT_GROUP, ProducerOptions, ProducerSettings
from orbitmq.client.queue_choice import QueueSelector
from orbitmq.client.remote import Remote
from orbitmq.client.send_hooks import SendHook
from orbitmq.client.send_result import SendResult
from orbitmq.wire.bodies_client import MessageQueue


class Producer(Facade[aio.Producer]):
    """Sends messages to the topics of one cluster.

    >>> with Producer("127.0.0.1:9876", group="shop") as producer:
    ...     result = producer.send(Message("orders", b"{}", tag="paid", keys=["17"]))
    ...     print(result.message_id, result.queue.queue_id, result.queue_offset)

    Without `namesrv` the environment's NAMESRV_ADDR counts. All other keyword arguments are in
    ProducerOptions; ProducerSettings says what they mean.

    Threads may share a producer.
    """

    def __init__(
        self,
        namesrv: str | None = None,
        group: str = DEFAULT_GROUP,
        **options: Unpack[ProducerOptions],
    ) -> None:
        super().__init__(lambda: aio.Producer(namesrv, group, **options))

    @property
    def settings(self) -> ProducerSettings:
        """What it was told, defaults included."""
        return self._there(lambda: self._twin.settings)

    @property
    def send_hooks(self) -> list[SendHook]:
        """Called around every attempt to send."""
        return self._there(lambda: self._twin.send_hooks)

    def send(
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
        return self._wait(
            self._twin.send(message, timeout=timeout, queue=queue, selector=selector, key=key)
        )

    def submit(
        self,
        message: Message,
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: str | int | None = None,
    ) -> Future[SendResult]:
        """Send a message and give its result's future at once; the arguments are those of `send`.

        Many may be in flight. An answer with an error code is final here, only a missing answer is
        tried again. The future has the errors of `send`.

        Raises LimitExceeded when `sends_in_flight_max` or `bytes_in_flight_max` is reached: wait
        for some of the futures, or for `room()`. LocalProtocolError for what is no message.

        >>> futures = []
        >>> for order in orders:
        ...     producer.room()
        ...     futures.append(producer.submit(Message("orders", order)))
        >>> results = [future.result() for future in futures]
        """
        return self._begun().submit_from_thread(
            message, timeout=timeout, queue=queue, selector=selector, key=key
        )

    def send_oneway(
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
        self._wait(self._twin.send_oneway(message, queue=queue, selector=selector, key=key))

    def send_batch(
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
        return self._wait(
            self._twin.send_batch(
                messages, timeout=timeout, queue=queue, selector=selector, key=key
            )
        )

    def publish_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that messages of a topic may go to, by broker and number.

        Raises RouteNotFound or ConnectFailed.
        """
        return self._wait(self._twin.publish_queues(topic))

    @property
    def has_room(self) -> bool:
        """Whether `submit` would take a message now; see `room`."""
        return self._begun().has_room

    def room(self) -> None:
        """Return when `submit` will take a message: at once unless too much is in flight."""
        if not self._begun().has_room:
            self._wait(self._twin.room())

    def flush(self) -> None:
        """Return when everything that was sent so far is answered or has failed."""
        self._wait(self._twin.flush())

    @property
    def remote(self) -> Remote:
        """The connections: RPC hooks are added to its `before_request` and `after_answer`."""
        return self._there(lambda: self._twin.remote)

    @property
    def group(self) -> str:
        """The producer group, with its namespace."""
        return self._there(lambda: self._twin.group)
