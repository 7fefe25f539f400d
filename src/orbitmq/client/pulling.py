"""Pulls: one request for the messages of one queue, and what came of it.

In: a queue, an offset, a subscription. Out: a PullResult with its messages, ready for a handler, or
a RawPull with its records as they came.

Rules:
1. A pull goes to the member of the broker that the last answer about the queue suggested, the
   master at first; when that member is gone, to the next one. A slave stores no offsets, so it gets
   none.
2. Messages are decompressed, compared with the subscription's tags again, seen by the filter hooks,
   and carry MIN_OFFSET and MAX_OFFSET of the queue; see `decoding`.
3. An answer whose offsets lie before the one that was asked for is reported as suspicious and used
   all the same: what it brings may have been consumed already.
4. "No messages now" is a status, not an error. Errors are those of `Remote.ask`, and a pull that
   failed may be made again: nothing is lost by it.
"""

import logging
from collections.abc import Callable
from enum import Enum
from typing import TypedDict, Unpack

import msgspec

from orbitmq.client.decoding import Decoder
from orbitmq.client.instance import Instance
from orbitmq.client.message import ReceivedMessage
from orbitmq.client.remote import request
from orbitmq.client.routes import MASTER_ID
from orbitmq.client.subscription_checks import refuse_old_broker
from orbitmq.client.subscriptions import Subscription
from orbitmq.errors import BrokerNotFound, ConnectFailed
from orbitmq.wire.bodies_client import TAG, MessageQueue
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.fields import read_header
from orbitmq.wire.headers_client import (
    PULL_COMMITS,
    PULL_HAS_SUBSCRIPTION,
    PULL_LITE,
    PULL_SUSPENDS,
    PullMessage,
    PullMessageAnswer,
)
from orbitmq.wire.names import TOOLS_GROUP

log = logging.getLogger(__name__)

PULL_COUNT_MAX = 32
PULL_TIMEOUT_S = 30.0


class PullStatus(Enum):
    """What came of a pull."""

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    """Nothing lies behind the offset yet."""
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    """Messages lie behind the offset, but none that the selector wants; go on at `next_offset`."""
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"
    """The queue has no such offset (any more); go on at `next_offset`."""


_STATUS_OF = {
    int(ResponseCode.SUCCESS): PullStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PullStatus.NO_NEW_MSG,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): PullStatus.NO_MATCHED_MSG,
    int(ResponseCode.PULL_OFFSET_MOVED): PullStatus.OFFSET_ILLEGAL,
}


class PullResult(msgspec.Struct):
    """What a pull brought. `messages` may be empty even if some were found: see Subscription."""

    status: PullStatus
    next_offset: int
    """Where the next pull goes on."""
    min_offset: int
    """The offset of the oldest message that the queue still has."""
    max_offset: int
    """The offset that the queue's next message will get."""
    messages: list[ReceivedMessage] = []


class RawPull(msgspec.Struct):
    """What a pull brought, with the stored records as they came: the tags are not compared."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    body: bytes = b""
    """Stored records, back to back."""


class PullOptions(TypedDict, total=False):
    """Keyword arguments of `Puller.pull`."""

    count_max: int
    """At most so many messages, 32 if not given; brokers have limits of their own."""
    bytes_max: int | None
    """At most so many bytes; brokers of 5.x know it."""
    is_bulk: bool
    """Take more at a time than a consumer does; only brokers of ours know it."""
    commit_offset: int | None
    """Have the broker store this offset of the group by the way."""
    suspend_s: float
    """Let the broker hold the request so long while there is nothing; 0: answer at once."""
    timeout_s: float
    """How long to wait for an answer, 30 s if not given; more than `suspend_s`."""
    sends_expression: bool
    """Send the selector along, instead of relying on the heartbeat's."""


FilterHook = Callable[[list[ReceivedMessage], MessageQueue], list[ReceivedMessage]]


class Puller:
    """Pulls for one consumer. `is_lite` marks pulls as the original's lite pull consumer does."""

    def __init__(self, instance: Instance, group: str, *, is_lite: bool = False) -> None:
        self.filter_hooks: list[FilterHook] = []
        """Each sees the messages of a pull and gives those that stay."""
        self._instance = instance
        self._group = group
        self._always = PULL_LITE if is_lite else 0
        self._namespace = instance.settings.namespace
        self._suggested: dict[MessageQueue, int] = {}
        self._decoders: dict[MessageQueue, Decoder] = {}

    async def pull(
        self,
        queue: MessageQueue,
        subscription: Subscription,
        offset: int,
        **options: Unpack[PullOptions],
    ) -> PullResult:
        """Ask for the messages of a queue from `offset` on.

        Raises RequestFailed when the broker refuses, ConnectFailed, RequestTimeout or
        ConnectionClosed when it does not answer, BrokerNotFound or RouteNotFound when nobody knows
        where it is, LocalProtocolError for SQL at a broker older than 4.1.0.
        """
        status, answer, found = await self._ask(queue, subscription, offset, options)
        result = PullResult(status, found.next_begin_offset, found.min_offset, found.max_offset)
        if status is PullStatus.FOUND:
            result.messages = self._messages(queue, subscription, answer.body, found)
            _report_old(queue, offset, result)
        return result

    async def pull_raw(
        self,
        queue: MessageQueue,
        subscription: Subscription,
        offset: int,
        **options: Unpack[PullOptions],
    ) -> RawPull:
        """Ask for the records of a queue from `offset` on, undecoded; the errors are `pull`'s."""
        status, answer, found = await self._ask(queue, subscription, offset, options)
        body = answer.body if status is PullStatus.FOUND else b""
        return RawPull(status, found.next_begin_offset, found.min_offset, found.max_offset, body)

    async def _ask(
        self, queue: MessageQueue, subscription: Subscription, offset: int, options: PullOptions
    ) -> tuple[PullStatus, Command, PullMessageAnswer]:
        broker_id, address = await self._member(queue)
        if subscription.selector.kind != TAG:
            refuse_old_broker(self._instance, address, queue.broker_name, subscription)
        header = self._header(queue, subscription, offset, options)
        if broker_id != MASTER_ID and header.sys_flag & PULL_COMMITS:
            header = msgspec.structs.replace(header, sys_flag=header.sys_flag & ~PULL_COMMITS)
        try:
            answer = await self._instance.remote.ask(
                address,
                request(RequestCode.PULL_MESSAGE, header),
                timeout_s=options.get("timeout_s", PULL_TIMEOUT_S),
                expected=_STATUS_OF,
            )
        except ConnectFailed:
            self._suggested.pop(queue, None)
            raise
        found = read_header(PullMessageAnswer, answer.fields)
        self._suggested[queue] = found.suggested_broker_id
        return _STATUS_OF[answer.code], answer, found

    def forget(self, queue: MessageQueue) -> None:
        """Forget what is known of a queue that is another member's now."""
        self._suggested.pop(queue, None)
        self._decoders.pop(queue, None)

    async def _member(self, queue: MessageQueue) -> tuple[int, str]:
        """Return id and address of the member to pull from (rule 1)."""
        routes = self._instance.routes
        route = routes.known(queue.topic)
        members = route.addresses(queue.broker_name) if route is not None else {}
        if not members:
            members = (await routes.refresh(queue.topic)).addresses(queue.broker_name)
        if not members:
            raise BrokerNotFound(queue.broker_name, queue.topic)
        wanted = self._suggested.get(queue, MASTER_ID)
        if wanted not in members:
            wanted = min((each for each in members if each > wanted), default=min(members))
        return wanted, members[wanted]

    def _header(
        self, queue: MessageQueue, subscription: Subscription, offset: int, options: PullOptions
    ) -> PullMessage:
        commit_offset = options.get("commit_offset")
        suspend_s = options.get("suspend_s", 0.0)
        sends_expression = options.get("sends_expression", False)
        sys_flag = self._always
        sys_flag |= PULL_COMMITS if commit_offset is not None else 0
        sys_flag |= PULL_SUSPENDS if suspend_s > 0 else 0
        sys_flag |= PULL_HAS_SUBSCRIPTION if sends_expression else 0
        selector = subscription.selector
        return PullMessage(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=options.get("count_max", PULL_COUNT_MAX),
            sys_flag=sys_flag,
            commit_offset=commit_offset or 0,
            suspend_timeout_ms=round(suspend_s * 1000),
            subscription=selector.expression if sends_expression else None,
            sub_version=subscription.version,
            expression_type=selector.kind,
            max_msg_bytes=options.get("bytes_max"),
            is_bulk=options.get("is_bulk"),
        )

    def _messages(
        self,
        queue: MessageQueue,
        subscription: Subscription,
        body: bytes,
        found: PullMessageAnswer,
    ) -> list[ReceivedMessage]:
        decoder = self._decoders.get(queue)
        if decoder is None:
            decoder = self._decoders[queue] = Decoder(queue, self._namespace)
        messages = decoder.decode(body, found.min_offset, found.max_offset, found.offset_delta or 0)
        if subscription.tags:
            messages = [message for message in messages if subscription.accepts(message)]
        for hook in self.filter_hooks:
            messages = hook(messages, queue)
        return messages


def _report_old(queue: MessageQueue, offset: int, result: PullResult) -> None:
    """Warn of an answer that goes back (rule 3)."""
    first = result.messages[0].queue_offset if result.messages else offset
    if first < offset or result.next_offset < offset:
        log.warning(
            "a suspicious answer of %s: offset %d was asked for, it begins at %d and goes on at %d",
            queue,
            offset,
            first,
            result.next_offset,
        )


def peek_request(
    queue: MessageQueue, offset: int, count_max: int, group: str = TOOLS_GROUP
) -> Command:
    """Return a pull of everything from an offset on, for tools: it neither waits nor commits."""
    header = PullMessage(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=count_max,
        sys_flag=PULL_HAS_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_ms=0,
        subscription="*",
        sub_version=0,
        expression_type=TAG,
    )
    return request(RequestCode.PULL_MESSAGE, header)
