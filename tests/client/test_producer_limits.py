"""Producers at their limits, and hooks that fail: each send comes to an end, and a true one."""

import asyncio
import os
from collections.abc import Callable

import pytest

from orbitmq.client.message import Message
from orbitmq.client.producer import Producer
from orbitmq.client.send_result import SendResult, SendStatus
from orbitmq.errors import (
    BatchFailed,
    BatchUnknown,
    LimitExceeded,
    LocalProtocolError,
    SendFailed,
    SendUnknown,
)
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from tests.client.producing import run
from tests.client.scripted import SILENT, TOPIC, scripted
from tests.foreign.judged import System

MIB = 1_048_576


def test_a_body_of_4_mib_is_sent_however_it_compresses_and_one_byte_more_is_refused_here(
    system: System, fresh_name: Callable[[str], str]
) -> None:
    """Symptom: 4 MiB that do not compress grew by being compressed, and the broker refused them."""
    topic = fresh_name("Topic")

    async def main() -> None:
        async with Producer(system.namesrv, fresh_name("PG")) as producer:
            for body in (b"x" * (4 * MIB), os.urandom(4 * MIB)):
                sent = await producer.send(Message(topic, body), timeout=20)
                assert sent.status is SendStatus.SEND_OK
                with pytest.raises(LimitExceeded, match="4194305 bytes, limit 4194304"):
                    await producer.send(Message(topic, body + b"x"))

    run(main())


def test_a_refused_message_that_waited_for_room_leaves_its_place_to_the_next() -> None:
    async def main() -> None:
        async with scripted([SILENT]) as cluster:
            address = cluster.namesrv.address
            async with Producer(address, sends_in_flight_max=1) as producer:
                stuck = producer.submit(Message(TOPIC, b"x"), timeout=0.3)
                refused = asyncio.create_task(producer.send(Message(TOPIC, b""), timeout=5))
                next_one = asyncio.create_task(producer.send(Message(TOPIC, b"y"), timeout=5))
                idler = asyncio.create_task(producer.room())
                with pytest.raises(SendUnknown):
                    await stuck
                with pytest.raises(LocalProtocolError):
                    await refused
                assert isinstance(await asyncio.wait_for(next_one, 3), SendResult)
                await asyncio.wait_for(idler, 3)

    run(main())


def test_who_waits_for_room_and_sends_nothing_keeps_no_other_waiting() -> None:
    async def main() -> None:
        async with scripted([SILENT]) as cluster:
            address = cluster.namesrv.address
            async with Producer(address, sends_in_flight_max=1) as producer:
                stuck = producer.submit(Message(TOPIC, b"x"), timeout=0.3)
                waits = [asyncio.create_task(producer.room()) for _ in range(3)]
                with pytest.raises(SendUnknown):
                    await stuck
                await asyncio.wait_for(asyncio.gather(*waits), 3)

    run(main())


def test_one_way_messages_wait_for_room_too() -> None:
    async def main() -> None:
        async with scripted([SILENT, SILENT]) as cluster:
            address = cluster.namesrv.address
            async with Producer(address, sends_in_flight_max=1, send_timeout_s=0.2) as producer:
                stuck = producer.submit(Message(TOPIC, b"x"), timeout=3)
                with pytest.raises(LimitExceeded):
                    await producer.send_oneway(Message(TOPIC, b"y"))
                stuck.cancel()

    run(main())


def test_a_batch_that_finds_no_room_for_its_rest_says_what_became_of_its_beginning() -> None:
    async def main() -> None:
        async with scripted([SILENT]) as cluster:
            address = cluster.namesrv.address
            async with Producer(address, sends_in_flight_max=1, batch_bytes_max=2048) as producer:
                messages = [Message(TOPIC, b"x" * 1024) for _ in range(4)]
                with pytest.raises(BatchUnknown) as caught:
                    await producer.send_batch(messages, timeout=0.4)
        outcomes = caught.value.outcomes
        assert len(outcomes) == 4
        assert isinstance(outcomes[0], SendUnknown)
        assert isinstance(outcomes[-1], LimitExceeded)

    run(main())


class Failing:
    """A hook that raises at the requests, or the answers, of one code."""

    def __init__(self, *, before: int = 0, after: int = 0) -> None:
        self._before, self._after = before, after

    def before(self, _address: str, request: Command) -> None:
        if request.code == self._before:
            raise ValueError("no signature")

    def after(self, _address: str, request: Command, _answer: Command) -> None:
        if request.code == self._after:
            raise ValueError("no good signature")


def test_a_hook_that_fails_when_the_route_is_asked_for_does_not_hang_the_sends() -> None:
    async def main() -> None:
        async with scripted([]) as cluster:
            hook = Failing(before=RequestCode.GET_ROUTEINFO_BY_TOPIC)
            async with Producer(cluster.namesrv.address, rpc_hooks=[hook]) as producer:
                for _ in range(2):
                    with pytest.raises(ValueError, match="no signature"):
                        await asyncio.wait_for(producer.send(Message(TOPIC, b"x")), 3)

    run(main())


def test_a_hook_that_fails_at_the_answer_of_a_send_does_not_hang_it() -> None:
    async def main() -> None:
        async with scripted([]) as cluster:
            hook = Failing(after=RequestCode.SEND_MESSAGE_V2)
            async with Producer(cluster.namesrv.address, rpc_hooks=[hook]) as producer:
                sends = [producer.submit(Message(TOPIC, b"x")) for _ in range(3)]
                found = await asyncio.wait_for(asyncio.gather(*sends, return_exceptions=True), 3)
                assert [str(one) for one in found] == ["no good signature"] * 3
        assert cluster.sends() == [3]

    run(main())


def test_a_message_that_is_stored_but_not_flushed_is_not_called_lost_when_the_route_goes() -> None:
    flush_timeout = 10

    async def main() -> None:
        async with scripted([flush_timeout], [flush_timeout]) as cluster:
            address = cluster.namesrv.address
            async with Producer(
                address, retry_another_broker_when_not_stored=True, send_timeout_s=1.0
            ) as producer:
                await producer.publish_queues(TOPIC)

                class LosesRoute:
                    def before(self, context: object) -> None:
                        pass

                    def after(self, context: object) -> None:
                        producer._publication(TOPIC).queues = ()
                        cluster.namesrv.routes.clear()
                        producer._running()._instance.routes.forget(TOPIC)

                producer.send_hooks.append(LosesRoute())
                result = await producer.send(Message(TOPIC, b"x"))
        assert result.status is SendStatus.FLUSH_DISK_TIMEOUT

    run(main())


@pytest.mark.parametrize("timeout", [-5, 0, -0.001, float("nan")])
def test_a_deadline_in_the_past_still_sent_the_message(timeout: float) -> None:
    async def main() -> None:
        async with scripted([]) as cluster, Producer(cluster.namesrv.address) as producer:
            message = Message(TOPIC, b"x")
            await producer.send(message)
            with pytest.raises(SendFailed, match="was over before the first attempt"):
                await producer.send(message, timeout=timeout)
            with pytest.raises(SendFailed, match="was over before the first attempt"):
                producer.submit(message, timeout=timeout)
            with pytest.raises(BatchFailed, match="2 of 2 messages"):
                await producer.send_batch([message, message], timeout=timeout)
            assert cluster.sends() == [1]

    run(main())
