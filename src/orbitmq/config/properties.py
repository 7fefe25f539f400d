r"""Java `.properties` text: the form of the original's settings files and of requests 318 and 319.

In: text (or bytes) of a settings file, or a table of keys. Out: the other one, or the text with
some values changed.

Rules:
1. Reading follows Java: `#` and `!` begin comments; `=`, `:` or white space ends a key; a line that
   ends in an odd number of backslashes goes on in the next one; \t \n \r \f \uXXXX are escapes,
   before any other character the backslash is dropped. The last of equal keys wins.
2. Text is UTF-8. Java would take it for Latin-1, so all beyond ASCII is written as \uXXXX, which
   both sides read alike. Only a file that is not UTF-8 is read as Latin-1: see `file_text`.
3. Size and number of keys are bounded before anything is parsed. Every mistake is a SettingError.
"""

import re
from collections.abc import Iterator, Mapping

from orbitmq.errors import SettingError

TEXT_SIZE_MAX = 1_048_576
"""A mebibyte: the longest settings file of the original's distribution has 3 KiB."""

KEY_COUNT_MAX = 2_000
"""The richest process of the original knows about 400 keys."""

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
_GONE = "\0"
"""Stands in for the second and later lines of a line that was replaced."""

_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED_LETTERS = {character: letter for letter, character in _LETTERS.items()}


def parse_properties(data: str | bytes) -> dict[str, str]:
    r"""Return the keys and values of a `.properties` text.

    >>> parse_properties("# ports\nlistenPort = 9876\nbind:any\\\n  where")
    {'listenPort': '9876', 'bind': 'anywhere'}
    """
    text = _as_text(data)
    properties: dict[str, str] = {}
    for number, _, line in _spans(text):
        key_match = _KEY.match(line)
        key_end = key_match.end() if key_match else 0
        separator = _SEPARATOR.match(line, key_end)
        value_start = separator.end() if separator else key_end
        properties[_unescape(line[:key_end], number)] = _unescape(line[value_start:], number)
        if len(properties) > KEY_COUNT_MAX:
            raise SettingError(f"more than {KEY_COUNT_MAX} keys in one settings text")
    return properties


def write_properties(properties: Mapping[str, str]) -> str:
    """Return `key=value` lines that Java and `parse_properties` read back as they were."""
    lines = [f"{_escape_key(key)}={_escape(value)}\n" for key, value in properties.items()]
    return "".join(lines)


def edit_properties(data: str | bytes, changes: Mapping[str, str]) -> str:
    r"""Return a `.properties` text with some values changed; every other line stays as it is.

    The line of a changed key is replaced where it stands (the last of equal keys, which counts);
    new keys come at the end.

    >>> edit_properties("# ports\nlistenPort = 1\n", {"listenPort": "2", "name": "x"})
    '# ports\nlistenPort=2\nname=x\n'
    """
    text = _as_text(data)
    parse_properties(text)  # raises for what could not be read again
    lines: list[str] = _LINE_END.split(text)
    places = {_key_of(line, number): (number, last) for number, last, line in _spans(text)}
    fresh = dict(changes)
    for key, (number, last) in places.items():
        if key in fresh:
            lines[number - 1] = write_properties({key: fresh.pop(key)}).rstrip("\n")
            lines[number:last] = [_GONE] * (last - number)
    kept = [line for line in lines if line is not _GONE]
    body = "\n".join(kept)
    if fresh and body and not body.endswith("\n"):
        body += "\n"
    return body + write_properties(fresh)


def file_text(data: bytes) -> tuple[str, str]:
    """Return the text of a settings file, and the encoding that writes it back as it was.

    The original reads every file as Latin-1, so one that is not UTF-8 (a comment in GBK, say) must
    not stop us. Whoever reads `latin-1` tells the operator.
    """
    _check_size(data)
    try:
        return data.decode("utf-8-sig"), "utf-8"
    except UnicodeDecodeError:
        return data.decode("latin-1"), "latin-1"


def _check_size(data: str | bytes) -> None:
    if len(data) > TEXT_SIZE_MAX:
        raise SettingError(f"a settings text of {len(data)} bytes, the limit is {TEXT_SIZE_MAX}")


def _as_text(data: str | bytes) -> str:
    _check_size(data)
    if isinstance(data, str):
        return data
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SettingError(
            f"line {line} of the settings is not UTF-8; save the file as UTF-8 or write \\uXXXX"
        ) from None


def _spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Return each line with its continuations, without comments and blank lines: the numbers of its
    first and last line, from 1, and the text."""
    pieces: list[str] = []
    first = number = 0
    for number, line in enumerate(_LINE_END.split(text), 1):
        piece = line.lstrip(_BLANKS)
        if not pieces:
            if not piece or piece[0] in "#!":
                continue
            first = number
        if (len(piece) - len(piece.rstrip("\\"))) % 2:
            pieces.append(piece[:-1])
            continue
        yield first, number, "".join((*pieces, piece))
        pieces.clear()
    if pieces:
        yield first, number, "".join(pieces)


def _key_of(line: str, number: int) -> str:
    found = _KEY.match(line)
    return _unescape(line[: found.end() if found else 0], number)


def _unescape(text: str, number: int) -> str:
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(lambda match: _character(match.group(1), number), text)
    try:  # two \uXXXX of a surrogate pair are one character
        return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise SettingError(f"line {number} has half of a surrogate pair in \\uXXXX") from None


def _character(escape: str, number: int) -> str:
    if escape == "u":
        raise SettingError(f"line {number} has \\u without four hexadecimal digits behind it")
    if len(escape) == 5:
        return chr(int(escape[1:], 16))
    return _LETTERS.get(escape, escape)


def _escape_key(key: str) -> str:
    return re.sub(r"[=:#! ]", lambda match: "\\" + match.group(), _escape(key, is_key=True))


def _escape(text: str, *, is_key: bool = False) -> str:
    plain = "".join(_escaped(character) for character in text)
    return "\\" + plain if plain.startswith(" ") and not is_key else plain


def _escaped(character: str) -> str:
    if character == "\\":
        return "\\\\"
    if character in _ESCAPED_LETTERS:
        return "\\" + _ESCAPED_LETTERS[character]
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
