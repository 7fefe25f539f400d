"""The same message through every way in: its properties are stored alike."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from orbitmq.core.state import ENTRY
from orbitmq.wire.batch import BatchMessage, encode_batch
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.expression import tag_code
from orbitmq.wire.frame import BINARY
from orbitmq.wire.record import Record, scan_records
from tests.behaviour.requests import pull_request, send_request
from tests.broker.running import LIMIT_S, Running
from tests.broker.test_send_checks import context_of, with_broker

UNIQUE = "0A" * 16
OWN = [f"UNIQ_KEY\x01{UNIQUE}", "KEYS\x01k1 k2", "X\x01ä", "Y", "TAGS\x01b", "TAGS\x01a"]
SENT = "\x02".join(["", *OWN[:3], "CLUSTER\x01other", "", "WAIT\x01true", *OWN[3:]])
CLUSTER = "CLUSTER\x01DefaultCluster"
LONG_NAMES = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "m": "batch",
}
BACK = ["DELAY", "REAL_TOPIC", "REAL_QID", "WAIT", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"]

Way = Callable[[Running], Awaitable[str]]


async def taken(at: Running, request: Command) -> Command:
    answer = await at.call(request)
    assert answer.code == 0, answer.remark
    return answer


async def by_v2(at: Running) -> str:
    await taken(at, send_request("T", i=SENT))
    return "T"


async def by_v1(at: Running) -> str:
    request = send_request("T", i=SENT)
    fields = {LONG_NAMES[letter]: text for letter, text in request.fields.items()}
    await taken(at, Command(RequestCode.SEND_MESSAGE, fields=fields, body=request.body))
    return "T"


async def in_binary(at: Running) -> str:
    await taken(at, send_request("T", i=SENT, serialization=BINARY))
    return "T"


async def in_a_batch(at: Running) -> str:
    messages = [BatchMessage(b"hello", SENT.encode())] * 2
    await taken(at, send_request("T", encode_batch(messages), i="", m="true"))
    return "T"


async def in_a_batch_that_shares(at: Running) -> str:
    """Some of its properties are those of the whole."""
    own, _, shared = SENT.partition("KEYS")
    messages = [BatchMessage(b"hello", own.encode())]
    await taken(at, send_request("T", encode_batch(messages), i="KEYS" + shared, m="true"))
    return "T"


async def delayed(at: Running) -> str:
    await taken(at, send_request("T", i=f"{SENT}\x02DELAY\x011"))
    return "T"


async def give_back(at: Running, level: int) -> None:
    sent = await taken(at, send_request("T", i=SENT))
    log_offset = int(sent.fields["msgId"][-16:], 16)
    answer = await at.ask(
        RequestCode.CONSUMER_SEND_MSG_BACK, offset=log_offset, group="G", delayLevel=level
    )
    assert answer.code == 0, answer.remark


async def sent_back(at: Running) -> str:
    await give_back(at, 1)
    return "%RETRY%G"


async def dead(at: Running) -> str:
    await give_back(at, -1)
    return "%DLQ%G"


WAYS: dict[Way, list[str]] = {
    by_v2: [],
    by_v1: [],
    in_binary: [],
    in_a_batch: ["WAIT"],
    in_a_batch_that_shares: ["WAIT"],
    delayed: ["WAIT", "DELAY", "REAL_TOPIC", "REAL_QID"],
    sent_back: BACK,
    dead: BACK,
}
"""Each way with the properties that it adds or keeps besides."""


async def first_record(at: Running, topic: str) -> Record:
    """Return the first record of a topic, when it is there."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            answer = await at.call(
                pull_request(topic, "G", 0, sysFlag=6, suspendTimeoutMillis=1_000)
            )
            records = list(scan_records(answer.body)) if answer.code == 0 else []
            if records:
                return records[0]
            assert answer.code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.TOPIC_NOT_EXIST)


async def found_by(at: Running, topic: str, key: str) -> int:
    """Return how many messages the key index has under a key."""
    answer = await at.ask(
        RequestCode.QUERY_MESSAGE,
        topic=topic,
        key=key,
        maxNum=32,
        beginTimestamp=0,
        endTimestamp=2**62,
    )
    return len(list(scan_records(answer.body)))


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_message_is_stored_alike_whichever_way_it_comes(tmp_path: Path, way: Way) -> None:
    async def act(at: Running) -> None:
        topic = await way(at)
        record = await first_record(at, topic)
        entries = record.properties.decode().split("\x02")
        assert entries[-1] == CLUSTER
        added = tuple(f"{name}\x01" for name in WAYS[way])
        assert [entry for entry in entries[:-1] if not entry.startswith(added)] == OWN
        queue = context_of(at).store.queue(topic, 0)
        assert ENTRY.unpack_from(queue.entries)[2] == tag_code("a")
        for key in (UNIQUE, "k1", "k2"):
            assert await found_by(at, topic, key) >= 1, key

    with_broker(tmp_path, act, message_delay_level="1s")
