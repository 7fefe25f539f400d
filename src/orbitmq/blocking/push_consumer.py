"""`PushConsumer` for programs without an event loop.

In: the calls of `orbitmq.aio.PushConsumer`. Out: the same answers, waited for.
Rule: made by tools/blocking_source.py; change the asynchronous class and run that.
"""

from collections.abc import Iterator
from typing import Unpack

from orbitmq import aio
from orbitmq.blocking.facade import Facade
from orbitmq.client.consume_hooks import ConsumeHook
from orbitmq.client.handling import Handler
from orbitmq.client.message import ReceivedMessage
from orbitmq.client.pulling import FilterHook
from orbitmq.client.push_settings import PushConsumerOptions, PushConsumerSettings
from orbitmq.client.subscriptions import Selector
from orbitmq.wire.bodies_client import MessageQueue


class PushConsumer(Facade[aio.PushConsumer]):
    """Consumes topics: messages come to a handler as soon as brokers have them.

    >>> def on_order(message: ReceivedMessage) -> None:
    ...     print(message.topic, message.body)
    >>> consumer = PushConsumer("127.0.0.1:9876", "billing", on_order)
    >>> consumer.subscribe("orders", "paid || shipped")
    >>> with consumer:
    ...     threading.Event().wait()

    `namesrv` are name servers (`host:port;host:port`), without it the environment's NAMESRV_ADDR.
    `group` is the consumer group: its members share the queues of the topics, each message goes to
    one of them. `handler` is an `async def` or a plain function (called in a thread, so it may
    block) of one message, or of a list of messages with `consume_batch_size` above 1. When it
    returns, whatever it returns, the message is consumed; when it raises, the message comes again
    later, up to 16 times, and then becomes a dead letter. `Retry` and `DeadLetter` say more.
    All further options are fields of PushConsumerSettings.

    Without a handler the consumer is a loop:

    >>> with PushConsumer("127.0.0.1:9876", "billing") as consumer:
    ...     consumer.subscribe("orders")
    ...     for message in consumer:
    ...         ...

    Asking for the next message says that the last one was consumed. When the loop is left, its last
    message counts as consumed if the consumer is then closed normally, and is returned for retry if
    an exception closes it or another loop is begun. Several tasks may loop over one consumer.
    """

    def __init__(
        self,
        namesrv: str | None = None,
        group: str = "",
        handler: Handler | None = None,
        **options: Unpack[PushConsumerOptions],
    ) -> None:
        super().__init__(lambda: aio.PushConsumer(namesrv, group, handler, **options))

    @property
    def settings(self) -> PushConsumerSettings:
        """What it was told, defaults included."""
        return self._there(lambda: self._twin.settings)

    @property
    def consume_hooks(self) -> list[ConsumeHook]:
        """Called around each call of the handler; set them before the start."""
        return self._there(lambda: self._twin.consume_hooks)

    @property
    def filter_hooks(self) -> list[FilterHook]:
        """Each sees the messages of a pull and gives those that stay; set them before the start."""
        return self._there(lambda: self._twin.filter_hooks)

    def run(self) -> None:
        """Start, consume until SIGTERM or Ctrl-C, and close in order: a program's last line.

        Handlers at work come to their end, a second signal does not wait for them. Cancelling it
        closes, too. Signals are caught in the main thread only.
        """
        self._run()

    def subscribe(self, topic: str, selector: Selector | str = "*") -> None:
        """Consume a topic, from now on or from the start on.

        `selector` is a tag expression (`paid || shipped`, `*` for all) or a Selector; subscribing
        again replaces it. All members of a group must subscribe to the same. Raises RequestFailed
        when a broker refuses an SQL selector; what was before then stays.
        """
        self._wait(self._twin.subscribe(topic, selector))

    def unsubscribe(self, topic: str) -> None:
        """Consume a topic no more; what is in hand of it is left to others."""
        self._wait(self._twin.unsubscribe(topic))

    def suspend(self) -> None:
        """Pull no more for now; what is in hand is still consumed, queues stay this member's."""
        self._there(self._twin.suspend)

    def resume(self) -> None:
        """Pull again."""
        self._there(self._twin.resume)

    @property
    def is_suspended(self) -> bool:
        """Whether it was suspended."""
        return self._there(lambda: self._twin.is_suspended)

    def queues(self) -> list[MessageQueue]:
        """Return the queues that are this member's now, in order."""
        return self._there(self._twin.queues)

    @property
    def client_id(self) -> str:
        """The id under which brokers know this member."""
        return self._there(lambda: self._twin.client_id)

    def commit(self) -> None:
        """Store the offsets now; it happens every `commit_interval_s` anyway."""
        self._wait(self._twin.commit())

    def send_back(
        self, message: ReceivedMessage, delay_level: int = 0, *, reason: str = ""
    ) -> bool:
        """Have a message come again later, without its handler failing; give whether it will.

        `delay_level` as in Retry; -1 makes it a dead letter, which keeps the `reason`.
        """
        return self._wait(self._twin.send_back(message, delay_level, reason=reason))

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Loop over messages; only without a handler."""
        return self._each(self._twin.__aiter__)
