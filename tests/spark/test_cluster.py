"""The connections of a process: one for equal options, none taken through a fork, every answer."""

import os
import threading

import pytest

from orbitmq import Message, Producer
from orbitmq.blocking import Admin
from orbitmq.errors import RouteNotFound
from orbitmq.spark.cluster import QueueFailed, Retries, close_clusters, cluster_of
from orbitmq.spark.connection_options import ConnectionOptions
from orbitmq.testing import EmbeddedBroker
from orbitmq.wire.bodies_client import MessageQueue


def options_of(broker: EmbeddedBroker) -> ConnectionOptions:
    return ConnectionOptions(namesrv_addr=broker.namesrv)


def test_offsets_of_queues_are_what_was_sent(orbitmq_broker: EmbeddedBroker) -> None:
    with Producer(namesrv=orbitmq_broker.namesrv, group="g") as producer:
        producer.send(Message("T", b"1"), timeout=5)
        result = producer.send(Message("T", b"2"), timeout=5)
    for options in (
        options_of(orbitmq_broker),
        ConnectionOptions(broker_addr=orbitmq_broker.broker),
    ):
        cluster = cluster_of(options)
        queues = cluster.queues("T")
        assert result.queue in queues
        assert sum(cluster.max_offsets(queues).values()) == 2
        assert set(cluster.min_offsets(queues).values()) == {0}
        assert cluster.offsets_for_times({result.queue: 0}) == {result.queue: 0}
        assert "T" in cluster.topics()


def test_a_groups_offsets_are_kept_by_the_broker(orbitmq_broker: EmbeddedBroker) -> None:
    with Admin(orbitmq_broker.namesrv) as admin:
        admin.create_topic("T", read_queue_count=2, write_queue_count=2)
    cluster = cluster_of(options_of(orbitmq_broker))
    first, second = cluster.queues("T")
    cluster.store_group_offsets("readers", {first: 0, second: 0})
    assert cluster.group_offsets("readers", [first, second]) == {first: 0, second: 0}


def test_a_missing_topic_is_named(orbitmq_broker: EmbeddedBroker) -> None:
    with pytest.raises(RouteNotFound, match="nothing-here"):
        cluster_of(options_of(orbitmq_broker)).queues("nothing-here")
    with pytest.raises(RouteNotFound, match="nothing-here"):
        cluster_of(ConnectionOptions(broker_addr=orbitmq_broker.broker)).queues("nothing-here")


def test_a_failure_names_topic_broker_and_queue(orbitmq_broker: EmbeddedBroker) -> None:
    cluster = cluster_of(options_of(orbitmq_broker))
    queue = MessageQueue("gone", "broker-x", 3)
    with pytest.raises(QueueFailed, match="queue 3 of topic gone at broker broker-x"):
        cluster.max_offsets([queue], Retries(0, 0))


def test_equal_options_share_connections_and_others_do_not(orbitmq_broker: EmbeddedBroker) -> None:
    options = options_of(orbitmq_broker)
    assert cluster_of(options) is cluster_of(options_of(orbitmq_broker))
    other = ConnectionOptions(namesrv_addr=orbitmq_broker.namesrv, access_key="a", secret_key="b")
    assert cluster_of(other) is not cluster_of(options)


def test_a_fork_makes_its_own_connections(orbitmq_broker: EmbeddedBroker) -> None:
    options = options_of(orbitmq_broker)
    before = cluster_of(options)
    topics = before.topics()
    child = os.fork()
    if child == 0:
        mine = cluster_of(options)
        is_right = mine is not before and mine.topics() == topics
        os._exit(0 if is_right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_closed_connections_leave_no_thread_and_the_next_ones_are_new(
    orbitmq_broker: EmbeddedBroker,
) -> None:
    options = options_of(orbitmq_broker)
    before = cluster_of(options)
    topics = before.topics()
    close_clusters()
    assert not [each for each in threading.enumerate() if each.name == "orbitmq-client"]
    assert cluster_of(options) is not before
    assert cluster_of(options).topics() == topics
