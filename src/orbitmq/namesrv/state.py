"""What the handlers of a name server share.

In: the parts, put together by `namesrv`. Out: the same parts, under names that handlers read well.
Rule: a handler is a plain function of (state, request, connection); see `requests`.
"""

import logging

from orbitmq.metrics import Registry
from orbitmq.namesrv.changed_settings import ChangedSettings
from orbitmq.namesrv.kv import KvSettings
from orbitmq.namesrv.members import Departure, Source
from orbitmq.namesrv.routes import RouteTable
from orbitmq.net.connection import Connection
from orbitmq.net.saving import Saver
from orbitmq.world.clock import Clock

logger = logging.getLogger("orbitmq.namesrv")

SILENT = "silent"
"""The reason of brokers that the scan removes."""


class Savers:
    """The writers of a name server's two files."""

    def __init__(self, kv: Saver, settings: Saver) -> None:
        self.kv = kv
        self.settings = settings

    async def finish(self) -> None:
        """Return when nothing is waiting to be written."""
        await self.kv.finish()
        await self.settings.finish()


class State:
    """The tables of one name server, the clock, and the writers of its files."""

    def __init__(
        self,
        settings: ChangedSettings,
        kv: KvSettings,
        routes: RouteTable,
        *,
        savers: Savers,
        clock: Clock,
        registry: Registry,
    ) -> None:
        self.settings = settings
        self.kv = kv
        self.routes = routes
        self.savers = savers
        self.clock = clock
        self.started_s = clock.monotonic_s()
        self._watched: set[Connection] = set()
        self._departures = registry.counters(
            "orbitmq_namesrv_departures_total", "Brokers that left the routes, by reason.", "reason"
        )
        registry.gauge(
            "orbitmq_namesrv_brokers", "Registered brokers.", lambda: routes.broker_count
        )
        registry.gauge("orbitmq_namesrv_topics", "Topics with a route.", lambda: routes.topic_count)

    def source(self, connection: Connection) -> Source:
        """Return the source of a broker's request, and see to it that its end is noticed."""
        if connection not in self._watched:
            self._watched.add(connection)
            connection.on_close.append(self._connection_closed)
        return Source(connection, connection.peer_address[0])

    def expire(self) -> None:
        """Remove brokers that were silent for too long, and close what is left of them."""
        departures = self.routes.expire(self.clock.monotonic_s())
        self.report(departures, SILENT)
        owners = {owner for departure in departures for owner in departure.connections}
        for connection in [one for one in self._watched if one in owners]:
            if self.routes.owns_nothing(connection):
                connection.close("broker-silent")

    def report(self, departures: list[Departure], reason: str) -> None:
        """Count and log brokers that left."""
        for departure in departures:
            self._departures.add(reason)
            logger.log(
                logging.WARNING if reason == SILENT else logging.INFO,
                "broker %s id %d at %s left: %s",
                departure.group.name,
                departure.member.broker_id,
                departure.member.address,
                reason,
            )

    def _connection_closed(self, connection: Connection) -> None:
        self._watched.discard(connection)
        self.report(self.routes.connection_closed(connection), "connection closed")
