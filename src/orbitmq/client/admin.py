"""Admin: everything that brokers and name servers answer about themselves, in one class.

In: what somebody wants to know or have changed. Out: typed values (`admin_results`), or an error
that says what to do. The shell and the pages for operators use nothing else.

Rule: this module only puts the parts together; each part says what it does.
"""

from orbitmq.client.admin_base import AdminOptions, AdminSettings
from orbitmq.client.admin_clients import AdminClients
from orbitmq.client.admin_groups import GroupOptions
from orbitmq.client.admin_messages import Peek
from orbitmq.client.admin_servers import AdminServers
from orbitmq.client.admin_topics import TopicOptions
from orbitmq.client.arguments import checks_arguments

__all__ = ["Admin", "AdminOptions", "AdminSettings", "GroupOptions", "Peek", "TopicOptions"]


@checks_arguments()
class Admin(AdminClients, AdminServers):
    """Looks at and changes topics, groups, offsets, messages, clients, brokers and name servers.

    It works on OrbitMQ and on the original, 4.9 and 5.x.

    >>> async with Admin("127.0.0.1:9876") as admin:
    ...     await admin.create_topic("orders", queue_count=8)
    ...     for row in (await admin.progress("billing")).queues:
    ...         print(row.broker, row.queue_id, row.lag)

    `namesrv` are name servers, `host:port` separated by `;`. Without it the environment's
    NAMESRV_ADDR counts. Other keyword arguments are those of AdminSettings: `namespace`, `tls`,
    `request_timeout_s` and more.
    """
