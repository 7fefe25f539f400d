"""Make docs/reference/commands.md from the commands' own help texts.

In: the argument parsers of `orbitmq`. Out: the page, or with --check exit code 1 when it is out of
date. Every command has a heading; its text is what `--help` prints.

    python -m tools.commands_page [--check]
"""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from orbitmq.cli.main import make_parser
from orbitmq.cli.mqbroker import make_parser as make_mqbroker_parser
from orbitmq.cli.mqnamesrv import make_parser as make_mqnamesrv_parser
from tools.pages import write_or_check

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "commands.md"
HEAD = """\
# Commands

Made by `tools/commands_page.py` from the commands' own `--help`; do not edit.
A serving command prints one line on standard output when it is ready, logs to standard error, stops
cleanly on SIGTERM or SIGINT (exit code 0) and at once on a second signal. Exit code 1 means that it
could not do its work, 2 that its command line or settings are wrong.
"""


def render_page() -> str:
    """Return the whole page."""
    os.environ["COLUMNS"] = "100"  # help texts wrap at the same place everywhere
    return HEAD + "".join(f"\n## {name}\n\n```text\n{text}```\n" for name, text in help_texts())


def help_texts() -> Iterator[tuple[str, str]]:
    """Return each command and what its --help prints."""
    for name, parser in commands("orbitmq", make_parser()):
        yield name, parser.format_help()
    yield "mqnamesrv", make_mqnamesrv_parser().format_help()
    yield "mqbroker", make_mqbroker_parser().format_help()


def commands(
    prefix: str, parser: argparse.ArgumentParser
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Return the commands of a parser and, behind each, those inside it."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to list commands
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            for name, command in action.choices.items():
                yield f"{prefix} {name}", command
                yield from commands(f"{prefix} {name}", command)


def main(arguments: list[str]) -> int:
    """Write the page, or check it."""
    return write_or_check(PAGE, render_page(), arguments, "commands_page")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
