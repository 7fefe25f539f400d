"""PullConsumer: messages when the program asks for them, with seeks, pauses and commits by hand.

In: topics to share with a group, or queues to have; polls. Out: messages, in order per queue.

Rules:
1. Either `subscribe` (the group shares the queues) or `assign` (the program chooses them).
2. A message counts as consumed when the program comes back for more (the next `poll`, the next step
   of an iteration), says so (`commit`), or leaves `async with` without an error. `close` alone says
   nothing: what was handed out last comes again, since nobody can tell why it was called.
3. Queues carry full names: with a namespace, `message.queue` and `assignment()` show it, and every
   method takes a queue with or without.
"""

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Unpack

import msgspec

from orbitmq.client import queue_offsets
from orbitmq.client.arguments import checks_arguments
from orbitmq.client.instance import join
from orbitmq.client.message import ReceivedMessage
from orbitmq.client.pull_cache import PulledQueue
from orbitmq.client.pull_member import PullMember, QueuesChanged
from orbitmq.client.pull_settings import PullConsumerOptions, PullConsumerSettings, pull_settings
from orbitmq.client.pulling import PULL_COUNT_MAX, FilterHook, PullResult
from orbitmq.client.subscriptions import (
    Selector,
    Subscription,
    selector_of,
    subscriptions_of,
)
from orbitmq.errors import ClientStateError, LocalProtocolError
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.names import check_topic, retry_topic, wrap_namespace

PULL_TIMEOUT_S = 10.0
"""How long `pull` waits for its answer, on top of what the broker may hold it."""


@checks_arguments()
class PullConsumer:
    """Gives messages when the program asks for them.

    >>> async with PullConsumer("localhost:9876", group="billing") as consumer:
    ...     await consumer.subscribe("orders", "paid || shipped")
    ...     async for message in consumer:
    ...         print(message.body)

    Messages are pulled in the background into a memory with limits (see PullConsumerSettings), so
    that a poll seldom waits. By itself it stores every five seconds how far the program has come;
    with `auto_commit=False` only `commit` does. A message counts as consumed with the next `poll`
    or the next step of a loop, with `commit`, and at the end of `async with` without an error;
    with `close` alone it comes again.

    Several programs with one group share the queues of the topics they subscribe to. A program that
    wants to choose its queues uses `assign`; one that wants to keep its own offsets uses `pull`.
    """

    def __init__(
        self,
        namesrv: str | None = None,
        group: str = "",
        **options: Unpack[PullConsumerOptions],
    ) -> None:
        """Make a consumer; nothing is connected before `start`.

        `namesrv` are name servers, `host:port` separated by `;`; None: the environment's
        NAMESRV_ADDR. The options are those of PullConsumerSettings. Raises SettingError.
        """
        self._settings = pull_settings(namesrv, group, {**options})
        self._group = wrap_namespace(self._settings.namespace, group)
        self._subscriptions: dict[str, Subscription] = subscriptions_of(
            self._settings.subscriptions, self._settings.namespace, 1
        )
        self._filter_hooks: list[FilterHook] = []
        self._member: PullMember | None = None
        self._is_started = self._is_closed = False
        self._is_assigned = False

    # --- life ---

    async def start(self) -> None:
        """Join the group; raises ConnectFailed when no name server answers.

        With subscriptions, name servers that are not there yet are waited for, up to
        `start_wait_s`.
        """
        if self._is_started or self._is_closed:
            raise ClientStateError(
                f"the pull consumer of group {self.group} was started before; make a new one"
            )
        self._is_started = True
        try:
            instance = await join(self._settings)
        except BaseException:
            self._is_started = False
            raise
        try:
            member = PullMember(instance, self._group, self._settings, self._subscriptions)
        except BaseException:
            self._is_started = False
            await instance.leave()
            raise
        member.puller.filter_hooks = self._filter_hooks
        member.is_wanted = lambda: not self._is_closed
        self._member = member
        try:
            await self._begin(member)
        except BaseException:
            self._member = member
            await self._end(consumes_last=False)
            raise

    async def _begin(self, member: PullMember) -> None:
        """Start a member, unless somebody closes us before or meanwhile."""
        if not self._is_closed:
            await member.start()
        if self._is_closed:
            raise ClientStateError("this consumer was closed while it started")

    async def close(self) -> None:
        """Store offsets (unless `auto_commit` is off), leave the group, and let go of everything.

        What was handed out last does not count as consumed and comes again, as after an error:
        `commit` before the close says that it was. May be called again.
        """
        await self._end(consumes_last=False)

    async def _end(self, *, consumes_last: bool) -> None:
        member, self._member = self._member, None
        self._is_closed = True
        if member is None:
            return
        try:
            await member.close(consumes_last=consumes_last)
        finally:
            await member.instance.leave()

    async def __aenter__(self) -> "PullConsumer":
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close; what was handed out last counts as consumed, unless an error ends the block."""
        await self._end(consumes_last=kind is None)

    @property
    def is_running(self) -> bool:
        """Whether it was started and not closed."""
        return self._member is not None

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._settings.group

    @property
    def settings(self) -> PullConsumerSettings:
        """What it was told, defaults included."""
        return self._settings

    @property
    def retry_topic(self) -> str:
        """Where messages come again that were sent back; push consumers subscribe to it."""
        return retry_topic(self._group)

    def _running(self) -> PullMember:
        if self._member is None:
            state = "is not started: call its start() first, or use it in a with block"
            if self._is_closed:
                state = "is closed; make a new one"
            raise ClientStateError(f"the pull consumer of group {self.group} {state}")
        return self._member

    # --- which messages ---

    async def subscribe(self, topic: str, selector: Selector | str = "*") -> None:
        """Share a topic's queues with the group; again with another selector to change it.

        Before `start` it is only noted. A topic that does not exist yet is looked for until it
        does. Raises ClientStateError after `assign`, LocalProtocolError for a name or an expression
        that cannot be, RequestFailed for SQL that a broker refuses; what was before then stays.
        """
        if self._is_assigned:
            raise ClientStateError("a consumer either subscribes or assigns; this one has assigned")
        check_topic(topic)
        topic = wrap_namespace(self._settings.namespace, topic)
        chosen = selector_of(selector)
        member = self._member
        now_ms = member.instance.clock.wall_ms() if member is not None else 1
        if member is not None:
            await member.check(Subscription(topic, chosen, now_ms))
        subscription = self._subscriptions.get(topic)
        if subscription is None:
            subscription = self._subscriptions[topic] = Subscription(topic, chosen, now_ms)
        else:
            subscription.change(chosen, now_ms)
        if member is not None:
            await member.instance.heartbeat()
            await member.queues.pull_again(topic)
            await member.look()

    async def unsubscribe(self, topic: str) -> None:
        """Want no more of a topic; its queues go to the rest of the group."""
        topic = wrap_namespace(self._settings.namespace, topic)
        if self._subscriptions.pop(topic, None) is not None and self._member is not None:
            await self._member.look()
            await self._member.instance.heartbeat()

    async def assign(self, queues: Iterable[MessageQueue], selector: Selector | str = "*") -> None:
        """Have exactly these queues, whatever other members of the group have.

        Raises ClientStateError after `subscribe`, RouteNotFound for a topic that does not exist.
        """
        if self._subscriptions:
            raise ClientStateError(
                "a consumer either subscribes or assigns; this one has subscribed"
            )
        member = self._running()
        self._is_assigned = True
        member.queues.is_shared = False
        wanted = [self._full(queue) for queue in queues]
        now_ms = member.instance.clock.wall_ms()
        for topic in {queue.topic for queue in wanted}:
            await member.instance.routes.find(topic)
        await member.instance.heartbeat()
        await member.queues.remove(set(member.queues.table) - set(wanted))
        for queue in wanted:
            member.queues.add(queue, Subscription(queue.topic, selector_of(selector), now_ms))

    def assignment(self) -> list[MessageQueue]:
        """Return the queues that it has now."""
        return sorted(self._running().queues.table)

    def add_filter_hook(self, hook: FilterHook) -> None:
        """Let a function see what each pull brings; it gives the messages that stay."""
        self._filter_hooks.append(hook)

    # --- messages ---

    async def poll(self, timeout: float | None = None) -> list[ReceivedMessage]:
        """Return the next messages of one queue, at most `pull_batch_size`.

        Waits up to `timeout` seconds, `poll_timeout_s` if not given; then it gives none. What the
        polls before gave counts as consumed. One poll at a time: ClientStateError otherwise.
        """
        return await self._take(self._settings.pull_batch_size, timeout)

    async def _take(self, count_max: int, timeout_s: float | None) -> list[ReceivedMessage]:
        cache = self._running().queues.cache
        if not self._subscriptions and not self._is_assigned:
            raise ClientStateError(
                f"the pull consumer of group {self.group} has no topic and no queue, so no message "
                "will come: call its subscribe(topic) or assign(queues) first"
            )
        if cache.is_polled:
            raise ClientStateError("another poll of this consumer is waiting; poll in one task")
        taken = cache.take(count_max)
        if taken:
            return taken
        wait_s = self._settings.poll_timeout_s if timeout_s is None else timeout_s
        await cache.wait_messages(wait_s)
        return cache.take(count_max) if self._member is not None else []

    def __aiter__(self) -> "PullConsumer":
        """Iterate over messages, without end; each counts as consumed with the next step."""
        self._running()
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Return the next message; the iteration ends when the consumer is closed."""
        while self._member is not None:
            taken = await self._take(1, None)
            if taken:
                return taken[0]
        raise StopAsyncIteration

    # --- going elsewhere ---

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset; what is in memory of the queue is thrown away.

        Raises ClientStateError for a queue that it does not have, LocalProtocolError for an offset
        that the queue does not have.
        """
        pulled = self._pulled(queue)
        lowest, highest = await self.min_offset(queue), await self.max_offset(queue)
        if not max(lowest, 0) <= offset <= highest:
            raise LocalProtocolError(
                f"{pulled.queue} has offsets {max(lowest, 0)} to {highest}, so {offset} cannot be "
                "sought"
            )
        await self._running().queues.restart(pulled, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the oldest message that the queue has."""
        pulled = self._pulled(queue)
        await self._running().queues.restart(pulled, max(await self.min_offset(queue), 0))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with messages that come from now on."""
        pulled = self._pulled(queue)
        await self._running().queues.restart(pulled, await self.max_offset(queue))

    async def seek_to_time(self, queue: MessageQueue, time_s: float) -> None:
        """Go on about where messages were stored at a time, in seconds since 1970."""
        pulled = self._pulled(queue)
        await self._running().queues.restart(pulled, await self.offset_for_time(queue, time_s))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Deliver no messages of these queues until `resume`."""
        for queue in queues:
            self._running().queues.cache.pause(self._pulled(queue))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on with paused queues."""
        for queue in queues:
            self._running().queues.cache.resume(self._pulled(queue))

    # --- how far it has come ---

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store how far the program has come; returns when brokers (or the file) have it.

        Without `offsets`: behind all messages that were handed out. With `offsets`: these, also of
        queues that it does not have. Raises MQError when some could not be stored.
        """
        queues = self._running().queues
        if offsets is None:
            queues.cache.settle()
            await queues.store_done()
        else:
            chosen = {self._full(queue): offset for queue, offset in offsets.items()}
            await queues.store_offsets(chosen)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return what is stored for the group in a queue; None when there is nothing."""
        return await self._running().store.read(self._full(queue))

    def position(self, queue: MessageQueue) -> int | None:
        """Return the offset behind what was handed out; None while it is not known."""
        return self._pulled(queue).position

    # --- facts about topics ---

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return all queues of a topic; raises RouteNotFound when it does not exist."""
        topic = wrap_namespace(self._settings.namespace, topic)
        route = await self._running().instance.routes.find(topic)
        return sorted(route.subscribe_queues)

    async def on_queues_changed(self, topic: str, listener: QueuesChanged) -> None:
        """Call `listener(topic, queues)` whenever the topic has other queues than before."""
        topic = wrap_namespace(self._settings.namespace, topic)
        await self._running().watch(topic, listener)

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest message that a queue has."""
        return await queue_offsets.min_offset(self._running().instance, self._full(queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that a queue's next message will get."""
        return await queue_offsets.max_offset(self._running().instance, self._full(queue))

    async def offset_for_time(self, queue: MessageQueue, time_s: float) -> int:
        """Return the offset about which messages were stored at a time, in seconds since 1970."""
        instance = self._running().instance
        timestamp_ms = round(time_s * 1000)
        return await queue_offsets.offset_for_time(instance, self._full(queue), timestamp_ms)

    # --- one pull at a time ---

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        count_max: int = PULL_COUNT_MAX,
        selector: Selector | str = "*",
        wait: float = 0.0,
        timeout: float | None = None,
    ) -> PullResult:
        """Pull a queue once; for programs that keep their own offsets.

        With `wait` the broker holds the request up to so many seconds while there is nothing. The
        result's `next_offset` is where to go on. Needs neither `subscribe` nor `assign`. Raises
        RequestFailed when the broker refuses, RequestTimeout when it does not answer.
        """
        member = self._running()
        full = self._full(queue)
        subscription = Subscription(
            full.topic, selector_of(selector), member.instance.clock.wall_ms()
        )
        return await member.puller.pull(
            full,
            subscription,
            offset,
            count_max=count_max,
            suspend_s=wait,
            timeout_s=wait + PULL_TIMEOUT_S if timeout is None else timeout,
            sends_expression=True,
        )

    async def send_back(
        self, message: ReceivedMessage, delay_level: int = 0, *, reason: str = ""
    ) -> None:
        """Have a message come again, later, in the group's `retry_topic`.

        `delay_level` 0 lets the broker choose by how often it was sent back (10 s, 30 s, 1 min …),
        1 to 18 are levels as in Message, -1 makes it a dead letter at once, which keeps the
        `reason`. Raises RequestFailed when the broker refuses.
        """
        await self._running().sending_back.ask_broker(message, delay_level, reason)

    # --- names ---

    def _full(self, queue: MessageQueue) -> MessageQueue:
        namespace = self._settings.namespace
        if not namespace:
            return queue
        return msgspec.structs.replace(queue, topic=wrap_namespace(namespace, queue.topic))

    def _pulled(self, queue: MessageQueue) -> PulledQueue:
        pulled = self._running().queues.table.get(self._full(queue))
        if pulled is None:
            raise ClientStateError(
                f"{queue} is not one of this consumer's queues now; see assignment()"
            )
        return pulled
