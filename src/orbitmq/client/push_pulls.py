"""The pulls of a push consumer: for each of its queues one task that asks for more, and more.

In: process queues. Out: messages for the handlers, and offsets that travel with the requests.

Rules:
1. A queue is not pulled while the consumer is suspended, while too much of it is in hand (see the
   settings), or, if it is orderly, while its lock has run out.
2. A broker holds a pull for HOLD_S when there is nothing. After an error the queue is pulled again
   a second later; trouble with a broker is told once, and once when it is over.
3. An offset that the queue does not have is put right: what is in hand is left off, and the queue
   begins again at the offset that the broker gives.
4. Pulls use a version of the subscription that brokers have heard of (see `tell_brokers`).
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol

from orbitmq.client.committing import Commits
from orbitmq.client.figures import Figures
from orbitmq.client.instance import Instance
from orbitmq.client.message import ReceivedMessage
from orbitmq.client.process_queue import ProcessQueue, Room
from orbitmq.client.pulling import Puller, PullResult, PullStatus
from orbitmq.client.push_settings import PushConsumerSettings
from orbitmq.client.subscriptions import Subscription
from orbitmq.errors import MQError, RequestFailed
from orbitmq.wire.codes import ResponseCode

log = logging.getLogger(__name__)

HOLD_S = 15.0
PULL_TIMEOUT_S = 30.0
TROUBLE_S = 1.0
UNKNOWN_S = 0.2
"""The pause when a broker does not know our subscription yet: a heartbeat is on its way."""
UNKNOWN_COUNT = 10
"""After so many such answers we do not wait for the next heartbeat, but send one."""
UNLOCKED_S = 0.1
QUICK_S = 0.05
QUICK_COUNT_MAX = 10
"""After so many empty answers that came at once the queue is pulled more slowly."""
SLOW_S = 0.1

_UNKNOWN = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.FILTER_DATA_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_LATEST,
    }
)


class Consumption(Protocol):
    """Where pulled messages go."""

    def take(self, process_queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Have messages consumed."""
        ...

    def may_pull(self, process_queue: ProcessQueue) -> bool:
        """Whether more messages of the queue can be used now."""
        ...


class OffsetMoved(Protocol):
    """Called with a queue and the offset at which it goes on (rule 3)."""

    def __call__(self, process_queue: ProcessQueue, offset: int) -> None:
        """Put the queue right."""
        ...


class PushPulls:
    """The pulls of one consumer."""

    def __init__(
        self,
        instance: Instance,
        puller: Puller,
        settings: PushConsumerSettings,
        commits: Commits,
        figures: Figures,
    ) -> None:
        self.room = Room(
            settings.queue_messages_max,
            settings.queue_bytes_max,
            None if settings.is_orderly else settings.queue_span_max,
        )
        self.resumed = asyncio.Event()
        """Not set while the consumer is suspended."""
        self.resumed.set()
        self.consumption: Consumption | None = None
        self.offset_moved: OffsetMoved | None = None
        self._instance = instance
        self._puller = puller
        self._settings = settings
        self._commits = commits
        self._figures = figures
        self._known: dict[str, Subscription] = {}
        self._troubled: dict[tuple[str, str], str] = {}
        self._unknown_count = 0

    async def tell_brokers(self, subscriptions: Mapping[str, Subscription]) -> None:
        """Send heartbeats, and pull from then on by what they said."""
        told = {topic: each.version for topic, each in subscriptions.items()}
        for topic, each in subscriptions.items():
            known = self._known.get(topic)
            if known is None:
                known = self._known[topic] = Subscription(topic, each.selector, 0)
            if known.selector != each.selector:
                # A pull that a broker holds will be answered by the new selector already.
                version = known.version
                known.change(each.selector, version)
                known.version = version
        await self._instance.heartbeat()
        for topic, version in told.items():
            self._known[topic].version = max(version, self._known[topic].version)

    def resize(self, queue_count: int) -> None:
        """Divide the limits of topics by the number of queues."""
        settings = self._settings
        if queue_count and settings.topic_messages_max is not None:
            self.room.count_max = max(1, settings.topic_messages_max // queue_count)
        if queue_count and settings.topic_bytes_max is not None:
            self.room.bytes_max = max(1, settings.topic_bytes_max // queue_count)

    def start(self, process_queue: ProcessQueue) -> None:
        """Pull a queue until it is dropped."""
        loop = self._instance.loop
        process_queue.puller = loop.create_task(self._run(process_queue))

    async def _run(self, process_queue: ProcessQueue) -> None:
        quick_count = 0
        while not process_queue.is_dropped:
            try:
                await self._wait_turn(process_queue)
                is_quick = await self._pull(process_queue)
                quick_count = quick_count + 1 if is_quick else 0
                pause_s = SLOW_S if quick_count > QUICK_COUNT_MAX else 0.0
            except MQError as error:
                pause_s = self._failed(process_queue, error)
            except Exception:  # a filter hook of the program's own, or a bug: the queue goes on
                log.exception("pulling %s failed; it is tried again", process_queue.queue)
                pause_s = TROUBLE_S
            if pause_s:
                await asyncio.sleep(pause_s)

    async def _wait_turn(self, process_queue: ProcessQueue) -> None:
        """Return when the queue may be pulled (rule 1)."""
        while True:
            if not self.resumed.is_set():
                await self.resumed.wait()
            if not process_queue.has_room(self.room):
                await process_queue.wait_room(self.room)
            consumption = self.consumption
            if consumption is not None and consumption.may_pull(process_queue):
                if self.resumed.is_set():
                    return
            else:
                await asyncio.sleep(UNLOCKED_S)

    async def _pull(self, process_queue: ProcessQueue) -> bool:
        """Pull once; give whether an empty answer came at once."""
        queue = process_queue.queue
        subscription = None if process_queue.is_dropped else self._known.get(queue.topic)
        if subscription is None:
            await asyncio.sleep(UNKNOWN_S)
            return False
        clock = self._instance.clock
        process_queue.pulled_s = asked_s = clock.monotonic_s()
        result = await self._puller.pull(
            queue,
            subscription,
            process_queue.next_offset,
            count_max=self._settings.pull_batch_size,
            commit_offset=self._commits.with_pull(process_queue),
            suspend_s=HOLD_S,
            timeout_s=PULL_TIMEOUT_S,
            sends_expression=self._settings.sends_expression,
        )
        took_s = clock.monotonic_s() - asked_s
        if self._troubled:
            self._well(process_queue)
        if process_queue.is_dropped:
            return False
        self._absorb(process_queue, result)
        if result.messages:
            self._figures.pulled(queue.topic, len(result.messages), took_s)
            if self._settings.pull_interval_s:
                await asyncio.sleep(self._settings.pull_interval_s)
        return result.status is PullStatus.NO_NEW_MSG and took_s < QUICK_S

    def _absorb(self, process_queue: ProcessQueue, result: PullResult) -> None:
        if result.status is PullStatus.OFFSET_ILLEGAL:
            log.warning(
                "%s has no offset %d (any more); going on at %d",
                process_queue.queue,
                process_queue.next_offset,
                result.next_offset,
            )
            if self.offset_moved is not None:
                self.offset_moved(process_queue, result.next_offset)
            return
        if result.messages and self.consumption is not None:
            self.consumption.take(process_queue, result.messages)
        process_queue.next_offset = result.next_offset
        process_queue.is_known = True

    # --- trouble ---

    def _failed(self, process_queue: ProcessQueue, error: MQError) -> float:
        """Tell of an error, once; return how long to pause."""
        queue = process_queue.queue
        if isinstance(error, RequestFailed) and error.code in _UNKNOWN:
            log.debug("%s: the broker does not know our subscription yet: %s", queue, error)
            self._unknown_count += 1
            if self._unknown_count % UNKNOWN_COUNT == 0:
                self._instance.spawn(self._introduce())
            return UNKNOWN_S
        key = (queue.broker_name, queue.topic)
        if key not in self._troubled:
            self._troubled[key] = str(error)
            log.warning(
                "topic %s cannot be pulled from broker %s for now; trying again: %s",
                queue.topic,
                queue.broker_name,
                error,
            )
        return TROUBLE_S

    async def _introduce(self) -> None:
        await self._instance.heartbeat()

    def _well(self, process_queue: ProcessQueue) -> None:
        queue = process_queue.queue
        if self._troubled.pop((queue.broker_name, queue.topic), None) is not None:
            log.info("topic %s is pulled from broker %s again", queue.topic, queue.broker_name)
