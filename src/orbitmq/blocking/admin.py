"""`Admin` for programs without an event loop.

In: the calls of `orbitmq.aio.Admin`. Out: the same answers, waited for.
Rule: made by tools/blocking_source.py; change the asynchronous class and run that.
"""

from collections.abc import Mapping
from typing import Unpack

from orbitmq import aio
from orbitmq.blocking.facade import Facade
from orbitmq.client.admin_base import AdminOptions, AdminSettings
from orbitmq.client.admin_groups import GroupOptions
from orbitmq.client.admin_messages import KEY_COUNT_MAX, TIME_MS_MAX, Peek
from orbitmq.client.admin_results import (
    BrokerRuntime,
    ClientEntry,
    Cluster,
    DirectResult,
    Figures,
    GroupInfo,
    GroupMembers,
    GroupProgress,
    GroupSummary,
    QueueDelay,
    QueueEntryInfo,
    ResetResult,
    RunningInfo,
    TopicInfo,
    TopicRouteInfo,
    TopicStats,
    Track,
)
from orbitmq.client.admin_topics import TopicOptions
from orbitmq.client.message import ReceivedMessage
from orbitmq.wire.bodies_client import MessageQueue


class Admin(Facade[aio.Admin]):
    """Looks at and changes topics, groups, offsets, messages, clients, brokers and name servers.

    It works on OrbitMQ and on the original, 4.9 and 5.x.

    >>> with Admin("127.0.0.1:9876") as admin:
    ...     admin.create_topic("orders", queue_count=8)
    ...     for row in (admin.progress("billing")).queues:
    ...         print(row.broker, row.queue_id, row.lag)

    `namesrv` are name servers, `host:port` separated by `;`. Without it the environment's
    NAMESRV_ADDR counts. Other keyword arguments are those of AdminSettings: `namespace`, `tls`,
    `request_timeout_s` and more.
    """

    def consumers(self, group: str) -> GroupMembers:
        """Return who consumes for a group now; nobody is no error, an unknown group is NotFound."""
        return self._wait(self._twin.consumers(group))

    def producers(self, group: str, topic: str) -> list[ClientEntry]:
        """Return the clients of a producer group that send to a topic; raises RouteNotFound."""
        return self._wait(self._twin.producers(group, topic))

    def all_producers(self, *, broker: str | None = None) -> dict[str, list[ClientEntry]]:
        """Return all producers that brokers know, by group."""
        return self._wait(self._twin.all_producers(broker=broker))

    def running_info(self, group: str, client_id: str, *, with_stacks: bool = False) -> RunningInfo:
        """Have a running consumer say how it is doing; raises NotFound when it is not online."""
        return self._wait(self._twin.running_info(group, client_id, with_stacks=with_stacks))

    def consume_directly(
        self, group: str, client_id: str, message: ReceivedMessage
    ) -> DirectResult:
        """Have a running consumer consume one message now, and return what came of it.

        >>> admin.consume_directly("billing", client_id, admin.message(message_id))
        """
        return self._wait(self._twin.consume_directly(group, client_id, message))

    def message(self, message_id: str, *, topic: str | None = None) -> ReceivedMessage:
        """Return a message by either of its ids; a unique id is looked for in `topic`.

        >>> admin.message("7F00000100002A9F000000000000DF14")

        Raises NotFound when there is none, LocalProtocolError for a unique id without a topic.
        """
        return self._wait(self._twin.message(message_id, topic=topic))

    def message_by_offset_id(self, offset_id: str) -> ReceivedMessage:
        """Return the message that an offset id stands for; raises NotFound."""
        return self._wait(self._twin.message_by_offset_id(offset_id))

    def messages_by_unique_id(self, topic: str, unique_id: str) -> list[ReceivedMessage]:
        """Return the messages that a producer gave this id: one, or more if it was sent again."""
        return self._wait(self._twin.messages_by_unique_id(topic, unique_id))

    def messages_by_key(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = TIME_MS_MAX,
        count_max: int = KEY_COUNT_MAX,
    ) -> list[ReceivedMessage]:
        """Return the newest messages of a topic with a key, oldest first, at most 64 a broker.

        Raises RouteNotFound for an unknown topic.
        """
        return self._wait(
            self._twin.messages_by_key(
                topic, key, begin_ms=begin_ms, end_ms=end_ms, count_max=count_max
            )
        )

    def peek(self, queue: MessageQueue, offset: int, count_max: int = 32) -> Peek:
        """Return what lies in a queue from an offset on, without consuming it.

        An offset that the queue does not have gives nothing and says where to look next.
        """
        return self._wait(self._twin.peek(queue, offset, count_max))

    def tracks(self, message: ReceivedMessage) -> list[Track]:
        """Say for each group of a message's topic what became of the message there.

        `consumed`: the group has passed it. `filtered`: passed, but its tag is not subscribed to.
        `waiting`: the group is not that far. `broadcasting`: only its members know. `unknown`: the
        group has no offset in that queue.
        """
        return self._wait(self._twin.tracks(message))

    def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the first message that a queue still has."""
        return self._wait(self._twin.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message of a queue will get."""
        return self._wait(self._twin.max_offset(queue))

    def offset_by_time(self, queue: MessageQueue, time_ms: int) -> int:
        """Return the offset of the first message stored at or after a time.

        Brokers of 4.9 give the nearest one instead when none was stored at that very time.
        """
        return self._wait(self._twin.offset_by_time(queue, time_ms))

    def earliest_store_time(self, queue: MessageQueue) -> int | None:
        """Return when a queue's first message was stored, in ms since 1970; None: it has none."""
        return self._wait(self._twin.earliest_store_time(queue))

    def group_offset(self, group: str, queue: MessageQueue) -> int | None:
        """Return where a group goes on in a queue; None: it has no offset there.

        For a queue whose first message is recent brokers may answer 0 instead of None.
        """
        return self._wait(self._twin.group_offset(group, queue))

    def set_group_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Write where a group goes on in a queue.

        Running consumers do not notice and write their own offset again: see `reset_to_offset`.
        """
        self._wait(self._twin.set_group_offset(group, queue, offset))

    def member_offsets(
        self, group: str, topic: str, *, client_id: str | None = None
    ) -> dict[str, dict[MessageQueue, int]]:
        """Return where each running consumer of a group says it is in a topic, by client id."""
        return self._wait(self._twin.member_offsets(group, topic, client_id=client_id))

    def correction_offsets(
        self, group: str, topic: str, *, without: tuple[str, ...] = ()
    ) -> dict[MessageQueue, int]:
        """Give, for each queue of a topic, the least offset of all groups that is still there.

        Queues in which `group` is behind all others are left out, as are the groups `without`.
        """
        return self._wait(self._twin.correction_offsets(group, topic, without=without))

    def clone_offsets(self, source: str, target: str, *, topic: str | None = None) -> None:
        """Let one group go on where another one stands, in a topic or in all of the source's.

        The consumers of the target group must not be running: they would write their own offsets.
        """
        self._wait(self._twin.clone_offsets(source, target, topic=topic))

    def reset_to_earliest(self, group: str, topic: str) -> ResetResult:
        """Have a group consume a topic again from its first message on."""
        return self._wait(self._twin.reset_to_earliest(group, topic))

    def reset_to_latest(self, group: str, topic: str) -> ResetResult:
        """Have a group pass over everything that a topic holds."""
        return self._wait(self._twin.reset_to_latest(group, topic))

    def reset_to_time(
        self, group: str, topic: str, time_ms: int, *, only_back: bool = False
    ) -> ResetResult:
        """Have a group go on at what was stored at a time, in ms since 1970.

        With `only_back` a queue in which the group is not that far yet stays as it is; brokers of
        5.x do not heed that.

        >>> admin.reset_to_time("billing", "orders", an_hour_ago_ms)

        Raises RouteNotFound for an unknown topic, NotFound for an unknown group.
        """
        return self._wait(self._twin.reset_to_time(group, topic, time_ms, only_back=only_back))

    def reset_to_offset(
        self, group: str, topic: str, offsets: int | Mapping[MessageQueue, int]
    ) -> ResetResult:
        """Have a group go on at an offset: one for each queue given, or one number for all.

        A number that a queue does not have becomes the nearest one that it has; an offset given
        for a queue must be there. A running group is moved by its broker; brokers of 4.9 cannot,
        so stop its consumers first.

        >>> admin.reset_to_offset("billing", "orders", {queue: 17})
        """
        return self._wait(self._twin.reset_to_offset(group, topic, offsets))

    def groups(self, *, cluster: str | None = None, with_system: bool = False) -> list[str]:
        """Return the names of all consumer groups that brokers know, sorted."""
        return self._wait(self._twin.groups(cluster=cluster, with_system=with_system))

    def create_group(
        self,
        group: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        **options: Unpack[GroupOptions],
    ) -> list[GroupInfo]:
        """Make a consumer group, or change it where it is there already.

        It is made at every master of `cluster`, or at one `broker` (name or address). Without
        either the only cluster is meant. What is not given keeps its value.

        >>> admin.create_group("billing", retry_max_times=3)
        """
        return self._wait(self._twin.create_group(group, cluster=cluster, broker=broker, **options))

    def delete_group(
        self, group: str, *, cluster: str | None = None, keeps_offsets: bool = False
    ) -> bool:
        """Delete a group with its offsets, its retry topic and its dead letters.

        Gives whether there was such a group. A group whose consumers are running is made again by
        their next heartbeat where brokers make groups by themselves.
        """
        return self._wait(
            self._twin.delete_group(group, cluster=cluster, keeps_offsets=keeps_offsets)
        )

    def group_config(self, group: str) -> list[GroupInfo]:
        """Return a group's settings at each broker that knows it; raises NotFound."""
        return self._wait(self._twin.group_config(group))

    def set_readable(self, group: str, topic: str, *, is_readable: bool) -> None:
        """Forbid a group to read a topic, or allow it again; brokers of 4.9 cannot do it."""
        self._wait(self._twin.set_readable(group, topic, is_readable=is_readable))

    def is_readable(self, group: str, topic: str) -> bool:
        """Whether a group may read a topic, as far as `set_readable` is concerned."""
        return self._wait(self._twin.is_readable(group, topic))

    def progress(self, group: str, *, topic: str | None = None) -> GroupProgress:
        """Return how far a group is in each queue of a topic, or of all that it has offsets in.

        >>> (admin.progress("billing")).lag
        0

        Raises NotFound when no broker knows the group, RouteNotFound for an unknown topic.
        """
        return self._wait(self._twin.progress(group, topic=topic))

    def broker_progress(self, broker: str, *, is_order: bool = False) -> list[GroupProgress]:
        """Return how far every group is at one broker (name or address).

        With `is_order` only in ordered topics.
        """
        return self._wait(self._twin.broker_progress(broker, is_order=is_order))

    def delays(self, group: str, topic: str) -> list[QueueDelay]:
        """Return how late a group is in each queue of a topic, by time; raises RouteNotFound."""
        return self._wait(self._twin.delays(group, topic))

    def group_topics(self, group: str) -> list[str]:
        """Return the topics that a group has offsets in, its retry topic left out."""
        return self._wait(self._twin.group_topics(group))

    def group_summary(self, group: str) -> GroupSummary:
        """Return a group in one line: who is there, and how far behind it is."""
        return self._wait(self._twin.group_summary(group))

    def topics(self, *, cluster: str | None = None, with_system: bool = False) -> list[str]:
        """Return the names of all topics, sorted.

        Retry and dead-letter topics and those of the system are left out unless `with_system`.

        >>> admin.topics()
        ['orders', 'payments']

        Raises NotFound for an unknown cluster.
        """
        return self._wait(self._twin.topics(cluster=cluster, with_system=with_system))

    def unit_topics(self, which: str = "unit") -> list[str]:
        """Return the topics of units: `unit`, `subscribed` by units, or `subscribed by others`."""
        return self._wait(self._twin.unit_topics(which))

    def create_topic(
        self,
        topic: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        **options: Unpack[TopicOptions],
    ) -> list[TopicInfo]:
        """Make a topic, or change it where it is there already; give its settings at each broker.

        It is made at every master of `cluster`, or at one `broker` (name or address). Without
        either the only cluster is meant. What is not given keeps its value, for a new topic 8
        queues, readable and writable.

        >>> admin.create_topic("orders", queue_count=16)

        Raises NotFound for an unknown cluster or broker, RequestFailed when a broker refuses.
        """
        return self._wait(self._twin.create_topic(topic, cluster=cluster, broker=broker, **options))

    def update_topic(
        self,
        topic: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        **options: Unpack[TopicOptions],
    ) -> list[TopicInfo]:
        """Change a topic that exists, as `create_topic`; raises RouteNotFound when it does not."""
        return self._wait(self._twin.update_topic(topic, cluster=cluster, broker=broker, **options))

    def delete_topic(self, topic: str, *, cluster: str | None = None) -> bool:
        """Delete a topic with all its messages, at all brokers and name servers.

        Gives whether there was such a topic; what is not there is no error. With `cluster` only
        there.
        """
        return self._wait(self._twin.delete_topic(topic, cluster=cluster))

    def topic_config(self, topic: str) -> list[TopicInfo]:
        """Return a topic's settings at each of its brokers; raises RouteNotFound."""
        return self._wait(self._twin.topic_config(topic))

    def topic_route(self, topic: str) -> TopicRouteInfo:
        """Return where a topic is; raises RouteNotFound."""
        return self._wait(self._twin.topic_route(topic))

    def topic_stats(self, topic: str) -> TopicStats:
        """Return what a topic's queues hold, at all brokers; raises RouteNotFound."""
        return self._wait(self._twin.topic_stats(topic))

    def topic_groups(self, topic: str) -> list[str]:
        """Return the groups that consume a topic, or have consumed it; raises RouteNotFound."""
        return self._wait(self._twin.topic_groups(topic))

    def queue_entries(
        self, queue: MessageQueue, queue_offset: int, count: int = 10, *, group: str = ""
    ) -> list[QueueEntryInfo]:
        """Return entries of a queue's index, and which of them a running `group` would be given.

        Raises NotFound when the queue has nothing at that offset.
        """
        return self._wait(self._twin.queue_entries(queue, queue_offset, count, group=group))

    def broker_runtime(self, broker: str) -> BrokerRuntime:
        """Return how a broker is doing; `broker` is its name (then its master) or an address."""
        return self._wait(self._twin.broker_runtime(broker))

    def broker_runtimes(self, *, cluster: str | None = None) -> list[BrokerRuntime]:
        """Return how all brokers are doing, slaves included; those that do not answer are an error.

        >>> [(one.name, one.version) for one in admin.broker_runtimes()]

        Raises NotFound for an unknown cluster.
        """
        return self._wait(self._twin.broker_runtimes(cluster=cluster))

    def broker_settings(self, broker: str) -> dict[str, str]:
        """Return a broker's settings in force, by the original's names."""
        return self._wait(self._twin.broker_settings(broker))

    def update_broker_settings(
        self, changes: Mapping[str, str], *, cluster: str | None = None, broker: str | None = None
    ) -> None:
        """Change settings of one broker, or of every master of a cluster, for good.

        >>> admin.update_broker_settings({"fileReservedTime": "48"}, broker="broker-a")

        Raises RequestFailed for what may not be changed while a broker runs.
        """
        self._wait(self._twin.update_broker_settings(changes, cluster=cluster, broker=broker))

    def figures(self, broker: str, name: str, key: str) -> Figures | None:
        """Return one of a broker's figures by name; None when nothing was counted under it.

        >>> admin.figures("broker-a", "TOPIC_PUT_NUMS", "orders")
        """
        return self._wait(self._twin.figures(broker, name, key))

    def clean_unused_topics(self, *, cluster: str | None = None, broker: str | None = None) -> None:
        """Have brokers drop the queues of topics that they do not have any more."""
        self._wait(self._twin.clean_unused_topics(cluster=cluster, broker=broker))

    def clean_expired_queues(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> None:
        """Have brokers drop queue files whose messages are gone."""
        self._wait(self._twin.clean_expired_queues(cluster=cluster, broker=broker))

    def delete_expired_files(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> None:
        """Have brokers delete log files that are older than `fileReservedTime` now."""
        self._wait(self._twin.delete_expired_files(cluster=cluster, broker=broker))

    def update_namesrv_settings(self, changes: Mapping[str, str]) -> None:
        """Change settings of all name servers."""
        self._wait(self._twin.update_namesrv_settings(changes))

    def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Keep a value under a key at all name servers."""
        self._wait(self._twin.put_kv(namespace, key, value))

    def get_kv(self, namespace: str, key: str) -> str | None:
        """Return the value of a key; None when there is none."""
        return self._wait(self._twin.get_kv(namespace, key))

    def delete_kv(self, namespace: str, key: str) -> None:
        """Forget a key at all name servers; one that is not there is no error."""
        self._wait(self._twin.delete_kv(namespace, key))

    def list_kv(self, namespace: str) -> dict[str, str]:
        """Return all keys and values of a namespace; empty when there is none of that name."""
        return self._wait(self._twin.list_kv(namespace))

    def wipe_write_permission(self, broker: str) -> dict[str, int]:
        """Have producers leave a broker alone, until it registers something new.

        Gives the number of topics that this touched, by name server. Raises NotFound when no name
        server has such a broker.
        """
        return self._wait(self._twin.wipe_write_permission(broker))

    def add_write_permission(self, broker: str) -> dict[str, int]:
        """Have producers use a broker again: the opposite of `wipe_write_permission`."""
        return self._wait(self._twin.add_write_permission(broker))

    def namesrv_settings(self) -> dict[str, dict[str, str]]:
        """Return the settings of each name server, by its address."""
        return self._wait(self._twin.namesrv_settings())

    def __init__(self, namesrv: str | None = None, **options: Unpack[AdminOptions]) -> None:
        super().__init__(lambda: aio.Admin(namesrv, **options))

    @property
    def settings(self) -> AdminSettings:
        """What it was told, defaults included."""
        return self._there(lambda: self._twin.settings)

    def clusters(self) -> list[Cluster]:
        """Return all clusters with their brokers, by name.

        >>> [broker.master for cluster in admin.clusters() for broker in cluster.brokers]
        """
        return self._wait(self._twin.clusters())
