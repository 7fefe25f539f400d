"""What all connections of a process share: how many there may be, and what they may hold.

In: connections as they come and go, at any port. Out: whether a new one may stay, and the end of
the biggest when all together hold too much.

Rules:
1. Descriptors and memory belong to the process: its ports share one Admission, so that a second
   port takes nothing from the files of the store.
2. When all together hold too much, the one that holds most is closed: a small peer never pays for
   a big one.
"""

import logging
from typing import TYPE_CHECKING

from orbitmq.net.limits import Limits
from orbitmq.world.net import allow_descriptors

if TYPE_CHECKING:
    from orbitmq.net.connection import Connection

logger = logging.getLogger(__name__)

DESCRIPTORS_APART = 512
"""Descriptors that connections leave for files, threads and listening sockets: a store has up to
256 files of queues and 128 of the log open."""


class Admission:
    """The count and the limits of all connections that share it."""

    def __init__(self, limits: Limits) -> None:
        self.connections_max = limits.connections_max
        self._held_bytes_max = limits.held_bytes_max
        self._held_bytes = 0
        self._connections: set[Connection] = set()
        self._is_fitted = False

    def fit_descriptors(self, name: str) -> None:
        """Take no more connections than the system's limit of open files allows.

        Asked once: a second port changes nothing. `name` is the server that asks.
        """
        if self._is_fitted:
            return
        self._is_fitted = True
        wanted = self.connections_max
        allowed = allow_descriptors(wanted + DESCRIPTORS_APART) - DESCRIPTORS_APART
        self.connections_max = max(1, allowed)
        if allowed < wanted:
            logger.warning(
                "%s: the system's limit of open files leaves %d connections instead of %d; raise "
                "it with ulimit -n",
                name,
                self.connections_max,
                wanted,
            )

    def admit(self, connection: "Connection") -> bool:
        """Count a new connection; give False when there are too many already."""
        if len(self._connections) >= self.connections_max:
            return False
        self._connections.add(connection)
        return True

    def release(self, connection: "Connection") -> None:
        """Forget a connection whose socket is gone."""
        self._connections.discard(connection)

    def held(self, delta_bytes: int) -> None:
        """Note that one connection holds more, or less, than before."""
        self._held_bytes += delta_bytes
        if delta_bytes > 0 and self._held_bytes > self._held_bytes_max:
            self._shed()

    def _shed(self) -> None:
        """Close the biggest holders until the sum is within its limit."""
        for connection in list(self._connections):
            connection.measure()
        by_size = sorted(self._connections, key=lambda connection: -connection.held_bytes)
        for connection in by_size:
            if self._held_bytes <= self._held_bytes_max:
                return
            connection.drop("memory-limit")
