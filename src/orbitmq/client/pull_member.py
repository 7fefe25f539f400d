"""A running pull consumer, as its instance and brokers see it: what it is made of, start to end.

In: settings, subscriptions, requests of brokers. Out: heartbeats, shares, commits by time.

Rules:
1. Brokers know of the consumer before it asks who the group's members are.
2. Offsets are stored by themselves only if the settings say so; a reset by an administrator is
   always stored.
3. At the end pulls stop first, then offsets are stored, then the group is told.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping

from orbitmq.client.instance import Instance, every
from orbitmq.client.offset_stores import BrokerOffsets, FileOffsets, OffsetStore
from orbitmq.client.pull_queues import PullQueues
from orbitmq.client.pull_settings import PullConsumerSettings
from orbitmq.client.pull_sharing import PullSharing
from orbitmq.client.pulling import Puller
from orbitmq.client.running_info import CLIENT_VERSION, RunningInfo
from orbitmq.client.sending_back import SendingBack
from orbitmq.client.subscription_checks import check_expression
from orbitmq.client.subscriptions import Subscription
from orbitmq.errors import RequestFailed, RouteNotFound
from orbitmq.wire.bodies_client import ConsumerData, ConsumeType, MessageQueue
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.fastjson import write_json
from orbitmq.wire.record import Record

log = logging.getLogger(__name__)

QueuesChanged = Callable[[str, list[MessageQueue]], None]


class PullMember:
    """One pull consumer between its start and its end."""

    def __init__(
        self,
        instance: Instance,
        group: str,
        settings: PullConsumerSettings,
        subscriptions: dict[str, Subscription],
    ) -> None:
        self.group = group
        self.subscriptions = subscriptions
        self.instance = instance
        self.puller = Puller(instance, group, is_lite=True)
        self.store = settings.offset_store or _own_store(instance, group, settings)
        self.queues = PullQueues(instance, self.puller, self.store, settings)
        self._sharing = PullSharing(instance, group, settings, subscriptions, self.queues)
        self.sending_back = SendingBack(
            instance, group, settings.max_reconsume_times, unit_mode=settings.unit_mode
        )
        self._settings = settings
        self._tasks: list[asyncio.Task[None]] = []
        self._watched: dict[str, tuple[set[MessageQueue], list[QueuesChanged]]] = {}
        self._start_ms = instance.clock.wall_ms()
        self.is_wanted: Callable[[], bool] = lambda: True
        """Whether a start that waits is to go on."""

    # --- life ---

    async def start(self) -> None:
        """Join the group and begin."""
        self.instance.add_consumer(self)
        self.instance.routes.watch(self._route_changed)
        await self.store.load()
        for subscription in list(self.subscriptions.values()):
            await self.check(subscription, self._settings.start_wait_s)
        await self.instance.heartbeat()
        is_complete = await self._sharing.look()
        self._tasks.append(self.instance.spawn(self._sharing.run(is_complete=is_complete)))
        if self._settings.auto_commit:
            beat = every(self._settings.commit_interval_s, self.queues.store_by_time)
            self._tasks.append(self.instance.spawn(beat))

    async def check(self, subscription: Subscription, wait_s: float = 0.0) -> None:
        """Find a topic's route, and have a broker check the expression if it is SQL.

        Raises RequestFailed when it is refused, ConnectFailed when no name server answers within
        `wait_s`.
        """
        with contextlib.suppress(RouteNotFound):  # sharing looks again, and says so
            await self.instance.find_route(subscription.topic, wait_s, self.is_wanted)
        await check_expression(self.instance, self.group, subscription)

    async def look(self) -> None:
        """Look now which queues are ours."""
        await self._sharing.look()

    async def close(self, *, consumes_last: bool) -> None:
        """End; `consumes_last`: what was handed out last counts as consumed."""
        for task in self._tasks:
            task.cancel()
        try:
            if self._tasks:
                await asyncio.wait(self._tasks)
            await self.queues.close(consumes_last=consumes_last)
        finally:
            self.instance.routes.unwatch(self._route_changed)
            await self.instance.remove_consumer(self)

    # --- routes ---

    async def watch(self, topic: str, changed: QueuesChanged) -> None:
        """Call `changed` whenever the topic has other queues than before."""
        _, listeners = self._watched.setdefault(topic, (set(), []))
        with contextlib.suppress(RouteNotFound):
            await self.instance.routes.find(topic)
        if not listeners:
            self._watched[topic] = self._queues_now(topic), listeners
        listeners.append(changed)

    def _queues_now(self, topic: str) -> set[MessageQueue]:
        route = self.instance.routes.known(topic)
        return set(route.subscribe_queues) if route is not None else set()

    def _route_changed(self, topic: str) -> None:
        if topic in self.subscriptions:
            self._sharing.soon()
        before, listeners = self._watched.get(topic, (set(), []))
        now = self._queues_now(topic)
        if not listeners or now == before:
            return
        self._watched[topic] = now, listeners
        for listener in listeners:
            try:
                listener(topic, sorted(now))
            except Exception:  # the program's own
                log.exception("a listener for the queues of %s failed", topic)

    # --- what the instance and brokers ask ---

    def topics(self) -> Collection[str]:
        """Return the topics whose routes it needs."""
        assigned = {queue.topic for queue in self.queues.table}
        return {*self.subscriptions, *assigned, *self._watched}

    def heartbeat(self) -> ConsumerData:
        """Return what a heartbeat says of it."""
        return ConsumerData(
            group_name=self.group,
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            message_model=self._settings.message_model,
            consume_from_where=self._settings.from_where,
            subscription_data_set=[each.data() for each in self.subscriptions.values()],
            unit_mode=self._settings.unit_mode,
        )

    def rebalance_soon(self) -> None:
        """Look at once who has which queue."""
        self._sharing.soon()

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at these offsets (220)."""
        table = self.queues.table
        ours = {queue: offset for queue, offset in offsets.items() if queue in table}
        log.info(
            "offsets of group %s in topic %s are reset: %d queues", self.group, topic, len(ours)
        )
        for queue, offset in ours.items():
            await self.queues.restart(table[queue], offset)
        await self.queues.store_offsets(ours)

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Return how far it has come (221)."""
        return {
            queue: pulled.done
            for queue, pulled in self.queues.table.items()
            if queue.topic == topic and pulled.done is not None
        }

    def running_info(self) -> bytes:
        """Return the body that answers 307; a pull consumer has no figures, as in the original."""
        properties = {
            "PROP_CONSUME_TYPE": ConsumeType.CONSUME_ACTIVELY.name,
            "PROP_CONSUMER_START_TIMESTAMP": str(self._start_ms),
            "PROP_NAMESERVER_ADDR": ";".join(self.instance.name_servers.addresses),
            "PROP_CONSUMEORDERLY": "false",
            "PROP_THREADPOOL_CORE_SIZE": "0",
            "PROP_CLIENT_VERSION": CLIENT_VERSION,
        }
        subscriptions = [each.data() for each in self.subscriptions.values()]
        info = RunningInfo(
            properties=properties, subscription_set=subscriptions, mq_table={}, status_table={}
        )
        return write_json(info, standard=False)

    async def consume_directly(self, record: Record, broker_name: str) -> bytes:
        """Refuse: there is no handler to give it to (309)."""
        raise RequestFailed(
            ResponseCode.SYSTEM_ERROR,
            f"group {self.group} is a pull consumer here; it has no handler for message "
            f"{record.queue_offset} of {record.topic} at {broker_name}",
        )


def _own_store(instance: Instance, group: str, settings: PullConsumerSettings) -> OffsetStore:
    if settings.is_broadcasting:
        return FileOffsets(instance.client_id, group)
    return BrokerOffsets(instance, group)
