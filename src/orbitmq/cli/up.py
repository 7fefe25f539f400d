"""`orbitmq up`: name server and broker in one process, the quickest way to a first message.

In: flags, the broker's settings, the data folder. Out: one ready line with the addresses, and both
services until a signal comes.

Rule: the store is opened in a thread, as reading back a long log takes its time: meanwhile the name
server serves, and a signal is obeyed.
"""

import argparse
import asyncio
import logging
from pathlib import Path

import msgspec

from orbitmq.broker.broker import Broker
from orbitmq.broker.store_opening import OpeningStopped, StoreOpening
from orbitmq.cli.namesrv import FOLDER_NAME, load_start
from orbitmq.cli.process import (
    add_serving_arguments,
    given_settings,
    log_to_stderr,
    run_command,
    say,
    serve,
    show_address,
)
from orbitmq.config import (
    BrokerSettings,
    ServerSettings,
    as_properties,
    load_settings,
    render_properties,
)
from orbitmq.metrics import Registry
from orbitmq.namesrv.namesrv import NameServer
from orbitmq.net.turn import Turn
from orbitmq.store.store import Store
from orbitmq.world.files import SystemFiles
from orbitmq.world.threads import Threads

logger = logging.getLogger("orbitmq.up")

STORE_NAME = "store"
"""The broker's files are in this folder of the data folder; the original would accept it."""

EXAMPLES = """\
examples:
  orbitmq up                                       on 127.0.0.1, files in ./data
  orbitmq up --data-dir /var/lib/orbitmq --host 0.0.0.0 -D brokerIP1=192.0.2.7
  orbitmq up --namesrv-port 0 --broker-port 0      any free ports; the ready line names them
  orbitmq up -c broker.conf -p                     the broker's settings that would be in force
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
        "--namesrv-port", type=int, default=9876, metavar="P", help="(9876; 0: any free port)"
    )
    parser.add_argument("--broker-port", type=int, metavar="Q", help="(10911; 0: any free port)")
    parser.add_argument(
        "--dashboard-port",
        type=int,
        default=8080,
        metavar="R",
        help="reserved: there is no dashboard yet, and nothing listens there",
    )
    add_serving_arguments(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; give its exit code."""
    return run_command("orbitmq up", lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    flags = {"bindAddress": arguments.host, "listenPort": arguments.broker_port}
    properties, overrides = given_settings(SystemFiles(), arguments, flags)
    settings, notes = load_settings(BrokerSettings, properties, overrides, strict=arguments.strict)
    if arguments.prints:
        say(render_properties(settings).rstrip("\n"))
        return 0
    log_to_stderr()
    for note in notes:
        logger.warning("%s", note)
    serve(
        lambda turn, registry: UpService(
            settings, Path(arguments.data_dir), arguments.namesrv_port, turn, registry
        ),
        metrics_host=settings.bind_address,
        metrics_port=arguments.metrics_port,
    )
    return 0


class UpService:
    """A name server and a broker that registers with it."""

    def __init__(
        self,
        settings: BrokerSettings,
        data_folder: Path,
        namesrv_port: int,
        turn: Turn,
        registry: Registry,
    ) -> None:
        self._settings = settings
        self._folder = data_folder
        self._turn = turn
        self._registry = registry
        overrides = as_properties(settings, ServerSettings) | {"listenPort": str(namesrv_port)}
        start = load_start(SystemFiles(), data_folder / FOLDER_NAME, {}, overrides)
        start.log_notes()
        self._namesrv = NameServer(start.settings, start.folder, turn=turn, registry=registry)
        self._broker: Broker | None = None

    async def start(self) -> str:
        """Begin to serve; give the ready line."""
        host = self._settings.bind_address
        namesrv = show_address(host, await self._namesrv.start())
        addresses = ";".join(filter(None, (namesrv, self._settings.namesrv_addr)))
        settings = msgspec.structs.replace(self._settings, namesrv_addr=addresses)
        logger.info("the name server is on %s; opening the store", namesrv)
        folder = self._folder / STORE_NAME
        store = await _opened(StoreOpening(settings, folder))
        try:
            self._broker = Broker(settings, folder, self._turn, self._registry, store=store)
        except BaseException:
            store.close()
            raise
        await self._broker.start()
        _show_what_to_try(namesrv)
        return f"ready namesrv={namesrv} broker={self._broker.address} dashboard=-"

    async def stop(self) -> None:
        """Stop the broker first, so that it can say goodbye to the name server."""
        try:
            if self._broker is not None:
                await self._broker.stop()
        finally:
            await self._namesrv.stop()


async def _opened(opening: StoreOpening) -> Store:
    """Give the store that a thread opens; a cancelled caller ends that as well."""
    threads = Threads(1, "opening")
    work = threads.run(opening.run)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        opening.stop()
        await asyncio.wait([work])
        failure = work.exception()
        if failure is None:
            work.result().close()
        elif not isinstance(failure, OpeningStopped):
            logger.error("%s", failure)
        raise
    finally:
        threads.close()


def _show_what_to_try(namesrv: str) -> None:
    logger.info("1. in any RocketMQ client set the name server to %s", namesrv)
    logger.info("2. send to a topic of any name: it is made when its first message comes")
    logger.info("3. Ctrl-C stops cleanly; messages and offsets are kept for the next start")
