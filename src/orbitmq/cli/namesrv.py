"""`orbitmq namesrv`: run a name server.

In: flags, a settings file, the data folder. Out: `ready namesrv=HOST:PORT` and the service until a
signal comes; or, with -p, all settings.
"""

import argparse
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from orbitmq.cli.process import (
    add_serving_arguments,
    given_settings,
    log_to_stderr,
    run_command,
    say,
    serve,
    show_address,
)
from orbitmq.config import NamesrvSettings, render_properties
from orbitmq.metrics import Registry
from orbitmq.namesrv.changed_settings import CHANGES_FILE, load_namesrv_settings, read_changes
from orbitmq.namesrv.namesrv import NameServer
from orbitmq.net.tls_file import read_tls_file
from orbitmq.net.turn import Turn
from orbitmq.world.files import Files, SystemFiles

logger = logging.getLogger("orbitmq.namesrv")

FOLDER_NAME = "namesrv"
"""The name server's files are in this folder of the data folder."""

EXAMPLES = """\
examples:
  orbitmq namesrv                                  on 127.0.0.1:9876, files in ./data/namesrv
  orbitmq namesrv --host 0.0.0.0 --data-dir /var/lib/orbitmq
  orbitmq namesrv -c namesrv.properties --strict   settings of the original; unknown keys refused
  orbitmq namesrv -D orderMessageEnable=true -p    the settings that would be used
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add this command to the command line."""
    parser = subparsers.add_parser(
        "namesrv",
        help="run a name server",
        description="Run a name server: brokers register with it, clients ask it for routes.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--port", type=int, metavar="P", help="port to listen on (9876; 0: any)")
    add_serving_arguments(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    return run_command("orbitmq namesrv", lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    files = SystemFiles()
    folder = Path(arguments.data_dir) / FOLDER_NAME
    flags = {"bindAddress": arguments.host, "listenPort": arguments.port}
    properties, overrides, notes = given_settings(files, arguments, flags)
    start = load_start(files, folder, properties, overrides, strict=arguments.strict)
    start = start._replace(notes=[*notes, *start.notes])
    if arguments.prints:
        say(render_properties(start.settings).rstrip("\n"))
        return 0
    log_to_stderr()
    start.log_notes()
    serve(
        lambda turn, registry: NamesrvService(start, files, turn, registry),
        metrics_host=start.settings.bind_address,
        metrics_port=arguments.metrics_port,
    )
    return 0


class NamesrvStart(NamedTuple):
    """Everything a name server starts with."""

    settings: NamesrvSettings
    folder: Path
    notes: list[str]

    def log_notes(self) -> None:
        """Tell the log what the settings led to."""
        for note in self.notes:
            logger.warning("%s", note)


def load_start(
    files: Files,
    folder: Path,
    properties: Mapping[str, str],
    overrides: Mapping[str, str],
    *,
    strict: bool = False,
) -> NamesrvStart:
    """Put the settings of a start together; raises SettingError."""
    changes = read_changes(files, folder / CHANGES_FILE)
    path = {**properties, **overrides}.get("tls.config.file", "")
    tls, tls_notes = read_tls_file(files, path, NamesrvSettings)
    overrides = {**overrides, **tls}
    settings, notes = load_namesrv_settings(changes, properties, overrides, strict=strict)
    return NamesrvStart(settings, folder, [*notes, *tls_notes])


class NamesrvService:
    """A name server as a service of a process."""

    def __init__(self, start: NamesrvStart, files: Files, turn: Turn, registry: Registry) -> None:
        self._host = start.settings.bind_address
        self._server = NameServer(
            start.settings, start.folder, turn=turn, registry=registry, files=files
        )

    async def start(self) -> str:
        """Begin to serve; return the ready line."""
        address = show_address(self._host, await self._server.start())
        logger.info("settings: %s", render_properties(self._server.settings).replace("\n", " "))
        logger.info("listening on %s; clients and brokers: namesrvAddr=%s", address, address)
        if self._host in ("127.0.0.1", "::1", "localhost"):
            logger.info("only this machine can connect; --host 0.0.0.0 opens it to others")
        return f"ready namesrv={address}"

    async def stop(self) -> None:
        """Stop cleanly."""
        await self._server.stop()
