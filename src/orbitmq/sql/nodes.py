"""What an SQL92 expression is made of.

In: what the parser read. Out: small values that the compiler turns into functions. `start` and
`end` are the place in the text, for errors.

Rules:
1. Numbers are known before anything is evaluated: they come from literals and their negations.
2. BETWEEN and NOT BETWEEN are two comparisons; AND and OR take any number of operands, so that a
   long chain is not deep.
"""

import msgspec

from orbitmq.sql.numbers import INT_MAX, Convert, to_finite, to_int, to_long


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an expression. `depth` is how many parts lie one inside the other."""

    start: int
    end: int
    depth: int = 1


class Property(Node, frozen=True, kw_only=True):
    """The text of a property, or nothing where a message does not have it."""

    name: str


class Text(Node, frozen=True, kw_only=True):
    """A text in quotes."""

    value: str


class Number(Node, frozen=True, kw_only=True):
    """A number; `is_literal` is false for one with a minus sign."""

    value: int | float
    is_long: bool = False
    is_literal: bool = True

    @property
    def convert(self) -> Convert:
        """How the texts compared with it are read."""
        if isinstance(self.value, float):
            return to_finite
        return to_long if self.is_long else to_int

    def negated(self, start: int) -> "Number":
        """Return the number with the other sign; it keeps its size, as in Java."""
        return msgspec.structs.replace(self, value=-self.value, start=start, is_literal=False)


def whole_number(value: int, start: int, end: int) -> Number:
    """Return a whole number: 32 bits if it fits."""
    return Number(value=value, is_long=value > INT_MAX, start=start, end=end)


class Constant(Node, frozen=True, kw_only=True):
    """TRUE, FALSE or NULL."""

    value: bool | None


class Nothing(Node, frozen=True, kw_only=True):
    """The negation of something that is no number: NULL, unless what it negates fails."""

    operand: Node


class Equal(Node, frozen=True, kw_only=True):
    """`=`, or `<>`."""

    left: Node
    right: Node
    is_negated: bool


class Order(Node, frozen=True, kw_only=True):
    """`<`, `<=`, `>` or `>=`."""

    sign: str
    left: Node
    right: Node


class Among(Node, frozen=True, kw_only=True):
    """IN, or NOT IN."""

    name: str
    values: frozenset[str]
    is_negated: bool


class IsNull(Node, frozen=True, kw_only=True):
    """IS NULL, or IS NOT NULL."""

    operand: Node
    is_negated: bool


class Search(Node, frozen=True, kw_only=True):
    """CONTAINS, STARTSWITH, ENDSWITH, or NOT one of them."""

    word: str
    operand: Node
    needle: str
    is_negated: bool


class Not(Node, frozen=True, kw_only=True):
    """NOT."""

    operand: Node


class All(Node, frozen=True, kw_only=True):
    """AND."""

    operands: tuple[Node, ...]


class Any(Node, frozen=True, kw_only=True):
    """OR."""

    operands: tuple[Node, ...]


VALUES = (Property, Text, Number, Nothing)
"""What is no truth; but a property may stand where a truth must: it is never true."""
