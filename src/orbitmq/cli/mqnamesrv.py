"""`mqnamesrv`: the name server with the flags, the output and the exit codes of the original.

In: `-c FILE`, `-p`, `-n ADDRESS`, and settings as `--key value`, `--key=value` or `key=value`.
Out: `The Name Server boot success. serializeType=JSON` on standard output and the service until a
signal comes.

Rules:
1. Exit codes are the original's: -1 for wrong arguments or settings and a failing start, -3 when
   the parts cannot be made (data folder, key-value file), 0 for -p and after a signal.
2. ROCKETMQ_HOME is not needed. Files are where the original has them: in ~/namesrv.
3. An unknown key in the file is named and does not stop it; on the command line it does.
"""

import argparse
import sys
from collections.abc import Sequence

from orbitmq.cli.namesrv import NamesrvService, load_start
from orbitmq.cli.original_words import OriginalParser, WrongArguments, read_words
from orbitmq.cli.process import complain, log_to_stderr, read_settings_file, say, serve
from orbitmq.config import NamesrvSettings, load_settings, render_properties
from orbitmq.errors import MQError, StoreError
from orbitmq.world.files import SystemFiles
from orbitmq.world.machine import home_folder

COMMAND = "mqnamesrv"
EXIT_WRONG = -1
EXIT_NOT_MADE = -3
BOOT_LINE = "The Name Server boot success. serializeType=JSON"

EPILOG = """\
examples:
  mqnamesrv
  mqnamesrv -c conf/namesrv.properties
  mqnamesrv --listenPort 9877 --bindAddress 0.0.0.0
  mqnamesrv -c conf/namesrv.properties -p
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    try:
        return _run(sys.argv[1:] if arguments is None else list(arguments))
    except StoreError as error:
        complain(COMMAND, error)
        return EXIT_NOT_MADE
    except (WrongArguments, MQError) as error:
        complain(COMMAND, error)
        return EXIT_WRONG


def _run(arguments: list[str]) -> int:
    parsed, rest = make_parser().parse_known_args(arguments)
    overrides = read_words(rest)
    load_settings(NamesrvSettings, {}, overrides, strict=True)  # rule 3
    files = SystemFiles()
    properties, notes = read_settings_file(files, parsed.file)
    if parsed.file is not None:
        say(f"load config properties file OK, {parsed.file}")
    start = load_start(files, home_folder() / "namesrv", properties, overrides)
    if parsed.prints:
        say(render_properties(start.settings).rstrip("\n"))
        return 0
    log_to_stderr()
    start.notes.extend(notes)
    if parsed.namesrv is not None:
        start.notes.append(f"-n {parsed.namesrv} is ignored: a name server has none of its own")
    start.log_notes()
    serve(lambda turn, registry: _Service(start, files, turn, registry))
    return 0


class _Service(NamesrvService):
    """The name server, announced with the words of the original."""

    async def start(self) -> str:
        """Begin to serve; return the original's line."""
        await super().start()
        return BOOT_LINE


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = OriginalParser(
        prog=COMMAND,
        description="Run a name server. Any setting can be given as --key value.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "-c", "--configFile", dest="file", metavar="FILE", help="name server config properties file"
    )
    parser.add_argument(
        "-p",
        "--printConfigItem",
        dest="prints",
        action="store_true",
        help="print all config items and exit",
    )
    parser.add_argument("-n", "--namesrvAddr", dest="namesrv", metavar="A", help="ignored")
    return parser


if __name__ == "__main__":
    sys.exit(main())
