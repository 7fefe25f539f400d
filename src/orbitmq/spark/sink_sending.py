"""Sends a task's requests, several at a time, and knows what became of each.

In: Requests, from the thread that reads the rows. Out: all of them stored when `flush` returns, or
SinkFailed with topic, broker, queue, rows and what to change.

Rules:
1. At most `requestsInFlight` wait for answers. Of those to a queue that rows have chosen only one
   does: original brokers have several threads, and a failed one must not be overtaken.
2. What was certainly not stored is sent again, after a growing pause, to another queue if any will
   do: no connection, no route, flow control, and the codes that the client's own producer retries.
3. When nobody knows whether it was stored, `at-least-once` sends it again. With a ledger
   (`idempotent`) the request waits until what is on the way has arrived, looks up which rows are
   stored, and sends the others.
4. After a failure nothing more is sent.
"""

import asyncio
import logging
from collections import deque
from concurrent.futures import Future
from typing import Protocol

from orbitmq.client.instance import Instance
from orbitmq.client.queue_choice import Turns
from orbitmq.client.remote import failure_of, request
from orbitmq.client.send_result import SEND_OK, STATUS_OF
from orbitmq.errors import MQError, RequestFailed, RouteNotFound
from orbitmq.spark.cluster import Cluster
from orbitmq.spark.data_loss import name_of
from orbitmq.spark.sink_options import SinkOptions
from orbitmq.spark.sink_patience import PAUSE_FIRST_S, PAUSE_MAX_S, UNKNOWN, may_pass
from orbitmq.spark.sink_requests import Request
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.fields import read_header
from orbitmq.wire.headers_client import (
    GetMaxOffset,
    SendMessage,
    SendMessageAnswer,
    write_send,
)
from orbitmq.wire.names import TEMPLATE_TOPIC
from orbitmq.wire.properties import TIMER_DELIVER_MS
from orbitmq.world.chance import SystemChance
from orbitmq.world.clock import SystemClock

log = logging.getLogger(__name__)

VERSION_OF_TIMERS = 413
"""5.0.0, as brokers write it into the headers of their answers."""


class SinkFailed(MQError):
    """Rows could not be written; the text says where, why, and what to change."""


class StoredRows(Protocol):
    """Who knows which rows of this task are stored in a topic by now."""

    async def stored(self, topic: str) -> frozenset[int]:
        """Look again, and give their numbers."""
        ...


class Outbox:
    """The requests of one task that are on their way. Used by one thread."""

    def __init__(
        self, cluster: Cluster, options: SinkOptions, ledger: StoredRows | None = None
    ) -> None:
        self.ends: dict[MessageQueue, int] = {}
        """The offset behind the last row of this task in each queue."""
        self._cluster = cluster
        self._options = options
        self._ledger = ledger
        self._clock = SystemClock()
        self._turns: dict[str, Turns] = {}
        self._places: dict[MessageQueue, asyncio.Lock] = {}
        self._flying: deque[Future[None]] = deque()
        self._has_failed = False

    def put(self, request: Request) -> None:
        """Send a request, when fewer are in flight; raises the failure of an earlier one."""
        while len(self._flying) >= self._options.requests_in_flight:
            self._land()
        self._flying.append(self._cluster.submit(self._deliver(request)))

    def flush(self) -> None:
        """Return when all of them are stored; raises the first failure."""
        while self._flying:
            self._land()

    def abandon(self) -> None:
        """Send nothing more, and return when nothing is sent any more."""
        self._has_failed = True
        for each in self._flying:
            each.cancel()
        self._flying.clear()
        self._cluster.wait(asyncio.sleep(0))  # the loop has cancelled them before

    def _land(self) -> None:
        self._flying[0].result()
        self._flying.popleft()

    # --- on the loop ---

    async def _deliver(self, request: Request) -> None:
        if request.queue is None:
            await self._attempts(request)
            return
        async with self._places.setdefault(request.queue, asyncio.Lock()):
            await self._attempts(request)

    async def _attempts(self, request: Request) -> None:
        """Send a request until it is stored (rules 2 and 3)."""
        left: Request | None = request
        pause_s = PAUSE_FIRST_S
        for retries_left in reversed(range(self._options.retries + 1)):
            if self._has_failed or left is None:
                return
            target = request.queue
            try:
                target = target or await self._next_queue(request.topic)
                await self._send(left, target)
                return
            except MQError as error:
                if not retries_left or not may_pass(error):
                    self._has_failed = True
                    raise _failure(request, target, error) from error
                log.info("rows %s are sent again: %s", _told_rows(request), error)
                if isinstance(error, UNKNOWN) and self._ledger is not None:
                    left = await self._left(left, self._ledger)
                else:
                    await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
            await self._refresh(request.topic)

    async def _left(self, request: Request, ledger: StoredRows) -> Request | None:
        """Return what is not stored of a request that got no answer; None: all is."""
        await asyncio.sleep(self._options.fence_ms / 1000)
        stored = await ledger.stored(request.topic)
        if stored.issuperset(request.numbers):
            return None
        return request.without(stored)

    async def _next_queue(self, topic: str) -> MessageQueue:
        queues = await publish_queues(await self._cluster.instance(), topic, self._options)
        turns = self._turns.get(topic)
        if turns is None:
            turns = self._turns[topic] = Turns(SystemChance())
        return turns.next(queues)

    async def _refresh(self, topic: str) -> None:
        """Ask for the route again; what was known stays in use when there is no newer."""
        try:
            await (await self._cluster.instance()).routes.refresh(topic)
        except MQError as error:
            log.debug("the route of topic %s was not renewed: %s", topic, error)

    async def _send(self, sent: Request, queue: MessageQueue) -> None:
        instance = await self._cluster.instance()
        address = await instance.routes.master_address(queue)
        if TIMER_DELIVER_MS in sent.properties:
            await _check_timers(instance, address, queue)
        timeout_s = self._options.send_timeout_ms / 1000
        answer = await instance.remote.call(address, self._command(sent, queue), timeout_s)
        status = STATUS_OF.get(answer.code)
        if status is None:
            raise failure_of(answer)
        if status is not SEND_OK:
            log.warning("%s has stored rows, but says %s", name_of(queue), status.value)
        if not sent.is_timed:
            self._note(sent, queue, answer)
        route = instance.routes.known(sent.topic)
        if route is not None and route.is_template:
            await self._refresh(sent.topic)

    def _note(self, request: Request, queue: MessageQueue, answer: Command) -> None:
        found = read_header(SendMessageAnswer, answer.fields)
        place = MessageQueue(queue.topic, queue.broker_name, found.queue_id)
        end = found.queue_offset + len(request.numbers)
        self.ends[place] = max(end, self.ends.get(place, 0))

    def _command(self, sent: Request, queue: MessageQueue) -> Command:
        code = RequestCode.SEND_BATCH_MESSAGE if sent.is_batch else RequestCode.SEND_MESSAGE_V2
        header = SendMessage(
            producer_group=self._cluster.wrap(self._options.producer_group),
            topic=sent.topic,
            default_topic=TEMPLATE_TOPIC,
            default_topic_queue_count=self._options.new_topic_queues,
            queue_id=queue.queue_id,
            sys_flag=sent.sys_flag,
            born_ms=self._clock.wall_ms(),
            flag=sent.flag,
            properties=sent.properties,
            batch=sent.is_batch,
        )
        command = request(code, body=sent.body)
        command.fields = write_send(code, header)
        return command


async def publish_queues(
    instance: Instance, topic: str, options: SinkOptions
) -> tuple[MessageQueue, ...]:
    """The queues of a topic that can be written to; raises RouteNotFound that says why not."""
    route = await instance.routes.find(topic, queue_count=options.new_topic_queues)
    if not route.publish_queues:
        instance.routes.forget(topic)
        raise RouteNotFound(
            topic,
            instance.name_servers.addresses,
            "none of its brokers takes messages: there is no master, or it may not be written",
            "start a master, or give the topic the permission to write",
        )
    return route.publish_queues


async def _check_timers(instance: Instance, address: str, queue: MessageQueue) -> None:
    """Raise RequestFailed when a broker would deliver at once what has a time."""
    header = GetMaxOffset(topic=queue.topic, queue_id=queue.queue_id)
    asked = request(RequestCode.GET_MAX_OFFSET, header)
    answer = await instance.remote.call(address, asked, instance.settings.request_timeout_s)
    if answer.version < VERSION_OF_TIMERS:
        raise RequestFailed(
            0,
            f"broker {queue.broker_name} is older than 5.0 and knows no delivery times; use the"
            " column delayTimeLevel",
        )


def _failure(failed: Request, queue: MessageQueue | None, error: MQError) -> SinkFailed:
    where = name_of(queue) if queue is not None else f"topic {failed.topic}"
    state = "may be stored or not" if isinstance(error, UNKNOWN) else "are not stored"
    return SinkFailed(f"rows {_told_rows(failed)} of this task {state} in {where}: {error}")


def _told_rows(request: Request) -> str:
    first, last = request.numbers[0], request.numbers[-1]
    return str(first) if first == last else f"{first} to {last}"
