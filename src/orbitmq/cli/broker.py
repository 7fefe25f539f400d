"""`orbitmq broker`: run a broker, or with --brokers several of them.

In: flags, a settings file, the data folder, NAMESRV_ADDR. Out: `ready broker=HOST:PORT` and the
service until a signal comes; or, with -p or -m, its settings.

Rules:
1. The store is opened in a thread, as reading back a long log takes its time: meanwhile a signal is
   obeyed.
2. Settings come from, weakest first: defaults, changes that earlier runs kept, NAMESRV_ADDR, the
   file of -c, -D and flags of their own.
3. A file of -c that --brokers share is not changed: each keeps its changes in its own folder, and
   there they win over the file.
"""

import argparse
import asyncio
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from orbitmq.broker.broker import Broker
from orbitmq.broker.changes import read_kept_changes
from orbitmq.broker.store_opening import OpeningStopped, StoreOpening
from orbitmq.cli.brokers import BrokersService, add_brokers_argument, plan_brokers
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
    load_settings,
    parse_properties,
    render_properties,
    write_properties,
)
from orbitmq.errors import SettingError
from orbitmq.metrics import Registry
from orbitmq.net.turn import Turn
from orbitmq.store.store import Store
from orbitmq.world.files import Files, SystemFiles
from orbitmq.world.machine import environment_text
from orbitmq.world.net import is_loopback, split_address
from orbitmq.world.threads import Threads

logger = logging.getLogger("orbitmq.broker")

_BROKER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._%@-]{0,126}")

STORE_NAME = "store"
"""The broker's files are in this folder of the data folder; the original would accept it."""

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

EXAMPLES = """\
examples:
  orbitmq broker --namesrv 127.0.0.1:9876          on 127.0.0.1:10911, files in ./data/store
  orbitmq broker --namesrv "10.0.0.1:9876;10.0.0.2:9876" --host 0.0.0.0 -D brokerIP1=10.0.0.7
  orbitmq broker -c broker.conf --data-dir /var/lib/orbitmq
  orbitmq broker -c broker.conf -p                 the settings that would be in force
  orbitmq broker --namesrv 127.0.0.1:9876 --brokers 4    ports 10911, 10921, 10931, 10941
"""


class BrokerStart(NamedTuple):
    """Everything a broker starts with; `file` is the one of -c that changes are kept in."""

    settings: BrokerSettings
    folder: Path
    file: Path | None
    notes: list[str]

    def log_notes(self) -> None:
        """Tell the log what the settings led to."""
        for note in self.notes:
            logger.warning("%s", note)


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add this command to the command line."""
    parser = subparsers.add_parser(
        "broker",
        help="run a broker",
        description="Run a broker: it keeps messages, takes them from producers and gives them to "
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


def run(arguments: argparse.Namespace) -> int:
    """Run the command; give its exit code."""
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
    start = put_together(
        files,
        Path(arguments.data_dir) / STORE_NAME,
        Given(properties, overrides, arguments.file, is_shared=is_shared),
        strict=arguments.strict,
    )
    return start._replace(notes=[*notes, *start.notes])


class Given(NamedTuple):
    """What a command was given: the settings file's pairs, those that win over it, its path."""

    properties: dict[str, str]
    overrides: dict[str, str]
    file: str | None
    is_shared: bool = False
    """Whether other brokers have the same file (rule 3)."""


def put_together(files: Files, folder: Path, given: Given, *, strict: bool = False) -> BrokerStart:
    """Give the start of a broker whose store is in `folder`, unless the settings name another."""
    told = {"namesrvAddr": environment_text("NAMESRV_ADDR"), **given.properties}
    settings, _ = load_settings(BrokerSettings, told, given.overrides)
    folder = Path(settings.store_path_root_dir) if settings.store_path_root_dir else folder
    kept = read_kept_changes(files, folder / "config")
    told = {**told, **kept} if given.is_shared else {**kept, **told}
    settings, notes = load_settings(BrokerSettings, told, given.overrides, strict=strict)
    _check_places(settings, folder)
    file = Path(given.file) if given.file and not given.is_shared else None
    notes += [
        f"{key} of {given.file} wins over {key}={value}, which was changed over the network"
        for key, value in kept.items()
        if file is not None and given.properties.get(key, value) != value
    ]
    settings = msgspec.structs.replace(
        settings,
        store_path_root_dir=str(folder),
        store_path_commit_log=str(folder / "commitlog"),
    )
    return BrokerStart(settings, folder, file, notes)


def _check_places(settings: BrokerSettings, folder: Path) -> None:
    """Refuse what cannot be obeyed before anything is opened."""
    if _BROKER_NAME.fullmatch(settings.broker_name) is None:
        raise SettingError(
            f"brokerName={settings.broker_name[:200]!r} cannot be used: it names a topic and a"
            " folder; take up to 127 letters, digits and . _ - % @, a letter or digit first"
        )
    log_folder = folder / "commitlog"
    if settings.store_path_commit_log and Path(settings.store_path_commit_log) != log_folder:
        raise SettingError(
            f"storePathCommitLog={settings.store_path_commit_log} cannot be used: the log is in "
            f"{log_folder}; remove the setting, and make that a link to have the log elsewhere"
        )
    for address in filter(None, map(str.strip, settings.namesrv_addr.split(";"))):
        try:
            split_address(address)
        except SettingError as error:
            raise SettingError(f"namesrvAddr: {error}") from None


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
        """Begin to serve; give the ready line."""
        self._broker = await make_broker(self._start, self._turn, self._registry)
        await self._broker.start()
        settings, address = self._start.settings, self._broker.address
        port = address.rpartition(":")[2]
        bound = show_address(settings.bind_address, int(port))
        logger.info("listening on %s, files in %s", bound, self._start.folder)
        if not settings.namesrv_addr:
            logger.warning(
                "no name server: clients cannot find this broker; give --namesrv host:port"
                " (namesrvAddr)"
            )
        if is_loopback(settings.bind_address):
            self._tell_who_can_connect(address)
        return f"ready broker={address}"

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
    """Open the store and give a broker on it, not started yet; may be cancelled."""
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
