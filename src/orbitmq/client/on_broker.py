"""What brokers ask of a client, over the connection that the client has made.

In: requests 40, 220, 221, 307 and 309. Out: their answers, from the consumer they are about.

Rules:
1. A group that this client does not have is no error of ours: one-way requests are dropped with a
   line in the log, others are answered with code 1, as the original does.
2. Consuming directly runs beside everything else and is answered when it is done.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from orbitmq.client.members import ConsumerMember
from orbitmq.errors import RequestFailed
from orbitmq.net.connection import Connection, Handler
from orbitmq.net.later import Later
from orbitmq.wire.bodies_answers import read_offsets
from orbitmq.wire.bodies_consume import ConsumerStatus
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command, reply_to
from orbitmq.wire.fastjson import write_json
from orbitmq.wire.fields import read_header
from orbitmq.wire.headers_client import NotifyConsumerIdsChanged
from orbitmq.wire.headers_consume import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    GetConsumerStatus,
    ResetClientOffset,
)
from orbitmq.wire.record import decode_record

log = logging.getLogger(__name__)

DIRECT_TIMEOUT_S = 900.0
"""As long as a handler may take; the broker gives up after ten seconds."""

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


def handlers_of(consumers: Mapping[str, ConsumerMember], spawn: Spawn) -> dict[int, Handler]:
    """Return the handlers of a client whose consumers, by group, are these."""
    asked = Asked(consumers, spawn)
    return {
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: asked.members_changed,
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET: asked.reset_offsets,
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: asked.status,
        RequestCode.GET_CONSUMER_RUNNING_INFO: asked.running_info,
        RequestCode.CONSUME_MESSAGE_DIRECTLY: asked.consume_directly,
    }


class Asked:
    """The requests of brokers to one client."""

    def __init__(self, consumers: Mapping[str, ConsumerMember], spawn: Spawn) -> None:
        self._consumers = consumers
        self._spawn = spawn

    def members_changed(self, request: Command, _connection: Connection) -> None:
        """Let the group's consumer look who has which queue (40)."""
        header = read_header(NotifyConsumerIdsChanged, request.fields)
        consumer = self._consumers.get(header.consumer_group)
        if consumer is None:
            log.debug("members of group %s changed, which is not ours", header.consumer_group)
            return
        log.debug("members of group %s changed; looking who has which queue", consumer.group)
        consumer.rebalance_soon()

    def reset_offsets(self, request: Command, _connection: Connection) -> None:
        """Let a consumer go on elsewhere (220)."""
        header = read_header(ResetClientOffset, request.fields)
        consumer = self._consumers.get(header.consumer_group)
        if consumer is None:
            log.warning("offsets of group %s were reset, which is not ours", header.consumer_group)
            return
        self._spawn(consumer.reset_offsets(header.topic, read_offsets(request.body)))

    def status(self, request: Command, _connection: Connection) -> Command:
        """Say how far a consumer has come (221)."""
        header = read_header(GetConsumerStatus, request.fields)
        offsets = self._consumer(header.consumer_group).offsets(header.topic)
        body = ConsumerStatus(consumer_table={}, message_queue_table=offsets)
        return reply_to(request, body=write_json(body, standard=False))

    def running_info(self, request: Command, _connection: Connection) -> Command:
        """Say how a consumer is doing (307)."""
        header = read_header(GetConsumerRunningInfo, request.fields)
        return reply_to(request, body=self._consumer(header.consumer_group).running_info())

    def consume_directly(self, request: Command, _connection: Connection) -> Later:
        """Have one message consumed and say what came of it (309)."""
        header = read_header(ConsumeMessageDirectly, request.fields)
        consumer = self._consumer(header.consumer_group)
        record, _ = decode_record(request.body)
        later = Later(DIRECT_TIMEOUT_S, lambda: None)

        async def consume() -> None:
            try:
                body = await consumer.consume_directly(record, header.broker_name or "")
            except RequestFailed as error:
                later.answer(reply_to(request, error.code, error.remark))
            except Exception as error:  # the handler is the program's
                log.exception("consuming a message directly failed")
                later.answer(reply_to(request, ResponseCode.SYSTEM_ERROR, repr(error)))
            else:
                later.answer(reply_to(request, body=body))

        self._spawn(consume())
        return later

    def _consumer(self, group: str) -> ConsumerMember:
        consumer = self._consumers.get(group)
        if consumer is None:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer Group <{group}> not exist in this consumer",
            )
        return consumer
