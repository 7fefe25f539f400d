"""The code blocks of README and docs, for the tests that run them.

In: the pages. Out: their blocks with language and text, and the commands in those of language `sh`.
Rule: a block of language `text` is output or a drawing; all others are examples.
"""

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
OUTPUT = "text"


class Block(NamedTuple):
    """One fenced block."""

    page: str
    language: str
    text: str


class Command(NamedTuple):
    """A line that a reader types, without its comment."""

    page: str
    line: str


def _blocks() -> list[Block]:
    found = []
    for path in sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")]):
        page = str(path.relative_to(ROOT))
        for indent, language, text in re.findall(
            r"^( *)```(\w*)\n(.*?)^\1```$", path.read_text(), re.MULTILINE | re.DOTALL
        ):
            found.append(Block(page, language, textwrap.dedent(indent + text.lstrip(" "))))
    return found


BLOCKS = _blocks()
COMMANDS = [
    Command(block.page, re.split(r" +# ", line)[0])
    for block in BLOCKS
    if block.language == "sh"
    for line in re.sub(r" *\\\n *", " ", block.text).splitlines()
]


def of_language(language: str) -> list[Block]:
    """Return the blocks of one language."""
    return [block for block in BLOCKS if block.language == language]


def beginning_with(*words: str) -> list[Command]:
    """Return the commands that begin with one of these, each line once."""
    pattern = "|".join(rf"{re.escape(each)}\b" for each in words)
    return list({one.line: one for one in COMMANDS if re.match(pattern, one.line)}.values())
