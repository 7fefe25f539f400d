"""Messages and clients through Admin: looked up, peeked at, tracked, consumed by hand."""

import asyncio
import json
import time
import zlib
from datetime import UTC

import pytest

from orbitmq.client.admin import Admin
from orbitmq.client.message import ReceivedMessage
from orbitmq.errors import LocalProtocolError, NotFound, RouteNotFound
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.host import Host
from orbitmq.wire.message_id import UniqueIds, encode_offset_id
from orbitmq.wire.record import scan_records
from tests.behaviour.consumers import Fresh, answer, commit, join, next_request
from tests.behaviour.requests import fill, send_request
from tests.client.administering import BROKER, administer, eventually
from tests.foreign.judged import System
from tests.wire_client import WireClient

RUNNING_INFO = {
    "properties": {"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY", "PROP_CLIENT_VERSION": "V4_9_7"},
    "subscriptionSet": [{"topic": "orders", "subString": "paid", "expressionType": "TAG"}],
    "statusTable": {"orders": {"pullRT": 1.5, "consumeOKTPS": 3.0, "consumeFailedMsgs": 2}},
    "mqTable": {},
}
QUEUE_KEY = '{"brokerName":"broker-a","queueId":1,"topic":"orders"}'
QUEUE_INFO = '{"cachedMsgCount":4,"cachedMsgSizeInMiB":1,"commitOffset":17,"droped":false}'


def unique_id(now_ms: int | None = None) -> str:
    now_ms = int(time.time() * 1000) if now_ms is None else now_ms
    return UniqueIds("127.0.0.1", 7, time.monotonic_ns() & 0xFFFFFFFF, UTC).next_id(now_ms)


def send(system: System, topic: str, body: bytes, **properties: str) -> str:
    """Send a message to queue 0; give its offset id."""
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    with WireClient(system.broker) as client:
        sent = client.call(send_request(topic, body, i=text))
    assert sent.code == 0, sent.remark
    return sent.fields["msgId"].split(",")[0]


def one(messages: list[ReceivedMessage]) -> ReceivedMessage:
    assert len(messages) == 1
    return messages[0]


# --- looking for messages ---


def test_a_message_is_found_by_each_of_its_ids(system: System, fresh_name: Fresh) -> None:
    topic, unique = fresh_name("Topic"), unique_id()

    async def act(admin: Admin) -> None:
        await admin.create_topic(topic, queue_count=1)
        offset_id = send(system, topic, b"hello", UNIQ_KEY=unique, TAGS="paid", KEYS="1 2")
        message = await eventually(lambda: admin.message(offset_id))
        assert (message.topic, message.body, message.tag) == (topic, b"hello", "paid")
        assert message.keys == ["1", "2"]
        assert message.queue == MessageQueue(topic, BROKER, 0)
        assert (message.message_id, message.offset_id) == (unique, offset_id)
        again = await eventually(lambda: admin.message(unique, topic=topic))
        assert again == message
        assert one(await admin.messages_by_unique_id(topic, unique)) == message

    administer(system, act)


def test_a_unique_id_older_than_a_month_is_found_as_well(system: System, fresh_name: Fresh) -> None:
    topic = fresh_name("Topic")
    unique = unique_id(int(time.time() * 1000) + 40 * 86_400_000)

    async def act(admin: Admin) -> None:
        await admin.create_topic(topic, queue_count=1)
        send(system, topic, b"hello", UNIQ_KEY=unique)
        message = await eventually(lambda: admin.message(unique, topic=topic))
        assert message.body == b"hello"

    administer(system, act)


def test_messages_that_are_not_there_are_not_found(system: System, fresh_name: Fresh) -> None:
    topic = fresh_name("Topic")
    host, _, port = system.broker.rpartition(":")
    nowhere = encode_offset_id(Host(host, int(port)), 2**40)

    async def act(admin: Admin) -> None:
        await admin.create_topic(topic, queue_count=1)
        with pytest.raises(NotFound, match=f"there is no message {nowhere}"):
            await admin.message(nowhere)
        with pytest.raises(NotFound, match=f"topic {topic} has no message of that id"):
            await admin.message(unique_id(), topic=topic)
        with pytest.raises(LocalProtocolError, match="name its topic"):
            await admin.message(unique_id())
        with pytest.raises(LocalProtocolError, match="no offset id"):
            await admin.message_by_offset_id("nonsense")
        with pytest.raises(RouteNotFound):
            await admin.messages_by_key(fresh_name("Topic"), "k")
        assert await admin.messages_by_key(topic, "k") == []

    administer(system, act)


def test_messages_are_found_by_key_and_time(system: System, fresh_name: Fresh) -> None:
    topic = fresh_name("Topic")

    async def act(admin: Admin) -> None:
        await admin.create_topic(topic, queue_count=1)
        for number in range(3):
            send(system, topic, b"%d" % number, KEYS=f"order {number}")

        async def found() -> list[ReceivedMessage] | None:
            messages = await admin.messages_by_key(topic, "order")
            return messages if len(messages) == 3 else None

        messages = await eventually(found)
        assert messages is not None
        assert [message.body for message in messages] == [b"0", b"1", b"2"]
        assert [m.body for m in await admin.messages_by_key(topic, "1")] == [b"1"]
        newest = await admin.messages_by_key(topic, "order", count_max=2)
        assert [message.body for message in newest] == [b"1", b"2"]
        end_ms = messages[0].store_ms - 3_700_000  # 5.5.0's index knows the hour only
        assert await admin.messages_by_key(topic, "order", end_ms=end_ms) == []

    administer(system, act)


def test_the_newest_64_messages_of_a_key_are_found(system: System, fresh_name: Fresh) -> None:
    topic = fresh_name("Topic")

    async def act(admin: Admin) -> None:
        await admin.create_topic(topic, queue_count=1)
        with WireClient(system.broker) as client:
            fill(client, topic, [b"%d" % number for number in range(70)], i="KEYS\x01k\x02")

        async def found() -> bool:
            messages = await admin.messages_by_key(topic, "k")
            return [one.body for one in messages] == [b"%d" % number for number in range(6, 70)]

        assert await eventually(found)

    administer(system, act)


def test_a_queue_is_peeked_at_without_being_consumed(system: System, fresh_name: Fresh) -> None:
    topic = fresh_name("Topic")
    queue = MessageQueue(topic, BROKER, 0)

    async def act(admin: Admin) -> None:
        await admin.create_topic(topic, queue_count=1)
        with WireClient(system.broker) as client:
            fill(client, topic, [b"0", b"1", b"2"])

        async def all_three() -> bool:
            return await admin.max_offset(queue) == 3

        await eventually(all_three)
        peek = await admin.peek(queue, 1)
        assert [message.body for message in peek.messages] == [b"1", b"2"]
        assert (peek.next_offset, peek.min_offset, peek.max_offset) == (3, 0, 3)
        assert [message.body for message in (await admin.peek(queue, 0, 1)).messages] == [b"0"]
        end = await admin.peek(queue, 3)
        assert (end.messages, end.next_offset) == ((), 3)
        beyond = await admin.peek(queue, 90)
        assert beyond.messages == ()
        assert beyond.next_offset <= 3

    administer(system, act)


def test_a_compressed_body_is_shown_as_it_was(system: System, fresh_name: Fresh) -> None:
    topic = fresh_name("Topic")

    async def act(admin: Admin) -> None:
        await admin.create_topic(topic, queue_count=1)
        with WireClient(system.broker) as client:
            sent = client.call(send_request(topic, zlib.compress(b"hello" * 99), f="1"))
        message = await eventually(lambda: admin.message(sent.fields["msgId"]))
        assert message.body == b"hello" * 99

    administer(system, act)


# --- what became of a message ---


def test_tracks_tell_which_groups_have_consumed_a_message(
    system: System, fresh_name: Fresh
) -> None:
    topic = fresh_name("Topic")
    ahead, behind, choosy = fresh_name("Ahead"), fresh_name("Behind"), fresh_name("Choosy")
    unpaid = [{"topic": topic, "subString": "unpaid", "subVersion": 1, "expressionType": "TAG"}]

    async def act(admin: Admin) -> None:
        await admin.create_topic(topic, queue_count=1)
        offset_id = send(system, topic, b"hello", TAGS="paid")
        message = await eventually(lambda: admin.message(offset_id))
        assert await admin.tracks(message) == []
        with WireClient(system.broker) as client, WireClient(system.broker) as member:
            commit(client, ahead, topic, [1])
            commit(client, behind, topic, [0])
            commit(client, choosy, topic, [1])
            join(client, "c@1", ahead, topic)
            join(member, "c@2", choosy, topic, subscriptionDataSet=unpaid)
            tracks = {track.group: track for track in await admin.tracks(message)}
        assert tracks[ahead].state == "consumed"
        assert tracks[behind].state == "waiting"
        assert tracks[behind].remark == "nobody is online"
        assert tracks[choosy].state == "filtered"

    administer(system, act)


# --- what consumers say ---


def test_a_running_consumer_tells_how_it_is_doing(system: System, fresh_name: Fresh) -> None:
    group = fresh_name("Group")
    body = json.dumps(RUNNING_INFO).replace(
        '"mqTable": {}', f'"mqTable": {{{QUEUE_KEY}:{QUEUE_INFO}}}'
    )

    async def act(admin: Admin) -> None:
        with WireClient(system.broker) as member:
            join(member, "c@1", group, "TBW102")

            def say() -> None:
                answer(member, next_request(member, 307), body=body.encode())

            saying = asyncio.create_task(asyncio.to_thread(say))
            info = await admin.running_info(group, "c@1")
            await saying
            assert info.properties["PROP_CLIENT_VERSION"] == "V4_9_7"
            assert [(one.topic, one.expression) for one in info.subscriptions] == [
                ("orders", "paid")
            ]
            (queue,) = info.queues
            assert queue.queue == MessageQueue("orders", BROKER, 1)
            assert (queue.commit_offset, queue.cached_count) == (17, 4)
            (topic,) = info.topics
            assert (topic.topic, topic.pull_ms, topic.ok_tps) == ("orders", 1.5, 3.0)
            assert topic.failed_count == 2
            with pytest.raises(NotFound, match="online are c@1"):
                await admin.running_info(group, "c@9")
        with pytest.raises(NotFound, match="nobody is online"):
            await admin.running_info(fresh_name("Group"), "c@1")

    administer(system, act)


def test_a_consumer_is_made_to_consume_one_message(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("Topic"), fresh_name("Group")
    result = b'{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":3}'
    seen: list[bytes] = []

    async def act(admin: Admin) -> None:
        await admin.create_topic(topic, queue_count=1)
        offset_id = send(system, topic, b"hello")
        message = await eventually(lambda: admin.message(offset_id))
        with WireClient(system.broker) as member:
            join(member, "c@1", group, topic)

            def consume() -> None:
                asked = next_request(member, 309)
                seen.extend(record.body for record in scan_records(asked.body))
                answer(member, asked, body=result)

            consuming = asyncio.create_task(asyncio.to_thread(consume))
            done = await admin.consume_directly(group, "c@1", message)
            await consuming
        assert seen == [b"hello"]
        assert (done.result, done.spent_ms, done.auto_commit) == ("CR_SUCCESS", 3, True)

    administer(system, act)


def test_members_say_where_they_are(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("Topic"), fresh_name("Group")

    async def act(admin: Admin) -> None:
        await admin.create_topic(topic, queue_count=1)
        key = QUEUE_KEY.replace("orders", topic)
        body = b'{"messageQueueTable":{%s:7}}' % key.encode()
        with WireClient(system.broker) as member:
            join(member, "c@1", group, topic)

            def say() -> None:
                answer(member, next_request(member, 221), body=body)

            saying = asyncio.create_task(asyncio.to_thread(say))
            offsets = await admin.member_offsets(group, topic)
            await saying
        assert offsets == {"c@1": {MessageQueue(topic, BROKER, 1): 7}}

    administer(system, act)


# --- servers ---


def test_clusters_and_brokers_tell_of_themselves(system: System) -> None:
    async def act(admin: Admin) -> None:
        (cluster,) = await admin.clusters()
        assert cluster.name == "DefaultCluster"
        (broker,) = cluster.brokers
        assert (broker.name, broker.master) == (BROKER, system.broker)
        runtime = await eventually(lambda: admin.broker_runtime(BROKER))
        assert (runtime.cluster, runtime.address) == ("DefaultCluster", system.broker)
        assert runtime.version.startswith("V")
        assert runtime.table["brokerVersionDesc"] == runtime.version
        assert 0 < runtime.boot_ms <= time.time() * 1000
        assert 0 <= runtime.disk_ratio <= 1
        assert runtime.put_today >= 0
        (same,) = await admin.broker_runtimes()
        assert (same.name, same.broker_id) == (BROKER, 0)
        assert (await admin.broker_runtime(system.broker)).name == BROKER
        with pytest.raises(NotFound, match=f"known are {BROKER}"):
            await admin.broker_runtime("broker-z")

    administer(system, act)


def test_settings_of_a_broker_are_read_and_changed(system: System) -> None:
    async def act(admin: Admin) -> None:
        before = (await admin.broker_settings(BROKER))["fileReservedTime"]
        try:
            await admin.update_broker_settings({"fileReservedTime": "49"}, broker=BROKER)
            assert (await admin.broker_settings(BROKER))["fileReservedTime"] == "49"
        finally:
            await admin.update_broker_settings({"fileReservedTime": before})
        assert (await admin.broker_settings(BROKER))["fileReservedTime"] == before
        with pytest.raises(LocalProtocolError, match="no setting is given"):
            await admin.update_broker_settings({})

    administer(system, act)


def test_a_figure_that_nobody_counted_is_none(system: System, fresh_name: Fresh) -> None:
    topic = fresh_name("Topic")

    async def act(admin: Admin) -> None:
        assert await admin.figures(BROKER, "TOPIC_PUT_NUMS", topic) is None
        await admin.create_topic(topic, queue_count=1)
        send(system, topic, b"hello")
        figures = await eventually(lambda: admin.figures(BROKER, "TOPIC_PUT_NUMS", topic))
        assert figures is not None
        assert figures.minute.sum in (0, 1)  # brokers count at their own pace

    administer(system, act)


def test_brokers_clean_up_when_told_to(system: System, fresh_name: Fresh) -> None:
    topic = fresh_name("Topic")

    async def act(admin: Admin) -> None:
        await admin.create_topic(topic, queue_count=1)
        send(system, topic, b"hello")
        await admin.clean_unused_topics()
        await admin.clean_expired_queues(broker=BROKER)
        await admin.delete_expired_files(cluster="DefaultCluster")
        assert (await admin.topic_stats(topic)).message_count == 1

    administer(system, act)


def test_name_servers_keep_settings_and_values(system: System, fresh_name: Fresh) -> None:
    space, key = fresh_name("Space"), fresh_name("Key")

    async def act(admin: Admin) -> None:
        settings = await admin.namesrv_settings()
        assert list(settings) == [system.namesrv]
        assert "listenPort" in settings[system.namesrv]
        await admin.update_namesrv_settings({"orderMessageEnable": "false"})
        assert (await admin.namesrv_settings())[system.namesrv]["orderMessageEnable"] == "false"
        assert await admin.get_kv(space, key) is None
        assert await admin.list_kv(space) == {}
        await admin.put_kv(space, key, "a=b;ü")
        assert await admin.get_kv(space, key) == "a=b;ü"
        assert await admin.list_kv(space) == {key: "a=b;ü"}
        await admin.delete_kv(space, key)
        assert await admin.get_kv(space, key) is None

    administer(system, act)


def test_write_permission_is_wiped_and_added(system: System, fresh_name: Fresh) -> None:
    topic = fresh_name("Topic")

    async def act(admin: Admin) -> None:
        await admin.create_topic(topic, queue_count=1)
        wiped = await admin.wipe_write_permission(BROKER)
        assert wiped[system.namesrv] > 0
        assert (await admin.topic_route(topic)).queues[0].perm == 4
        added = await admin.add_write_permission(BROKER)
        assert added[system.namesrv] == wiped[system.namesrv]
        assert (await admin.topic_route(topic)).queues[0].perm == 6
        with pytest.raises(NotFound, match=f"known are {BROKER}"):
            await admin.wipe_write_permission("broker-z")

    administer(system, act)
