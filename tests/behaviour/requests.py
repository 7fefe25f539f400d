"""Requests as clients write them, for tests that speak to a broker directly."""

import json

from orbitmq.wire.command import Command
from orbitmq.wire.frame import JSON
from orbitmq.wire.java import string_hash
from tests.foreign.asking import await_claim
from tests.foreign.judged import judged_original
from tests.wire_client import WireClient

SEND = 310
PULL = 11
READABLE_S = 10


def send_request(topic: str, body: bytes = b"hello", /, **changes: str | int) -> Command:
    """Return a send; `changes` are its letters, or flag and serialization."""
    flag = int(changes.pop("flag", 0))
    serialization = int(changes.pop("serialization", JSON))
    fields = {
        "a": "PG",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": "TAGS\x01TagA\x02WAIT\x01true",
        "j": "0",
        "k": "false",
        "m": "false",
    }
    fields.update({name: str(value) for name, value in changes.items()})
    return Command(SEND, flag=flag, fields=fields, body=body, serialization=serialization)


def pull_request(topic: str, group: str, queue_offset: int, **changes: str | int) -> Command:
    """Return a pull of queue 0 that brings its own expression and does not wait."""
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": "0",
        "queueOffset": str(queue_offset),
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
    }
    fields.update({name: str(value) for name, value in changes.items()})
    return Command(PULL, fields=fields)


def heartbeat_body(client_id: str, group: str, topic: str, expression: str = "*") -> bytes:
    """The heartbeat of a push consumer; tags come with their codes, as Java's client sends."""
    words = [word.strip() for word in expression.split("||")]
    tags = words if all(map(str.isidentifier, words)) else []  # "*" is none, SQL neither
    subscription = {
        "topic": topic,
        "subString": expression,
        "subVersion": 1,
        "expressionType": "TAG",
        "classFilterMode": False,
        "codeSet": list(map(string_hash, tags)),
        "tagsSet": tags,
    }
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [subscription],
        "unitMode": False,
    }
    body = {"clientID": client_id, "consumerDataSet": [consumer], "producerDataSet": []}
    return json.dumps(body).encode()


def fill(client: WireClient, topic: str, bodies: list[bytes], /, **changes: str | int) -> None:
    """Send messages to queue 0 of a topic; each must be taken.

    They can be read then. OrbitMQ's answer says so; an original's says only that they are stored.
    """
    for body in bodies:
        answer = client.call(send_request(topic, body, **changes))
        assert answer.code == 0, answer.remark
    if "DELAY" not in str(changes.get("i", "")):
        place = answer.fields
        await_readable(client, topic, int(place["queueId"]), int(place["queueOffset"]) + 1)


def await_readable(client: WireClient, topic: str, queue_id: int, count: int) -> None:
    """Return when so many messages of a queue can be read."""
    if judged_original() is not None:
        await_claim(
            lambda: int(client.ask(30, topic=topic, queueId=queue_id).fields["offset"]) >= count,
            f"queue {queue_id} of {topic} has {count} messages that can be read",
            READABLE_S,
        )
