"""Questions that a client answers: its offsets (223), its state (307), one message (309).

In: a tool's request. Out: the same to the client on its own connection (221, 307, 309), and the
client's answer back to the tool, whatever it is.

Rules:
1. Time-outs are the original's: 5 s for 223, 10 s for the others; then 223 leaves the client out,
   the others are answered 207.
2. 223 asks all members at a time, where the original asks one after the other.
3. Only the fields that belong to the request go on to the client: not the signature, for one.
"""

import asyncio

import msgspec

from orbitmq.broker.clients import ConsumerGroup
from orbitmq.broker.context import Context
from orbitmq.broker.forwarding import answer_later
from orbitmq.errors import MQError, RemoteProtocolError, RequestFailed, RequestTimeout
from orbitmq.net.connection import Connection, Result
from orbitmq.store.reading import record_by_offset
from orbitmq.wire.bodies_client import MessageQueue, read_queue_key
from orbitmq.wire.bodies_consume import ClientOffsets, ConsumerStatus
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command, reply_to
from orbitmq.wire.fastjson import read_request, write_json
from orbitmq.wire.fields import read_header, write_header
from orbitmq.wire.headers_consume import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    GetConsumerStatus,
)
from orbitmq.wire.message_id import decode_offset_id
from orbitmq.wire.versions import V3_0_7_SNAPSHOT, V3_1_8_SNAPSHOT

CALL_TIMEOUT_S = 10.0
STATUS_TIMEOUT_S = 5.0
SLACK_S = 25.0
"""Reading a record may take its time before the client is asked."""

ASKED_AT_A_TIME = 64


def get_consumer_status(context: Context, request: Command, _connection: Connection) -> Result:
    """Return where each member of a group, or one of them, is in a topic's queues."""
    header = read_header(GetConsumerStatus, request.fields)
    group = context.clients.consumer_group(header.consumer_group)
    if group is None:
        raise RequestFailed(
            ResponseCode.SYSTEM_ERROR,
            f"No Any Consumer online in the consumer group: [{header.consumer_group}]",
        )
    check_versions(group)
    members = {
        member.client_id: connection
        for connection, member in group.members.items()
        if header.client_id in (None, "", member.client_id)
    }
    question = Command(
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
        fields=write_header(msgspec.structs.replace(header, client_id=None)),
    )

    async def ask() -> Command:
        table = await _ask_all(members, question)
        body = write_json(ConsumerStatus(consumer_table=table), standard=False)
        return reply_to(request, body=body)

    rounds = 1 + len(members) // ASKED_AT_A_TIME
    return answer_later(request, ask, rounds * STATUS_TIMEOUT_S + 1)


def check_versions(group: ConsumerGroup) -> None:
    """Raise RequestFailed when a member is too old to be asked for, or told, its offsets."""
    for member in group.members.values():
        if member.version < V3_0_7_SNAPSHOT:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"the client does not support this feature. version={member.version} of"
                f" {member.client_id}; it needs V3_0_7_SNAPSHOT ({V3_0_7_SNAPSHOT}) or newer",
            )


async def _ask_all(
    members: dict[str, Connection], question: Command
) -> dict[str, dict[MessageQueue, int]]:
    limit = asyncio.Semaphore(ASKED_AT_A_TIME)

    async def ask(connection: Connection) -> dict[MessageQueue, int] | None:
        async with limit:
            return await _ask_offsets(connection, question)

    found = await asyncio.gather(*map(ask, members.values()))
    pairs = zip(members, found, strict=True)
    return {client_id: offsets for client_id, offsets in pairs if offsets is not None}


async def _ask_offsets(connection: Connection, question: Command) -> dict[MessageQueue, int] | None:
    """Return a client's offsets, None when it does not say."""
    try:
        answer = await connection.call(question, STATUS_TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS or not answer.body:
            return None
        table = read_request(answer.body, ClientOffsets).message_queue_table
        return {read_queue_key(key): offset for key, offset in table.items()}
    except MQError:  # too late, gone, or nonsense: the others' answers count
        return None


def get_consumer_running_info(
    context: Context, request: Command, _connection: Connection
) -> Result:
    """Return what a client says of itself."""
    header = read_header(GetConsumerRunningInfo, request.fields)
    connection = _find_client(context, header.consumer_group, header.client_id)
    question = Command(request.code, fields=write_header(header))
    who = _shown(header.consumer_group, header.client_id)

    async def ask() -> Command:
        return await _forward(request, connection, question, who)

    return answer_later(request, ask, CALL_TIMEOUT_S + SLACK_S)


def consume_message_directly(context: Context, request: Command, connection: Connection) -> Result:
    """Let a client consume a stored message at once; return what came of it."""
    header = read_header(ConsumeMessageDirectly, request.fields)
    client_id = header.client_id or ""
    try:
        log_offset = decode_offset_id(header.msg_id).log_offset
    except RemoteProtocolError as error:
        raise RequestFailed(ResponseCode.SYSTEM_ERROR, f"msgId: {error.detail}") from None
    client = _find_client(context, header.consumer_group, client_id)
    visible_offset = context.core.tail.visible_offset
    forwarded = msgspec.structs.replace(header, broker_name=context.settings.broker_name)

    async def ask() -> Command:
        record = await context.cold_reads.value(
            connection, lambda: record_by_offset(context.store.reader, log_offset, visible_offset)
        )
        if record is None:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"can not find message by the offset, {log_offset}: it was removed, or no message"
                " begins there",
            )
        question = Command(request.code, fields=write_header(forwarded), body=record)
        who = _shown(header.consumer_group, client_id)
        return await _forward(request, client, question, who)

    return answer_later(request, ask, CALL_TIMEOUT_S + SLACK_S)


def _find_client(context: Context, group: str, client_id: str) -> Connection:
    connection = context.clients.connection_of(group, client_id)
    live = context.clients.consumer_group(group)
    if connection is None or live is None:
        raise RequestFailed(
            ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online"
        )
    version = live.members[connection].version
    if version < V3_1_8_SNAPSHOT:
        raise RequestFailed(
            ResponseCode.SYSTEM_ERROR,
            f"The Consumer <{client_id}> Version <{version}> too low to finish, please upgrade it"
            f" to V3_1_8_SNAPSHOT ({V3_1_8_SNAPSHOT})",
        )
    return connection


def _shown(group: str, client_id: str) -> str:
    return f"<{group}> <{client_id}>"


async def _forward(
    request: Command, connection: Connection, question: Command, who: str
) -> Command:
    """Ask a client and pass on its answer as it is."""
    try:
        answer = await connection.call(question, CALL_TIMEOUT_S)
    except RequestTimeout as error:
        raise RequestFailed(
            ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer {who} Timeout: {error}"
        ) from None
    return reply_to(request, answer.code, answer.remark, fields=answer.fields, body=answer.body)
