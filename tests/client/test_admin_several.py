"""Admin with several brokers and name servers: asked at a time, and told apart when some fail."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.client.admin import Admin
from orbitmq.errors import NotFound, PartlyFailed
from orbitmq.wire.bodies_client import MessageQueue
from tests.behaviour.consumers import Fresh, commit, fill_queues
from tests.client.administering import administer, eventually
from tests.foreign.judged import System, judged_original, namesrv_under_test, system_under_test
from tests.wire_client import WireClient

pytestmark = pytest.mark.skipif(judged_original() is not None, reason="one broker each")

NOBODY = "127.0.0.1:1"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """OrbitMQ with two brokers; `broker` are both addresses."""
    folder: Path = tmp_path_factory.mktemp("two")
    with system_under_test(folder, "--brokers", "2") as system:
        yield system


def test_a_topic_lies_at_both_brokers_and_goes_from_both(two: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("Topic"), fresh_name("Group")
    addresses = two.broker.split(",")

    async def act(admin: Admin) -> None:
        (cluster,) = await eventually(admin.clusters)
        names = [broker.name for broker in cluster.brokers]
        assert len(names) == 2
        made = await admin.create_topic(topic, queue_count=1)
        assert [info.broker for info in made] == names
        await admin.create_group(group)
        for address in addresses:
            with WireClient(address) as client:
                fill_queues(client, topic, [2])
                commit(client, group, topic, [1])
        stats = await admin.topic_stats(topic)
        assert [(row.broker, row.max_offset) for row in stats.queues] == [
            (name, 2) for name in names
        ]
        assert (await admin.progress(group)).lag == 2
        first = MessageQueue(topic, names[0], 0)
        await admin.reset_to_offset(group, topic, {first: 0})
        offsets = {row.broker: row.offset for row in (await admin.progress(group)).queues}
        assert offsets == {names[0]: 0, names[1]: 1}
        await admin.reset_to_latest(group, topic)
        assert (await admin.progress(group)).lag == 0
        assert {one.name for one in await admin.broker_runtimes()} == set(names)
        (only,) = await admin.create_topic(topic, perm=4, broker=names[1])
        assert [info.perm for info in await admin.topic_config(topic)] == [6, 4]
        assert only.broker == names[1]
        await admin.delete_topic(topic)
        assert topic not in await admin.topics()

    administer(two, act)


def test_a_name_server_that_is_away_is_told_apart(system: System, fresh_name: Fresh) -> None:
    key = fresh_name("Key")

    async def act() -> None:
        async with Admin(f"{system.namesrv};{NOBODY}") as admin:
            with pytest.raises(PartlyFailed, match=f"done at {system.namesrv}, but not") as told:
                await admin.put_kv("Space", key, "value")
            assert told.value.done == (system.namesrv,)
            assert [server for server, _ in told.value.failures] == [NOBODY]
            assert await admin.get_kv("Space", key) == "value"
            assert await admin.topics() is not None

    asyncio.run(act())


def test_a_cluster_without_brokers_says_so(tmp_path: Path) -> None:
    async def act(namesrv: str) -> None:
        async with Admin(namesrv) as admin:
            assert await admin.clusters() == []
            assert await admin.topics() == []
            with pytest.raises(NotFound, match="is one running"):
                await admin.create_topic("T")

    with namesrv_under_test(tmp_path) as namesrv:
        asyncio.run(act(namesrv))


def test_an_ordered_topic_made_at_one_broker_after_the_other_has_the_queues_of_both(
    two: System, fresh_name: Fresh
) -> None:
    """Symptom: the second call overwrote what the first had written at the name servers, which say
    nothing of it in routes unless they have orderMessageEnable."""
    topic = fresh_name("Topic")

    async def act(admin: Admin) -> None:
        (cluster,) = await eventually(admin.clusters)
        first, second = [broker.name for broker in cluster.brokers]
        await admin.create_topic(topic, queue_count=2, order=True, broker=first)
        await admin.create_topic(topic, queue_count=3, order=True, broker=second)
        kept = await admin.get_kv("ORDER_TOPIC_CONFIG", topic)
        assert kept == f"{first}:2;{second}:3"
        await admin.delete_topic(topic)
        assert await admin.get_kv("ORDER_TOPIC_CONFIG", topic) is None

    administer(two, act)
