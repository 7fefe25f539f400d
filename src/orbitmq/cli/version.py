"""`orbitmq version`: which OrbitMQ this is, and as which RocketMQ it answers.

In: nothing. Out: one line on standard output.
The second number is the one that clients see in every answer; the core is that of `ORBITMQ_CORE`.
"""

import argparse

from orbitmq import __version__
from orbitmq.cli.process import say
from orbitmq.core import CHOSEN
from orbitmq.wire.command import VERSION


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add this command to the command line."""
    parser = subparsers.add_parser("version", help="print the version")
    parser.set_defaults(run=run)


def version_line() -> str:
    """Return what `orbitmq version` and `orbitmq --version` print."""
    answers = f"answers as RocketMQ protocol version {VERSION}"
    return f"orbitmq {__version__} ({answers}; {CHOSEN.name} core)"


def run(_arguments: argparse.Namespace) -> int:
    """Print the version; return the exit code."""
    say(version_line())
    return 0
