"""Which name servers to ask, and asking one that answers.

In: addresses as an argument, from the environment, or from an http address; requests. Out: the
answer of the first name server that gives one.

Rules:
1. Precedence, as in the original: the argument, the environment's NAMESRV_ADDR, then the list that
   `namesrv_lookup` (or the environment's NAMESRV_LOOKUP) serves, asked for again every two minutes.
2. One name server is used, picked at random, until it fails; then the next one. Names are resolved
   anew at every dial.
3. What one says counts: an answer with an error code is an answer, only silence moves on.
4. Silence is told in the log once, and its end once.
"""

import logging
from collections.abc import Awaitable, Callable

from orbitmq.client.settings import (
    LOOKUP_VARIABLE,
    NAMESRV_VARIABLE,
    ClientSettings,
    environment,
)
from orbitmq.errors import ConnectFailed, MQError, OutcomeUnknown, SettingError
from orbitmq.wire.command import Command
from orbitmq.world.chance import Chance
from orbitmq.world.http import fetch_text
from orbitmq.world.net import read_addresses

log = logging.getLogger(__name__)

LOOKUP_INTERVAL_S = 120.0
LOOKUP_TIMEOUT_S = 3.0

Ask = Callable[[str, Command, float], Awaitable[Command]]
"""Gives the answer of an address within a time."""


def source_of(settings: ClientSettings) -> tuple[str, str]:
    """Return the list of addresses that counts now (rule 1), and the http address."""
    if settings.brokers:
        return f"brokers {settings.brokers}", ""
    return (
        settings.namesrv or environment(NAMESRV_VARIABLE),
        settings.namesrv_lookup or environment(LOOKUP_VARIABLE),
    )


class NameServers:
    """The name servers of one client."""

    def __init__(self, settings: ClientSettings, ask: Ask, chance: Chance) -> None:
        given, self._lookup = source_of(settings)
        self.addresses = read_addresses(given)
        self.is_looked_up = not self.addresses and bool(self._lookup)
        self._ask = ask
        self._silent: set[str] = set()
        self.is_closed = False
        """Whether the client ends: that nothing comes any more is then no news."""
        self._chance = chance
        self._current = chance.below(max(1, len(self.addresses)))

    async def begin(self) -> None:
        """Have addresses; raises SettingError when there is nowhere to get them from."""
        if self.is_looked_up:
            await self.look_up()
        if not self.addresses:
            raise SettingError(
                "no name server is known: give namesrv='host:9876', or set the environment's "
                f"{NAMESRV_VARIABLE} (or {LOOKUP_VARIABLE} to an http address that lists them)"
            )

    async def look_up(self) -> None:
        """Ask the http address for the list; raises ConnectFailed when it gives none."""
        text = await fetch_text(self._lookup, LOOKUP_TIMEOUT_S)
        addresses = read_addresses(text)
        if not addresses:
            raise ConnectFailed(f"{self._lookup} lists no name server")
        if addresses != self.addresses:
            log.info("name servers are now %s, says %s", ";".join(addresses), self._lookup)
            self.addresses = addresses
            self._current = self._chance.below(len(addresses))

    async def call(self, request: Command, timeout_s: float) -> Command:
        """The answer of the first name server that answers; raises the last one's silence."""
        last: MQError = ConnectFailed("no name server is known")
        for _ in range(len(self.addresses)):
            address = self.addresses[self._current % len(self.addresses)]
            try:
                answer = await self._ask(address, request, timeout_s)
            except (ConnectFailed, OutcomeUnknown) as error:
                last = error
                self._move_on(address, error)
                continue
            if address in self._silent:
                self._silent.discard(address)
                log.info("name server %s answers again", address)
            return answer
        raise last

    def _move_on(self, address: str, error: MQError) -> None:
        """Use another one from now on, unless somebody has moved on already."""
        if self.addresses and self.addresses[self._current % len(self.addresses)] == address:
            self._current = (self._current + 1) % len(self.addresses)
        if address not in self._silent and not self.is_closed:
            self._silent.add(address)
            log.warning("name server %s does not answer: %s", address, error)
