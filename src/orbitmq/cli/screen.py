"""What a command shows: tables and facts for people, JSON for programs.

In: rows, facts, values. Out: text on standard output; hints on standard error.

Rules:
1. Colours only on a terminal, and never when the environment has NO_COLOR or TERM=dumb.
2. Nothing that came over the network reaches a terminal raw: control characters are written as
   escapes.
3. JSON is one value: indented on a terminal, in one line elsewhere. Names are ours.
"""

import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from orbitmq.world.machine import environment_text

BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"
_OUR_COLOURS = re.compile(rf"(\x1b\[(?:0|{BOLD}|{DIM}|{RED}|{GREEN}|{YELLOW})m)")
_CONTROLS = re.compile("[\x7f-\x9f]")
"""Control characters that JSON would leave as they are."""
GAP = "  "
NOTHING = "-"


def is_coloured() -> bool:
    """Whether standard output takes colours (rule 1)."""
    is_unwanted = environment_text("NO_COLOR") or environment_text("TERM") == "dumb"
    return sys.stdout.isatty() and not is_unwanted


def printable(text: str) -> str:
    r"""Return text with control characters as escapes, for one line of a terminal.

    >>> printable("a\nb")
    'a\\nb'
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def _width(text: str) -> int:
    """Return how many columns a text takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    marks = sum(unicodedata.combining(character) != 0 for character in text)
    return len(text) + wide - marks


class Screen:
    """Standard output of one command."""

    def __init__(self, *, is_json: bool) -> None:
        self.is_json = is_json
        self._is_coloured = is_coloured()

    def colour(self, text: str, code: str) -> str:
        """Return text in a colour, where there are colours."""
        return f"\x1b[{code}m{text}\x1b[0m" if self._is_coloured and text else text

    def line(self, text: str = "") -> None:
        """Write one line, with no other escapes in it than our own colours (rule 2)."""
        if not text.isprintable():
            parts = _OUR_COLOURS.split(text) if self._is_coloured else [text]
            text = "".join(
                part if number % 2 else printable(part) for number, part in enumerate(parts)
            )
        self._write(text)

    def _write(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def hint(self, text: str) -> None:
        """Write a word to people, where it is in no program's way."""
        sys.stderr.write(text + "\n")

    def heading(self, text: str) -> None:
        """Write the heading of a part."""
        self.line(self.colour(text, BOLD))

    def value(self, value: object) -> None:
        """Write one value as JSON (rule 3)."""
        data = msgspec.json.encode(value)
        if sys.stdout.isatty():
            data = msgspec.json.format(data, indent=2)
        self._write(_as_json(data))

    def json_line(self, value: object) -> None:
        """Write one value as JSON in one line, for streams of them."""
        self._write(_as_json(msgspec.json.encode(value)))

    def table(self, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Write a table; numbers stand at the right."""
        cells = [[_cell(cell) for cell in row] for row in rows]
        are_numbers = [
            all(_is_number(row[column]) for row in cells)
            and any(row[column] != NOTHING for row in cells)
            for column in range(len(headings))
        ]
        widths = [
            max(_width(line[column]) for line in [list(headings), *cells])
            for column in range(len(headings))
        ]
        self.line(self.colour(_row(headings, widths, are_numbers), BOLD))
        for row in cells:
            self.line(_row(row, widths, are_numbers))

    def facts(self, facts: Mapping[str, object]) -> None:
        """Write names and values, one a line."""
        width = max(map(_width, facts), default=0)
        for name, value in facts.items():
            self.line(f"{self.colour(_padded(name, width), DIM)}{GAP}{_cell(value)}".rstrip())


def _as_json(data: bytes) -> str:
    """Return JSON as text, with control characters as JSON writes them (rule 2)."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", data.decode())


def _cell(value: object) -> str:
    """Return a value as a person reads it."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return printable(str(value))


def _is_number(text: str) -> bool:
    return text == NOTHING or text.replace(",", "").replace(".", "").lstrip("-").isdigit()


def _padded(text: str, width: int, *, at_right: bool = False) -> str:
    blanks = " " * (width - _width(text))
    return blanks + text if at_right else text + blanks


def _row(cells: Sequence[str], widths: Sequence[int], are_numbers: Sequence[bool]) -> str:
    padded = [
        _padded(cell, width, at_right=is_number)
        for cell, width, is_number in zip(cells, widths, are_numbers, strict=True)
    ]
    return GAP.join(padded).rstrip()
