"""What an administrator is told: topics, groups, clients and brokers, each a frozen value.

In: what brokers and name servers answered, put together by the parts of Admin. Out: values with our
words; as JSON (`msgspec.json.encode`) they have the same names.

Rules:
1. Times are milliseconds since 1970; 0 stands for "never".
2. Offsets: `min_offset` is the first message that is still there, `max_offset` and `end_offset` are
   the place of the next one. Lag is what lies between a group's offset and the end.
3. A row about a queue names topic, broker and queue id, and gives the MessageQueue as `queue`.
"""

from typing import Any

import msgspec

from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.bodies_namesrv import PERM_READ, PERM_WRITE

MASTER_ID = 0


class _Result(msgspec.Struct, frozen=True, kw_only=True):
    """The base of all results."""


class _QueueRow(_Result, frozen=True, kw_only=True):
    """The base of rows about one queue."""

    topic: str
    broker: str
    queue_id: int

    @property
    def queue(self) -> MessageQueue:
        """The queue, as other methods take it."""
        return MessageQueue(self.topic, self.broker, self.queue_id)


# --- clusters and brokers ---


class BrokerEntry(_Result, frozen=True, kw_only=True):
    """One broker name with its members: broker id to address; 0 is the master."""

    cluster: str
    name: str
    addresses: dict[int, str]

    @property
    def master(self) -> str | None:
        """The master's address, if there is one."""
        return self.addresses.get(MASTER_ID)

    @property
    def any_address(self) -> str | None:
        """The master's address or, without one, that of the slave with the least id."""
        return self.addresses[min(self.addresses)] if self.addresses else None


class Cluster(_Result, frozen=True, kw_only=True):
    """A cluster and its brokers, by name."""

    name: str
    brokers: tuple[BrokerEntry, ...]


class BrokerRuntime(_Result, frozen=True, kw_only=True):
    """How one broker is doing. What an old broker does not tell is 0 or empty."""

    cluster: str
    name: str
    broker_id: int
    address: str
    version: str
    """As it calls itself, such as `V4_9_7`."""
    boot_ms: int
    put_tps: float
    """Messages stored a second, over the last ten seconds."""
    get_tps: float
    """Messages given out a second, over the last ten seconds."""
    put_today: int
    """Messages stored since midnight."""
    got_today: int
    put_yesterday: int
    got_yesterday: int
    disk_ratio: float
    """How full the log's disk is: 0 to 1."""
    earliest_ms: int
    """When the oldest message that is still there was stored."""
    table: dict[str, str]
    """Everything it tells, by the original's names."""


class Window(_Result, frozen=True, kw_only=True):
    """How much a figure grew over a span of time."""

    sum: int
    tps: float
    average: float
    """Of each time it was added to."""


class Figures(_Result, frozen=True, kw_only=True):
    """A figure over the last minute, hour and day."""

    minute: Window
    hour: Window
    day: Window


# --- topics ---


class TopicInfo(_Result, frozen=True, kw_only=True):
    """A topic's settings at one broker."""

    topic: str
    broker: str
    read_queue_count: int
    write_queue_count: int
    perm: int
    """4 read, 2 write, 6 both, 0 none."""
    order: bool = False
    sys_flag: int = 0
    attributes: dict[str, str] = {}
    """Of 5.x."""

    @property
    def perm_text(self) -> str:
        """The permission as letters: `rw`, `r-`, `-w` or `--`."""
        return perm_text(self.perm)


def perm_text(perm: int) -> str:
    """Return a permission as letters.

    >>> perm_text(4)
    'r-'
    """
    return ("r" if perm & PERM_READ else "-") + ("w" if perm & PERM_WRITE else "-")


class RouteQueues(_Result, frozen=True, kw_only=True):
    """How many queues of a topic a broker has, as name servers tell clients."""

    broker: str
    read_queue_count: int
    write_queue_count: int
    perm: int


class TopicRouteInfo(_Result, frozen=True, kw_only=True):
    """Where a topic is."""

    topic: str
    queues: tuple[RouteQueues, ...]
    brokers: tuple[BrokerEntry, ...]
    order_conf: str = ""
    """For ordered topics: `broker-a:4;broker-b:4`."""


class QueueStats(_QueueRow, frozen=True, kw_only=True):
    """What one queue holds."""

    min_offset: int
    max_offset: int
    stored_ms: int
    """When its last message was stored."""


class TopicStats(_Result, frozen=True, kw_only=True):
    """What a topic's queues hold."""

    topic: str
    queues: tuple[QueueStats, ...]
    message_count: int
    """Messages that are still there, in all queues."""


class QueueEntryInfo(_Result, frozen=True, kw_only=True):
    """One entry of a queue's index file."""

    queue_offset: int
    log_offset: int
    size_bytes: int
    tag_code: int
    is_passed: bool
    """Whether the filter of the group that was named lets it through."""


# --- groups ---


class GroupInfo(_Result, frozen=True, kw_only=True):
    """A consumer group's settings at one broker."""

    group: str
    broker: str
    consume_enable: bool
    broadcast_enable: bool
    from_min_enable: bool
    retry_queue_count: int
    retry_max_times: int
    orderly: bool = False
    attributes: dict[str, str] = {}


class QueueProgress(_QueueRow, frozen=True, kw_only=True):
    """How far a group is in one queue."""

    end_offset: int
    offset: int
    """Where the group goes on."""
    lag: int
    consumed_ms: int
    """When the last message that the group consumed was stored."""


class GroupProgress(_Result, frozen=True, kw_only=True):
    """How far a group is."""

    group: str
    queues: tuple[QueueProgress, ...]
    lag: int
    """In sum, retries included."""
    tps: float
    """Messages consumed a second, over the last minute."""


class QueueDelay(_QueueRow, frozen=True, kw_only=True):
    """From when to when a queue has messages, and how late a group is in it."""

    first_ms: int
    last_ms: int
    consumed_ms: int
    delay_ms: int
    """The age of the first message that the group has not consumed."""


class QueueReset(_QueueRow, frozen=True, kw_only=True):
    """Where a group goes on in a queue after a reset."""

    offset: int


class ResetResult(_Result, frozen=True, kw_only=True):
    """What a reset did."""

    group: str
    topic: str
    queues: tuple[QueueReset, ...]
    is_running: bool
    """Whether a broker told running consumers to move; Java clients take some ten seconds."""


# --- clients ---


class ClientEntry(_Result, frozen=True, kw_only=True):
    """One client, as a broker knows it."""

    client_id: str
    address: str
    language: str
    version: int
    seen_ms: int = 0
    """When its last heartbeat came; 0 where the broker does not tell."""


class SubscriptionEntry(_Result, frozen=True, kw_only=True):
    """What a group subscribes to in one topic."""

    topic: str
    expression: str
    kind: str


class GroupMembers(_Result, frozen=True, kw_only=True):
    """Who consumes for a group now."""

    group: str
    clients: tuple[ClientEntry, ...]
    subscriptions: tuple[SubscriptionEntry, ...]
    consume_type: str
    message_model: str
    from_where: str


class GroupSummary(_Result, frozen=True, kw_only=True):
    """A group in one line."""

    group: str
    client_count: int
    message_model: str
    """Empty when nobody is online."""
    lag: int | None
    """None: it has no offsets, or it broadcasts and members keep them."""
    tps: float


class MemberQueue(_QueueRow, frozen=True, kw_only=True):
    """What a running consumer has of one queue."""

    commit_offset: int
    cached_count: int
    cached_bytes: int
    is_locked: bool
    is_dropped: bool
    pulled_ms: int
    consumed_ms: int


class MemberTopic(_Result, frozen=True, kw_only=True):
    """How quickly a running consumer works through one topic."""

    topic: str
    pull_ms: float
    pull_tps: float
    consume_ms: float
    ok_tps: float
    failed_tps: float
    failed_count: int


class RunningInfo(_Result, frozen=True, kw_only=True):
    """What a running consumer says of itself."""

    client_id: str
    properties: dict[str, str]
    subscriptions: tuple[SubscriptionEntry, ...]
    queues: tuple[MemberQueue, ...]
    topics: tuple[MemberTopic, ...]
    stacks: str = ""
    """Its threads, if they were asked for."""
    more: dict[str, Any] = {}
    """What else it says, by its own names."""


class DirectResult(_Result, frozen=True, kw_only=True):
    """What came of one message that a consumer was made to consume."""

    result: str
    """CR_SUCCESS, CR_LATER, CR_ROLLBACK, CR_COMMIT, CR_THROW_EXCEPTION or CR_RETURN_NULL."""
    remark: str
    order: bool
    auto_commit: bool
    spent_ms: int


# --- messages ---


class Track(_Result, frozen=True, kw_only=True):
    """Whether a group has consumed a message: see `Admin.tracks` for the words."""

    group: str
    state: str
    remark: str = ""
