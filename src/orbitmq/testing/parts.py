"""A name server and the broker that registers with it, on the loop that calls.

In: a data folder, settings by the original's keys, a clock. Out: two addresses, until it is ended.

Rules:
1. Settings of the caller win over MODEST, and MODEST over what a broker has without any: files are
   small, and neither a full disk of a developer's machine nor a test that keeps the process busy is
   a reason to remove or to refuse messages.
2. A second start takes the ports of the first, so that clients find the way back.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from orbitmq.broker.broker import Broker
from orbitmq.broker.starting import STORE_NAME, BrokerStart, Given, put_together
from orbitmq.broker.store_opening import this_machine
from orbitmq.config import NamesrvSettings, ServerSettings, as_properties, load_settings
from orbitmq.errors import RequestFailed
from orbitmq.metrics import Registry
from orbitmq.namesrv.namesrv import NameServer
from orbitmq.net.peer import Peer
from orbitmq.net.serving import dial_tls_from
from orbitmq.net.turn import Turn
from orbitmq.testing.moved_time import MovableClock, MovedFiles
from orbitmq.wire.bodies_namesrv import PERM_READ_WRITE
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.fields import write_header
from orbitmq.wire.headers_topics import CreateTopic
from orbitmq.wire.host import Host
from orbitmq.world.net import reachable_address

MODEST: Mapping[str, str] = {
    "brokerFastFailureEnable": "false",
    "cleanFileForciblyEnable": "false",
    "connectionsMax": "500",
    "diskFreeBytesLeast": str(64 * 1_048_576),
    "mappedFileSizeCommitLog": str(16 * 1_048_576),
    "mappedFileSizeConsumeQueue": "200000",
    "maxHashSlotNum": "10000",
    "maxIndexNum": "40000",
    "memoryBytesMax": str(2**62),
    "namesrvAddr": "",  # whatever NAMESRV_ADDR says
}
"""A log file holds the largest message (4 MiB), a queue file 10,000 entries. The usual limit of
open files allows the connections. The process's memory and time are not the broker's alone."""

NAMESRV_NAME = "namesrv"
ANY_PORT = 0
LOOK_S = 0.002
"""How often the number of delayed messages is looked at."""
TOPIC_TIMEOUT_S = 10.0


class Ports(NamedTuple):
    """Where name server and broker listen."""

    namesrv: int = ANY_PORT
    broker: int | None = None
    """None: what the settings say, or any."""


class Parts:
    """One run of a name server and a broker."""

    def __init__(
        self, folder: Path, settings: Mapping[str, object], ports: Ports, clock: MovableClock
    ) -> None:
        """Open the store; raises SettingError or StoreError."""
        self._turn = Turn(asyncio.get_running_loop())
        self._registry = Registry()
        self._clock = clock
        self._files = MovedFiles(clock)
        self._start = self._put_together(folder, settings, ports)
        own = as_properties(self._start.settings, ServerSettings)
        namesrv_settings, _ = load_settings(
            NamesrvSettings, own | {"listenPort": str(ports.namesrv)}
        )
        self._namesrv = NameServer(
            namesrv_settings,
            folder / NAMESRV_NAME,
            turn=self._turn,
            registry=self._registry,
            files=self._files,
            clock=clock,
        )
        self._broker: Broker | None = None
        self._broker_port = ANY_PORT
        self._namesrv_port = ANY_PORT

    def _put_together(
        self, folder: Path, settings: Mapping[str, object], ports: Ports
    ) -> BrokerStart:
        texts = {"listenPort": str(ANY_PORT)} | {key: _text(one) for key, one in settings.items()}
        if ports.broker is not None:
            texts["listenPort"] = str(ports.broker)
        given = Given(dict(MODEST), texts, file=None, is_shared=True)
        return put_together(self._files, folder / STORE_NAME, given, strict=True)

    # --- life ---

    async def start(self) -> None:
        """Begin to serve; returns when clients find the broker. Raises SettingError, StoreError."""
        try:
            await self._start_both()
        except BaseException:
            await self.stop()
            raise

    async def _start_both(self) -> None:
        settings = self._start.settings
        self._namesrv_port = await self._namesrv.start()
        addresses = ";".join(filter(None, (self.namesrv, settings.namesrv_addr)))
        self._broker = broker = Broker(
            msgspec.structs.replace(settings, namesrv_addr=addresses),
            self._start.folder,
            self._turn,
            self._registry,
            outside=this_machine(self._files, self._clock),
        )
        broker.share_admission(self._namesrv.admission)
        await broker.start()

    async def stop(self) -> None:
        """End cleanly; the broker first, so that it can say goodbye."""
        try:
            if self._broker is not None:
                await self._broker.stop()
        finally:
            await self._namesrv.stop()

    async def kill(self) -> None:
        """End as if the process was killed."""
        try:
            if self._broker is not None:
                await self._broker.abandon()
        finally:
            await self._namesrv.stop()

    # --- what is there ---

    @property
    def namesrv(self) -> str:
        """The name server's address."""
        return str(Host(reachable_address(self._start.settings.bind_address), self._namesrv_port))

    @property
    def broker(self) -> str:
        """The broker's address."""
        return self._running.address

    @property
    def ports(self) -> Ports:
        """Where both listen, for the next start."""
        return Ports(self._namesrv_port, int(self.broker.rpartition(":")[2]))

    @property
    def _running(self) -> Broker:
        if self._broker is None:
            raise RuntimeError("the broker has not started")
        return self._broker

    async def create_topic(self, name: str, queue_count: int) -> None:
        """Make a topic or change its number of queues; returns when the name server knows it."""
        header = CreateTopic(
            topic=name,
            read_queue_count=queue_count,
            write_queue_count=queue_count,
            perm=PERM_READ_WRITE,
        )
        request = Command(RequestCode.UPDATE_AND_CREATE_TOPIC, fields=write_header(header))
        peer = Peer(self.broker, self._turn, tls=dial_tls_from(self._start.settings))
        try:
            answer = await peer.call(request, TOPIC_TIMEOUT_S)
        finally:
            peer.close()
            await peer.wait_closed()
        if answer.code != ResponseCode.SUCCESS:
            raise RequestFailed(answer.code, answer.remark or "")

    async def advance(self, seconds: float) -> None:
        """Move time; returns when what is due by then can be read."""
        self._clock.advance(seconds)
        await self._running.deliver_due()

    async def delayed_count(self) -> int:
        """Return how many delayed messages wait."""
        return self._running.delayed_count

    async def wait_for_delayed(self, count: int, timeout_s: float) -> None:
        """Return when so many delayed messages wait, or more; else raises TimeoutError."""
        broker = self._running
        try:
            async with asyncio.timeout(timeout_s):
                while broker.delayed_count < count:
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise TimeoutError(
                f"{broker.delayed_count} delayed messages wait at the broker after {timeout_s:g} s,"
                f" not {count}: was the message sent with a delay, or did its handler fail?"
            ) from None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
