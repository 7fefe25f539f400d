"""Telling every name server about this broker: at start, every 30 s, on every change, at the end.

In: the topic table and who we are. Out: register and unregister requests to each name server.

Rules:
1. The body is made once and goes to all name servers at the same time; each may fail by itself.
2. Changes that come while a round is under way are told in the next round, not one by one.
3. A name server that fails is reported once, and once more when it answers again.
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from orbitmq.errors import MQError
from orbitmq.net.peer import Peer
from orbitmq.wire.bodies_namesrv import (
    RegisterBrokerBody,
    TopicConfigTable,
    body_crc32,
    write_register_body,
)
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.fields import write_header
from orbitmq.wire.headers_namesrv import RegisterBroker, UnregisterBroker

log = logging.getLogger(__name__)

TIMEOUT_S = 6.0
"""registerBrokerTimeoutMills of the original."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who this broker is to a name server."""

    cluster: str
    name: str
    broker_id: int
    address: str
    ha_address: str


class Registration:
    """Keeps all name servers informed."""

    def __init__(
        self, identity: Identity, topics: Callable[[], TopicConfigTable], peers: list[Peer]
    ) -> None:
        self._identity = identity
        self._topics = topics
        self._peers = peers
        self._failing: set[str] = set()
        self._changed = asyncio.Event()

    def note_change(self) -> None:
        """Have the next round start at once."""
        self._changed.set()

    async def keep_registered(self, period_s: float) -> None:
        """Register again and again until cancelled."""
        while True:
            try:
                async with asyncio.timeout(period_s):
                    await self._changed.wait()
            except TimeoutError:
                pass
            await self.register()

    async def register(self) -> None:
        """Do one round; returns when every name server has answered or failed."""
        self._changed.clear()
        identity = self._identity
        registered = RegisterBrokerBody(topics=self._topics(), filter_server_list=[])
        body = write_register_body(registered, compressed=False)
        fields = write_header(
            RegisterBroker(
                broker_name=identity.name,
                broker_addr=identity.address,
                cluster_name=identity.cluster,
                ha_server_addr=identity.ha_address,
                broker_id=identity.broker_id,
                body_crc32=body_crc32(body),
            )
        )
        await self._tell_all(RequestCode.REGISTER_BROKER, fields, body)

    async def unregister(self) -> None:
        """Say goodbye to every name server."""
        identity = self._identity
        fields = write_header(
            UnregisterBroker(
                broker_name=identity.name,
                broker_addr=identity.address,
                cluster_name=identity.cluster,
                broker_id=identity.broker_id,
            )
        )
        await self._tell_all(RequestCode.UNREGISTER_BROKER, fields, b"")
        for peer in self._peers:
            peer.close()

    async def _tell_all(self, code: RequestCode, fields: dict[str, str], body: bytes) -> None:
        calls = (self._tell(peer, code, fields, body) for peer in self._peers)
        await asyncio.gather(*calls)

    async def _tell(
        self, peer: Peer, code: RequestCode, fields: dict[str, str], body: bytes
    ) -> None:
        try:
            answer = await peer.call(Command(code, fields=dict(fields), body=body), TIMEOUT_S)
        except MQError as error:
            self._report(peer.address, str(error))
            return
        self._report(
            peer.address,
            None if answer.code == ResponseCode.SUCCESS else answer.remark or "refused",
        )

    def _report(self, address: str, failure: str | None) -> None:
        if failure is None:
            if address in self._failing:
                self._failing.discard(address)
                log.info("name server %s answers again", address)
        elif address not in self._failing:
            self._failing.add(address)
            log.warning("name server %s: %s; will try again", address, failure)
