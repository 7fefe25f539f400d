"""Which name servers to ask, and asking one that answers.

In: addresses as an argument, from the environment, or from an http address; requests. Out: the
answer of the first name server that gives one.

Rules:
1. Precedence, as in the original: the argument, the environment's NAMESRV_ADDR, then the list that
   `namesrv_lookup` (or the environment's NAMESRV_LOOKUP) serves, asked for again every two minutes.
2. One name server is used, picked at random, until it fails; then the next one. Names are resolved
   anew at every dial.
3. What one says counts: an answer with an error code is an answer. Silence moves on, and so does
   one who does not know these requests: that is no name server.
4. Silence is told in the log once, and its end once.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence

from orbitmq.client.settings import (
    LOOKUP_VARIABLE,
    NAMESRV_VARIABLE,
    ClientSettings,
    environment,
)
from orbitmq.errors import (
    ConnectFailed,
    ConnectionClosed,
    MQError,
    OutcomeUnknown,
    RequestTimeout,
    SettingError,
)
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.world.chance import Chance
from orbitmq.world.http import fetch_text
from orbitmq.world.net import read_addresses

log = logging.getLogger(__name__)

LOOKUP_INTERVAL_S = 120.0
LOOKUP_TIMEOUT_S = 3.0

BASIC_REQUESTS = (
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
)
"""Every name server answers them, and no broker does."""

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
                _refuse_others(address, request, answer)
            except (ConnectFailed, OutcomeUnknown, SettingError) as error:
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


def _refuse_others(address: str, request: Command, answer: Command) -> None:
    """Raise SettingError when what answers at an address cannot be a name server."""
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and request.code in BASIC_REQUESTS:
        raise SettingError(
            f"{address} is no name server, but perhaps a broker: it does not support request "
            f"{request.code}. Give the name server's address; its port is 9876 by default"
        )


def nobody_answers(problem: str, error: MQError, addresses: Sequence[str]) -> ConnectFailed:
    """Return the error of a request that no name server has answered, with what may be wrong."""
    ask = "is one running"
    if isinstance(error, ConnectionClosed):
        ask = "does it want TLS (tls=TlsClientSettings(...)), or is it no name server that runs"
    elif isinstance(error, RequestTimeout):
        ask = "is it a name server that runs"
    return ConnectFailed(f"{problem}: {error}; {ask} at {', '.join(addresses)}?")
