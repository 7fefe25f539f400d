"""Consumers as a broker sees them, for tests: heartbeats, questions to them, tables of queues."""

import json
from collections.abc import Callable
from typing import Any

from orbitmq.wire.command import Command, encode_command, reply_to
from orbitmq.wire.fastjson import read_json
from tests.behaviour.requests import fill
from tests.foreign.asking import await_claim
from tests.wire_client import WireClient

Fresh = Callable[[str], str]
BROKER_NAME = "broker-a"
QUIET_S = 0.5
"""How long nothing must come to count as silence."""


def heartbeat(client_id: str, group: str, *topics: str, **changes: Any) -> bytes:
    """Return the heartbeat of a push consumer; `changes` are of its group's part."""
    subscriptions = [
        {"topic": topic, "subString": "*", "subVersion": 1, "expressionType": "TAG"}
        for topic in topics
    ]
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": subscriptions,
        "unitMode": False,
        **changes,
    }
    return json.dumps({"clientID": client_id, "consumerDataSet": [consumer]}).encode()


def join(client: WireClient, client_id: str, group: str, *topics: str, **changes: Any) -> None:
    """Send a heartbeat and pass over everything up to its answer."""
    answer = client.ask(34, heartbeat(client_id, group, *topics, **changes))
    assert answer.code == 0, answer.remark


def unread(client: WireClient) -> list[Command]:
    """Return what has come and nobody has asked for."""
    arrived: list[Command] = []
    try:
        while True:
            arrived.append(client.receive(QUIET_S))
    except TimeoutError:
        return arrived


def next_request(client: WireClient, code: int) -> Command:
    """Return the next request of a kind that the broker sends, passing over all else."""
    while True:
        command = client.receive()
        if not command.is_response and command.code == code:
            return command


def answer(client: WireClient, request: Command, code: int = 0, body: bytes = b"") -> None:
    """Answer what the broker has asked."""
    reply = reply_to(request, code, "as the client says", body=body)
    client.send_bytes(encode_command(reply))


def queues(body: bytes, table: str) -> dict[int, Any]:
    """Return a table whose keys are queues of one topic, by queue id."""
    rows = read_json(body, dict[str, Any])[table]
    return {json.loads(key)["queueId"]: value for key, value in rows.items()}


def fill_queues(client: WireClient, topic: str, counts: list[int]) -> None:
    """Send so many messages to each queue, until the broker shows them."""
    for queue_id, count in enumerate(counts):
        fill(client, topic, [b"%d" % number for number in range(count)], e=queue_id)
        await_claim(
            lambda: client.ask(30, topic=topic, queueId=queue_id).fields["offset"] == str(count),  # noqa: B023 - called before the loop goes on
            f"queue {queue_id} of {topic} has {count} messages",
            10,
        )


def commit(client: WireClient, group: str, topic: str, offsets: list[int]) -> None:
    """Store a group's offsets, one for each queue; the group is made if it is not there."""
    if client.ask(15, consumerGroup=group, topic=topic, queueId=0, commitOffset=0).code == 26:
        made = client.ask(200, json.dumps({"groupName": group}).encode())
        assert made.code == 0, made.remark
    for queue_id, offset in enumerate(offsets):
        taken = client.ask(
            15, consumerGroup=group, topic=topic, queueId=queue_id, commitOffset=offset
        )
        assert taken.code == 0, taken.remark


def stored(client: WireClient, group: str, topic: str, queue_id: int) -> int | None:
    """Return a stored offset, or None."""
    found = client.ask(14, consumerGroup=group, topic=topic, queueId=queue_id)
    return int(found.fields["offset"]) if found.code == 0 else None
