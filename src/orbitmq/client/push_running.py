"""A push consumer while it runs: its parts, put together, and what brokers ask of it.

In: settings, subscriptions, a handler. Out: messages consumed; a member of its instance.

Rules:
1. Start: routes, a check of SQL expressions at a broker, heartbeats, then queues. What was begun is
   undone when something fails.
2. Stop: no more pulls, handlers come to their end (within a limit), offsets are stored, locks given
   back, and only then brokers hear that this member leaves.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from orbitmq.client.committing import Commits
from orbitmq.client.concurrent import ConcurrentConsumption
from orbitmq.client.consume_hooks import ConsumeHook
from orbitmq.client.decoding import Decoder
from orbitmq.client.figures import Figures
from orbitmq.client.handling import (
    AsyncHandling,
    Calling,
    Handler,
    Handling,
    ThreadHandling,
    is_async_handler,
)
from orbitmq.client.instance import Instance, every
from orbitmq.client.iterating import Iteration
from orbitmq.client.offset_stores import BrokerOffsets, FileOffsets
from orbitmq.client.orderly import OrderlyConsumption
from orbitmq.client.outcomes import DeadLetter, Retry
from orbitmq.client.process_queue import Job, ProcessQueue
from orbitmq.client.pulling import FilterHook, Puller
from orbitmq.client.push_pulls import PushPulls
from orbitmq.client.push_settings import PushConsumerSettings
from orbitmq.client.queue_locks import RENEW_S
from orbitmq.client.rebalancing import Rebalancing
from orbitmq.client.running_info import (
    RESULT_LATER,
    RESULT_SUCCESS,
    RESULT_THROWN,
    DirectResult,
    Told,
)
from orbitmq.client.sending_back import SendingBack
from orbitmq.client.subscription_checks import check_expression
from orbitmq.client.subscriptions import Subscription
from orbitmq.errors import RouteNotFound
from orbitmq.wire.bodies_client import ConsumerData, ConsumeType, MessageQueue
from orbitmq.wire.fastjson import write_json
from orbitmq.wire.names import is_retry_topic, unwrap_namespace, wrap_namespace
from orbitmq.wire.record import Record

log = logging.getLogger(__name__)

RENEW_AGAIN_S = 2.0
"""So long after a broker did not answer its locks are asked for again."""
STUCK_LOOK_S = 30.0
THREADS_END_S = 1.0


class RunningPush:
    """One running push consumer (a ConsumerMember)."""

    def __init__(
        self,
        instance: Instance,
        settings: PushConsumerSettings,
        subscriptions: dict[str, Subscription],
    ) -> None:
        self.instance = instance
        self.settings = settings
        self.group = wrap_namespace(settings.namespace, settings.group)
        self.subscriptions = subscriptions
        self.figures = Figures(instance.clock)
        self.sending_back = SendingBack(
            instance, self.group, settings.reconsume_times_max, unit_mode=settings.unit_mode
        )
        store = settings.offset_store
        if store is None:
            store = (
                FileOffsets(instance.client_id, self.group)
                if settings.is_broadcasting
                else BrokerOffsets(instance, self.group)
            )
        self.commits = Commits(store, is_shared=not settings.is_broadcasting)
        self.rebalancing = Rebalancing(instance, self.group, settings, subscriptions, self.commits)
        self.puller = Puller(instance, self.group)
        self.pulls = PushPulls(instance, self.puller, settings, self.commits, self.figures)
        make = OrderlyConsumption if settings.is_orderly else ConcurrentConsumption
        self.consumption: OrderlyConsumption | ConcurrentConsumption = make(
            settings, self.sending_back, self.figures, instance.clock
        )
        self.iteration: Iteration | None = None
        self._handling: Handling | None = None
        self._told = Told(instance, settings, self.rebalancing, self.figures)
        self._tasks: list[asyncio.Task[None]] = []
        self._is_watching = False
        self.is_wanted: Callable[[], bool] = lambda: True
        """Whether a start that waits is to go on."""
        self._connect()

    def _connect(self) -> None:
        """Let the parts know each other."""
        self.pulls.consumption = self.consumption
        self.pulls.offset_moved = self._offset_moved
        self.rebalancing.begin = self.pulls.start
        self.rebalancing.forget = self.puller.forget
        self.rebalancing.changed = self._queues_changed
        self.rebalancing.dropped = self._queues_dropped

    # --- life ---

    async def start(
        self,
        handler: Handler | None,
        hooks: Sequence[ConsumeHook],
        filter_hooks: Sequence[FilterHook],
    ) -> None:
        """Begin to consume; raises MQError when it cannot."""
        self.puller.filter_hooks = list(filter_hooks)
        self._use(handler, hooks)
        await self.commits.store.load()
        self.instance.add_consumer(self)
        self.instance.routes.watch(self._route_changed)
        self._is_watching = True
        settings = self.settings
        for subscription in list(self.subscriptions.values()):
            await self.introduce(subscription, settings.start_wait_s)
        await self.pulls.tell_brokers(self.subscriptions)
        self._begin(self.rebalancing.run())
        self._every(settings.commit_interval_s, self._commit)
        self._every(min(settings.consume_timeout_s, STUCK_LOOK_S), self._return_stuck)
        if self.rebalancing.locks is not None:
            self._begin(self._renew_locks())

    def _use(self, handler: Handler | None, hooks: Sequence[ConsumeHook]) -> None:
        settings = self.settings
        calling = Calling(handler, settings, hooks, self.instance.clock)
        results = self.consumption.results
        if handler is None:
            self._handling = self.iteration = Iteration(calling, results)
        elif is_async_handler(handler):
            self._handling = AsyncHandling(calling)
        else:
            self._handling = ThreadHandling(calling, settings.consume_threads, results)
        self.consumption.use(self._handling)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(self.instance.loop.create_task(work))

    def _every(self, period_s: float, action: Callable[[], Awaitable[object]]) -> None:
        self._begin(every(period_s, action))

    async def introduce(self, subscription: Subscription, wait_s: float = 0.0) -> None:
        """Find a topic's route, and have a broker check the expression if it is SQL.

        A topic that does not exist yet is consumed as soon as it does. Raises MQError when no name
        server answers within `wait_s`, or the broker refuses the expression.
        """
        try:
            await self.instance.find_route(subscription.topic, wait_s, self.is_wanted)
        except RouteNotFound as error:
            if not is_retry_topic(subscription.topic):
                log.warning("%s. It is consumed as soon as it is there", error)
            return
        await check_expression(self.instance, self.group, subscription)

    async def close(self, *, is_failing: bool) -> None:
        """Come to an orderly end (rule 2); `is_failing`: an exception is under way."""
        is_finished = False
        try:
            await self._end_tasks()
            await self.rebalancing.stop()
            if self.iteration is not None:
                self.iteration.end(is_failing=is_failing)
            is_finished = await self._finish_handlers()
            await self.consumption.close()
            await self.rebalancing.close()
        finally:
            await self.rebalancing.stop()  # once more: a cancel may have come before it
            await self.consumption.close()
            if isinstance(self._handling, ThreadHandling):
                self._handling.close(THREADS_END_S if is_finished else 0.0)
            await self.leave()

    async def _finish_handlers(self) -> bool:
        """Wait for handlers at work; give whether all came to their end."""
        try:
            async with asyncio.timeout(self.settings.close_timeout_s):
                await self.consumption.stop()
        except TimeoutError:
            log.warning(
                "handlers of group %s were still at work after %g s (close_timeout_s); what they "
                "have comes again to another member",
                self.group,
                self.settings.close_timeout_s,
            )
            return False
        return True

    async def leave(self) -> None:
        """Let brokers and the instance know that this member is gone."""
        await self._end_tasks()
        if self._is_watching:
            self._is_watching = False
            self.instance.routes.unwatch(self._route_changed)
        await self.instance.remove_consumer(self)

    async def _end_tasks(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- what happens again and again ---

    async def _commit(self) -> None:
        await self.commits.commit(list(self.rebalancing.table.values()))

    async def _return_stuck(self) -> None:
        await self.consumption.return_stuck(list(self.rebalancing.table.values()))

    async def _renew_locks(self) -> None:
        while True:
            is_complete = False
            try:
                is_complete = await self.rebalancing.renew_locks()
            except Exception:  # of an RPC hook, or a bug: without locks nothing is consumed
                log.exception("locks of group %s could not be renewed for now", self.group)
            await asyncio.sleep(RENEW_S if is_complete else RENEW_AGAIN_S)

    # --- changes ---

    def _route_changed(self, topic: str) -> None:
        if topic in self.subscriptions:
            self.rebalancing.soon()

    def _offset_moved(self, process_queue: ProcessQueue, offset: int) -> None:
        process_queue.drop()  # at once: another pull would commit the offset that is wrong
        self.instance.spawn(self.rebalancing.go_on_at({process_queue.queue: offset}))

    def _queues_dropped(self) -> None:
        if self.iteration is not None:
            self.iteration.withdraw_dropped()

    def _queues_changed(
        self, topic: str, queues: list[MessageQueue], mine: list[MessageQueue]
    ) -> None:
        self.pulls.resize(len(self.rebalancing.table))
        self.instance.spawn(self.pulls.tell_brokers(self.subscriptions))
        listener = self.settings.queue_listener
        if listener is None or is_retry_topic(topic):
            return
        try:
            listener(unwrap_namespace(self.settings.namespace, topic), queues, mine)
        except Exception:  # the program's own
            log.exception("the queue listener failed; the queues are shared all the same")

    # --- what the instance and brokers ask (ConsumerMember) ---

    def topics(self) -> list[str]:
        """Return the topics whose routes it needs, its retry topic included."""
        return list(self.subscriptions)

    def heartbeat(self) -> ConsumerData:
        """Return what a heartbeat says of it."""
        return ConsumerData(
            group_name=self.group,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=self.settings.message_model,
            consume_from_where=self.settings.from_where,
            subscription_data_set=[each.data() for each in self.subscriptions.values()],
            unit_mode=self.settings.unit_mode,
        )

    def rebalance_soon(self) -> None:
        """Look at once who has which queue."""
        self.rebalancing.soon()

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at these offsets (220)."""
        log.info("offsets of group %s in topic %s are reset", self.group, topic)
        await self.rebalancing.go_on_at(
            {queue: offset for queue, offset in offsets.items() if queue.topic == topic}
        )

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Return how far it has come in the queues that it has (221)."""
        return {
            queue: each.progress
            for queue, each in self.rebalancing.table.items()
            if queue.topic == topic and each.progress is not None
        }

    def running_info(self) -> bytes:
        """Return the body that answers 307."""
        return self._told.running_info(self.subscriptions)

    async def consume_directly(self, record: Record, broker_name: str) -> bytes:
        """Consume one message now; return the body that answers 309."""
        clock = self.instance.clock
        queue = MessageQueue(record.topic, broker_name, record.queue_id)
        message = Decoder(queue, self.settings.namespace).message_of(record)
        job = Job(ProcessQueue(queue, record.queue_offset, clock.monotonic_s()), [message])
        begun_s = clock.monotonic_s()
        outcome = await self._handling.outcome(job) if self._handling is not None else Retry()
        result = RESULT_SUCCESS if outcome is None else RESULT_THROWN
        if isinstance(outcome, Retry | DeadLetter):
            result = RESULT_LATER
        answer = DirectResult(
            order=self.settings.is_orderly,
            consume_result=result,
            remark=repr(outcome) if result == RESULT_THROWN else None,
            spent_time_mills=round((clock.monotonic_s() - begun_s) * 1000),
        )
        return write_json(answer, standard=True)
