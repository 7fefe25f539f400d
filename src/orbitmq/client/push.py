"""The push consumer: messages of the topics it subscribes to, brought to a handler or to a loop.

In: topics, a handler (or a loop over the consumer). Out: one call for each message, again until it
succeeds, and offsets that say how far the group is.

Rules:
1. A message is consumed when its handler returns, and comes again when it raises; see `outcomes`.
   Each message comes at least once, after a crash perhaps twice: handlers must bear that.
2. A consumer is started once and closed once; a closed one is not started again. A start that
   failed leaves nothing behind and may be tried again.
"""

import asyncio
import sys
from types import TracebackType
from typing import Unpack

from orbitmq.client.arguments import checks_arguments
from orbitmq.client.consume_hooks import ConsumeHook
from orbitmq.client.handling import Handler, check_handler
from orbitmq.client.instance import join
from orbitmq.client.iterating import MessageIterator
from orbitmq.client.message import ReceivedMessage
from orbitmq.client.pulling import FilterHook
from orbitmq.client.push_running import RunningPush
from orbitmq.client.push_settings import PushConsumerOptions, PushConsumerSettings, push_settings
from orbitmq.client.subscriptions import (
    Selector,
    Subscription,
    selector_of,
    subscriptions_of,
)
from orbitmq.errors import ClientStateError
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.names import check_topic, retry_topic, wrap_namespace
from orbitmq.world.clock import SystemClock
from orbitmq.world.stop_signals import stop_signals

NEW, RUNNING, CLOSED = "new", "running", "closed"


@checks_arguments()
class PushConsumer:
    """Consumes topics: messages come to a handler as soon as brokers have them.

    >>> async def on_order(message: ReceivedMessage) -> None:
    ...     print(message.topic, message.body)
    >>> consumer = PushConsumer("127.0.0.1:9876", "billing", on_order)
    >>> await consumer.subscribe("orders", "paid || shipped")
    >>> async with consumer:
    ...     await asyncio.Event().wait()

    `namesrv` are name servers (`host:port;host:port`), without it the environment's NAMESRV_ADDR.
    `group` is the consumer group: its members share the queues of the topics, each message goes to
    one of them. `handler` is an `async def` or a plain function (called in a thread, so it may
    block) of one message, or of a list of messages with `consume_batch_size` above 1. When it
    returns, whatever it returns, the message is consumed; when it raises, the message comes again
    later, up to 16 times, and then becomes a dead letter. `Retry` and `DeadLetter` say more.
    All further options are fields of PushConsumerSettings.

    Without a handler the consumer is a loop:

    >>> async with PushConsumer("127.0.0.1:9876", "billing") as consumer:
    ...     await consumer.subscribe("orders")
    ...     async for message in consumer:
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
        self.settings: PushConsumerSettings = push_settings(namesrv, group, dict(options))
        """What it was told, defaults included."""
        self.consume_hooks: list[ConsumeHook] = []
        """Called around each call of the handler; set them before the start."""
        self.filter_hooks: list[FilterHook] = []
        """Each sees the messages of a pull and gives those that stay; set them before the start."""
        check_handler(handler, is_batch=self.settings.consume_batch_size > 1)
        self._handler = handler
        self._subscriptions: dict[str, Subscription] = subscriptions_of(
            self.settings.subscriptions, self.settings.namespace, SystemClock().wall_ms()
        )
        self._running: RunningPush | None = None
        self._state = NEW

    # --- life ---

    async def start(self) -> None:
        """Begin to consume.

        Name servers that are not there yet are waited for, up to `start_wait_s`. Raises
        ClientStateError when it was started before, ConnectFailed when no name server answers,
        RequestFailed when a broker refuses an SQL selector. After a failure it may be started
        again.
        """
        if self._state != NEW:
            raise ClientStateError(
                f"this consumer is {self._state}; a consumer is started once: make another one"
            )
        self._state = RUNNING
        if not self.settings.is_broadcasting:
            self._want(retry_topic(self._wrapped(self.settings.group)), Selector())
        try:
            running = await self._start()
        except BaseException:
            if not self._is_unwanted():
                self._state = NEW
            raise
        self._running = running
        if self._is_unwanted():
            await self._close(is_failing=True)
            raise ClientStateError("this consumer was closed while it started")

    def _is_unwanted(self) -> bool:
        """Whether somebody closed it while it started."""
        return self._state == CLOSED

    async def _start(self) -> RunningPush:
        instance = await join(self.settings)
        running: RunningPush | None = None
        try:
            running = RunningPush(instance, self.settings, self._subscriptions)
            running.is_wanted = lambda: not self._is_unwanted()
            await running.start(self._handler, self.consume_hooks, self.filter_hooks)
        except BaseException:
            try:
                if running is not None:
                    await running.close(is_failing=True)
            finally:
                await instance.leave()
            raise
        return running

    async def close(self) -> None:
        """Stop: handlers at work come to their end, offsets are stored, the group is told.

        Waits up to `close_timeout_s` for handlers; what is then still in hand comes again to
        another member. Closing twice does nothing.
        """
        await self._close(is_failing=sys.exc_info()[0] is not None)

    async def _close(self, *, is_failing: bool) -> None:
        running, self._running = self._running, None
        self._state = CLOSED
        if running is not None:
            try:
                await running.close(is_failing=is_failing)
            finally:
                await running.instance.leave()

    async def __aenter__(self) -> "PushConsumer":
        """Start it."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        await self._close(is_failing=kind is not None)

    async def run(self) -> None:
        """Start, consume until SIGTERM or Ctrl-C, and close in order: a program's last line.

        Handlers at work come to their end, a second signal does not wait for them. Cancelling it
        closes, too. Signals are caught in the main thread only.
        """
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        async with self:
            with stop_signals(lambda: loop.call_soon_threadsafe(stopped.set)):
                await stopped.wait()

    # --- what to consume ---

    async def subscribe(self, topic: str, selector: Selector | str = "*") -> None:
        """Consume a topic, from now on or from the start on.

        `selector` is a tag expression (`paid || shipped`, `*` for all) or a Selector; subscribing
        again replaces it. All members of a group must subscribe to the same. Raises RequestFailed
        when a broker refuses an SQL selector; what was before then stays.
        """
        if self._state == CLOSED:
            raise ClientStateError("this consumer is closed; make another one")
        check_topic(topic)
        topic, chosen = self._wrapped(topic), selector_of(selector)
        if self._running is not None:
            await self._running.introduce(Subscription(topic, chosen, SystemClock().wall_ms()))
        self._want(topic, chosen)
        if self._running is not None:
            await self._running.pulls.tell_brokers(self._subscriptions)
            self._running.rebalance_soon()

    async def unsubscribe(self, topic: str) -> None:
        """Consume a topic no more; what is in hand of it is left to others."""
        self._subscriptions.pop(self._wrapped(topic), None)
        if self._running is not None:
            await self._running.pulls.tell_brokers(self._subscriptions)
            self._running.rebalance_soon()

    def _want(self, topic: str, selector: Selector) -> None:
        now_ms = SystemClock().wall_ms()
        subscription = self._subscriptions.get(topic)
        if subscription is None:
            self._subscriptions[topic] = Subscription(topic, selector, now_ms)
        elif subscription.selector != selector:
            subscription.change(selector, now_ms)

    def _wrapped(self, name: str) -> str:
        return wrap_namespace(self.settings.namespace, name)

    # --- while it runs ---

    def suspend(self) -> None:
        """Pull no more for now; what is in hand is still consumed, queues stay this member's."""
        self._started().pulls.resumed.clear()

    def resume(self) -> None:
        """Pull again."""
        running = self._started()
        running.pulls.resumed.set()
        running.rebalance_soon()

    @property
    def is_suspended(self) -> bool:
        """Whether it was suspended."""
        return self._running is not None and not self._running.pulls.resumed.is_set()

    def queues(self) -> list[MessageQueue]:
        """Return the queues that are this member's now, in order."""
        return sorted(self._started().rebalancing.table)

    @property
    def client_id(self) -> str:
        """The id under which brokers know this member."""
        return self._started().instance.client_id

    async def commit(self) -> None:
        """Store the offsets now; it happens every `commit_interval_s` anyway."""
        running = self._started()
        await running.commits.commit(list(running.rebalancing.table.values()))

    async def send_back(
        self, message: ReceivedMessage, delay_level: int = 0, *, reason: str = ""
    ) -> bool:
        """Have a message come again later, without its handler failing; give whether it will.

        `delay_level` as in Retry; -1 makes it a dead letter, which keeps the `reason`.
        """
        return await self._started().sending_back.send_back(message, delay_level, reason)

    def __aiter__(self) -> MessageIterator:
        """Loop over messages; only without a handler."""
        running = self._started()
        if running.iteration is None:
            raise ClientStateError(
                "this consumer has a handler, which gets its messages; make one without a handler "
                "to loop over"
            )
        self._check_subscribed()
        return running.iteration.iterator()

    def _check_subscribed(self) -> None:
        """Raise ClientStateError when nothing will ever come."""
        retried = retry_topic(self._wrapped(self.settings.group))
        if not self._subscriptions.keys() - {retried}:
            raise ClientStateError(
                f"the consumer of group {self.settings.group} has no subscription, so no message "
                'will come: call its subscribe(topic), or give it subscriptions={"orders": "*"}'
            )

    def _started(self) -> RunningPush:
        if self._running is None:
            advice = "call its start() first, or use it in a with block"
            if self._state == CLOSED:
                advice = "make another one"
            raise ClientStateError(f"this consumer is {self._state}; {advice}")
        return self._running
