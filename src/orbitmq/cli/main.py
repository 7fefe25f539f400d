"""The command `orbitmq`: one file per noun, each with `add_parser(subparsers)` and a run function.

In: the arguments of the command line. Out: an exit code.
Rule: the order of NOUNS is the order of the help text.
"""

import argparse
import sys
from collections.abc import Sequence

from orbitmq.cli import broker, namesrv, run, store, up, version

NOUNS = (up, namesrv, broker, store, run, version)


def make_parser() -> argparse.ArgumentParser:
    """Give the parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="orbitmq",
        description="A message broker that speaks Apache RocketMQ's protocol and keeps its files.",
    )
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for noun in NOUNS:
        noun.add_parser(subparsers)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; give its exit code."""
    parsed = make_parser().parse_args(arguments)
    exit_code: int = parsed.run(parsed)
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
