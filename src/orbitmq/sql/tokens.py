"""The words of an SQL92 expression, one at a time.

In: the text. Out: tokens with their places, the next one always in sight.

Rules, all the original's:
1. Keywords ignore case; names of properties keep it.
2. A text is in single quotes, a quote in it is doubled. Double quotes mean nothing.
3. A whole number has no leading zero and may end with L; a number with a point or an exponent is a
   double. Words need no space between them: `a>3AND b<5` is fine.
4. `/* … */` is a comment, and so is `--` up to the end of its line. Without an end of line `--` is
   two signs, except behind a whole expression (see `Tokens.is_at_end`).
"""

import re
from enum import Enum
from typing import NamedTuple

from orbitmq.errors import SqlError


class Kind(Enum):
    """What a token is; the text is how errors call it."""

    KEYWORD = "a keyword"
    NAME = "the name of a property"
    TEXT = "a text in single quotes"
    WHOLE = "a whole number"
    DOUBLE = "a number"
    SIGN = "a sign"
    END = "the end"


class Token(NamedTuple):
    """One token. `text` is in upper case for keywords, without quotes for texts."""

    kind: Kind
    text: str
    start: int
    end: int
    word: str = ""
    """The same as `text` for keywords and signs: what an operator is recognised by."""


KEYWORDS = frozenset(("AND", "BETWEEN", "FALSE", "IN", "IS", "NOT", "NULL", "OR", "TRUE"))

_SPACE = re.compile(r"(?:[ \t\n\r\f]+|/\*.*?\*/)*", re.DOTALL)
_TEXT_PATTERN = r"[ \t\n\r\f]*'[^']*(?:''[^']*)*'[ \t\n\r\f]*"
_TEXT_LIST = re.compile(rf"\({_TEXT_PATTERN}(?:,{_TEXT_PATTERN})*\)")
_TEXT = re.compile(r"'([^']*(?:''[^']*)*)'")
_LINE_END = re.compile(r"[\n\r]")
_TOKEN = re.compile(
    r"(?P<NAME>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<DOUBLE>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
    r"|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<WHOLE>[0-9]+[lL]?)"
    r"|'(?P<TEXT>[^']*(?:''[^']*)*)'"
    r"|(?P<SIGN><>|<=|>=|[=<>(),+-])"
)
_KINDS = {kind.name: kind for kind in Kind}
_HINTS = {
    '"': "texts are written in single quotes",
    "'": "this text has no closing quote",
    "!": "write <> for unequal",
    "/": "this comment has no end",
    "%": "there is no arithmetic",
    "*": "there is no arithmetic",
    "&": "write AND",
    "|": "write OR",
    ";": "an expression has no semicolon",
}
SHOWN_CHARS_MAX = 24


class Tokens:
    """The tokens of one expression; `next` is the one in sight."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._end = 0
        self._line_end = max(text.rfind("\n"), text.rfind("\r"))
        self.next = self._read()

    def take(self) -> Token:
        """Return the token in sight and go on to the one behind it."""
        token = self.next
        if token.kind is not Kind.END:
            self._end = token.end
            self.next = self._read()
        return token

    def take_if(self, *words: str) -> Token | None:
        """Take the token in sight if it is one of these keywords or signs."""
        return self.take() if self.next.word in words else None

    def take_texts(self) -> list[str] | None:
        """Take a whole list of texts in parentheses, if one without comments is in sight.

        A long list is read in one go here: word by word it would take some milliseconds.
        """
        found = _TEXT_LIST.match(self.text, self.next.start)
        if found is None:
            return None
        self._end = found.end()
        self.next = self._read()
        return [text.replace("''", "'") for text in _TEXT.findall(found[0])]

    def is_at_end(self) -> bool:
        """Whether nothing follows but a comment whose line has no end."""
        return self.next.kind is Kind.END or self.text.startswith("--", self.next.start)

    def expected(self, what: str) -> SqlError:
        """Return the error that something else should stand here."""
        token = self.next
        found = "the end" if token.kind is Kind.END else self._shown(token.start, token.end)
        return fault(token.start, f"expected {what}, found {found}")

    def _read(self) -> Token:
        text, start = self.text, self._skip(self._end)
        if start == len(text):
            return Token(Kind.END, "", start, start)
        found = _TOKEN.match(text, start)
        if found is None:
            hint = _HINTS.get(text[start], "no word of an expression begins so")
            raise fault(start, f"{hint}: {self._shown(start, start + 8)}")
        group = found.lastgroup or ""
        kind, word = _KINDS[group], found[group]
        if kind is Kind.NAME and word.upper() in KEYWORDS:
            kind, word = Kind.KEYWORD, word.upper()
        elif kind is Kind.TEXT:
            word = word.replace("''", "'")
        if kind is Kind.KEYWORD or kind is Kind.SIGN:
            return Token(kind, word, start, found.end(), word)
        return Token(kind, word, start, found.end())

    def _skip(self, position: int) -> int:
        """Return the place behind spaces and comments."""
        while True:
            space = _SPACE.match(self.text, position)
            position = space.end() if space else position
            if position >= self._line_end or not self.text.startswith("--", position):
                return position
            line_end = _LINE_END.search(self.text, position)
            position = line_end.end() if line_end else position

    def _shown(self, start: int, end: int) -> str:
        shown = self.text[start : min(end, start + SHOWN_CHARS_MAX)]
        return f"`{shown}`" if shown.isprintable() else ascii(shown)


def fault(position: int, problem: str) -> SqlError:
    """Return the error for a place in the expression, counted from 0."""
    return SqlError(position + 1, problem)
