"""The list of name servers, asked for by HTTP: for brokers that are told none in their settings.

In: fetchNamesrvAddrByAddressServer and where the address server is. Out: a registration that
follows the list.

Rules:
1. namesrvAddr, where it is set, counts alone, as in the original.
2. The list is asked for at the start, every two minutes, and more often while there is none.
3. A list that does not come or has nothing in it leaves the one before in force; told once.
"""

import logging
from collections.abc import Callable

from orbitmq.broker.registration import Registration
from orbitmq.config import BrokerSettings
from orbitmq.errors import ConnectFailed, SettingError
from orbitmq.net.peer import Peer
from orbitmq.world.clock import Clock
from orbitmq.world.net import read_addresses

log = logging.getLogger(__name__)

LOOK_UP_S = 10.0
"""How often it is looked whether to ask: the original asks first after so long."""
INTERVAL_S = 120.0
TIMEOUT_S = 3.0
PORT = 8080


class AddressServer:
    """Has a registration follow the list that an address server gives."""

    def __init__(
        self,
        settings: BrokerSettings,
        registration: Registration,
        dial: Callable[[str], Peer],
        clock: Clock,
    ) -> None:
        is_configured = bool(settings.namesrv_addr.strip())
        self.is_asked = settings.fetch_namesrv_addr_by_address_server and not is_configured
        self._url = url_of(settings)
        self._registration = registration
        self._dial = dial
        self._clock = clock
        self._addresses: list[str] = []
        self._asked_s = -INTERVAL_S
        self._is_failing = False

    async def look_up(self) -> None:
        """Ask for the list, if that is wanted and due; a failure is told in the log."""
        now_s = self._clock.monotonic_s()
        is_due = not self._addresses or now_s - self._asked_s >= INTERVAL_S
        if not self.is_asked or not is_due:
            return
        self._asked_s = now_s
        try:
            addresses = await self._listed()
        except (ConnectFailed, SettingError) as error:
            if not self._is_failing:
                log.warning("no list of name servers: %s; will ask again", error)
            self._is_failing = True
            return
        self._is_failing = False
        if addresses != self._addresses:
            log.info("name servers are %s, says %s", ";".join(addresses), self._url)
            self._addresses = addresses
            self._registration.follow(addresses, self._dial)

    async def _listed(self) -> list[str]:
        from orbitmq.world.http import fetch_text  # takes long to import, and few brokers need it

        addresses = read_addresses(await fetch_text(self._url, TIMEOUT_S))
        if not addresses:
            raise ConnectFailed(f"{self._url} lists no name server")
        return addresses


def url_of(settings: BrokerSettings) -> str:
    """Return the address of the list, as the original makes it."""
    host = settings.rocketmq_namesrv_domain.strip()
    if ":" not in host:
        host = f"{host}:{PORT}"
    return f"http://{host}/rocketmq/{settings.rocketmq_namesrv_domain_subgroup.strip()}"
