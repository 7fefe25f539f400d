"""The command `orbitmq`: one file per noun, each with `add_parser(subparsers)` and a run function.

In: the arguments of the command line. Out: an exit code.

Rules:
1. The order of NOUNS is the order of the help text.
2. Only the noun that is meant is imported: a look at a topic does not load a broker.
"""

import argparse
import importlib
import sys
from collections.abc import Iterable, Sequence

from orbitmq.cli.process import show_help
from orbitmq.cli.version import ShowVersion

NOUNS = (
    "up",
    "namesrv",
    "broker",
    "store",
    "run",
    "topic",
    "group",
    "message",
    "cluster",
    "send",
    "tail",
    "consume",
    "completion",
    "version",
)
"""Each is a module in this folder."""


def make_parser(nouns: Iterable[str] = NOUNS) -> argparse.ArgumentParser:
    """Return the parser of the whole command line, or of some of its nouns."""
    parser = argparse.ArgumentParser(
        prog="orbitmq",
        description="A message broker that speaks Apache RocketMQ's protocol and keeps its files.",
    )
    parser.add_argument("--version", action=ShowVersion, nargs=0, help="print the version")
    parser.set_defaults(run=lambda _: show_help(parser))
    subparsers = parser.add_subparsers(metavar="COMMAND")
    for noun in nouns:
        importlib.import_module(f"orbitmq.cli.{noun}").add_parser(subparsers)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    meant = words[:1] if words and words[0] in NOUNS else NOUNS
    parsed = make_parser(meant).parse_args(words)
    exit_code: int = parsed.run(parsed)
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
