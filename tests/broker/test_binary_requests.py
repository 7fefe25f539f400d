"""Requests with binary headers: the core answers them as the handlers do, byte for byte."""

from pathlib import Path

import msgspec
import pytest

from orbitmq.broker import hot_path
from orbitmq.core import CoreState, Origin, ReadResult
from orbitmq.core.plain import end_of, next_frame
from orbitmq.wire.batch import BatchMessage, encode_batch
from orbitmq.wire.command import Command, encode_command
from orbitmq.wire.frame import BINARY
from tests.behaviour.requests import heartbeat_body, pull_request, send_request
from tests.broker.running import Running
from tests.broker.test_send_checks import context_of, with_broker
from tests.broker.test_ways_in import LONG_NAMES
from tests.net.running import Client, connected

BATCH = encode_batch([BatchMessage(b"one"), BatchMessage(b"two", b"KEYS\x01k")])
CHANGING = ("msgId", "queueOffset")
"""What two sends of one message are told that differs."""


def sends() -> dict[str, Command]:
    plain = send_request("T", serialization=BINARY)
    long_names = {LONG_NAMES[letter]: text for letter, text in plain.fields.items()}
    batch = send_request("T", BATCH, serialization=BINARY, i="", m="true")
    return {
        "310": plain,
        "10": msgspec.structs.replace(plain, code=10, fields=long_names),
        "320": msgspec.structs.replace(batch, code=320),
        "in another queue": send_request("T", serialization=BINARY, e=3),
    }


def pull() -> Command:
    return msgspec.structs.replace(
        pull_request("T", "G", 0, sysFlag=5, commitOffset=1), serialization=BINARY
    )


def hand_all_back(
    core: CoreState, data: bytes, start: int, origin: Origin, now_ms: int
) -> ReadResult:
    """A core that does nothing by itself."""
    frame = next_frame(data, start)
    used = start if frame is None else end_of(frame, start)
    return ReadResult(used, [], core.tail.end_offset, core.tail.grown, frame, 0, 0)


async def asked(client: Client, request: Command) -> bytes:
    """Return the bytes of the answer."""
    client.write(encode_command(request))
    length = await client.reader.readexactly(4)
    return length + await client.reader.readexactly(int.from_bytes(length, "big"))


def by_core(at: Running) -> int:
    """How many requests the core has answered by itself."""
    hot = context_of(at).hot
    return hot._sends.value + hot._pulls.value


def test_the_core_answers_binary_requests_as_the_handlers_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(at: Running) -> None:
        for queue_id in (0, 3):
            assert (await at.call(send_request("T", e=queue_id))).code == 0
        assert (await at.call(Command(34, body=heartbeat_body("c", "G", "T")))).code == 0
        assert (await at.call(pull_request("T", "G", 0, sysFlag=5))).code == 0
        async with connected(int(at.broker.address.rpartition(":")[2])) as client:
            requests = [*sends().values(), pull()]
            count = by_core(at)
            first = [await asked(client, request) for request in requests]
            assert by_core(at) == count + len(requests)
            for request, answer in zip(requests[:-1], first, strict=False):
                with monkeypatch.context() as patch:
                    patch.setattr(hot_path, "handle_one_read", hand_all_back)
                    again = await asked(client, request)
                assert same_but_place(answer) == same_but_place(again)
            pulled = await asked(client, pull())
            with monkeypatch.context() as patch:
                patch.setattr(hot_path, "handle_one_read", hand_all_back)
                assert await asked(client, pull()) == pulled
            assert pulled[4] == BINARY
            assert by_core(at) == count + len(requests) + 1

    with_broker(tmp_path, act)


def same_but_place(answer: bytes) -> bytes:
    """An answer to a send with other digits where two sends differ; the sizes stay."""
    for name in CHANGING:
        at = answer.index(name.encode()) + len(name)
        end = at + 4 + int.from_bytes(answer[at : at + 4], "big")
        answer = answer[: at + 4] + b"0" * (end - at - 4) + answer[end:]
    return answer


@pytest.mark.parametrize("region", ["", 'a"b', "é"])
def test_what_the_broker_is_called_stands_in_binary_answers(tmp_path: Path, region: str) -> None:
    async def act(at: Running) -> None:
        assert (await at.call(send_request("T"))).code == 0
        count = by_core(at)
        answer = await at.call(send_request("T", serialization=BINARY))
        assert answer.fields.get("MSG_REGION", "") == region
        assert by_core(at) == count + 1

    with_broker(tmp_path, act, region_id=region)
