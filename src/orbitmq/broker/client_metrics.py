"""Metrics of who is connected: connections, groups and their members, locks of queues.

In: the tables of clients and of locks. Out: gauges, read when somebody looks.

Rule: each is a number that the table keeps anyway; looking costs nothing that grows with them.
"""

from orbitmq.broker.clients import ClientTable
from orbitmq.broker.queue_locks import QueueLocks
from orbitmq.metrics import Registry


def add_client_metrics(registry: Registry, clients: ClientTable, locks: QueueLocks) -> None:
    """Show how many clients there are."""
    registry.gauge(
        "orbitmq_broker_client_connections",
        "Connections that have sent a heartbeat.",
        lambda: clients.connection_count,
    )
    groups = "orbitmq_broker_client_groups"
    groups_help = "Groups of which somebody is connected, by kind."
    registry.gauge(
        groups, groups_help, lambda: len(clients.consumer_groups()), {"kind": "consumer"}
    )
    registry.gauge(
        groups, groups_help, lambda: len(clients.producer_groups()), {"kind": "producer"}
    )
    members = "orbitmq_broker_client_members"
    members_help = "Connections in groups, counted once for each group, by kind."
    registry.gauge(members, members_help, lambda: clients.consumer_count, {"kind": "consumer"})
    registry.gauge(members, members_help, lambda: clients.producer_count, {"kind": "producer"})
    registry.gauge(
        "orbitmq_broker_queue_locks",
        "Queues that a client has locked, or had until a moment ago.",
        lambda: len(locks),
    )
