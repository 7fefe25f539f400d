"""What the commands for people and scripts share: flags, an Admin, errors in one sentence.

In: parsed arguments and what is to be done. Out: an exit code: 0, 1 when it could not be done, 2
when the command line is wrong, 130 after Ctrl-C.

Rules:
1. Name servers: --namesrv, the environment's NAMESRV_ADDR, then 127.0.0.1:9876.
2. An error is one sentence on standard error with what to do next; no traceback.
3. A reader of a pipe that goes away (`| head`) is not an error.
"""

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from orbitmq.cli.process import EXIT_FAILED, EXIT_USAGE, STOP_SIGNALS, complain, show_help
from orbitmq.cli.screen import Screen
from orbitmq.cli.times import take_times
from orbitmq.client.admin import Admin
from orbitmq.client.settings import (
    LOOKUP_VARIABLE,
    NAMESRV_VARIABLE,
    ClientOptions,
    environment,
)
from orbitmq.errors import ConnectFailed, LocalProtocolError, MQError, SettingError
from orbitmq.world.net import run
from orbitmq.world.tls import TlsClientSettings

DEFAULT_NAMESRV = "127.0.0.1:9876"
EXIT_INTERRUPTED = 130

Act = Callable[[Admin, Screen, argparse.Namespace], Awaitable[None]]


class NotDone(MQError):
    """A command that ends with exit code 1 and this sentence."""


# --- arguments ---


def add_noun(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    purpose: str,
    examples: str,
) -> "argparse._SubParsersAction[argparse.ArgumentParser]":
    """Add a noun; return where its verbs are added."""
    parser = subparsers.add_parser(
        name,
        help=purpose,
        description=purpose[0].upper() + purpose[1:] + ".",
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=lambda _: show_help(parser))
    return parser.add_subparsers(metavar="VERB")


def add_verb(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]",
    command: str,
    purpose: str,
    act: Act,
    examples: str = "",
) -> argparse.ArgumentParser:
    """Add a command that asks a cluster; its last word is the verb."""
    parser = verbs.add_parser(
        command.split()[-1],
        help=purpose,
        description=purpose[0].upper() + purpose[1:] + ".",
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_reaching(parser)
    parser.set_defaults(run=lambda arguments: run_act(f"orbitmq {command}", arguments, act))
    return parser


def add_reaching(parser: argparse.ArgumentParser, *, timeout_s: int = 5) -> None:
    """Add the flags that name the cluster and the form of the output."""
    take_times(parser)
    reach = parser.add_argument_group("the cluster")
    reach.add_argument(
        "--namesrv",
        metavar="A;B",
        default=argparse.SUPPRESS,
        help=f"name servers, host:port ({NAMESRV_VARIABLE}, else {DEFAULT_NAMESRV})",
    )
    reach.add_argument("--namespace", metavar="N", help="the namespace of topics and groups")
    reach.add_argument(
        "--timeout", type=_seconds, metavar="S", help=f"seconds to wait for an answer ({timeout_s})"
    )
    reach.add_argument("--tls", action="store_true", help="connect with TLS")
    reach.add_argument(
        "--tls-ca",
        metavar="FILE",
        help="certificates to trust, instead of the system's; implies --tls",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return seconds


def positive(text: str) -> int:
    """Read a number above 0; raises ArgumentTypeError for anything else."""
    if not (text.isascii() and text.isdigit()) or not 0 < int(text) < 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer")
    return int(text)


def pair(text: str) -> tuple[str, str]:
    """Read `name=value`; raises ArgumentTypeError for anything else."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name, value


def namesrv_of(arguments: argparse.Namespace) -> str:
    """Return the name servers that are meant (rule 1); empty: the client looks them up."""
    given = getattr(arguments, "namesrv", None)
    if given:
        return str(given)
    is_known = environment(NAMESRV_VARIABLE) or environment(LOOKUP_VARIABLE)
    return "" if is_known else DEFAULT_NAMESRV


def client_options(arguments: argparse.Namespace) -> ClientOptions:
    """Return the options of any client that the flags ask for."""
    options: ClientOptions = {}
    if arguments.namespace:
        options["namespace"] = arguments.namespace
    if arguments.timeout:
        options["request_timeout_s"] = arguments.timeout
    if arguments.tls or arguments.tls_ca:
        options["tls"] = TlsClientSettings(trust_cert_path=arguments.tls_ca)
    return options


# --- running ---


def run_act(command: str, arguments: argparse.Namespace, act: Act) -> int:
    """Do something with a running Admin; return the exit code."""

    async def main() -> None:
        screen = Screen(is_json=arguments.json)
        async with Admin(namesrv_of(arguments), **client_options(arguments)) as admin:
            await act(admin, screen, arguments)

    return run_client(command, main())


def run_client(command: str, main: Coroutine[Any, Any, None]) -> int:
    """Run a command to its end; return the exit code, and say what went wrong (rule 2)."""
    # Rule 2: what the client logs is not shown beside it.
    logging.getLogger("orbitmq").addHandler(logging.NullHandler())
    try:
        run(main)
    except (SettingError, LocalProtocolError) as error:
        complain(command, error)
        return EXIT_USAGE
    except ConnectFailed as error:
        text = str(error)
        if "name server" in text and text.endswith("?"):
            text = f"{text[:-1]} (orbitmq up starts one, --namesrv names another)?"
        complain(command, ConnectFailed(text))
        return EXIT_FAILED
    except MQError as error:
        complain(command, error)
        return EXIT_FAILED
    except BrokenPipeError:
        _leave_pipe()
        return 0
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0


def _leave_pipe() -> None:
    """Keep the end of the process from writing to a pipe that nobody reads."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.close()


def confirm(question: str, *, is_agreed: bool) -> None:
    """Ask before something is lost, on a terminal only; raises NotDone for anything but yes."""
    if is_agreed or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return
    sys.stdout.write(f"{question} [y/N] ")
    sys.stdout.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise NotDone("nothing was changed")


async def until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Do something until it is done, or until SIGINT or SIGTERM ends it cleanly.

    A second signal ends the process at once.
    """
    loop = asyncio.get_running_loop()
    working = loop.create_task(work)

    def stop() -> None:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        working.cancel()

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        await working
    except asyncio.CancelledError:
        if not working.cancelled():
            raise
    finally:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)
