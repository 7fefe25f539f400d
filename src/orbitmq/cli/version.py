"""`orbitmq version`: which OrbitMQ this is, and as which RocketMQ it answers.

In: nothing. Out: one line on standard output.
The second number is the one that clients see in every answer; the core is that of `ORBITMQ_CORE`.
"""

import argparse
import importlib

from orbitmq import __version__
from orbitmq.cli.process import say
from orbitmq.wire.command import VERSION


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add this command to the command line."""
    parser = subparsers.add_parser("version", help="print the version")
    parser.set_defaults(run=run)


def version_line() -> str:
    """Return what `orbitmq version` and `orbitmq --version` print."""
    core = importlib.import_module("orbitmq.core")  # no other command of the shell needs it
    answers = f"answers as RocketMQ protocol version {VERSION}"
    return f"orbitmq {__version__} ({answers}, {core.CHOSEN.name} core)"


class ShowVersion(argparse.Action):
    """What `--version` does."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        """Print the line and end."""
        say(version_line())
        parser.exit()


def run(_arguments: argparse.Namespace) -> int:
    """Print the version and the core; return the exit code."""
    say(version_line())
    return 0
