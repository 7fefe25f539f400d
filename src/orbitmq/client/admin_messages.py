"""Messages, looked for by id, by key or by place, and what became of them.

In: ids, keys, queue offsets. Out: messages, and which groups have consumed one.

Rules:
1. An offset id says itself where its message is stored; a unique id is looked for in the index of
   all brokers of its topic, from the time in it on, and then in all of time: clients of other
   languages make other ids.
2. The index knows hashes of keys, so what it gives is compared again here.
3. Looking at a queue commits nothing and needs no group: it is done as TOOLS_CONSUMER, which every
   broker knows.
"""

from collections.abc import Callable
from datetime import UTC, timedelta
from typing import Final

import msgspec

from orbitmq.client.admin_base import Target
from orbitmq.client.admin_offsets import AdminOffsets
from orbitmq.client.admin_results import Track
from orbitmq.client.message import ReceivedMessage, received
from orbitmq.client.pulling import peek_request
from orbitmq.client.remote import request
from orbitmq.errors import LocalProtocolError, NotFound, RemoteProtocolError, RequestFailed
from orbitmq.wire.bodies_client import TAG, MessageModel, MessageQueue
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.expression import TagFilter
from orbitmq.wire.fields import read_header
from orbitmq.wire.headers_client import (
    PullMessageAnswer,
    QueryMessage,
    ViewMessage,
)
from orbitmq.wire.message_id import decode_offset_id, decode_unique_id, unique_id_born_ms
from orbitmq.wire.names import is_retry_topic
from orbitmq.wire.properties import RETRY_TOPIC, UNIQ_KEY
from orbitmq.wire.record import scan_records

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
TIME_MS_MAX: Final = 2**63 - 1
KEY_COUNT_MAX: Final = 64
"""What a broker gives at most for one key."""
UNIQUE_COUNT_MAX = 32
ID_SLACK_MS = int(timedelta(hours=36).total_seconds() * 1000)
"""A unique id tells the time of its producer's zone, of which nothing is known here."""

PULL_ANSWERS = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


class Peek(msgspec.Struct, frozen=True, kw_only=True):
    """What lies in a queue from an offset on."""

    messages: tuple[ReceivedMessage, ...]
    next_offset: int
    """Where to look next."""
    min_offset: int
    max_offset: int


class AdminMessages(AdminOffsets):
    """The part of Admin about messages."""

    async def message(self, message_id: str, *, topic: str | None = None) -> ReceivedMessage:
        """Return a message by either of its ids; a unique id is looked for in `topic`.

        >>> await admin.message("7F00000100002A9F000000000000DF14")

        Raises NotFound when there is none, LocalProtocolError for a unique id without a topic.
        """
        if _is_offset_id(message_id):
            try:
                return await self.message_by_offset_id(message_id)
            except NotFound:
                if topic is None:
                    raise
        if topic is None:
            raise LocalProtocolError(
                f"{message_id[:80]} does not say where its message is stored; name its topic"
                " (topic=, --topic)"
            )
        found = await self.messages_by_unique_id(topic, message_id)
        if not found:
            advice = f"topic {topic} has no message of that id, or not any more"
            raise NotFound("message", message_id, advice)
        return found[0]

    async def message_by_offset_id(self, offset_id: str) -> ReceivedMessage:
        """Return the message that an offset id stands for; raises NotFound."""
        try:
            place = decode_offset_id(offset_id)
        except RemoteProtocolError as error:
            raise LocalProtocolError(f"no offset id: {error.detail}") from None
        address = str(place.host)
        asked = request(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(log_offset=place.log_offset))
        try:
            answer = await self._ask(address, asked)
        except RequestFailed as error:
            if error.code != ResponseCode.SYSTEM_ERROR:
                raise
            raise NotFound("message", offset_id, error.remark) from None
        names = {
            address: entry.name
            for cluster in await self.clusters()
            for entry in cluster.brokers
            for address in entry.addresses.values()
        }
        return self._messages(answer, names.get(address, ""))[0]

    async def messages_by_unique_id(self, topic: str, unique_id: str) -> list[ReceivedMessage]:
        """Return the messages that a producer gave this id: one, or more if it was sent again."""
        found: list[ReceivedMessage] = []
        for begin_ms in _begins(unique_id, self._instance.clock.wall_ms()):
            header = QueryMessage(
                topic=self._wrap(topic),
                key=unique_id,
                count_max=UNIQUE_COUNT_MAX,
                begin_ms=begin_ms,
                end_ms=TIME_MS_MAX,
            )
            found = await self._query(
                header, lambda one: one.properties.get(UNIQ_KEY) == unique_id, is_unique=True
            )
            if found:
                break
        return found

    async def messages_by_key(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = TIME_MS_MAX,
        count_max: int = KEY_COUNT_MAX,
    ) -> list[ReceivedMessage]:
        """Return the newest messages of a topic with a key, oldest first, at most 64 a broker.

        Raises RouteNotFound for an unknown topic.
        """
        header = QueryMessage(
            topic=self._wrap(topic),
            key=key,
            count_max=count_max,
            begin_ms=begin_ms,
            end_ms=end_ms,
        )
        found = await self._query(header, lambda one: key in one.keys, is_unique=False)
        return found[-count_max:]

    async def _query(
        self,
        header: QueryMessage,
        is_meant: Callable[[ReceivedMessage], bool],
        *,
        is_unique: bool,
    ) -> list[ReceivedMessage]:
        _, targets = await self._targets_of_topic(header.topic)
        expected = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)

        async def look(target: Target) -> list[ReceivedMessage]:
            asked = request(RequestCode.QUERY_MESSAGE, header)
            asked.fields[UNIQUE_KEY_QUERY] = "true" if is_unique else "false"
            answer = await self._ask(target.address, asked, is_long=True, expected=expected)
            if answer.code != ResponseCode.SUCCESS:
                return []
            found = self._messages(answer, target.name)
            return [one for one in found if one.queue.topic == header.topic and is_meant(one)]

        found = await self._at_each(targets, look)
        messages = [one for many in found.values() for one in many]
        return sorted(messages, key=lambda one: (one.store_ms, one.queue, one.queue_offset))

    async def peek(self, queue: MessageQueue, offset: int, count_max: int = 32) -> Peek:
        """Return what lies in a queue from an offset on, without consuming it.

        An offset that the queue does not have gives nothing and says where to look next.
        """
        wrapped = self._wrap_queue(queue)
        address = await self._master_of(wrapped)
        asked = peek_request(wrapped, offset, count_max)
        answer = await self._ask(address, asked, expected=PULL_ANSWERS)
        found = read_header(PullMessageAnswer, answer.fields)
        is_found = answer.code == ResponseCode.SUCCESS
        messages = self._messages(answer, wrapped.broker_name) if is_found else []
        return Peek(
            messages=tuple(messages),
            next_offset=found.next_begin_offset,
            min_offset=found.min_offset,
            max_offset=found.max_offset,
        )

    def _messages(self, answer: Command, broker_name: str) -> list[ReceivedMessage]:
        """Return the messages in an answer, with the topic they were sent to."""
        found = [received(record, broker_name) for record in scan_records(answer.body)]
        for message in found:
            topic = message.topic
            if is_retry_topic(topic):
                topic = message.properties.get(RETRY_TOPIC, topic)
            message.topic = self._unwrap(topic)
        return found

    # --- what became of a message ---

    async def tracks(self, message: ReceivedMessage) -> list[Track]:
        """Say for each group of a message's topic what became of the message there.

        `consumed`: the group has passed it. `filtered`: passed, but its tag is not subscribed to.
        `waiting`: the group is not that far. `broadcasting`: only its members know. `unknown`: the
        group has no offset in that queue.
        """
        topic = self._unwrap(message.queue.topic)
        return [await self._track(group, message) for group in await self.topic_groups(topic)]

    async def _track(self, group: str, message: ReceivedMessage) -> Track:
        name = self._wrap(group)
        members = await self._connections(await self._targets_of_group(name), name)
        remark = "" if members else "nobody is online"
        if members and members[0].message_model == MessageModel.BROADCASTING.name:
            return Track(group=group, state="broadcasting")
        offset = await self.group_offset(group, message.queue)
        if offset is None:
            return Track(group=group, state="unknown", remark=remark)
        if offset <= message.queue_offset:
            return Track(group=group, state="waiting", remark=remark)
        for body in members:
            data = body.subscription_table.get(message.queue.topic)
            if data is not None and data.expression_type == TAG:
                is_taken = TagFilter.parse(data.sub_string).matches_tag(message.tag)
                return Track(group=group, state="consumed" if is_taken else "filtered")
        return Track(group=group, state="consumed", remark=remark)


def _is_offset_id(message_id: str) -> bool:
    try:
        decode_offset_id(message_id)
    except RemoteProtocolError:
        return False
    return True


def _begins(unique_id: str, now_ms: int) -> list[int]:
    """Return from when on to look for an id: from the time in it, if it has one, then from ever."""
    try:
        born_ms = unique_id_born_ms(decode_unique_id(unique_id), now_ms, UTC)
    except RemoteProtocolError:
        return [0]
    return [max(0, born_ms - ID_SLACK_MS), 0]
