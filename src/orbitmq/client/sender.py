"""A producer's engine: attempts, retries, and how much may be in flight.

In: Sendings, ready but for queue and connection. Out: each of them settled, once: with a SendResult
or with the error that says whether the message may be stored.

Rules:
1. All attempts of a message share its time-out. After a failed one `send` goes to another broker,
   if there is one (P-1); `submit` stays with its queue, and so with its broker (C-179). The
   original's manuals say so too; its clients choose again, and mostly another broker.
2. `send` tries again when nothing was sent, no answer came, or the broker answered with one of
   `RETRY_CODES`; `submit` when nothing was sent or no answer came, an answer is final (P-12). Flow
   control is never answered by another attempt: the cluster is full. A message whose queue was
   chosen by key, selector or caller has one attempt: another queue would break its order.
3. SendFailed and BrokerBusy: no broker has it. SendUnknown: an attempt got no answer, so a broker
   may have it.
4. A broker that cannot be reached has the topic's route asked for again, once a second at most.
5. When no other broker is left, attempts are spread over the time-out: one may restart meanwhile.
"""

import asyncio
import logging
from collections import deque

from orbitmq.client.handover import Handover
from orbitmq.client.instance import Instance
from orbitmq.client.producer_settings import ProducerSettings
from orbitmq.client.publication import Publication
from orbitmq.client.queue_choice import Faults, QueueSelector
from orbitmq.client.remote import failure_of
from orbitmq.client.send_hooks import SendContext, SendHook, SendMode, run_hooks
from orbitmq.client.send_result import SEND_OK, SendResult
from orbitmq.client.sending import Sending
from orbitmq.client.waits import Waits
from orbitmq.errors import (
    ArgumentError,
    BrokerBusy,
    BrokerNotFound,
    ClientStateError,
    ConnectFailed,
    LimitExceeded,
    MQError,
    OutcomeUnknown,
    RemoteProtocolError,
    RequestFailed,
    RouteNotFound,
    SendFailed,
    SendUnknown,
)
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command

log = logging.getLogger(__name__)

RETRY_CODES = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)
ROUTE_AGAIN_S = 1.0
LAST_SHARE = 0.5
"""Of the time between two attempts, what the last one keeps for itself (rule 5)."""
UNKNOWN = (OutcomeUnknown, RemoteProtocolError)
"""An answer that cannot be read is as good as none."""
ONEWAY_OPAQUE = 2**31 - 1
"""The number of requests that get no answer: a connection's own begin at 1."""


class Sender:
    """Sends for one producer."""

    def __init__(
        self, instance: Instance, settings: ProducerSettings, hooks: list[SendHook]
    ) -> None:
        self.loop = instance.loop
        self.remote = instance.remote
        self.clock = instance.clock
        self.chance = instance.chance
        self.faults: Faults | None = None
        if settings.avoids_slow_brokers:
            self.faults = Faults(self.loop.time, instance.chance)
        self.count = self.size_bytes = 0
        """What is in flight."""
        self._instance = instance
        self._settings = settings
        self._hooks = hooks
        self._routing = Waits(self.loop)
        self._dialling = Waits(self.loop)
        self._pausing: dict[Sending, asyncio.TimerHandle] = {}
        self._wanting: deque[asyncio.Future[None]] = deque()
        self._idle = asyncio.Event()
        self.handover = Handover(self)
        """What other threads send, until the loop takes it."""
        self._asked_again_s: dict[str, float] = {}
        self._is_closed = False

    # --- how much is in flight ---

    @property
    def has_room(self) -> bool:
        """Whether one more may be in flight."""
        settings, handover = self._settings, self.handover
        return (
            self.count + handover.count < settings.sends_in_flight_max
            and self.size_bytes + handover.size_bytes < settings.bytes_in_flight_max
        )

    async def wait_room(self) -> None:
        """Return when one more may be in flight."""
        while not self.has_room:
            turn = self.loop.create_future()
            self._wanting.append(turn)
            try:
                await turn
            finally:
                self.loop.call_soon(self._tell_room)  # there may be more, or we may not use ours

    def _tell_room(self) -> None:
        while self._wanting and self.has_room:
            turn = self._wanting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    async def wait_idle(self) -> None:
        """Return when nothing is in flight."""
        self.handover.launch()
        while self.count or self.handover.count:
            self._idle.clear()
            await self._idle.wait()

    def refuse_more(self) -> None:
        """Raise LimitExceeded for a `submit` that finds no room."""
        settings = self._settings
        count = self.count + self.handover.count
        size_bytes = self.size_bytes + self.handover.size_bytes
        raise LimitExceeded(
            f"{count} sends with {size_bytes} bytes are in flight, limits "
            f"{settings.sends_in_flight_max} (sends_in_flight_max) and "
            f"{settings.bytes_in_flight_max} (bytes_in_flight_max): wait for the futures of "
            "earlier ones, or for `producer.room()` before each submit",
            *(
                (settings.sends_in_flight_max, "sends_in_flight_max")
                if count >= settings.sends_in_flight_max
                else (settings.bytes_in_flight_max, "bytes_in_flight_max")
            ),
        )

    async def close(self) -> None:
        """Wait for what is in flight, within the limit; then refuse what still waits."""
        self.handover.close()
        try:
            async with asyncio.timeout(self._settings.close_timeout_s):
                await self.wait_idle()
        except TimeoutError:
            log.warning("the producer closes with %d messages in flight", self.count)
        self._is_closed = True
        error = ClientStateError("the producer was closed before it could be sent")
        await self._routing.close(error)
        await self._dialling.close(error)
        for sending, timer in list(self._pausing.items()):
            timer.cancel()
            self._go_on(sending)

    async def wait_drained(self, sending: Sending) -> None:
        """Return when the broker that a one-way message went to keeps up with reading."""
        connection = self.remote.peer(sending.address).connection
        if connection is not None:
            await connection.wait_drained()

    # --- an attempt ---

    def launch(self, sending: Sending) -> None:
        """Begin; from here on the Sending is settled by its future."""
        self.count += 1
        self.size_bytes += len(sending.body)
        self.dispatch(sending)

    def dispatch(self, sending: Sending) -> None:
        """Make an attempt, now or when route and connection are there."""
        publication = sending.publication
        if not publication.queues or publication.topic in self._routing:
            self._wait_route(sending)
            return
        if not sending.is_fixed:
            self._choose(sending)
        elif sending.chooser is not None and not self._choose_own(sending, sending.chooser):
            return
        address = publication.addresses.get(sending.queue.broker_name)
        if address is None:
            self._look_again(sending)
            return
        sending.address = address
        self._go_out(sending)

    def admit(self, sending: Sending) -> None:
        """Go on behind a gate, to the queue that is chosen already if there is one."""
        if sending.address:
            self._go_out(sending)
        else:
            self.dispatch(sending)

    def _go_out(self, sending: Sending) -> None:
        address = sending.address
        peer = self.remote.peer(address)
        connection = peer.connection
        if connection is None or address in self._dialling:
            connect_s = self._settings.send_timeout_s
            self._dialling.add(address, sending, lambda: peer.connect(connect_s))
            return
        self._transmit(sending, connection)

    def _choose(self, sending: Sending) -> None:
        turns, queues = sending.publication.turns, sending.publication.queues
        failed_broker = None
        if sending.attempts:
            if sending.mode is SendMode.SUBMIT:
                return
            failed_broker = sending.attempts[-1][0]
        if self.faults is not None:
            sending.queue = self.faults.choose(turns, queues, failed_broker)
        elif failed_broker is not None:
            sending.queue = turns.next_elsewhere(queues, failed_broker)
        else:
            sending.queue = turns.next(queues)

    def _choose_own(self, sending: Sending, chooser: QueueSelector) -> bool:
        """Let a key or the program's selector choose; give False when that failed."""
        try:
            sending.queue = _checked(chooser(sending.publication.queues, sending.messages[0]))
            sending.chooser = None
        except Exception as error:  # a program's own code
            self.release(sending)
            _give(sending, error)
            return False
        return True

    def _transmit(self, sending: Sending, connection: Connection) -> None:
        if self._hooks:
            self._run_before(sending)
        if self.faults is not None:
            sending.began_s = self.loop.time()
        try:
            if sending.mode is SendMode.ONEWAY:
                connection.send_parts(sending.frame(ONEWAY_OPAQUE))
                self._settle(sending, None)
            else:
                connection.ask(sending)
        except LimitExceeded as error:
            self._attempt_failed(sending, error, may_retry=True)
        except Exception as error:  # of an RPC hook, or a frame that cannot be made
            self._attempt_failed(sending, error, may_retry=False)

    # --- routes ---

    def _wait_route(self, sending: Sending) -> None:
        publication = sending.publication
        sending.address = ""
        self._routing.add(publication.topic, sending, lambda: self.find_route(publication))

    async def find_route(self, publication: Publication) -> None:
        """Have a topic's queues; raises RouteNotFound, or ConnectFailed."""
        routes, topic = self._instance.routes, publication.topic
        known = routes.known(topic)
        if known is not None and not known.publish_queues:
            routes.forget(topic)
        route = await routes.find(topic, queue_count=self._settings.new_topic_queue_count)
        if not route.publish_queues:
            raise RouteNotFound(
                topic,
                self._instance.name_servers.addresses,
                "none of its brokers takes messages: there is no master, or it may not be written",
                "start a master, or give the topic the permission to write",
            )
        publication.take_route(route, uses_vip_channel=self._settings.use_vip_channel)

    def _look_again(self, sending: Sending) -> None:
        """Ask for the route once more: it has no address for the broker of a queue."""
        publication = sending.publication
        broker_name = sending.queue.broker_name
        if sending.has_looked_again:
            error = BrokerNotFound(broker_name, publication.public_topic)
            self._attempt_failed(sending, error, may_retry=True)
            return
        sending.has_looked_again, sending.address = True, ""
        self._routing.add(publication.topic, sending, lambda: self._refresh(publication))

    async def _refresh(self, publication: Publication) -> None:
        """Ask for a route again; what was known stays in use when there is no newer."""
        try:
            route = await self._instance.routes.refresh(publication.topic)
        except MQError as error:
            log.debug("the route of topic %s was not renewed: %s", publication.topic, error)
        else:
            publication.take_route(route, uses_vip_channel=self._settings.use_vip_channel)

    def _refresh_soon(self, publication: Publication) -> None:
        """Ask for a route again beside, for what comes next (rule 4)."""
        now_s, topic = self.loop.time(), publication.topic
        if now_s >= self._asked_again_s.get(topic, 0.0) + ROUTE_AGAIN_S and not self._is_closed:
            self._asked_again_s[topic] = now_s
            self._instance.spawn(self._refresh(publication))

    # --- how an attempt went (called by the Sending) ---

    def stored(self, sending: Sending, result: SendResult) -> None:
        """Take the word of a broker that it has the message."""
        if self.faults is not None:
            latency_s = self.loop.time() - sending.began_s
            self.faults.note(sending.queue.broker_name, latency_s)
        if result.status is not SEND_OK and self._wants_better(sending):
            self._run_after(sending, result, None)
            sending.result = result
            sending.attempts = [*(sending.attempts or ()), _not_ok(sending, result)]
            sending.retries_left -= 1
            self.dispatch(sending)
            return
        self._settle(sending, result)

    def _wants_better(self, sending: Sending) -> bool:
        """Whether a message that disk or slave have not got yet goes to another broker as well."""
        is_wanted = self._settings.retry_another_broker_when_not_stored
        return is_wanted and sending.mode is SendMode.SEND and self._may_go_on(sending)

    def refused(self, sending: Sending, answer: Command) -> None:
        """Take a broker's refusal."""
        is_worth_it = sending.mode is SendMode.SEND and answer.code in RETRY_CODES
        self._attempt_failed(sending, failure_of(answer), may_retry=is_worth_it)

    def unanswered(self, sending: Sending, error: Exception) -> None:
        """Learn that nobody knows whether the broker has the message."""
        self._refresh_soon(sending.publication)
        self._attempt_failed(sending, error, may_retry=True)

    def spoiled(self, sending: Sending, error: Exception) -> None:
        """Take what an RPC hook raised at an answer: that is what the program gets."""
        self._run_after(sending, None, error)
        self.release(sending)
        _give(sending, error)

    def not_sent(self, sending: Sending, error: Exception | None) -> None:
        """Learn that there was no route or no connection; `error` None: not in time."""
        if sending.address:
            if error is None:
                text = f"no connection to {sending.address} within {sending.timeout_s:g} s"
                error = ConnectFailed(text, sending.address)
            self._refresh_soon(sending.publication)
            self._attempt_failed(sending, error, may_retry=True)
            return
        if error is None:
            topic = sending.publication.public_topic
            asked = ", ".join(self._instance.name_servers.addresses)
            error = ConnectFailed(
                f"no route for topic {topic} within {sending.timeout_s:g} s: no answer from "
                f"{asked}; is it a name server that runs there?"
            )
        self.release(sending)
        _give(sending, _outcome(sending) if sending.attempts else error)

    # --- the end of an attempt, and of all ---

    def _attempt_failed(self, sending: Sending, error: Exception, *, may_retry: bool) -> None:
        broker_name = sending.queue.broker_name
        if self.faults is not None:
            latency_s = self.loop.time() - sending.began_s
            self.faults.note(broker_name, latency_s, has_failed=True)
        self._run_after(sending, None, error)
        sending.attempts = [*(sending.attempts or ()), (broker_name, error)]
        if may_retry and self._may_go_on(sending):
            pause_s = self._pause_s(sending, error)
            sending.retries_left -= 1
            if pause_s:
                self._pausing[sending] = self.loop.call_later(pause_s, self._go_on, sending)
            else:
                self.dispatch(sending)
            return
        self._end(sending)

    def _end(self, sending: Sending) -> None:
        self.release(sending)
        _give(sending, _outcome(sending))

    def _pause_s(self, sending: Sending, error: Exception) -> float:
        """Return how long to wait before the next attempt (rule 5)."""
        if not isinstance(error, ConnectFailed):
            return 0.0
        tried = {broker for broker, _ in sending.attempts or ()}
        others = (queue for queue in sending.publication.queues if queue.broker_name not in tried)
        if sending.mode is not SendMode.SUBMIT and any(others):
            return 0.0
        left_s = sending.deadline_s - self.loop.time()
        return left_s / (sending.retries_left + LAST_SHARE)

    def _go_on(self, sending: Sending) -> None:
        """Make the next attempt after a pause, unless nobody waits for it any more."""
        del self._pausing[sending]
        if self._is_closed or sending.future.done():
            self._end(sending)
        else:
            self.dispatch(sending)

    def _may_go_on(self, sending: Sending) -> bool:
        return (
            sending.retries_left > 0
            and not sending.is_fixed
            and not self._is_closed
            and not sending.future.done()
            and self.loop.time() < sending.deadline_s
        )

    def _settle(self, sending: Sending, result: SendResult | None) -> None:
        if sending.context is not None:
            self._run_after(sending, result, None)
        self.release(sending)
        future = sending.future
        if not future.done():
            future.set_result(result)

    def release(self, sending: Sending) -> None:
        """Count a Sending no longer: it is settled, or nobody wants it."""
        self.count -= 1
        self.size_bytes -= len(sending.body)
        if self._wanting:
            self._tell_room()
        if not self.count:
            self._idle.set()

    # --- hooks ---

    def _run_before(self, sending: Sending) -> None:
        context = sending.context = SendContext(
            group=self._settings.group,
            mode=sending.mode,
            messages=sending.messages,
            queue=sending.queue,
            broker_address=sending.address,
            client_ip=self._instance.ip,
        )
        run_hooks([hook.before for hook in self._hooks], context)

    def _run_after(
        self, sending: Sending, result: SendResult | None, error: Exception | None
    ) -> None:
        context, sending.context = sending.context, None
        if context is not None:
            context.result, context.error = result, error
            run_hooks([hook.after for hook in self._hooks], context)


def _checked(queue: object) -> MessageQueue:
    """Return what a selector chose; raises ArgumentError when that is no queue."""
    if not isinstance(queue, MessageQueue):
        raise ArgumentError(
            f"the selector returned {queue!r:.60}; it must return one of the queues it was given",
            "selector",
        )
    return queue


def _not_ok(sending: Sending, result: SendResult) -> tuple[str, Exception]:
    error = RequestFailed(0, f"stored, but {result.status.value}")
    return sending.queue.broker_name, error


def _outcome(sending: Sending) -> SendResult | Exception:
    """Return the error that says whether a broker may have the message (rule 3), if none has."""
    if sending.result is not None:
        return sending.result
    attempts = sending.attempts or []
    topic = sending.publication.public_topic
    if any(isinstance(error, UNKNOWN) for _, error in attempts):
        return SendUnknown(topic, attempts)
    last = attempts[-1][1]
    return last if isinstance(last, BrokerBusy) else SendFailed(topic, attempts)


def _give(sending: Sending, outcome: SendResult | Exception) -> None:
    future = sending.future
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
