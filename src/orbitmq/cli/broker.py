"""`orbitmq broker`: run a broker, or with --brokers several; `show` and `set` ask a running one.

In: flags, a settings file, the data folder, NAMESRV_ADDR. Out: `ready broker=HOST:PORT` and the
service until a signal comes; or, with -p or -m, its settings.

Rules:
1. The store is opened in a thread, as reading back a long log takes its time: meanwhile a signal is
   obeyed.
2. Settings come from the sources that `broker.starting` names; -D and flags win over all of them.
"""

import argparse
import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from orbitmq.broker.broker import Broker
from orbitmq.broker.starting import STORE_NAME, BrokerStart, Given, put_together
from orbitmq.broker.store_opening import OpeningStopped, StoreOpening
from orbitmq.cli.brokers import (
    BrokersService,
    add_brokers_argument,
    plan_brokers,
    refuse_one_folder,
)
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
    parse_properties,
    render_properties,
    write_properties,
)
from orbitmq.metrics import Registry
from orbitmq.net.turn import Turn
from orbitmq.store.store import Store
from orbitmq.world.files import Files, SystemFiles
from orbitmq.world.net import is_loopback
from orbitmq.world.threads import Threads

logger = logging.getLogger("orbitmq.broker")

IMPORTANT = (
    "aclEnable",
    "autoCreateSubscriptionGroup",
    "autoCreateTopicEnable",
    "brokerClusterName",
    "brokerIP1",
    "brokerId",
    "brokerName",
    "brokerRole",
    "cleanFileForciblyEnable",
    "deleteWhen",
    "fileReservedTime",
    "flushDiskType",
    "flushIntervalCommitLog",
    "haMasterAddress",
    "listenPort",
    "maxTransferBytesOnMessageInDisk",
    "maxTransferBytesOnMessageInMemory",
    "maxTransferCountOnMessageInDisk",
    "maxTransferCountOnMessageInMemory",
    "messageIndexEnable",
    "msgTraceTopicName",
    "namesrvAddr",
    "rejectTransactionMessage",
    "storePathCommitLog",
    "storePathRootDir",
    "traceTopicEnable",
)
"""What -m shows: about what the original calls important."""

REGISTERED_SOON_S = 0.1
"""A name server that could be reached has answered by then: the start has waited for it."""

EXAMPLES = """\
examples:
  orbitmq broker --namesrv 127.0.0.1:9876          on 127.0.0.1:10911, files in ./data/store
  orbitmq broker --namesrv "10.0.0.1:9876;10.0.0.2:9876" --host 0.0.0.0 -D brokerIP1=10.0.0.7
  orbitmq broker -c broker.conf --data-dir /var/lib/orbitmq
  orbitmq broker -c broker.conf -p                 the settings that would be used
  orbitmq broker --namesrv 127.0.0.1:9876 --brokers 4    ports 10911, 10921, 10931, 10941
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add this command to the command line."""
    parser = subparsers.add_parser(
        "broker",
        help="run a broker, show one, or change its settings",
        description="Run a broker: it stores the messages of producers, delivers them to "
        "consumers, and registers with name servers.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--namesrv",
        metavar="A;B",
        help="name servers, host:port, separated by semicolons (NAMESRV_ADDR)",
    )
    parser.add_argument("--port", type=int, metavar="Q", help="port to listen on (10911; 0: any)")
    add_serving_arguments(parser)
    parser.add_argument(
        "-m",
        dest="prints_important",
        action="store_true",
        help="print the important settings and exit",
    )
    add_brokers_argument(parser)
    parser.add_argument(  # how --brokers starts its processes
        "--is-child", action="store_true", help=argparse.SUPPRESS
    )
    parser.set_defaults(run=run)
    from orbitmq.cli.broker_show import add_verbs  # who starts a broker has no need of a client

    add_verbs(parser.add_subparsers(metavar="show|set", title="a running broker"))


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    return run_command("orbitmq broker", lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    flags = {
        "bindAddress": arguments.host,
        "listenPort": arguments.port,
        "namesrvAddr": arguments.namesrv,
    }
    start = load_start(SystemFiles(), arguments, flags, is_shared=arguments.is_child)
    if arguments.prints or arguments.prints_important:
        show_settings(start.settings, is_important_only=not arguments.prints)
        return 0
    log_to_stderr(start.settings.broker_name if arguments.is_child else "")
    start.log_notes()
    if arguments.brokers != 1:
        plans = plan_brokers(arguments, start.settings, arguments.metrics_port)
        serve(lambda _turn, _registry: BrokersService(plans, start.settings.namesrv_addr))
        return 0
    serve(
        lambda turn, registry: BrokerService(start, turn, registry),
        metrics_host=start.settings.bind_address,
        metrics_port=arguments.metrics_port,
        is_child=arguments.is_child,
    )
    return 0


# --- settings ---


def load_start(
    files: Files,
    arguments: argparse.Namespace,
    flags: Mapping[str, object],
    *,
    is_shared: bool = False,
) -> BrokerStart:
    """Put the settings of a start together (rule 2); raises SettingError."""
    properties, overrides, notes = given_settings(files, arguments, flags)
    if arguments.brokers != 1:
        refuse_one_folder({**properties, **overrides})
    start = put_together(
        files,
        Path(arguments.data_dir) / STORE_NAME,
        Given(properties, overrides, arguments.file, is_shared=is_shared),
        strict=arguments.strict,
    )
    return start._replace(notes=[*notes, *start.notes])


def show_settings(settings: BrokerSettings, *, is_important_only: bool) -> None:
    """Write settings to standard output, all of them or the important ones."""
    text = render_properties(settings)
    if is_important_only:
        table = parse_properties(text)
        text = write_properties({key: table[key] for key in IMPORTANT})
    say(text.rstrip("\n"))


# --- the service ---


class BrokerService:
    """A broker as a service of a process."""

    def __init__(self, start: BrokerStart, turn: Turn, registry: Registry) -> None:
        self._start = start
        self._turn = turn
        self._registry = registry
        self._broker: Broker | None = None

    async def start(self) -> str:
        """Begin to serve; return the ready line."""
        self._broker = await make_broker(self._start, self._turn, self._registry)
        await self._broker.start()
        settings, address = self._start.settings, self._broker.address
        port = address.rpartition(":")[2]
        bound = show_address(settings.bind_address, int(port))
        logger.info("listening on %s, files in %s", bound, self._start.folder)
        if not (settings.namesrv_addr or settings.fetch_namesrv_addr_by_address_server):
            logger.warning(
                "no name server: clients cannot find this broker; give --namesrv host:port"
                " (namesrvAddr)"
            )
        if is_loopback(settings.bind_address):
            self._tell_who_can_connect(address)
        await self._await_name_server(self._broker)
        return f"ready broker={address}"

    async def _await_name_server(self, broker: Broker) -> None:
        """Return when clients can find the broker; say what it waits for where that takes long."""
        registered = asyncio.ensure_future(broker.registered())
        try:
            await asyncio.wait([registered], timeout=REGISTERED_SOON_S)
            if not registered.done():
                logger.warning(
                    "not ready yet: no name server has taken the registration, so clients cannot"
                    " find this broker; check --namesrv (namesrvAddr=%s)",
                    self._start.settings.namesrv_addr,
                )
            await registered
        finally:
            registered.cancel()

    def _tell_who_can_connect(self, address: str) -> None:
        if is_loopback(address.rpartition(":")[0].strip("[]")):
            logger.info(
                "only this machine can connect; --host 0.0.0.0 (bindAddress) opens it to others"
            )
        else:
            logger.warning(
                "clients are told %s (brokerIP1), but only this machine can connect: set"
                " --host 0.0.0.0 (bindAddress=0.0.0.0)",
                address,
            )

    async def stop(self) -> None:
        """Stop cleanly."""
        if self._broker is not None:
            await self._broker.stop()


async def make_broker(start: BrokerStart, turn: Turn, registry: Registry) -> Broker:
    """Open the store and return a broker on it, not started yet; may be cancelled."""
    store = await _opened(StoreOpening(start.settings, start.folder))
    try:
        broker = Broker(start.settings, start.folder, turn, registry, store=store)
    except BaseException:
        store.close()
        raise
    if start.file is not None:
        broker.keep_changes_in(start.file)
    return broker


async def _opened(opening: StoreOpening) -> Store:
    """Return the store that a thread opens; a cancelled caller ends that as well."""
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
