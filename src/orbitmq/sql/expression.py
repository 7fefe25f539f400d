"""Compiled expressions, each made once.

In: the text of an SQL92 expression. Out: an Expression, or SqlError, the same one each time.

Rules:
1. What was compiled is kept, failures too: a client that repeats a wrong expression costs nothing.
   What is kept is bounded by the length of the texts, oldest use first out.
2. Called on one thread only; an Expression itself may be used by any.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping

from orbitmq.errors import SqlError
from orbitmq.sql.compiler import compile_truth
from orbitmq.sql.numbers import NotComparable
from orbitmq.sql.parser import parse
from orbitmq.sql.program import make_program

EXPRESSION_CHARS_MAX = 16_384
KEPT_CHARS_MAX = 1_048_576
"""A character of an expression costs up to 100 bytes when compiled."""
ENTRY_CHARS = 64
"""What an entry costs besides its characters, in characters."""


class Expression:
    """A predicate over the properties of a message."""

    __slots__ = ("_judge", "program", "record_filter", "text")

    def __init__(self, text: str) -> None:
        if len(text) > EXPRESSION_CHARS_MAX:
            raise SqlError(
                EXPRESSION_CHARS_MAX + 1,
                f"{len(text)} characters in an expression, limit {EXPRESSION_CHARS_MAX}",
            )
        self.text = text
        node = parse(text)
        self._judge = compile_truth(node)
        self.program = make_program(node)
        """The same as steps, if it is ordinary."""
        self.record_filter: Callable[[memoryview], bool] | None = None
        """Kept for the core, which makes it once and finds it here."""

    def value(self, properties: Mapping[str, str]) -> bool | None:
        """Return what the expression says: true, false, or None for unknown or not comparable."""
        try:
            return self._judge(properties)
        except NotComparable:
            return None

    def accepts(self, properties: Mapping[str, str]) -> bool:
        """Whether a message with these properties passes: only when the expression is true."""
        return self.value(properties) is True


class _Kept:
    """What was compiled, least recently used first."""

    def __init__(self) -> None:
        self._made: OrderedDict[str, Expression | SqlError] = OrderedDict()
        self._chars = 0

    def get(self, text: str) -> Expression | SqlError:
        """Return what became of a text."""
        found = self._made.get(text)
        if found is not None:
            self._made.move_to_end(text)
            return found
        try:
            found = Expression(text)
        except SqlError as error:
            found = SqlError(error.position, error.problem)  # without the frames it went through
        if len(text) <= EXPRESSION_CHARS_MAX:
            self._add(text, found)
        return found

    def _add(self, text: str, made: Expression | SqlError) -> None:
        self._made[text] = made
        self._chars += len(text) + ENTRY_CHARS
        while self._chars > KEPT_CHARS_MAX:
            oldest, _ = self._made.popitem(last=False)
            self._chars -= len(oldest) + ENTRY_CHARS


_KEPT = _Kept()


def compile_expression(text: str) -> Expression:
    """The compiled expression; raises SqlError that names the place and what was expected."""
    found = _KEPT.get(text)
    if isinstance(found, SqlError):
        raise SqlError(found.position, found.problem)
    return found
