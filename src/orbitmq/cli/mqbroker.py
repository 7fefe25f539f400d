"""`mqbroker`: the broker with the flags, the output and the exit codes of the original.

In: `-n ADDRESSES`, `-c FILE`, `-p`, `-m`, NAMESRV_ADDR, and settings as `--key value`,
`--key=value` or `key=value`. Out: `The broker[NAME, HOST:PORT] boot success. serializeType=JSON`,
with the name servers if there are any, on standard output, and the service until a signal comes.

Rules:
1. Exit codes are the original's: 1 for arguments that cannot be read, -3 for name servers that are
   no addresses, -1 for other wrong settings and a failing start, 0 for -p, -m and after a signal.
2. ROCKETMQ_HOME is not needed. Files are where the original has them: in ~/store, or where
   storePathRootDir says.
3. An unknown key in the file is named and does not stop it; on the command line it does.
"""

import argparse
import sys
from collections.abc import Sequence

from orbitmq.broker.starting import BrokerStart, Given, put_together
from orbitmq.cli.broker import BrokerService, show_settings
from orbitmq.cli.original_words import OriginalParser, WrongArguments, read_words
from orbitmq.cli.process import complain, log_to_stderr, read_settings_file, serve
from orbitmq.config import BrokerSettings, load_settings
from orbitmq.errors import MQError, SettingError
from orbitmq.world.files import SystemFiles
from orbitmq.world.machine import home_folder
from orbitmq.world.net import split_address

COMMAND = "mqbroker"
EXIT_ARGUMENTS = 1
EXIT_WRONG = -1
EXIT_ADDRESS = -3

EPILOG = """\
examples:
  mqbroker -n "192.168.0.1:9876;192.168.0.2:9876"
  mqbroker -n localhost:9876 -c conf/broker.conf
  mqbroker -n localhost:9876 autoCreateTopicEnable=true --listenPort 10921
  mqbroker -c conf/broker.conf -p
"""


class _WrongAddress(Exception):
    """The name servers are no addresses."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    try:
        return _run(sys.argv[1:] if arguments is None else list(arguments))
    except WrongArguments as error:
        complain(COMMAND, error)
        return EXIT_ARGUMENTS
    except _WrongAddress as error:
        complain(COMMAND, error)
        return EXIT_ADDRESS
    except MQError as error:
        complain(COMMAND, error)
        return EXIT_WRONG


def _run(arguments: list[str]) -> int:
    parsed, rest = make_parser().parse_known_args(arguments)
    overrides = read_words(rest)
    if parsed.namesrv is not None:
        overrides["namesrvAddr"] = parsed.namesrv
    load_settings(BrokerSettings, {}, overrides, strict=True)  # rule 3
    files = SystemFiles()
    properties, notes = read_settings_file(files, parsed.file)
    _check_addresses(overrides.get("namesrvAddr", properties.get("namesrvAddr", "")))
    given = Given(properties, overrides, parsed.file)
    start = put_together(files, home_folder() / "store", given)
    if parsed.prints or parsed.prints_important:
        show_settings(start.settings, is_important_only=not parsed.prints)
        return 0
    log_to_stderr()
    start.notes.extend(notes)
    start.log_notes()
    serve(lambda turn, registry: _Service(start, BrokerService(start, turn, registry)))
    return 0


def _check_addresses(text: str) -> None:
    try:
        for address in filter(None, map(str.strip, text.split(";"))):
            split_address(address)
    except SettingError:
        raise _WrongAddress(
            f"The Name Server Address[{text[:200]}] illegal, please set it as follows, "
            '"127.0.0.1:9876;192.168.0.1:9876"'
        ) from None


class _Service:
    """The broker, announced with the words of the original."""

    def __init__(self, start: BrokerStart, service: BrokerService) -> None:
        self._settings = start.settings
        self._service = service

    async def start(self) -> str:
        """Begin to serve; return the original's line."""
        address = (await self._service.start()).removeprefix("ready broker=")
        name, namesrv = self._settings.broker_name, self._settings.namesrv_addr
        line = f"The broker[{name}, {address}] boot success. serializeType=JSON"
        return f"{line} and name server is {namesrv}" if namesrv else line

    async def stop(self) -> None:
        """Stop cleanly."""
        await self._service.stop()


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = OriginalParser(
        prog=COMMAND,
        description="Run a broker. Any setting can be given as --key value or key=value.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "-c", "--configFile", dest="file", metavar="FILE", help="broker config properties file"
    )
    parser.add_argument(
        "-m",
        "--printImportantConfig",
        dest="prints_important",
        action="store_true",
        help="print important config items and exit",
    )
    parser.add_argument(
        "-n",
        "--namesrvAddr",
        dest="namesrv",
        metavar="A",
        help="name server address list, eg: '192.168.0.1:9876;192.168.0.2:9876'",
    )
    parser.add_argument(
        "-p",
        "--printConfigItem",
        dest="prints",
        action="store_true",
        help="print all config items and exit",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
