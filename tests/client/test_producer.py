"""The producer on a running system: every way of sending, and what the broker has afterwards."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from orbitmq.client.message import Message
from orbitmq.client.producer import Producer
from orbitmq.client.pull_consumer import PullConsumer
from orbitmq.client.queue_choice import queue_of_key
from orbitmq.client.send_hooks import SendContext, SendMode
from orbitmq.client.send_result import SendResult, SendStatus
from orbitmq.errors import (
    ClientStateError,
    ConnectFailed,
    LimitExceeded,
    LocalProtocolError,
    RouteNotFound,
    SendFailed,
    SettingError,
)
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.command import Command
from orbitmq.wire.message_id import decode_unique_id
from orbitmq.wire.sysflag import COMPRESSED, Compression, compression_of, is_compressed
from tests.client.name_server_double import name_server_double, route_data
from tests.client.producing import run, stored
from tests.foreign.judged import System, judged_original
from tests.net.running import open_descriptors

FreshName = Callable[[str], str]


def test_a_sent_message_is_stored_with_all_it_has(system: System, fresh_name: FreshName) -> None:
    topic = fresh_name("Topic")
    message = Message(
        topic, b"body", tag="TagA", keys=["k1", "k2"], properties={"colour": "grün"}, flag=7
    )

    async def main() -> None:
        async with Producer(system.namesrv, group=fresh_name("PG")) as producer:
            result = await producer.send(message)
        assert result.status is SendStatus.SEND_OK
        assert result.queue.topic == topic
        (found,) = stored(system.broker, [result])
        assert (found.topic, found.body, found.flag) == (topic, b"body", 7)
        assert (found.tag, found.keys) == ("TagA", ["k1", "k2"])
        assert found.properties["colour"] == "grün"
        assert found.message_id == result.message_id
        assert found.queue == result.queue
        assert found.queue_offset == result.queue_offset == 0
        assert decode_unique_id(result.message_id).pid > 0
        assert message == Message(
            topic, b"body", tag="TagA", keys=["k1", "k2"], properties={"colour": "grün"}, flag=7
        )

    run(main())


def test_submitted_messages_are_in_flight_together_and_each_has_its_result(
    system: System, fresh_name: FreshName
) -> None:
    topic = fresh_name("Topic")

    async def main() -> None:
        async with Producer(system.namesrv, group=fresh_name("PG")) as producer:
            await producer.send(Message(topic, b"first"))
            tasks = len(asyncio.all_tasks())
            futures = [producer.submit(Message(topic, b"%d" % n)) for n in range(500)]
            assert len(asyncio.all_tasks()) == tasks
            assert not any(future.done() for future in futures)
            results = await asyncio.gather(*futures)
        assert len({result.message_id for result in results}) == 500
        bodies = [found.body for found in stored(system.broker, results)]
        assert bodies == [b"%d" % n for n in range(500)]
        assert {result.queue.queue_id for result in results} == {0, 1, 2, 3}

    run(main())


def test_messages_submitted_before_the_route_is_known_keep_their_order(
    system: System, fresh_name: FreshName
) -> None:
    topic = fresh_name("Topic")

    async def main() -> None:
        async with Producer(system.namesrv, group=fresh_name("PG")) as producer:
            futures = [producer.submit(Message(topic, b"x"), key="one") for _ in range(50)]
            await asyncio.sleep(0)
            futures += [producer.submit(Message(topic, b"x"), key="one") for _ in range(50)]
            await futures[0]
            futures += [producer.submit(Message(topic, b"x"), key="one") for _ in range(50)]
            results = await asyncio.gather(*futures)
        offsets = [result.queue_offset for result in results]
        if judged_original() is not None:  # its send threads overtake each other
            offsets.sort()
        assert offsets == list(range(150))

    run(main())


def test_a_oneway_message_arrives_without_an_answer(system: System, fresh_name: FreshName) -> None:
    topic = fresh_name("Topic")

    async def main() -> None:
        async with Producer(system.namesrv, group=fresh_name("PG")) as producer:
            queue = (await producer.send(Message(topic, b"before"), key="k")).queue
            await producer.send_oneway(Message(topic, b"told"), key="k")
        bodies: list[bytes] = []
        async with PullConsumer(system.namesrv, fresh_name("CG")) as consumer:
            await consumer.assign([queue])
            await consumer.seek_to_begin(queue)
            while len(bodies) < 2:  # nobody tells when it is stored
                bodies += [message.body for message in await consumer.poll(timeout=1)]
        assert bodies == [b"before", b"told"]

    run(main())


def test_one_key_means_one_queue_the_one_that_java_chooses(
    system: System, fresh_name: FreshName
) -> None:
    topic = fresh_name("Topic")

    async def main() -> None:
        async with Producer(system.namesrv, group=fresh_name("PG")) as producer:
            queues = await producer.publish_queues(topic)
            assert [queue.queue_id for queue in queues] == [0, 1, 2, 3]
            by_key = [await producer.send(Message(topic, b"x"), key=f"k{n % 3}") for n in range(9)]
            for n, result in enumerate(by_key):
                assert result.queue == queue_of_key(queues, f"k{n % 3}")
            sharded = await producer.send(Message(topic, b"x", sharding_key="k1"))
            assert sharded.queue == by_key[1].queue
            fixed = await producer.send(Message(topic, b"x"), queue=queues[2])
            assert fixed.queue == queues[2]
            chosen = await producer.send(
                Message(topic, b"3"), selector=lambda offered, message: offered[int(message.body)]
            )
            assert chosen.queue == queues[3]
            with pytest.raises(SettingError, match="not several"):
                await producer.send(Message(topic, b"x"), queue=queues[0], key="k")

    run(main())


def test_what_a_selector_raises_reaches_the_caller(system: System, fresh_name: FreshName) -> None:
    async def main() -> None:
        async with Producer(system.namesrv, group=fresh_name("PG")) as producer:
            topic = fresh_name("Topic")

            def wrong(queues: object, message: Message) -> MessageQueue:
                raise KeyError("mine")

            with pytest.raises(KeyError, match="mine"):
                await producer.send(Message(topic, b"x"), selector=wrong)
            with pytest.raises(SendFailed, match="no address for broker nobody"):
                await producer.send(
                    Message(topic, b"x"), queue=MessageQueue(topic, "nobody", 0), timeout=5
                )
            await producer.flush()

    run(main())


def test_a_batch_is_parted_by_size_and_each_message_has_its_own_result(
    system: System, fresh_name: FreshName
) -> None:
    topic = fresh_name("Topic")
    messages = [Message(topic, b"%d" % n * 200, keys=[f"k{n}"]) for n in range(10)]

    async def main() -> None:
        requests: list[Command] = []
        group = fresh_name("PG")
        async with Producer(system.namesrv, group=group, batch_bytes_max=3_000) as producer:
            await producer.send(Message(topic, b"first"))
            producer.remote.before_request.append(
                lambda _address, request: requests.append(request)
            )
            results = await producer.send_batch(messages, key="k")
            lone = await producer.send_batch(messages[:1])
            producer.remote.before_request.clear()
        assert [request.code for request in requests] == [320] * len(requests)
        assert 3 < len(requests) < 10
        assert len({result.message_id for result in [*results, *lone]}) == 11
        found = stored(system.broker, results)
        assert [one.body for one in found] == [message.body for message in messages]
        assert [one.keys for one in found] == [[f"k{n}"] for n in range(10)]
        assert [one.message_id for one in found] == [one.message_id for one in results]
        assert [one.queue_offset for one in found] == [one.queue_offset for one in results]

    run(main())


def test_what_cannot_be_a_batch_is_refused_before_anything_is_sent(
    system: System, fresh_name: FreshName
) -> None:
    async def main() -> None:
        async with Producer(system.namesrv, group=fresh_name("PG")) as producer:
            for messages, text in (
                ([], "at least one"),
                ([Message("a", b"x"), Message("b", b"x")], "message 1 .* topic is b"),
                ([Message("a", b"x", delay_level=1)], "delay level 1"),
                ([Message("%RETRY%g", b"x")], "retry topics"),
                ([Message("a", b"x"), Message("a", b"x", waits_for_store=False)], "waits_for"),
                ([Message("a", b"x"), Message("a", b"")], "empty"),
            ):
                with pytest.raises(LocalProtocolError, match=text):
                    await producer.send_batch(messages)

    run(main())


@pytest.mark.parametrize("kind", list(Compression))
def test_a_body_of_4096_bytes_is_compressed_and_comes_back_whole(
    system: System, fresh_name: FreshName, kind: Compression
) -> None:
    topic = fresh_name("Topic")
    bodies = [b"a" * 4095, b"a" * 4096]

    async def main() -> None:
        async with Producer(system.namesrv, group=fresh_name("PG"), compression=kind) as producer:
            results = [await producer.send(Message(topic, body)) for body in bodies]
            batch = await producer.send_batch([Message(topic, bodies[1])])
        found = stored(system.broker, [*results, *batch])
        assert [one.body for one in found] == [bodies[0], bodies[1], bodies[1]]
        assert [is_compressed(one.sys_flag) for one in found] == [False, True, False]
        if kind is Compression.ZLIB:
            assert found[1].sys_flag & 0x701 == COMPRESSED
        else:
            assert compression_of(found[1].sys_flag) is kind

    run(main())


def test_a_delayed_message_is_stored_for_later(system: System, fresh_name: FreshName) -> None:
    topic = fresh_name("Topic")

    async def main() -> None:
        async with Producer(system.namesrv, group=fresh_name("PG")) as producer:
            result = await producer.send(Message(topic, b"later", delay_level=16))
        (found,) = stored(system.broker, [result])
        assert found.topic == "SCHEDULE_TOPIC_XXXX"
        assert found.properties["REAL_TOPIC"] == topic
        assert found.delay_level == 16 or found.properties["DELAY"] == "16"

    run(main())


def test_a_namespace_is_around_topic_and_group_and_nobody_sees_it(
    system: System, fresh_name: FreshName
) -> None:
    topic, namespace = fresh_name("Topic"), fresh_name("NS")

    async def main() -> None:
        async with Producer(system.namesrv, group="PG", namespace=namespace) as producer:
            assert producer.group == f"{namespace}%PG"
            result = await producer.send(Message(topic, b"x"))
            assert result.queue.topic == topic
            assert {queue.topic for queue in await producer.publish_queues(topic)} == {topic}
        (found,) = stored(system.broker, [result])
        assert found.topic == f"{namespace}%{topic}"
        assert found.properties["INSTANCE_ID"] == namespace

    run(main())


def test_hooks_see_every_attempt_and_their_errors_do_no_harm(
    system: System, fresh_name: FreshName
) -> None:
    topic = fresh_name("Topic")
    seen: list[tuple[str, SendMode, object, object]] = []

    class Watching:
        def before(self, context: SendContext) -> None:
            context.memo["mine"] = len(seen)
            seen.append(("before", context.mode, context.result, context.broker_address))
            raise ValueError("a hook's own")

        def after(self, context: SendContext) -> None:
            assert "mine" in context.memo
            seen.append(("after", context.mode, context.result, context.error))

    async def main() -> None:
        async with Producer(system.namesrv, group=fresh_name("PG")) as producer:
            producer.send_hooks.append(Watching())
            result = await producer.send(Message(topic, b"x"))
            await producer.send_oneway(Message(topic, b"x"))
            await producer.submit(Message(topic, b"x"))
        (_, mode, nothing, address), (_, _, first_result, error) = seen[:2]
        assert (mode, nothing, first_result, error) == (SendMode.SEND, None, result, None)
        assert address == system.broker
        assert [(word, mode) for word, mode, *_ in seen[2:]] == [
            ("before", SendMode.ONEWAY),
            ("after", SendMode.ONEWAY),
            ("before", SendMode.SUBMIT),
            ("after", SendMode.SUBMIT),
        ]

    run(main())


def test_rpc_hooks_see_sends_and_may_add_fields(system: System, fresh_name: FreshName) -> None:
    topic = fresh_name("Topic")

    async def main() -> None:
        asked: list[Command] = []
        answers: list[Command] = []

        def before(_address: str, request: Command) -> None:
            request.fields["mine"] = "yes"
            asked.append(request)

        def after(_address: str, request: Command, answer: Command) -> None:
            assert request is asked[-1]
            answers.append(answer)

        async with Producer(system.namesrv, group=fresh_name("PG")) as producer:
            plain = await producer.send(Message(topic, b"x"), key=1)
            producer.remote.before_request.append(before)
            producer.remote.after_answer.append(after)
            hooked = await producer.send(Message(topic, b"x", tag="t"), key=1)
            producer.remote.before_request.clear()
        assert hooked.queue_offset == plain.queue_offset + 1
        assert [request.code for request in asked] == [310]
        assert answers[0].fields["queueOffset"] == str(hooked.queue_offset)
        assert stored(system.broker, [hooked])[0].tag == "t"

    run(main())


def _no_texts() -> list[Message]:
    """Messages with numbers where texts belong, as programs have them."""
    options: list[dict[str, Any]] = [
        {"properties": {"p": 1}},
        {"properties": {1: "p"}},
        {"keys": [17]},
        {"tag": 5},
        {"sharding_key": 8},
    ]
    return [Message("t", b"x", **option) for option in options]


def test_messages_that_cannot_be_sent_are_refused_with_the_reason(
    system: System, fresh_name: FreshName
) -> None:
    wrong: list[tuple[Message, type[Exception], str]] = [
        (Message("", b"x"), LocalProtocolError, "no name"),
        (Message("a b", b"x"), LocalProtocolError, "' ' at position 1"),
        (Message("T" * 128, b"x"), LocalProtocolError, "limit 127"),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), LocalProtocolError, "belongs to the system"),
        (Message("t", b""), LocalProtocolError, "empty"),
        (Message("t", "x"), LocalProtocolError, r"body\.encode"),  # type: ignore[arg-type]  # on purpose
        (Message("t", b"x" * 1001), LimitExceeded, "message_bytes_max"),
        (Message("t", b"x", properties={"KEYS": "k"}), LocalProtocolError, "belongs to"),
        (Message("t", b"x", properties={"p": "v" * 33_000}), LocalProtocolError, "limit 32767"),
        (Message("t", b"x", properties={"p": "\x02"}), LocalProtocolError, "separator"),
        (Message("t", b"x", keys=["a b"]), LocalProtocolError, "holds a space"),
        (Message("t", b"x", delay_level=-1), LocalProtocolError, "from 1 to 18"),
        *(
            (no_text, LocalProtocolError, "must be (text|a list or tuple of texts|a dict)")
            for no_text in _no_texts()
        ),
    ]

    async def main() -> None:
        group = fresh_name("PG")
        async with Producer(system.namesrv, group=group, message_bytes_max=1000) as producer:
            for message, error, text in wrong:
                with pytest.raises(error, match=text):
                    producer.submit(message)
            await producer.flush()

    run(main())


def test_a_producer_works_between_start_and_close_only(
    system: System, fresh_name: FreshName
) -> None:
    async def main() -> None:
        before = open_descriptors()
        producer = Producer(system.namesrv, group=fresh_name("PG"))
        with pytest.raises(ClientStateError, match="call its start"):
            await producer.send(Message("t", b"x"))
        await producer.close()
        with pytest.raises(ClientStateError, match="closed; make a new one"):
            await producer.start()
        producer = Producer(system.namesrv, group=fresh_name("PG"))
        await producer.start()
        with pytest.raises(ClientStateError, match="started already"):
            await producer.start()
        await producer.send(Message(fresh_name("Topic"), b"x"))
        await producer.close()
        await producer.close()
        with pytest.raises(ClientStateError, match="it was closed"):
            producer.submit(Message("t", b"x"))
        assert open_descriptors() == before

    run(main())


def test_close_waits_for_what_is_in_flight(system: System, fresh_name: FreshName) -> None:
    topic = fresh_name("Topic")

    async def main() -> None:
        producer = await Producer(system.namesrv, group=fresh_name("PG")).start()
        futures = [producer.submit(Message(topic, b"x")) for _ in range(100)]
        await producer.close()
        assert all(isinstance(future.result(), SendResult) for future in futures)

    run(main())


def test_a_second_producer_of_a_group_in_one_instance_is_refused(
    system: System, fresh_name: FreshName
) -> None:
    group, name = fresh_name("PG"), fresh_name("instance")

    async def main() -> None:
        async with Producer(system.namesrv, group=group, instance_name=name):
            second = Producer(system.namesrv, group=group, instance_name=name)
            with pytest.raises(ClientStateError, match="another group"):
                await second.start()
            async with Producer(system.namesrv, group=f"{group}_b", instance_name=name) as third:
                await third.send(Message(fresh_name("Topic"), b"x"))

    run(main())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"group": "DEFAULT_PRODUCER"}, "its own group"),
        ({"group": "a b"}, "position 1"),
        ({"group": ""}, "no name"),
        ({"send_timeout_s": 0.0}, "send_timeout_s"),
        ({"sends_in_flight_max": 0}, "the least is 1"),
        ({"compression_level": 10}, "the most is 9"),
        ({"send_timeout": 1.0}, "did you mean send_timeout_s"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_with_the_reason(
    options: dict[str, object], text: str
) -> None:
    with pytest.raises(SettingError, match=text):
        Producer("127.0.0.1:9876", **options)  # type: ignore[arg-type]  # on purpose


def test_without_a_route_or_a_name_server_nothing_is_sent(fresh_name: FreshName) -> None:
    async def main() -> None:
        async with Producer("127.0.0.1:1", group=fresh_name("PG")) as producer:
            with pytest.raises(ConnectFailed, match=r"no name server says where topic t is"):
                await producer.send(Message("t", b"x"))
            with pytest.raises(ConnectFailed, match=r"is one running at 127\.0\.0\.1:1"):
                await producer.publish_queues("t")
        async with (
            name_server_double(closed=route_data("a", perm=4)) as double,
            Producer(double.address, group=fresh_name("PG")) as producer,
        ):
            with pytest.raises(RouteNotFound, match="orbitmq topic create t"):
                await producer.send(Message("t", b"x"))
            with pytest.raises(RouteNotFound, match="none of its brokers takes messages"):
                await producer.send(Message("closed", b"x"))
            assert double.asked == ["t", "TBW102", "closed"]

    run(main())
