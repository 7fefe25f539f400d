"""What the producer does when brokers refuse, vanish or stay silent; they are scripted."""

import asyncio
import socket
from typing import Any

import pytest

from orbitmq.client.message import Message
from orbitmq.client.producer import Producer
from orbitmq.client.send_hooks import SendContext
from orbitmq.client.send_result import SendStatus
from orbitmq.errors import (
    BatchFailed,
    BatchUnknown,
    BrokerBusy,
    ClientStateError,
    ConnectFailed,
    ConnectionClosed,
    LimitExceeded,
    MQError,
    OutcomeUnknown,
    RequestFailed,
    RequestTimeout,
    SendFailed,
    SendUnknown,
)
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.bodies_namesrv import BrokerData
from orbitmq.wire.properties import parse_properties
from tests.client.producing import run
from tests.client.relay import relay
from tests.client.scripted import CLOSE, JUNK, SILENT, TOPIC, Cluster, scripted
from tests.net.running import HOST, PATIENCE_S, until

MESSAGE = Message(TOPIC, b"x")


def producer_of(cluster: Cluster, **options: Any) -> Producer:
    return Producer(cluster.namesrv.address, group="PG", client_ip="127.0.0.1", **options)


async def connect_all(cluster: Cluster, producer: Producer) -> None:
    """Have a connection to every broker, so that a short time-out is spent on the send alone."""
    for broker in cluster.brokers:
        await producer.send(MESSAGE, queue=MessageQueue(TOPIC, broker.name, 0))


def brokers_of(error: SendFailed | SendUnknown) -> list[str]:
    return [broker for broker, _ in error.attempts]


@pytest.mark.parametrize("code", [1, 14, 16, 17, 204, 205])
def test_send_goes_to_another_broker_after_a_code_that_allows_it(code: int) -> None:
    async def main() -> None:
        async with scripted([code], [code]) as cluster, producer_of(cluster) as producer:
            result = await producer.send(MESSAGE)
            assert result.status is SendStatus.SEND_OK
            assert sorted(cluster.sends()) == [1, 2]

    run(main())


def test_send_gives_up_after_two_retries_and_names_every_attempt() -> None:
    async def main() -> None:
        async with scripted([14] * 3, [14] * 3) as cluster, producer_of(cluster) as producer:
            with pytest.raises(SendFailed, match="code 14: step 14") as caught:
                await producer.send(MESSAGE)
            first, second, third = brokers_of(caught.value)
            assert first == third != second
            assert sum(cluster.sends()) == 3
            assert all(isinstance(error, RequestFailed) for _, error in caught.value.attempts)

    run(main())


def test_with_one_broker_the_retries_go_to_it() -> None:
    async def main() -> None:
        async with scripted([1, 1]) as cluster, producer_of(cluster) as producer:
            await producer.send(MESSAGE)
            assert cluster.sends() == [3]

    run(main())


@pytest.mark.parametrize("code", [2, 215])
def test_flow_control_is_never_answered_by_another_attempt(code: int) -> None:
    async def main() -> None:
        async with scripted([code] * 3, [code] * 3) as cluster, producer_of(cluster) as producer:
            with pytest.raises(BrokerBusy, match=f"code {code}: step {code}"):
                await producer.send(MESSAGE)
            with pytest.raises(BrokerBusy):
                await producer.submit(MESSAGE)
            assert sum(cluster.sends()) == 2

    run(main())


@pytest.mark.parametrize("code", [3, 13, 15, 206])
def test_other_codes_are_final(code: int) -> None:
    async def main() -> None:
        async with scripted([code], [code]) as cluster, producer_of(cluster) as producer:
            with pytest.raises(SendFailed, match=f"code {code}"):
                await producer.send(MESSAGE)
            assert sum(cluster.sends()) == 1

    run(main())


def test_an_error_answer_to_submit_is_final_and_a_lost_connection_is_not() -> None:
    async def main() -> None:
        async with scripted([14], [14]) as cluster, producer_of(cluster) as producer:
            with pytest.raises(SendFailed, match="code 14"):
                await producer.submit(MESSAGE)
            assert sum(cluster.sends()) == 1
        async with scripted([CLOSE], [CLOSE]) as cluster, producer_of(cluster) as producer:
            assert (await producer.submit(MESSAGE)).status is SendStatus.SEND_OK
            assert sorted(cluster.sends()) == [0, 2]

    run(main())


@pytest.mark.parametrize("avoids", [False, True])
def test_a_submitted_message_stays_with_its_broker(avoids: bool) -> None:
    async def main() -> None:
        async with (
            scripted([CLOSE] * 3, [CLOSE] * 3) as cluster,
            producer_of(cluster, avoids_slow_brokers=avoids) as producer,
        ):
            with pytest.raises(SendUnknown) as caught:
                await producer.submit(MESSAGE)
            assert len(caught.value.attempts) == 3
            assert len(set(brokers_of(caught.value))) == 1
            assert sorted(cluster.sends()) == [0, 3]

    run(main())


def test_a_lost_answer_is_an_unknown_outcome_whatever_came_after_it() -> None:
    async def main() -> None:
        steps: list[int | str] = [CLOSE, 13, 13]
        async with scripted(steps) as cluster, producer_of(cluster) as producer:
            with pytest.raises(SendUnknown, match="it may have been sent") as caught:
                await producer.send(MESSAGE)
            (_, lost), (_, refused) = caught.value.attempts
            assert isinstance(lost, ConnectionClosed)
            assert isinstance(refused, RequestFailed)
            assert isinstance(caught.value, OutcomeUnknown)
            assert not isinstance(caught.value, SendFailed)

    run(main())


def test_an_answer_that_cannot_be_read_is_an_unknown_outcome() -> None:
    async def main() -> None:
        async with scripted([JUNK] * 3) as cluster, producer_of(cluster) as producer:
            with pytest.raises(SendUnknown, match="queueId"):
                await producer.send(MESSAGE)

    run(main())


def test_no_answer_in_time_is_an_unknown_outcome_and_uses_up_the_budget() -> None:
    async def main() -> None:
        async with scripted([], []) as cluster, producer_of(cluster) as producer:
            await connect_all(cluster, producer)
            for broker in cluster.brokers:
                broker.steps.append(SILENT)
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            with pytest.raises(SendUnknown, match=r"within 0\.2 s") as caught:
                await producer.send(MESSAGE, timeout=0.2)
            assert 0.2 <= loop.time() - began_s < 2.0
            assert [type(error) for _, error in caught.value.attempts] == [RequestTimeout]

    run(main())


def test_a_late_answer_harms_nobody() -> None:
    async def main() -> None:
        async with scripted([]) as cluster, producer_of(cluster) as producer:
            await connect_all(cluster, producer)
            (broker,) = cluster.brokers
            broker.sends.clear()
            broker.steps.append(SILENT)
            with pytest.raises(SendUnknown):
                await producer.send(MESSAGE, timeout=0.05)
            await until(lambda: broker.sends)
            assert broker.site is not None
            broker.site.connection().send_command(broker.answer(broker.sends[0], 0))
            result = await producer.send(MESSAGE)
            assert result.queue_offset == 7

    run(main())


def test_nobody_there_is_a_certain_failure_and_the_other_broker_is_used() -> None:
    async def main() -> None:
        with socket.socket() as taken:  # bound, so that nobody else listens there; refuses all
            taken.bind((HOST, 0))
            async with scripted([]) as cluster, producer_of(cluster) as producer:
                route = cluster.route()
                dead = f"{HOST}:{taken.getsockname()[1]}"
                gone = BrokerData(cluster="C", broker_name="a0", broker_addrs={0: dead})
                route.broker_datas.append(gone)
                route.queue_datas.append(
                    type(route.queue_datas[0])(
                        broker_name="a0", read_queue_count=2, write_queue_count=2, perm=6
                    )
                )
                cluster.namesrv.routes[TOPIC] = route
                for _ in range(8):
                    assert (await producer.send(MESSAGE)).queue.broker_name == "b0"
                with pytest.raises(SendFailed, match="no connection") as caught:
                    await producer.send(MESSAGE, queue=MessageQueue(TOPIC, "a0", 0))
                assert [type(error) for _, error in caught.value.attempts] == [ConnectFailed]
                with pytest.raises(SendFailed, match="no connection"):
                    await producer.send_oneway(MESSAGE, queue=MessageQueue(TOPIC, "a0", 0))

    run(main())


def test_send_dials_again_and_a_oneway_message_is_never_tried_again() -> None:
    async def main() -> None:
        with socket.socket() as taken:  # bound, but refuses all
            taken.bind((HOST, 0))
            async with scripted([]) as cluster, producer_of(cluster) as producer:
                route = cluster.route()
                route.broker_datas[0].broker_addrs[0] = f"{HOST}:{taken.getsockname()[1]}"
                cluster.namesrv.routes[TOPIC] = route
                with pytest.raises(SendFailed) as told:
                    await producer.send_oneway(MESSAGE)
                assert len(told.value.attempts) == 1
                with pytest.raises(SendFailed) as sent:
                    await producer.send(MESSAGE)
                assert len(sent.value.attempts) == 3

    run(main())


def test_a_message_that_is_sent_again_keeps_its_id() -> None:
    async def main() -> None:
        async with scripted([CLOSE, 14]) as cluster, producer_of(cluster) as producer:
            result = await producer.send(MESSAGE)
            (broker,) = cluster.brokers
            found = [parse_properties(sent.fields["i"])["UNIQ_KEY"] for sent in broker.sends]
            assert found == [result.message_id] * 3

    run(main())


def test_a_fixed_queue_has_one_attempt() -> None:
    async def main() -> None:
        async with scripted([1] * 9, [1] * 9) as cluster, producer_of(cluster) as producer:
            for choice in (
                {"key": "k"},
                {"queue": MessageQueue(TOPIC, "b1", 0)},
                {"selector": lambda queues, message: queues[0]},
            ):
                with pytest.raises(SendFailed):
                    await producer.send(MESSAGE, **choice)
            assert sum(cluster.sends()) == 3

    run(main())


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (10, SendStatus.FLUSH_DISK_TIMEOUT),
        (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (11, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
def test_a_status_that_is_not_ok_is_a_result_unless_another_broker_is_wanted(
    code: int, status: SendStatus
) -> None:
    async def main() -> None:
        async with scripted([code], [code]) as cluster, producer_of(cluster) as producer:
            result = await producer.send(MESSAGE)
            assert (result.status, result.offset_id) == (status, "ID")
            assert sum(cluster.sends()) == 1
        async with (
            scripted([code], []) as cluster,
            producer_of(cluster, retry_another_broker_when_not_stored=True) as producer,
        ):
            results = [await producer.send(MESSAGE) for _ in range(4)]
            assert {result.status for result in results} == {SendStatus.SEND_OK}
            assert sum(cluster.sends()) == 5
        steps: list[int | str] = [code, 14, 14]
        async with (
            scripted(steps) as cluster,
            producer_of(cluster, retry_another_broker_when_not_stored=True) as producer,
        ):
            assert (await producer.send(MESSAGE)).status is status
            assert cluster.sends() == [3]

    run(main())


def test_hooks_see_each_attempt_and_its_error() -> None:
    errors: list[object] = []

    class Watching:
        def before(self, context: SendContext) -> None:
            errors.append(context.queue.broker_name)

        def after(self, context: SendContext) -> None:
            errors.append(getattr(context.error, "code", context.error))

    async def main() -> None:
        async with scripted([14], []) as cluster, producer_of(cluster) as producer:
            producer.send_hooks.append(Watching())
            for _ in range(4):  # each of the four queues in turn
                await producer.send(MESSAGE, timeout=PATIENCE_S)
            assert errors.count(14) == 1
            assert errors[errors.index(14) - 1] == "b0"
            assert errors[errors.index(14) + 1] == "b1"

    run(main())


def test_the_number_in_flight_is_bounded_and_send_waits_for_room() -> None:
    async def main() -> None:
        async with (
            scripted([SILENT] * 3) as cluster,
            producer_of(cluster, sends_in_flight_max=3) as producer,
        ):
            (broker,) = cluster.brokers
            futures = [producer.submit(MESSAGE, timeout=PATIENCE_S) for _ in range(3)]
            with pytest.raises(LimitExceeded, match=r"sends_in_flight_max.*room\(\)"):
                producer.submit(MESSAGE)
            with pytest.raises(LimitExceeded, match="sends_in_flight_max"):
                await producer.send(MESSAGE, timeout=0.05)
            waiting = asyncio.create_task(producer.send(MESSAGE))
            impatient = asyncio.create_task(producer.room())
            await until(lambda: len(broker.sends) == 3)
            impatient.cancel()
            assert broker.site is not None
            broker.site.connection().send_command(broker.answer(broker.sends[0], 0))
            assert (await waiting).status is SendStatus.SEND_OK
            await producer.room()
            for sent in broker.sends[1:]:
                broker.site.connection().send_command(broker.answer(sent, 0))
            await producer.flush()
            assert all(future.done() for future in futures)
            with pytest.raises(asyncio.CancelledError):
                await impatient

    run(main())


def test_the_bytes_in_flight_are_bounded_and_one_large_message_still_goes() -> None:
    async def main() -> None:
        async with (
            scripted([0, SILENT]) as cluster,
            producer_of(cluster, bytes_in_flight_max=1_000) as producer,
        ):
            await producer.send(MESSAGE)
            large = Message(TOPIC, b"x" * 3_000)
            future = producer.submit(large, timeout=0.2)
            with pytest.raises(LimitExceeded, match="3000 bytes are in flight"):
                producer.submit(MESSAGE)
            with pytest.raises(SendUnknown):
                await future
            await producer.send(large)

    run(main())


def test_a_cancelled_send_leaves_nothing_behind() -> None:
    async def main() -> None:
        async with scripted([SILENT]) as cluster, producer_of(cluster) as producer:
            sending = asyncio.create_task(producer.send(MESSAGE, timeout=0.1))
            await until(lambda: cluster.sends() == [1])
            sending.cancel()
            await producer.flush()
            assert sending.cancelled()

    run(main())


def test_a_batch_says_of_each_message_what_became_of_it() -> None:
    messages = [Message(TOPIC, b"%d" % n) for n in range(3)]

    async def main() -> None:
        steps: list[int | str] = [0, 13, 0]
        async with (
            scripted([0, *steps]) as cluster,
            producer_of(cluster, batch_bytes_max=1) as producer,
        ):
            await producer.send(MESSAGE)
            with pytest.raises(BatchFailed, match="1 of 3 messages to topic T") as failed:
                await producer.send_batch(messages)
            first, second, third = failed.value.outcomes
            assert isinstance(second, SendFailed)
            assert {type(first).__name__, type(third).__name__} == {"SendResult"}
            cluster.brokers[0].steps += [SILENT, 13]
            with pytest.raises(BatchUnknown, match="2 of 3") as unknown:
                await producer.send_batch(messages, timeout=0.5)
            kinds = [type(outcome).__name__ for outcome in unknown.value.outcomes]
            assert kinds == ["SendUnknown", "SendFailed", "SendResult"]

    run(main())


def test_close_gives_up_what_cannot_be_sent_within_its_limit() -> None:
    async def main() -> None:
        with socket.socket() as full:  # a listener whose queue is full answers no further hello
            full.bind((HOST, 0))
            full.listen(0)
            port = full.getsockname()[1]
            waiting = [socket.socket() for _ in range(4)]
            for one in waiting:
                one.setblocking(False)
                one.connect_ex((HOST, port))
            async with scripted([]) as cluster:
                route = cluster.route()
                route.broker_datas[0].broker_addrs[0] = f"{HOST}:{port}"
                cluster.namesrv.routes[TOPIC] = route
                producer = await producer_of(cluster, close_timeout_s=0.2).start()
                with pytest.raises(SendFailed, match=r"no connection to .* within 0\.1 s"):
                    await producer.send(MESSAGE, timeout=0.1)
                future = producer.submit(MESSAGE, timeout=PATIENCE_S)
                await producer.close()
                with pytest.raises(MQError, match="closed before it could be sent"):
                    await future
            for one in waiting:
                one.close()
            assert isinstance(future.exception(), SendFailed | ClientStateError)

    run(main())


def test_a_broker_that_has_moved_is_found_again_at_once() -> None:
    async def main() -> None:
        async with scripted([], []) as cluster:
            first, second = cluster.brokers
            cluster.brokers = [first]
            cluster.namesrv.routes[TOPIC] = cluster.route()
            async with producer_of(cluster) as producer:
                await producer.send(MESSAGE)
                assert first.site is not None
                await first.site.server.stop()
                second.name = first.name
                cluster.brokers = [second]
                cluster.namesrv.routes[TOPIC] = cluster.route()
                async with asyncio.timeout(PATIENCE_S):
                    while not second.sends:
                        try:
                            await producer.send(MESSAGE)
                        except MQError:
                            await asyncio.sleep(0.05)

    run(main())


def test_brokers_get_heartbeats_and_a_goodbye() -> None:
    async def main() -> None:
        async with scripted([]) as cluster:
            (broker,) = cluster.brokers
            async with producer_of(cluster) as producer:
                await producer.send(MESSAGE)
                await until(lambda: 34 in broker.others)
            assert broker.others[-1] == 35

    run(main())


def test_three_attempts_ended_within_15_ms_while_the_only_broker_restarted() -> None:
    async def main() -> None:
        async with scripted([]) as cluster, producer_of(cluster) as producer:
            with socket.socket() as restarting:  # bound: refuses all until somebody listens
                restarting.bind((HOST, 0))
                route = cluster.route()
                address = f"{HOST}:{restarting.getsockname()[1]}"
                route.broker_datas[0].broker_addrs[0] = address
                cluster.namesrv.routes[TOPIC] = route
                attempts: list[SendContext] = []

                class Restart:
                    def before(self, context: SendContext) -> None:
                        attempts.append(context)

                    def after(self, context: SendContext) -> None:
                        pass

                producer.send_hooks.append(Restart())
                with pytest.raises(SendFailed, match=r"\(3 times\)$") as caught:
                    await producer.send(MESSAGE, timeout=0.4)
                assert len(caught.value.attempts) == 3
                sent = asyncio.create_task(producer.send(MESSAGE, timeout=5))
                await asyncio.sleep(0.05)  # so that the first attempt has failed
                async with relay(restarting, cluster.brokers[0].address):
                    assert (await sent).status is SendStatus.SEND_OK
                assert len(attempts) == 1

    run(main())


def test_closing_between_two_attempts_ends_the_send() -> None:
    async def main() -> None:
        async with scripted([]) as cluster:
            with socket.socket() as nobody:
                nobody.bind((HOST, 0))
                route = cluster.route()
                route.broker_datas[0].broker_addrs[0] = f"{HOST}:{nobody.getsockname()[1]}"
                cluster.namesrv.routes[TOPIC] = route
                async with producer_of(cluster, close_timeout_s=0.1) as producer:
                    waiting = producer.submit(MESSAGE, timeout=PATIENCE_S)
                with pytest.raises(SendFailed):
                    await asyncio.wait_for(waiting, 0.1)

    run(main())
