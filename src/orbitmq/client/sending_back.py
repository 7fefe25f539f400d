"""Messages that could not be consumed, on their way to the retry or the dead-letter topic.

In: a message and when it is to come again. Out: a copy of it at the broker, or word that there is
none.

Rules:
1. The message's broker is asked to put it back by itself (36): it knows the record. When that does
   not work, the client sends a copy to the group's retry topic (310); brokers turn a copy that has
   come too often into a dead letter.
2. True means that some broker has it. It may then come twice, never not at all.
3. A message that dies is told at WARNING, with the reason. The reason travels with every request,
   for the broker counts the tries: ours keeps it with the dead letter, originals pass over it.
"""

import logging

from orbitmq.client.instance import INNER_PRODUCER_GROUP, Instance
from orbitmq.client.message import ReceivedMessage
from orbitmq.client.remote import request
from orbitmq.client.routes import Route
from orbitmq.client.settings import LANGUAGE
from orbitmq.errors import BrokerNotFound, RouteNotFound
from orbitmq.wire import properties as names
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers_client import SendMessage, SendMessageBack, write_send
from orbitmq.wire.names import TEMPLATE_TOPIC, is_retry_topic, retry_topic
from orbitmq.wire.properties import PROPERTIES_SIZE_MAX, format_properties, reason_text

log = logging.getLogger(__name__)

SEND_BACK_TIMEOUT_S = 5.0
COPY_TIMEOUT_S = 3.0
FIRST_DELAY_LEVEL = 3
"""The first retry comes after 10 s; each further one a level later."""
DEAD_LETTER_LEVEL = -1
TIMES_MAX = 2**31 - 1


class SendingBack:
    """Returns messages for one consumer group."""

    def __init__(
        self, instance: Instance, group: str, times_max: int, *, unit_mode: bool = False
    ) -> None:
        self._instance = instance
        self._group = group
        self._times_max = times_max
        self._unit_mode = unit_mode

    async def send_back(
        self, message: ReceivedMessage, delay_level: int = 0, reason: str = ""
    ) -> bool:
        """Have a message come again, or with DEAD_LETTER_LEVEL never; give whether it will."""
        try:
            await self.ask_broker(message, delay_level, reason)
        except Exception as error:  # also of an RPC hook: the message must not be lost to it
            log.info(
                "message %s of %s could not be put back by its broker (%s); sending a copy",
                message.message_id,
                message.queue,
                error,
            )
            return await self._send_copy(message, delay_level, reason)
        return True

    async def ask_broker(self, message: ReceivedMessage, delay_level: int, reason: str) -> None:
        """Have the message's broker put it back; raises MQError when it does not."""
        header = SendMessageBack(
            log_offset=message.log_offset,
            consumer_group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.offset_id,
            origin_topic=message.queue.topic,
            unit_mode=self._unit_mode,
            max_reconsume_times=self._times_max,
            reason=reason_text(reason) or None,
        )
        await self._instance.remote.ask(
            await self._address(message),
            request(RequestCode.CONSUMER_SEND_MSG_BACK, header),
            timeout_s=SEND_BACK_TIMEOUT_S,
        )
        if self._dies(message, delay_level):
            self._tell(message, reason)

    def _dies(self, message: ReceivedMessage, delay_level: int) -> bool:
        return delay_level < 0 or message.reconsume_times >= self._times_max

    def _tell(self, message: ReceivedMessage, reason: str) -> None:
        log.warning(
            "message %s of %s is a dead letter of group %s now, after %d retries: %s",
            message.message_id,
            message.queue,
            self._group,
            message.reconsume_times,
            reason or "no reason was given",
        )

    async def _address(self, message: ReceivedMessage) -> str:
        """Return the master of the message's broker, or else where it was stored."""
        try:
            return await self._instance.routes.master_address(message.queue)
        except (BrokerNotFound, RouteNotFound):
            return f"{message.store_host.ip}:{message.store_host.port}"

    async def _send_copy(self, message: ReceivedMessage, delay_level: int, reason: str) -> bool:
        try:
            route = await self._instance.routes.find(retry_topic(self._group))
            queue = self._any_queue(route)
            address = await self._instance.routes.master_address(queue)
            copy = self._copy(message, queue, delay_level, reason)
            await self._instance.remote.ask(address, copy, timeout_s=COPY_TIMEOUT_S)
        except Exception as error:
            log.warning(
                "message %s of %s could not be returned; it is tried again here: %s",
                message.message_id,
                message.queue,
                error,
            )
            return False
        if self._dies(message, delay_level):
            self._tell(message, reason)
        return True

    def _any_queue(self, route: Route) -> MessageQueue:
        queues = route.publish_queues
        if not queues:
            raise BrokerNotFound("any", route.topic)
        return queues[self._instance.chance.below(len(queues))]

    def _copy(
        self, message: ReceivedMessage, queue: MessageQueue, delay_level: int, reason: str
    ) -> Command:
        is_dead = delay_level < 0
        # Brokers of 4.9 want the limit reached, those of 5.x want it passed.
        dead_times = min(self._times_max + 1, TIMES_MAX)
        times = dead_times if is_dead else message.reconsume_times + 1
        level = delay_level or FIRST_DELAY_LEVEL + message.reconsume_times
        header = SendMessage(
            producer_group=INNER_PRODUCER_GROUP,
            topic=queue.topic,
            default_topic=TEMPLATE_TOPIC,
            default_topic_queue_count=1,
            queue_id=queue.queue_id,
            sys_flag=0,
            born_ms=self._instance.clock.wall_ms(),
            flag=message.flag,
            properties=self._properties(
                message, times, level, reason if self._dies(message, delay_level) else ""
            ),
            reconsume_times=times,
            unit_mode=self._unit_mode,
            max_reconsume_times=self._times_max,
        )
        code = RequestCode.SEND_MESSAGE_V2
        fields = write_send(code, header)
        return Command(code=int(code), fields=fields, body=message.body, language=LANGUAGE)

    def _properties(self, message: ReceivedMessage, times: int, level: int, reason: str) -> str:
        given = message.properties
        origin = given.get(names.RETRY_TOPIC) if is_retry_topic(message.queue.topic) else None
        kept = {
            name: value
            for name, value in given.items()
            if name not in _NOT_COPIED and value  # an empty value does not travel
        }
        kept[names.RETRY_TOPIC] = origin or message.queue.topic
        kept[names.ORIGIN_MESSAGE_ID] = given.get(names.ORIGIN_MESSAGE_ID) or message.offset_id
        kept[names.RECONSUME_TIME] = str(times)
        kept[names.MAX_RECONSUME_TIMES] = str(self._times_max)
        if level > 0:
            kept[names.DELAY] = str(level)
        if reason and len(message.stored_properties) <= PROPERTIES_SIZE_MAX // 2:
            kept[names.DLQ_REASON] = reason_text(reason) or "?"
        return format_properties(kept)


_NOT_COPIED = frozenset(
    {
        *(names.TRAN_MSG, names.MIN_OFFSET, names.MAX_OFFSET, names.CONSUME_START_TIME),
        *(names.DELAY, names.WAIT, names.REAL_TOPIC, names.REAL_QID),
    }
)
"""What belongs to the message as it was, or to this client, and not to a copy of it."""
