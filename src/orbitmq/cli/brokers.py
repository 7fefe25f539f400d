"""Several broker processes on one machine: `--brokers N` of `orbitmq broker` and `orbitmq up`.

In: the flags and settings of one broker. Out: N processes with a name, a folder and a port each,
and their addresses.

Rules:
1. Names end in -a, -b, -c …; folders are DATA/<brokerName>/store; ports go up in steps of 10.
2. One that ends before all are ready ends them all. Later on, one that ends is reported and started
   again, after 1 s at first and 30 s at most; the others go on meanwhile.
3. SIGTERM stops all cleanly; a second one ends all at once; none outlives its parent.
"""

import argparse
import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec

from orbitmq.config import BrokerSettings
from orbitmq.errors import MQError, SettingError
from orbitmq.world.clock import SystemClock
from orbitmq.world.files import SystemFiles
from orbitmq.world.processes import Child, start_child

logger = logging.getLogger("orbitmq.brokers")

BROKER_COUNT_MAX = 26
"""One letter each."""

PORT_STEP = 10
"""A broker takes its port, the one 2 below and, for slaves, the one behind."""

PAUSE_S_LEAST = 1.0
PAUSE_S_MOST = 30.0
STEADY_S = 60.0
"""A process that ran so long is started again without delay of earlier failures."""

READY = "ready broker="


class StartFailed(MQError):
    """A broker process ended before it was ready."""


class BrokerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How one broker process is started."""

    name: str
    port: int
    arguments: tuple[str, ...]

    def command(self) -> list[str]:
        """Return its command line."""
        return ["orbitmq", "broker", *self.arguments, "--port", str(self.port)]


def add_brokers_argument(parser: argparse.ArgumentParser) -> None:
    """Add --brokers."""
    parser.add_argument(
        "--brokers",
        type=int,
        default=1,
        metavar="N",
        help="run N broker processes, to use more cores (1); ports go up in steps of 10, "
        "files are in DATA/<brokerName>/store",
    )


def refuse_one_folder(given: Mapping[str, str]) -> None:
    """Raise SettingError for a folder that all brokers would have to share."""
    for key in ("storePathRootDir", "storePathCommitLog", "readOnlyCommitLogStorePaths"):
        if given.get(key):
            raise SettingError(
                f"{key} is for one broker, but each of several brokers has its own folder below"
                " --data-dir; remove the setting, or start each broker with a command of its own"
            )


def plan_brokers(
    arguments: argparse.Namespace, settings: BrokerSettings, metrics_port: int | None
) -> list[BrokerPlan]:
    """Return the plans of all processes; raises SettingError when there are too many."""
    count, folder = arguments.brokers, Path(arguments.data_dir)
    if not 1 <= count <= BROKER_COUNT_MAX:
        raise SettingError(f"--brokers {count}: from 1 to {BROKER_COUNT_MAX}")
    if SystemFiles().is_folder(folder / "store"):
        logger.warning(
            "%s is the folder of a single broker; its messages are not served with --brokers",
            folder / "store",
        )
    shared = ["--host", settings.bind_address, "--is-child"]
    shared += ["-c", arguments.file] if arguments.file else []
    shared += ["--strict"] if arguments.strict else []
    for text in arguments.overrides:
        shared += ["-D", text]
    plans = []
    for number in range(count):
        name = f"{settings.broker_name.removesuffix('-a')}-{chr(ord('a') + number)}"
        own = ["--data-dir", str(folder / name), "-D", f"brokerName={name}"]
        if metrics_port is not None:
            own += ["--metrics-port", str(_port(metrics_port, number))]
        port = _port(settings.listen_port, number)
        plans.append(BrokerPlan(name=name, port=port, arguments=(*shared, *own)))
    return plans


def _port(first: int, number: int) -> int:
    return first + PORT_STEP * number if first else 0


class _Member:
    """One broker process, again and again."""

    def __init__(self, plan: BrokerPlan, namesrv: str) -> None:
        self._plan = plan
        self._namesrv = namesrv
        self._child: Child | None = None
        self._clock = SystemClock()

    async def start(self) -> str:
        """Start it; return its address when it is ready. Raises StartFailed when it ends first."""
        namesrv = ["--namesrv", self._namesrv] if self._namesrv else []
        self._child = await start_child([*self._plan.command(), *namesrv])
        line = await self._child.line()
        if line is None or not line.startswith(READY):
            code = await self._child.wait()
            raise StartFailed(
                f"{self._plan.name} ended with exit code {code} before it was ready; its last "
                "lines above say why"
            )
        address = line.removeprefix(READY)
        port = int(address.rpartition(":")[2])  # a port that was any is this one from now on
        self._plan = msgspec.structs.replace(self._plan, port=port)
        return address

    async def keep_running(self) -> None:
        """Start it again whenever it ends, until cancelled."""
        pause_s = PAUSE_S_LEAST
        while self._child is not None:
            begun_s = self._clock.monotonic_s()
            code = await self._child.wait()
            if self._clock.monotonic_s() - begun_s >= STEADY_S:
                pause_s = PAUSE_S_LEAST
            logger.error(
                "%s ended with exit code %d; starting it again in %g s",
                self._plan.name,
                code,
                pause_s,
            )
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_S_MOST)
            try:
                logger.info("%s is back on %s", self._plan.name, await self.start())
            except (MQError, OSError) as error:  # no memory or descriptors for it: they may return
                logger.error("%s cannot be started: %s", self._plan.name, error)

    async def stop(self) -> None:
        """Stop it cleanly; returns when it has ended."""
        if self._child is None:
            return
        self._child.terminate()
        code = await self._child.wait()
        if code != 0:
            logger.error("%s ended with exit code %d", self._plan.name, code)


class Brokers:
    """All broker processes of one command."""

    def __init__(self, plans: list[BrokerPlan], namesrv: str) -> None:
        self._members = [_Member(plan, namesrv) for plan in plans]
        self._keepers: list[asyncio.Task[None]] = []

    async def start(self) -> str:
        """Start all; return their addresses, separated by commas, when all are ready."""
        starts = [asyncio.create_task(member.start()) for member in self._members]
        try:
            addresses = await asyncio.gather(*starts)
        except BaseException:
            for one in starts:
                one.cancel()
            await asyncio.gather(*starts, return_exceptions=True)
            raise
        self._keepers = [asyncio.create_task(member.keep_running()) for member in self._members]
        return ",".join(addresses)

    async def stop(self) -> None:
        """Stop all cleanly, at the same time; returns when all have ended."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await asyncio.gather(*(member.stop() for member in self._members))


class BrokersService:
    """Several brokers as a service of a process."""

    def __init__(self, plans: list[BrokerPlan], namesrv: str) -> None:
        self._brokers = Brokers(plans, namesrv)

    async def start(self) -> str:
        """Begin to serve; return the ready line."""
        return READY + await self._brokers.start()

    async def stop(self) -> None:
        """Stop all cleanly."""
        await self._brokers.stop()
