"""Topics through Admin: made, changed, shown, deleted; on ours and on the originals."""

import asyncio

import pytest

from orbitmq.client.admin import Admin
from orbitmq.errors import (
    ClientStateError,
    ConnectFailed,
    LocalProtocolError,
    NotFound,
    RequestFailed,
    RouteNotFound,
    SettingError,
)
from orbitmq.wire.bodies_client import MessageQueue
from tests.behaviour.consumers import Fresh, commit, fill_queues
from tests.behaviour.requests import fill
from tests.client.administering import BROKER, administer
from tests.foreign.judged import System, judged_original
from tests.wire_client import WireClient

CLUSTER = "DefaultCluster"
NOBODY = "127.0.0.1:1"


# --- life ---


def test_an_admin_that_is_not_running_says_what_to_do(system: System) -> None:
    async def act() -> None:
        admin = Admin(system.namesrv)
        with pytest.raises(ClientStateError, match="call its start"):
            await admin.topics()
        async with admin:
            await admin.topics()
            with pytest.raises(ClientStateError, match="is running; make another one"):
                await admin.start()
        await admin.close()
        with pytest.raises(ClientStateError, match="make another one"):
            await admin.topics()

    asyncio.run(act())


def test_no_name_server_is_told_with_its_address() -> None:
    async def act() -> None:
        async with Admin(NOBODY) as admin:
            with pytest.raises(ConnectFailed, match=f"is one running at {NOBODY}"):
                await admin.topics()
            with pytest.raises(ConnectFailed, match=f"is one running at {NOBODY}"):
                await admin.topic_route("orders")

    asyncio.run(act())


def test_a_misspelt_option_is_refused_with_the_right_one(system: System) -> None:
    with pytest.raises(SettingError, match="did you mean namespace"):
        Admin(system.namesrv, namspace="x")  # type: ignore[call-arg]  # that is the test

    async def act(admin: Admin) -> None:
        with pytest.raises(SettingError, match="did you mean queue_count"):
            await admin.create_topic("T", queues_count=3)  # type: ignore[call-arg]  # as above

    administer(system, act)


# --- making ---


def test_a_topic_is_made_shown_and_deleted_everywhere(system: System, fresh_name: Fresh) -> None:
    topic = fresh_name("Topic")

    async def act(admin: Admin) -> None:
        (made,) = await admin.create_topic(topic, queue_count=3)
        assert (made.topic, made.broker, made.perm_text) == (topic, BROKER, "rw")
        assert (made.read_queue_count, made.write_queue_count) == (3, 3)
        assert topic in await admin.topics()
        assert topic in await admin.topics(cluster=CLUSTER)
        assert await admin.topic_config(topic) == [made]
        route = await admin.topic_route(topic)
        assert [(row.broker, row.write_queue_count) for row in route.queues] == [(BROKER, 3)]
        assert route.brokers[0].master == system.broker
        assert route.brokers[0].cluster == CLUSTER
        assert await admin.delete_topic(topic) is True
        with pytest.raises(RouteNotFound, match="they do not know it"):
            await admin.topic_route(topic)
        assert await admin.delete_topic(topic) is False
        assert topic not in await admin.topics()

    administer(system, act)


def test_a_topic_that_is_there_keeps_what_is_not_given(system: System, fresh_name: Fresh) -> None:
    topic = fresh_name("Topic")

    async def act(admin: Admin) -> None:
        await admin.create_topic(topic, read_queue_count=5, write_queue_count=2)
        (changed,) = await admin.update_topic(topic, perm=4, broker=BROKER)
        assert (changed.read_queue_count, changed.write_queue_count) == (5, 2)
        assert changed.perm_text == "r-"
        (changed,) = await admin.create_topic(topic, queue_count=6, broker=system.broker)
        assert (changed.read_queue_count, changed.perm) == (6, 4)
        assert await admin.topic_config(topic) == [changed]
        with pytest.raises(RouteNotFound):
            await admin.update_topic(fresh_name("Topic"), perm=4)

    administer(system, act)


def test_an_ordered_topic_gets_its_queues_at_the_name_servers(
    system: System, fresh_name: Fresh
) -> None:
    topic = fresh_name("Topic")

    async def act(admin: Admin) -> None:
        (made,) = await admin.create_topic(topic, queue_count=2, order=True)
        assert made.order
        assert await admin.get_kv("ORDER_TOPIC_CONFIG", topic) == f"{BROKER}:2"

    administer(system, act)


def test_names_and_places_that_cannot_be_are_refused(system: System, fresh_name: Fresh) -> None:
    async def act(admin: Admin) -> None:
        with pytest.raises(LocalProtocolError, match="allowed are letters"):
            await admin.create_topic("no blanks")
        with pytest.raises(NotFound, match=f"known are {CLUSTER}"):
            await admin.create_topic(fresh_name("T"), cluster="Elsewhere")
        with pytest.raises(NotFound, match=f"known are {BROKER}"):
            await admin.create_topic(fresh_name("T"), broker="broker-z")
        with pytest.raises(RequestFailed, match="said by"):
            await admin.create_topic("TBW102")
        with pytest.raises(ConnectFailed, match=NOBODY):
            await admin.create_topic(fresh_name("T"), broker=NOBODY)

    administer(system, act)


def test_the_systems_topics_are_listed_only_when_asked_for(
    system: System, fresh_name: Fresh
) -> None:
    async def act(admin: Admin) -> None:
        shown = await admin.topics()
        everything = await admin.topics(with_system=True)
        for name in ("TBW102", "SCHEDULE_TOPIC_XXXX", BROKER, CLUSTER):
            assert name in everything
            assert name not in shown
        assert not [name for name in shown if name.startswith(("%", "rmq_sys_"))]
        with pytest.raises(LocalProtocolError, match="none of unit"):
            await admin.unit_topics("other")

    administer(system, act)


def test_a_namespace_is_put_before_names_and_taken_away_again(
    system: System, fresh_name: Fresh
) -> None:
    topic, space = fresh_name("Topic"), fresh_name("Space")

    async def inside(admin: Admin) -> None:
        (made,) = await admin.create_topic(topic, queue_count=1)
        assert made.topic == topic
        assert await admin.topics() == [topic]
        assert [row.topic for row in (await admin.topic_stats(topic)).queues] == [topic]

    async def outside(admin: Admin) -> None:
        assert f"{space}%{topic}" in await admin.topics()
        assert topic not in await admin.topics()

    administer(system, inside, namespace=space)
    administer(system, outside)


# --- looking ---


def test_stats_tell_what_each_queue_holds(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("Topic"), fresh_name("Group")

    async def act(admin: Admin) -> None:
        await admin.create_topic(topic, queue_count=2)
        await admin.create_group(group)
        with WireClient(system.broker) as client:
            fill_queues(client, topic, [3, 1])
            commit(client, group, topic, [2, 0])
        stats = await admin.topic_stats(topic)
        assert stats.message_count == 4
        shown = [(row.broker, row.queue_id, row.min_offset, row.max_offset) for row in stats.queues]
        assert shown == [(BROKER, 0, 0, 3), (BROKER, 1, 0, 1)]
        assert all(row.stored_ms > 1_700_000_000_000 for row in stats.queues)
        assert stats.queues[1].queue == MessageQueue(topic, BROKER, 1)
        assert await admin.topic_groups(topic) == [group]
        with pytest.raises(RouteNotFound):
            await admin.topic_stats(fresh_name("Topic"))

    administer(system, act)


def test_an_empty_queue_begins_and_ends_at_0(system: System, fresh_name: Fresh) -> None:
    topic = fresh_name("Topic")

    async def act(admin: Admin) -> None:
        await admin.create_topic(topic, queue_count=1)
        (row,) = (await admin.topic_stats(topic)).queues
        assert (row.min_offset, row.max_offset, row.stored_ms) == (0, 0, 0)

    administer(system, act)


def test_entries_of_a_queue_can_be_looked_at(system: System, fresh_name: Fresh) -> None:
    topic = fresh_name("Topic")

    async def act(admin: Admin) -> None:
        await admin.create_topic(topic, queue_count=1)
        with WireClient(system.broker) as client:
            fill_queues(client, topic, [3])
        queue = MessageQueue(topic, BROKER, 0)
        entries = await admin.queue_entries(queue, 1)
        assert [entry.queue_offset for entry in entries] == [1, 2]
        assert entries[0].log_offset < entries[1].log_offset
        assert all(entry.size_bytes > 90 for entry in entries)
        with pytest.raises(NotFound, match=f"offset 9 in queue 0 of {topic}"):
            await admin.queue_entries(queue, 9)
        with pytest.raises(NotFound, match=f"known are {BROKER}"):
            await admin.queue_entries(MessageQueue(topic, "broker-z", 0), 0)

    administer(system, act)


@pytest.mark.skipif(judged_original() == "4.9.7", reason="4.9 has no attributes")
def test_attributes_of_5_are_set_and_shown(system: System, fresh_name: Fresh) -> None:
    topic = fresh_name("Topic")

    async def act(admin: Admin) -> None:
        await admin.create_topic(topic, queue_count=1, attributes={"message.type": "NORMAL"})
        (info,) = await admin.topic_config(topic)
        assert info.attributes["message.type"] == "NORMAL"
        await admin.create_topic(topic, queue_count=2)
        (info,) = await admin.topic_config(topic)
        assert info.attributes["message.type"] == "NORMAL"

    administer(system, act)


def test_many_topics_are_listed_at_once(system: System, fresh_name: Fresh) -> None:
    names = [fresh_name("Topic") for _ in range(30)]

    async def act(admin: Admin) -> None:
        await asyncio.gather(*(admin.create_topic(name, queue_count=1) for name in names))
        assert set(names) <= set(await admin.topics())
        with WireClient(system.broker) as client:
            fill(client, names[0], [b"one"])

    administer(system, act)


# --- symptoms ---


def test_a_topic_that_was_ordered_and_deleted_leaves_no_queues_to_the_next_of_its_name(
    system: System, fresh_name: Fresh
) -> None:
    """Symptom: the name servers kept the queues of the first one, and clients would have sent to
    queues that the second did not have."""
    topic = fresh_name("Topic")

    async def act(admin: Admin) -> None:
        await admin.create_topic(topic, queue_count=4, order=True)
        assert await admin.get_kv("ORDER_TOPIC_CONFIG", topic) == f"{BROKER}:4"
        assert await admin.delete_topic(topic)
        assert await admin.get_kv("ORDER_TOPIC_CONFIG", topic) is None

    administer(system, act)


def test_a_cluster_that_nobody_has_is_named_and_not_taken_for_an_empty_one(system: System) -> None:
    """Symptom: `topic list --cluster TYPO` said that there are no topics yet."""

    async def act(admin: Admin) -> None:
        with pytest.raises(NotFound, match=f"known are {CLUSTER}"):
            await admin.broker_runtimes(cluster="NoSuchCluster")
        with pytest.raises(NotFound, match=f"known are {CLUSTER}"):
            await admin.topics(cluster="NoSuchCluster")

    administer(system, act)
