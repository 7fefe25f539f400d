"""Telling every name server about this broker: at start, every 30 s, on every change, at the end.

In: the topic table and who we are. Out: register and unregister requests to each name server; from
their answers, which topics are ordered.

Rules:
1. Each name server has its own rounds: one that fails or hangs delays no other. It is reported
   once, and once more when it answers again; meanwhile it is tried every few seconds.
2. A round begins with the table as it is then. Changes that come while one is under way are told in
   the next, which begins at once: the last word is always the newest table, with its version.
3. With forceRegister off, a round without a change asks first whether the name server knows this
   version already (322).
4. The table of ordered topics of one name server counts: that of the first in the list that
   answers. Where their tables differ, the others' would change it back and forth.
5. While brokerPermission is not read and write, topics are registered with it as their permission,
   as 4.9 does.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

import msgspec

from orbitmq.config import BrokerSettings
from orbitmq.errors import MQError, RemoteProtocolError
from orbitmq.net.peer import Peer
from orbitmq.wire.advertised import FIELD as ADVERTISED
from orbitmq.wire.bodies_namesrv import (
    PERM_READ_WRITE,
    KVTable,
    RegisterBrokerBody,
    TopicConfigTable,
    body_crc32,
    write_register_body,
)
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.fastjson import read_json, write_json
from orbitmq.wire.fields import read_header, write_header
from orbitmq.wire.headers_namesrv import (
    QueryDataVersion,
    QueryDataVersionAnswer,
    RegisterBroker,
    UnregisterBroker,
)
from orbitmq.wire.ready_tables import TopicRows, write_topic_registration

log = logging.getLogger(__name__)

TOLD_S = 2.0
"""So long an answer to an operator waits for name servers: his tool gives up after 5 s."""

RETRY_S = 5.0
LOOP_TOPICS_MAX = 500
"""A body of more topics is made in a thread."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who this broker is to a name server."""

    cluster: str
    name: str
    broker_id: int
    address: str
    ha_address: str
    advertised: str = ""
    """Addresses for clients from elsewhere; see wire.advertised."""


class _Line:
    """One name server, and who waits until it was told."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.changed = asyncio.Event()
        self.waiting: list[asyncio.Future[None]] = []
        self.is_failing = False
        self.order_topics: Mapping[str, str] | None = None
        """As it said last; None before it did."""

    def take_waiting(self) -> list[asyncio.Future[None]]:
        """Begin a round: whoever comes from now on waits for the next."""
        self.changed.clear()
        waiting, self.waiting = self.waiting, []
        return waiting


class Registration:
    """Keeps all name servers informed."""

    def __init__(
        self,
        identity: Identity,
        topics: Callable[[], TopicRows],
        peers: list[Peer],
        settings: Callable[[], BrokerSettings],
        on_order_topics: Callable[[Mapping[str, str]], None] = lambda _topics: None,
    ) -> None:
        self._identity = identity
        self._topics = topics
        self._lines = [_Line(peer) for peer in peers]
        self._are_others = asyncio.Event()
        self._is_known = asyncio.Event()
        self._settings = settings
        self._on_order_topics = on_order_topics

    def note_change(self) -> None:
        """Have the next rounds start at once."""
        for line in self._lines:
            line.changed.set()

    async def told(self) -> None:
        """Return when every name server knows the table as it is now, or failed, or after 2 s."""
        loop = asyncio.get_running_loop()
        waiting = []
        for line in self._lines:
            future = loop.create_future()
            line.waiting.append(future)
            waiting.append(future)
        self.note_change()
        if waiting:
            await asyncio.wait(waiting, timeout=TOLD_S)

    async def known(self) -> None:
        """Return when a name server has taken the registration: from then on clients find us."""
        await self._is_known.wait()

    async def keep_registered(self) -> None:
        """Register again and again until cancelled."""
        while True:
            self._are_others.clear()
            rounds = [asyncio.ensure_future(self._keep(line)) for line in self._lines]
            others = asyncio.ensure_future(self._are_others.wait())
            try:
                await asyncio.wait([others, *rounds], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (others, *rounds):
                    task.cancel()
                ended = await asyncio.gather(others, *rounds, return_exceptions=True)
            for failure in ended:
                if isinstance(failure, Exception):
                    raise failure

    def follow(self, addresses: list[str], dial: Callable[[str], Peer]) -> None:
        """Keep these name servers informed from now on; connections to others are closed."""
        known = {line.peer.address: line for line in self._lines}
        self._lines = [
            known.pop(address) if address in known else _Line(dial(address))
            for address in addresses
        ]
        for line in known.values():
            line.peer.close()
        self.note_change()
        self._are_others.set()

    async def unregister(self, timeout_s: float) -> None:
        """Say goodbye to every name server; one that does not answer in time is left alone."""
        identity = self._identity
        fields = write_header(
            UnregisterBroker(
                broker_name=identity.name,
                broker_addr=identity.address,
                cluster_name=identity.cluster,
                broker_id=identity.broker_id,
            )
        )
        request = Command(RequestCode.UNREGISTER_BROKER, fields=fields)
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*(self._call(line, request) for line in self._lines))
        except TimeoutError:
            log.warning("not every name server answered the goodbye within %g s", timeout_s)
        finally:
            self.close()

    def close(self) -> None:
        """End the connections to name servers, without a word."""
        for line in self._lines:
            line.peer.close()

    async def _keep(self, line: _Line) -> None:
        while True:
            settings = self._settings()
            period_s = settings.register_name_server_period / 1000
            is_changed = True
            try:
                async with asyncio.timeout(min(period_s, RETRY_S) if line.is_failing else period_s):
                    await line.changed.wait()
            except TimeoutError:
                is_changed = line.is_failing
            await self._round(line, is_forced=is_changed or settings.force_register)

    async def _round(self, line: _Line, *, is_forced: bool) -> None:
        waiting = line.take_waiting()
        try:
            table = self._topics()
            is_needed = is_forced or await self._is_needed(line, table)
            if not is_needed or await self._register(line, table):
                self._is_known.set()
        finally:
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    async def _register(self, line: _Line, table: TopicRows) -> bool:
        """Register at a name server; return whether it took the registration."""
        identity, settings = self._identity, self._settings()
        if len(table.rows) > LOOP_TOPICS_MAX:
            body, crc32 = await asyncio.to_thread(_body, table, settings)
        else:
            body, crc32 = _body(table, settings)
        fields = write_header(
            RegisterBroker(
                broker_name=identity.name,
                broker_addr=identity.address,
                cluster_name=identity.cluster,
                ha_server_addr=identity.ha_address,
                broker_id=identity.broker_id,
                compressed=settings.compressed_register,
                body_crc32=crc32,
            )
        )
        if identity.advertised:
            fields[ADVERTISED] = identity.advertised
        request = Command(RequestCode.REGISTER_BROKER, fields=fields, body=body)
        answer = await self._call(line, request)
        if answer is not None and answer.body:
            self._take_order_topics(line, answer.body)
        return answer is not None

    def _take_order_topics(self, line: _Line, body: bytes) -> None:
        """Obey the table of ordered topics of the first name server that answers."""
        try:
            line.order_topics = read_json(body, KVTable).table
        except RemoteProtocolError as error:
            log.warning("name server %s: %s", line.peer.address, error.detail)
        answering = (other.order_topics for other in self._lines if not other.is_failing)
        order_topics = next((table for table in answering if table is not None), None)
        if order_topics is not None:
            self._on_order_topics(order_topics)

    async def _is_needed(self, line: _Line, table: TopicRows) -> bool:
        """Ask whether the name server knows another version of the table, or none."""
        identity = self._identity
        fields = write_header(
            QueryDataVersion(
                broker_name=identity.name,
                broker_addr=identity.address,
                cluster_name=identity.cluster,
                broker_id=identity.broker_id,
            )
        )
        body = write_json(table.data_version, standard=False)
        request = Command(RequestCode.QUERY_DATA_VERSION, fields=fields, body=body)
        answer = await self._call(line, request)
        try:
            return answer is None or read_header(QueryDataVersionAnswer, answer.fields).changed
        except RemoteProtocolError:
            return True

    async def _call(self, line: _Line, request: Command) -> Command | None:
        """Ask a name server; None, reported, when it does not answer or refuses."""
        timeout_s = self._settings().register_broker_timeout_mills / 1000
        request = msgspec.structs.replace(request, fields=dict(request.fields))
        failure: str | None = None
        answer: Command | None = None
        try:
            answer = await line.peer.call(request, timeout_s)
            if answer.code != ResponseCode.SUCCESS:
                failure, answer = answer.remark or "refused", None
        except MQError as error:
            failure = str(error)
        self._report(line, failure)
        return answer

    def _report(self, line: _Line, failure: str | None) -> None:
        if failure is None and line.is_failing:
            log.info("name server %s answers again", line.peer.address)
        elif failure is not None and not line.is_failing:
            log.warning("name server %s: %s; will try again", line.peer.address, failure)
        line.is_failing = failure is not None


def _body(topics: TopicRows, settings: BrokerSettings) -> tuple[bytes, int]:
    """Return the body of a register request and its checksum."""
    perm, is_compressed = settings.broker_permission, settings.compressed_register
    is_whole = perm & PERM_READ_WRITE == PERM_READ_WRITE
    if is_whole and not is_compressed:
        body = write_topic_registration(topics)
        return body, body_crc32(body)
    configs = topics.configs
    if not is_whole:
        configs = {
            name: msgspec.structs.replace(config, perm=perm) for name, config in configs.items()
        }
    table = TopicConfigTable(data_version=topics.data_version, topic_config_table=configs)
    registered = RegisterBrokerBody(topics=table, filter_server_list=[])
    body = write_register_body(registered, compressed=is_compressed)
    return body, body_crc32(body)
