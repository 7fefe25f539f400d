"""One message on its way: its request, its attempts, and what its answer means.

In: a message that a Sender was given, the answers of brokers. Out: frames, and the message's
SendResult or error in its future.

Rules:
1. No task and no timer per message: a Sending is what a connection tells of the answer (`Asking`)
   and what waits at a gate (`Waiter`).
2. `read_answers` reads the ordinary answer to a send straight from the bytes of a read; everything
   else is left to the connection, which knows every answer.
3. With RPC hooks every request and answer is a Command, since hooks may look at it and add fields.
"""

import struct
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import msgspec

from orbitmq.client.message import Message
from orbitmq.client.publication import Publication, Template
from orbitmq.client.queue_choice import QueueSelector
from orbitmq.client.send_hooks import SendContext, SendMode
from orbitmq.client.send_result import STATUS_OF, SendResult
from orbitmq.client.settings import LANGUAGE
from orbitmq.errors import RemoteProtocolError, RequestTimeout
from orbitmq.net.connection import Connection, cut_next
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import FLAG_RESPONSE, Command, encode_command
from orbitmq.wire.fields import read_header
from orbitmq.wire.frame import FRAME_SIZE_MAX, PREFIX_SIZE, Frame
from orbitmq.wire.headers_client import SendMessage, SendMessageAnswer, write_send
from orbitmq.wire.names import TEMPLATE_TOPIC

if TYPE_CHECKING:
    from orbitmq.client.sender import Sender

_PREFIX = struct.Struct(">iI")
_json = msgspec.json.Encoder().encode


class Sending:
    """One message, or one batch, from the first attempt to the last."""

    __slots__ = (
        "address",
        "attempts",
        "began_s",
        "body",
        "born_ms",
        "chooser",
        "context",
        "deadline_s",
        "flag",
        "future",
        "has_looked_again",
        "is_fixed",
        "message_id",
        "messages",
        "mode",
        "properties",
        "publication",
        "queue",
        "result",
        "retries_left",
        "sender",
        "sys_flag",
        "template",
        "timeout_s",
    )

    # What changes from attempt to attempt, or is seldom needed, is set by the Sender.
    queue: MessageQueue
    address: str
    chooser: QueueSelector | None
    context: SendContext | None
    attempts: list[tuple[str, Exception]] | None
    result: SendResult | None

    def __init__(
        self,
        sender: "Sender",
        publication: Publication,
        template: Template,
        mode: SendMode,
        future: Future[Any] | None = None,
    ) -> None:
        self.sender = sender
        self.publication = publication
        self.template = template
        self.mode = mode
        self.future: Any = future if future is not None else sender.loop.create_future()
        self.is_fixed = self.has_looked_again = False
        self.sys_flag = 0
        self.context = self.attempts = self.result = self.chooser = None
        self.address = ""
        self.began_s = 0.0
        self.messages: tuple[Message, ...] = ()
        self.body = b""
        self.properties = ""
        self.message_id = ""
        self.flag = self.born_ms = self.retries_left = 0
        self.deadline_s = self.timeout_s = 0.0

    # --- what a connection asks ---

    def frame(self, opaque: int) -> list[bytes | memoryview]:
        """Return the request's bytes with this number in it."""
        body = self.body
        header = self.template.text % (
            self.queue.queue_id,
            self.sys_flag,
            self.born_ms,
            self.flag,
            _json(self.properties),
            opaque,
        )
        size = len(header)
        return [_PREFIX.pack(4 + size + len(body), size) + header, body]

    def answered(self, answer: Command) -> None:
        """Take an answer of any code."""
        if answer.code not in STATUS_OF:
            self.sender.refused(self, answer)
            return
        try:
            header = read_header(SendMessageAnswer, answer.fields)
        except RemoteProtocolError as error:
            self.sender.unanswered(self, error)
            return
        self.sender.stored(
            self,
            SendResult(
                STATUS_OF[answer.code],
                self.message_id,
                header.msg_id,
                self.queue_at(header.queue_id),
                header.queue_offset,
                header.transaction_id or "",
                header.region_id or "",
            ),
        )

    def overdue(self, peer: str) -> None:
        """Learn that no answer has come in time."""
        self.sender.unanswered(self, RequestTimeout(self.template.code, peer, self.timeout_s))

    def failed(self, error: Exception) -> None:
        """Learn that the connection has ended."""
        self.sender.unanswered(self, error)

    # --- what a gate asks ---

    def admitted(self) -> None:
        """Go on: route or connection is there."""
        self.sender.admit(self)

    def refused(self, error: Exception | None) -> None:
        """Learn that route or connection could not be had, or not in time."""
        self.sender.not_sent(self, error)

    # ---

    def queue_at(self, queue_id: int) -> MessageQueue:
        """Return the queue that a broker says it has put the message into."""
        queue = self.queue
        if queue.queue_id == queue_id:
            return queue
        return MessageQueue(queue.topic, queue.broker_name, queue_id)


class HookedSending(Sending):
    """A Sending of a client that has RPC hooks (rule 3)."""

    __slots__ = ("_request",)

    def frame(self, opaque: int) -> list[bytes | memoryview]:
        """Return the request's bytes after the hooks have seen it."""
        publication, template = self.publication, self.template
        header = SendMessage(
            producer_group=publication.group,
            topic=publication.topic,
            default_topic=TEMPLATE_TOPIC,
            default_topic_queue_count=publication.settings.new_topic_queue_count,
            queue_id=self.queue.queue_id,
            sys_flag=self.sys_flag,
            born_ms=self.born_ms,
            flag=self.flag,
            properties=self.properties,
            unit_mode=publication.settings.unit_mode,
            batch=template.code == RequestCode.SEND_BATCH_MESSAGE,
        )
        fields = write_send(template.code, header)
        request = Command(template.code, opaque, template.flag, fields, self.body)
        request.language = LANGUAGE
        self._request = request
        for before in self.sender.remote.before_request:
            before(self.address, request)
        return [encode_command(request)]

    def answered(self, answer: Command) -> None:
        """Take an answer after the hooks have seen it."""
        try:
            for after in self.sender.remote.after_answer:
                after(self.address, self._request, answer)
        except Exception as error:  # the program's own
            self.sender.spoiled(self, error)
            return
        super().answered(answer)


class _Fields(msgspec.Struct, gc=False):
    msgId: str  # noqa: N815 - the wire's name
    queueId: int  # noqa: N815 - the wire's name
    queueOffset: int  # noqa: N815 - the wire's name
    transactionId: str = ""  # noqa: N815 - the wire's name
    MSG_REGION: str = ""


class _Answer(msgspec.Struct, gc=False):
    code: int
    flag: int
    opaque: int
    extFields: _Fields  # noqa: N815 - the wire's name


_decode_answer = msgspec.json.Decoder(_Answer, strict=False).decode


def read_answers(connection: Connection, data: bytes, position: int) -> tuple[int, Frame | None]:
    """Handle the answers to sends from a position on (net's ReadFrames)."""
    waiting, end, count = connection.calls.waiting, len(data), 0
    while end - position >= PREFIX_SIZE and waiting:
        length, header_size = _PREFIX.unpack_from(data, position)
        header_start = position + PREFIX_SIZE
        header_end = header_start + header_size
        # Answers to sends have no body. A binary header has a greater size here, and fits no more.
        if header_end > end or header_size != length - 4 or length >= FRAME_SIZE_MAX:
            break
        try:
            answer = _decode_answer(data[header_start:header_end])
        except (msgspec.DecodeError, ValueError):
            break
        sending = waiting.get(answer.opaque)
        if type(sending) is not Sending or not answer.flag & FLAG_RESPONSE:
            break
        status = STATUS_OF.get(answer.code)
        if status is None:
            break
        del waiting[answer.opaque]
        position = header_end
        count += 1
        fields = answer.extFields
        sending.sender.stored(
            sending,
            SendResult(
                status,
                sending.message_id,
                fields.msgId,
                sending.queue_at(fields.queueId),
                fields.queueOffset,
                fields.transactionId,
                fields.MSG_REGION,
            ),
        )
    connection.traffic.frames.value += count
    return cut_next(connection, data, position)
