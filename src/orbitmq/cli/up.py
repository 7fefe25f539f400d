"""`orbitmq up`: name server and broker in one process, the quickest way to a first message.

In: flags, the broker's settings, the data folder. Out: one ready line with the addresses, and both
services until a signal comes. With --brokers the name server stays in this process, and each
broker is one of its own.

Rule: while the store is opened, which may take its time, the name server serves.
"""

import argparse
import logging
from pathlib import Path
from typing import NamedTuple

import msgspec

from orbitmq.broker.broker import Broker
from orbitmq.broker.starting import BrokerStart
from orbitmq.cli.broker import load_start as load_broker_start
from orbitmq.cli.broker import make_broker, show_settings
from orbitmq.cli.brokers import (
    PORT_STEP,
    BrokerPlan,
    Brokers,
    add_brokers_argument,
    plan_brokers,
)
from orbitmq.cli.namesrv import FOLDER_NAME, load_start
from orbitmq.cli.process import (
    add_serving_arguments,
    log_to_stderr,
    run_command,
    serve,
    show_address,
)
from orbitmq.config import ServerSettings, as_properties
from orbitmq.metrics import Registry
from orbitmq.namesrv.namesrv import NameServer
from orbitmq.net.turn import Turn
from orbitmq.world.files import SystemFiles

logger = logging.getLogger("orbitmq.up")

EXAMPLES = """\
examples:
  orbitmq up                                       on 127.0.0.1, files in ./data
  orbitmq up --data-dir /var/lib/orbitmq --host 0.0.0.0 -D brokerIP1=192.0.2.7
  orbitmq up --namesrv-port 0 --broker-port 0      any free ports; the ready line names them
  orbitmq up -c broker.conf -p                     the broker's settings that would be used
  orbitmq up --brokers 4                           four broker processes, to use more cores
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add this command to the command line."""
    parser = subparsers.add_parser(
        "up",
        help="run a name server and a broker in one process",
        description="Run a name server and a broker in one process; -c and -D are the broker's.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--namesrv-port",
        type=int,
        default=9876,
        metavar="P",
        help="port of the name server (9876; 0: any free port)",
    )
    parser.add_argument(
        "--broker-port", type=int, metavar="Q", help="port of the broker (10911; 0: any free port)"
    )
    parser.add_argument(
        "--dashboard-port",
        type=int,
        default=8080,
        metavar="R",
        help="reserved for the dashboard, which does not exist yet",
    )
    add_serving_arguments(parser)
    add_brokers_argument(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    return run_command("orbitmq up", lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    flags = {"bindAddress": arguments.host, "listenPort": arguments.broker_port}
    start = load_broker_start(SystemFiles(), arguments, flags)
    if arguments.prints:
        show_settings(start.settings, is_important_only=False)
        return 0
    log_to_stderr()
    start.log_notes()
    plans: list[BrokerPlan] = []
    if arguments.brokers != 1:
        next_port = arguments.metrics_port and arguments.metrics_port + PORT_STEP
        plans = plan_brokers(arguments, start.settings, next_port)
    plan = UpPlan(start, plans, Path(arguments.data_dir), arguments.namesrv_port)
    serve(
        lambda turn, registry: UpService(plan, turn, registry),
        metrics_host=start.settings.bind_address,
        metrics_port=arguments.metrics_port,
    )
    return 0


class UpPlan(NamedTuple):
    """What is started: a name server, and one broker in this process or several beside it."""

    broker: BrokerStart
    several: list[BrokerPlan]
    data_folder: Path
    namesrv_port: int


class UpService:
    """A name server and the brokers that register with it."""

    def __init__(self, plan: UpPlan, turn: Turn, registry: Registry) -> None:
        self._plan = plan
        self._turn = turn
        self._registry = registry
        settings = plan.broker.settings
        overrides = as_properties(settings, ServerSettings) | {"listenPort": str(plan.namesrv_port)}
        start = load_start(SystemFiles(), plan.data_folder / FOLDER_NAME, {}, overrides)
        start.log_notes()
        self._namesrv = NameServer(start.settings, start.folder, turn=turn, registry=registry)
        self._broker: Broker | Brokers | None = None

    async def start(self) -> str:
        """Begin to serve; return the ready line."""
        settings = self._plan.broker.settings
        namesrv = show_address(settings.bind_address, await self._namesrv.start())
        addresses = ";".join(filter(None, (namesrv, settings.namesrv_addr)))
        logger.info("the name server is on %s; opening the store", namesrv)
        if self._plan.several:
            self._broker = several = Brokers(self._plan.several, addresses)
            broker = await several.start()
        else:
            broker = await self._start_one(addresses)
        _show_what_to_try(namesrv)
        return f"ready namesrv={namesrv} broker={broker} dashboard=-"

    async def _start_one(self, namesrv_addresses: str) -> str:
        start = self._plan.broker
        settings = msgspec.structs.replace(start.settings, namesrv_addr=namesrv_addresses)
        start = start._replace(settings=settings)
        self._broker = broker = await make_broker(start, self._turn, self._registry)
        broker.share_admission(self._namesrv.admission)
        await broker.start()
        return broker.address

    async def stop(self) -> None:
        """Stop the brokers first, so that they can say goodbye to the name server."""
        try:
            if self._broker is not None:
                await self._broker.stop()
        finally:
            await self._namesrv.stop()


def _show_what_to_try(namesrv: str) -> None:
    logger.info("1. in any RocketMQ client set the name server to %s", namesrv)
    logger.info("2. send to a topic of any name: it is created when its first message arrives")
    logger.info("3. Ctrl-C stops cleanly; messages and offsets are kept for the next start")
