"""Pulls one by one: what comes back, what is asked of brokers, and what answers may hold."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from orbitmq.client.decoding import Decoder
from orbitmq.client.instance import Instance, join
from orbitmq.client.message import ReceivedMessage, received
from orbitmq.client.pulling import Puller, PullStatus
from orbitmq.client.queue_offsets import group_offset
from orbitmq.client.settings import ClientSettings
from orbitmq.client.subscriptions import Selector, Subscription
from orbitmq.errors import BrokerNotFound, RemoteProtocolError, RequestFailed, RouteNotFound
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.command import Command
from orbitmq.wire.compression import compress
from orbitmq.wire.host import Host
from orbitmq.wire.properties import encode_properties
from orbitmq.wire.record import MAGIC_V2, Record, encode_record
from orbitmq.wire.sysflag import Compression, with_compression
from tests.client.sites import Fresh, fill, make_topic, run, send
from tests.foreign.judged import System

QUEUE = MessageQueue("orders", "broker-a", 3)
V4, V6 = Host("10.0.0.1", 4000), Host("2001:db8::1", 4000)


@asynccontextmanager
async def joined(system: System, namespace: str = "") -> AsyncIterator[Instance]:
    instance = await join(ClientSettings(namesrv=system.namesrv, namespace=namespace))
    try:
        yield instance
    finally:
        await instance.leave()


def subscription(queue: MessageQueue, expression: str = "*") -> Subscription:
    return Subscription(queue.topic, Selector.tags(expression), 1)


# --- with a broker ---


def test_a_pull_gives_messages_as_they_were_sent(system: System, fresh_name: Fresh) -> None:
    queue = make_topic(system, fresh_name("Topic"), 2)[1]
    fill(system, queue, [b"one", b"two"], TAGS="a", KEYS="k1 k2", mine="yes")

    async def work() -> None:
        async with joined(system) as instance:
            puller = Puller(instance, fresh_name("Group"))
            result = await puller.pull(queue, subscription(queue), 0, sends_expression=True)
            assert (result.status, result.next_offset) == (PullStatus.FOUND, 2)
            assert (result.min_offset, result.max_offset) == (0, 2)
            assert [message.body for message in result.messages] == [b"one", b"two"]
            first = result.messages[0]
            assert (first.topic, first.queue, first.queue_offset) == (queue.topic, queue, 0)
            assert (first.tag, first.keys, first.properties["mine"]) == ("a", ["k1", "k2"], "yes")
            assert (first.properties["MIN_OFFSET"], first.properties["MAX_OFFSET"]) == ("0", "2")
            assert str(first.store_host) == system.broker

    run(work())


def test_each_end_of_a_pull_has_its_status(system: System, fresh_name: Fresh) -> None:
    queue = make_topic(system, fresh_name("Topic"), 1)[0]
    fill(system, queue, [b"1", b"2", b"3"], TAGS="a")

    async def work() -> None:
        async with joined(system) as instance:
            puller = Puller(instance, fresh_name("Group"))
            found = []
            for offset, expression in ((0, "*"), (3, "*"), (0, "b"), (99, "*")):
                wanted = subscription(queue, expression)
                result = await puller.pull(queue, wanted, offset, sends_expression=True)
                found.append((result.status, result.next_offset, len(result.messages)))
            assert found == [
                (PullStatus.FOUND, 3, 3),
                (PullStatus.NO_NEW_MSG, 3, 0),
                (PullStatus.NO_MATCHED_MSG, 3, 0),
                (PullStatus.OFFSET_ILLEGAL, 3, 0),
            ]

    run(work())


def test_a_pull_brings_no_more_than_asked_for(system: System, fresh_name: Fresh) -> None:
    queue = make_topic(system, fresh_name("Topic"), 1)[0]
    fill(system, queue, [b"%d" % number for number in range(5)])

    async def work() -> None:
        async with joined(system) as instance:
            puller = Puller(instance, fresh_name("Group"))
            wanted = subscription(queue)
            result = await puller.pull(queue, wanted, 1, count_max=2, sends_expression=True)
            assert [message.body for message in result.messages] == [b"1", b"2"]
            assert result.next_offset == 3

    run(work())


def test_a_pull_takes_an_offset_along(system: System, fresh_name: Fresh) -> None:
    queue, group = make_topic(system, fresh_name("Topic"), 1)[0], fresh_name("Group")
    fill(system, queue, [b"1", b"2", b"3"])

    async def work() -> None:
        async with joined(system) as instance:
            puller = Puller(instance, group)
            await puller.pull(queue, subscription(queue), 2, commit_offset=2, sends_expression=True)
            assert await group_offset(instance, group, queue) == 2

    run(work())


def test_tags_with_the_same_code_are_told_apart(system: System, fresh_name: Fresh) -> None:
    queue = make_topic(system, fresh_name("Topic"), 1)[0]
    fill(system, queue, [b"wanted"], TAGS="Aa")
    fill(system, queue, [b"not wanted"], TAGS="BB")

    async def work() -> None:
        async with joined(system) as instance:
            puller = Puller(instance, fresh_name("Group"))
            result = await puller.pull(queue, subscription(queue, "Aa"), 0, sends_expression=True)
            assert [message.body for message in result.messages] == [b"wanted"]
            assert result.next_offset == 2

    run(work())


def test_a_held_pull_is_answered_when_a_message_comes(system: System, fresh_name: Fresh) -> None:
    queue = make_topic(system, fresh_name("Topic"), 1)[0]

    async def work() -> None:
        async with joined(system) as instance:
            puller = Puller(instance, fresh_name("Group"))
            asked = asyncio.Event()
            instance.remote.before_request.append(lambda _address, _request: asked.set())
            pull = puller.pull(
                queue, subscription(queue), 0, suspend_s=15, timeout_s=20, sends_expression=True
            )
            pulling = asyncio.ensure_future(pull)
            await asked.wait()
            await send(instance, queue, b"late")
            assert [message.body for message in (await pulling).messages] == [b"late"]

    run(work())


def test_filter_hooks_choose_of_what_the_tags_let_through(
    system: System, fresh_name: Fresh
) -> None:
    queue = make_topic(system, fresh_name("Topic"), 1)[0]
    fill(system, queue, [b"1", b"2", b"3"], TAGS="Aa")
    fill(system, queue, [b"5"], TAGS="BB")
    seen: list[tuple[int, MessageQueue]] = []

    def odd(messages: list[ReceivedMessage], given: MessageQueue) -> list[ReceivedMessage]:
        seen.append((len(messages), given))
        return [message for message in messages if int(message.body) % 2]

    async def work() -> None:
        async with joined(system) as instance:
            puller = Puller(instance, fresh_name("Group"))
            puller.filter_hooks.append(odd)
            result = await puller.pull(queue, subscription(queue, "Aa"), 0, sends_expression=True)
            assert [message.body for message in result.messages] == [b"1", b"3"]
            assert seen == [(3, queue)]

    run(work())


def test_what_cannot_be_pulled_says_why(system: System, fresh_name: Fresh) -> None:
    queue = make_topic(system, fresh_name("Topic"), 1)[0]

    async def work() -> None:
        async with joined(system) as instance:
            puller = Puller(instance, fresh_name("Group"))
            strange = MessageQueue(queue.topic, queue.broker_name, 9)
            gone = MessageQueue(fresh_name("Gone"), "broker-a", 0)
            with pytest.raises(RequestFailed, match="queueId"):
                await puller.pull(strange, subscription(queue), 0, sends_expression=True)
            with pytest.raises(BrokerNotFound, match="no address for broker broker-z"):
                await puller.pull(MessageQueue(queue.topic, "broker-z", 0), subscription(queue), 0)
            with pytest.raises(RouteNotFound):
                await puller.pull(gone, subscription(gone), 0)

    run(work())


class Asked:
    """A remote that notes requests and answers as it is told."""

    def __init__(self, instance: Instance, suggested: list[str]) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []
        self._suggested = suggested
        instance.remote.ask = self.ask  # type: ignore[method-assign]  # nobody listens there

    async def ask(self, address: str, request: Command, **_rest: object) -> Command:
        self.requests.append((address, request.fields))
        fields = {"nextBeginOffset": "0", "minOffset": "0", "maxOffset": "0"}
        fields["suggestWhichBrokerId"] = self._suggested.pop(0)
        return Command(19, fields=fields)


def test_a_pull_goes_where_the_last_answer_suggested_and_slaves_get_no_offsets(
    system: System, fresh_name: Fresh
) -> None:
    queue = make_topic(system, fresh_name("Topic"), 1)[0]

    async def work() -> None:
        async with joined(system) as instance:
            route = await instance.routes.find(queue.topic)
            route.data.broker_datas[0].broker_addrs.update({0: "master:1", 2: "slave:1"})
            asked = Asked(instance, ["1", "0", "7", "0"])
            puller = Puller(instance, fresh_name("Group"))
            for _ in range(4):
                await puller.pull(queue, subscription(queue), 0, commit_offset=5, suspend_s=1)
            assert [(where, fields["sysFlag"]) for where, fields in asked.requests] == [
                ("master:1", "3"),
                ("slave:1", "2"),
                ("master:1", "3"),
                ("master:1", "3"),
            ]

    run(work())


def test_lite_pulls_carry_their_bit(system: System, fresh_name: Fresh) -> None:
    queue = make_topic(system, fresh_name("Topic"), 1)[0]

    async def work() -> None:
        async with joined(system) as instance:
            asked = Asked(instance, ["0"])
            puller = Puller(instance, "group", is_lite=True)
            await puller.pull(queue, subscription(queue, "a"), 7, sends_expression=True)
            fields = asked.requests[0][1]
            assert (fields["sysFlag"], fields["subscription"]) == ("20", "a")
            assert (fields["queueOffset"], fields["expressionType"]) == ("7", "TAG")

    run(work())


# --- what answers hold ---


def record(**changes: object) -> Record:
    values = {
        "topic": QUEUE.topic,
        "body": b"body",
        "queue_id": QUEUE.queue_id,
        "queue_offset": 5,
        "log_offset": 77,
        "born_ms": 1,
        "born_host": V4,
        "store_ms": 2,
        "store_host": V4,
        "properties": encode_properties({"TAGS": "a", "KEYS": "k"}),
    }
    return Record(**(values | changes))  # type: ignore[arg-type]  # a test's table


def decoded(
    *records: Record, namespace: str = "", queue: MessageQueue = QUEUE
) -> list[ReceivedMessage]:
    body = b"".join(encode_record(each) for each in records)
    return Decoder(queue, namespace).decode(body, 0, 9)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"born_host": V6},
        {"store_host": V6},
        {"born_host": V6, "store_host": V6},
        {"magic": MAGIC_V2},
        {"properties": b""},
        {"body": b""},
        {"properties": b"\x02a\x01\x02TAGS\x01x\x02TAGS\x01"},
        {"reconsume_times": 3, "flag": -7, "prepared_offset": 12, "sys_flag": 8},
    ],
)
def test_a_record_is_read_the_same_whichever_way_it_is_read(changes: dict[str, object]) -> None:
    one = record(**changes)
    (message,) = decoded(one)
    expected = received(one, QUEUE.broker_name)
    expected.sys_flag = message.sys_flag  # the host bits are set by writing
    expected.min_offset, expected.max_offset = 0, 9
    assert message == expected
    assert message.tag == message.properties.get("TAGS", "")


def test_records_of_all_kinds_lie_side_by_side() -> None:
    kinds = [record(queue_offset=1), record(queue_offset=2, born_host=V6), record(queue_offset=3)]
    assert [message.queue_offset for message in decoded(*kinds)] == [1, 2, 3]


def test_a_retry_message_has_the_topic_it_was_sent_to() -> None:
    retried = MessageQueue("%RETRY%shop%billing", "broker-a", 0)
    one = record(topic=retried.topic, properties=encode_properties({"RETRY_TOPIC": "shop%orders"}))
    (message,) = decoded(one, namespace="shop", queue=retried)
    assert (message.topic, message.queue) == ("orders", retried)


def test_a_topic_loses_its_namespace() -> None:
    queue = MessageQueue("shop%orders", "broker-a", 0)
    (message,) = decoded(record(topic=queue.topic), namespace="shop", queue=queue)
    assert message.topic == "orders"


@pytest.mark.parametrize("host", [V4, V6])
def test_a_compressed_body_is_unpacked(host: Host) -> None:
    flag = with_compression(0, Compression.ZLIB)
    one = record(body=compress(b"long" * 100), sys_flag=flag, born_host=host)
    assert decoded(one)[0].body == b"long" * 100


@pytest.mark.parametrize("host", [V4, V6])
def test_a_body_that_cannot_be_unpacked_does_not_block_its_queue(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    flag = with_compression(0, Compression.ZLIB)
    bad = record(body=b"not zlib", sys_flag=flag, born_host=host)
    assert [message.body for message in decoded(bad, record())] == [b"not zlib", b"body"]
    assert "cannot be unpacked" in caplog.text


@pytest.mark.parametrize("place", [*range(12), *range(84, 93), 99, 100])
def test_no_damaged_byte_goes_unnoticed_in_sizes_magic_checksum_and_body(place: int) -> None:
    data = bytearray(encode_record(record()))
    data[place] ^= 0x40
    with pytest.raises(RemoteProtocolError, match="pull-answer"):
        Decoder(QUEUE, "").decode(bytes(data), 0, 9)


@pytest.mark.parametrize("size", [1, 40, 88, 95])
def test_a_torn_answer_is_named(size: int) -> None:
    data = encode_record(record())
    with pytest.raises(RemoteProtocolError, match=f"at byte {len(data)} of {len(data) + size}"):
        Decoder(QUEUE, "").decode(data + data[:size], 0, 9)
