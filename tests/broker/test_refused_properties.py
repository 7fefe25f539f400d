"""Properties that no record may hold: refused by name, a batch as a whole."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from orbitmq.config import BrokerSettings
from orbitmq.net.turn import Turn
from orbitmq.wire.batch import BatchMessage, encode_batch
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.world.net import run
from tests.behaviour.requests import send_request
from tests.broker.running import Running, running

SETTINGS = BrokerSettings(listen_port=0, mapped_file_size_commit_log=1 << 20)
UNIQUE = "UNIQ_KEY\x01" + "A" * 32


def with_broker(folder: Path, use: Callable[[Running], Awaitable[None]]) -> None:
    async def inner() -> None:
        async with running(folder, Turn(asyncio.get_running_loop()), SETTINGS) as broker:
            assert (await broker.call(send_request("T", b"first"))).code == 0
            await use(broker)

    run(inner())


def assert_refused(answer: Command) -> None:
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "NUL" in (answer.remark or "")


async def end_of(broker: Running) -> str:
    answer = await broker.ask(RequestCode.GET_MAX_OFFSET, topic="T", queueId=0)
    return answer.fields["offset"]


@pytest.mark.parametrize(
    "properties",
    ["x\x01" + "\0" * 600 + "\x02", "\0", f"{UNIQUE}\x02x\x01\0\x02", "UNIQ_KEY\x01A\0A\x02"],
    ids=["a value of them", "alone", "behind an id", "in an id"],
)
def test_a_nul_in_properties_is_refused_and_the_next_message_is_taken(
    tmp_path: Path, properties: str
) -> None:
    """Symptom: after a kill such a record counted as torn, and what came behind it was cut off."""

    async def use(broker: Running) -> None:
        for _ in range(2):  # what was judged once is remembered
            assert_refused(await broker.call(send_request("T", b"x", i=properties)))
        assert (await broker.call(send_request("T", b"x", i=UNIQUE))).code == 0
        assert await end_of(broker) == "2"

    with_broker(tmp_path, use)


@pytest.mark.parametrize("place", [0, 1, 2, "all"])
def test_a_batch_with_a_nul_anywhere_in_its_properties_is_refused_as_a_whole(
    tmp_path: Path, place: int | str
) -> None:
    async def use(broker: Running) -> None:
        messages = [
            BatchMessage(b"%d" % n, b"a\x01\0\x02" if n == place else b"a\x01b\x02", 0)
            for n in range(3)
        ]
        request = send_request(
            "T", encode_batch(messages), m="true", i="b\x01\0" if place == "all" else "b\x01c"
        )
        assert_refused(await broker.call(request))
        assert await end_of(broker) == "1"

    with_broker(tmp_path, use)
