"""From the text of an SQL92 expression to its nodes, with every check that needs no message.

In: text. Out: the node of the whole, or SqlError that names the place and what was expected.

Weakest first: OR; AND; `=` `<>` and IS [NOT] NULL; `<` `<=` `>` `>=`, [NOT] BETWEEN, [NOT] IN,
[NOT] CONTAINS, STARTSWITH, ENDSWITH; the signs + and - and NOT, which therefore holds its next
operand only: `NOT a = 5` is `(NOT a) = 5`.

Rules:
1. What the original refuses is refused, with two exceptions where it takes what nobody can mean:
   text behind the end of an expression (`a LIKE 'x'` would be `a`) is an error here, and CONTAINS,
   STARTSWITH and ENDSWITH, keywords in 5.x only, are still names where an operand is expected.
2. Depth and number of nodes are bounded: the cost of an evaluation is known beforehand.
"""

import math
from collections.abc import Callable

from orbitmq.errors import SqlError
from orbitmq.sql.nodes import (
    VALUES,
    All,
    Among,
    Any,
    Constant,
    Equal,
    IsNull,
    Node,
    Not,
    Nothing,
    Number,
    Order,
    Property,
    Search,
    Text,
    whole_number,
)
from orbitmq.sql.numbers import LONG_MAX
from orbitmq.sql.tokens import Kind, Token, Tokens, fault

DEPTH_MAX = 48
NODES_MAX = 512
SEARCHES_MAX = 10
"""CONTAINS and its like: each may look through all of a long property."""

COMMENTED_VALUES_MAX = 128
"""Texts of a list that must be read word by word; plain lists may fill the expression."""

SEARCH_WORDS = ("CONTAINS", "STARTSWITH", "ENDSWITH")
_OPERAND = "a property, a number, a text, TRUE, FALSE, NULL, NOT, + or -, or `(`"
_CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}


def parse(text: str) -> Node:
    """Return the expression's node, which is a truth; raises SqlError."""
    return _Parser(Tokens(text)).whole()


class _Parser:
    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._nodes = 0
        self._searches = 0
        self._open = 0

    def whole(self) -> Node:
        node = self._any()
        if not self._tokens.is_at_end():
            if self._tokens.next.text.upper() == "LIKE":
                raise self._tokens.expected("CONTAINS, STARTSWITH or ENDSWITH (there is no LIKE)")
            raise self._tokens.expected("an operator or the end")
        return self._truth(node)

    # --- operators, weakest first ---

    def _any(self) -> Node:
        return self._chain("OR", self._all, Any)

    def _all(self) -> Node:
        return self._chain("AND", self._equality, All)

    def _chain(self, word: str, operand: Callable[[], Node], kind: type[All] | type[Any]) -> Node:
        first = operand()
        operands = [first]
        while self._tokens.take_if(word):
            operands.append(operand())
        if len(operands) == 1:
            return first
        truths = tuple(map(self._truth, operands))
        depth = 1 + max(node.depth for node in truths)
        return self._made(kind(operands=truths, start=first.start, end=truths[-1].end, depth=depth))

    def _equality(self) -> Node:
        left = self._comparison()
        while True:
            if sign := self._tokens.take_if("=", "<>"):
                left = self._equal(left, self._comparison(), is_negated=sign.text == "<>")
            elif self._tokens.take_if("IS"):
                is_negated = self._tokens.take_if("NOT") is not None
                end = self._take("NULL").end
                left = self._made(
                    IsNull(operand=left, is_negated=is_negated, **_around(left, end=end))
                )
            else:
                return left

    def _comparison(self) -> Node:
        left = self._unary()
        while True:
            if sign := self._tokens.take_if("<", "<=", ">", ">="):
                left = self._order(sign.text, left, self._unary())
            elif self._tokens.take_if("NOT"):
                left = self._ranged(left, is_negated=True)
            elif self._is_range_word():
                left = self._ranged(left, is_negated=False)
            else:
                return left

    def _is_range_word(self) -> bool:
        token = self._tokens.next
        if token.kind is Kind.NAME:
            return token.text.upper() in SEARCH_WORDS
        return token.word in ("BETWEEN", "IN")

    def _ranged(self, left: Node, *, is_negated: bool) -> Node:
        """Read BETWEEN, IN or a search, behind its left operand and perhaps NOT."""
        if not self._is_range_word():
            raise self._tokens.expected(f"BETWEEN, IN, {', '.join(SEARCH_WORDS)} behind NOT")
        word = self._tokens.take().text.upper()
        if word == "BETWEEN":
            return self._between(left, is_negated=is_negated)
        if word == "IN":
            return self._among(left, is_negated=is_negated)
        return self._search(word, left, is_negated=is_negated)

    def _unary(self) -> Node:
        self._open += 1
        if self._open > DEPTH_MAX:
            raise fault(self._tokens.next.start, f"more than {DEPTH_MAX} levels inside each other")
        try:
            return self._opened()
        finally:
            self._open -= 1

    def _opened(self) -> Node:
        token = self._tokens.take_if("NOT", "+", "-", "(")
        if token is None:
            return self._primary()
        if token.text == "(":
            node = self._any()
            self._take(")")
            return node
        operand = self._unary()
        if token.text == "+":
            return operand
        if token.text == "-":
            return self._negated(token, operand)
        operand = self._truth(operand)
        return self._made(Not(operand=operand, **_around(operand, start=token.start)))

    def _primary(self) -> Node:
        token = self._tokens.next
        place = {"start": token.start, "end": token.end}
        if token.word in _CONSTANTS:
            node: Node = Constant(value=_CONSTANTS[token.word], **place)
        elif token.kind is Kind.NAME:
            node = Property(name=token.text, **place)
        elif token.kind is Kind.TEXT:
            node = Text(value=token.text, **place)
        elif token.kind is Kind.WHOLE:
            node = _whole(token)
        elif token.kind is Kind.DOUBLE:
            node = _double(token)
        else:
            raise self._tokens.expected(_OPERAND)
        self._tokens.take()
        return self._made(node)

    # --- checks and nodes ---

    def _equal(self, left: Node, right: Node, *, is_negated: bool) -> Node:
        for operand in (left, right):
            if isinstance(operand, Constant) and operand.value is None:
                raise fault(operand.start, "nothing is equal to NULL; write IS NULL or IS NOT NULL")
        if isinstance(left, Constant) and _is_literal(right) and not isinstance(right, Constant):
            raise fault(right.start, "TRUE and FALSE cannot be compared with this value")
        place = _around(left, right)
        return self._made(Equal(left=left, right=right, is_negated=is_negated, **place))

    def _order(self, sign: str, left: Node, right: Node) -> Node:
        for operand in (left, right):
            if not isinstance(operand, Property | Number | Nothing):
                raise fault(
                    operand.start,
                    "only numbers and properties can be compared by < <= > >= BETWEEN",
                )
        return self._made(Order(sign=sign, left=left, right=right, **_around(left, right)))

    def _between(self, left: Node, *, is_negated: bool) -> Node:
        low = self._unary()
        self._take("AND")
        high = self._unary()
        if not is_negated:  # the original does not look at the bounds of NOT BETWEEN
            _check_bounds(low, high)
        signs = ("<", ">") if is_negated else (">=", "<=")
        pair = (self._order(signs[0], left, low), self._order(signs[1], left, high))
        kind = Any if is_negated else All
        return self._made(kind(operands=pair, **_around(*pair)))

    def _among(self, left: Node, *, is_negated: bool) -> Node:
        if not isinstance(left, Property):
            raise fault(left.start, "expected a property before IN")
        listed = self._tokens.take_texts()
        values = self._texts() if listed is None else listed
        return self._made(
            Among(
                name=left.name,
                values=frozenset(values),
                is_negated=is_negated,
                start=left.start,
                end=self._tokens.next.start,
            )
        )

    def _texts(self) -> list[str]:
        """Read a list of texts word by word: it holds comments, or it is wrong."""
        opening = self._take("(")
        values = [self._take_text()]
        while self._tokens.take_if(","):
            values.append(self._take_text())
            if len(values) > COMMENTED_VALUES_MAX:
                raise fault(
                    opening.start,
                    f"more than {COMMENTED_VALUES_MAX} texts in a list with comments or a fault",
                )
        self._take(")")
        return values

    def _search(self, word: str, left: Node, *, is_negated: bool) -> Node:
        self._searches += 1
        if self._searches > SEARCHES_MAX:
            raise fault(
                self._tokens.next.start,
                f"more than {SEARCHES_MAX} of {', '.join(SEARCH_WORDS)} in one expression",
            )
        end = self._tokens.next.end
        needle = self._take_text()
        place = _around(left, end=end)
        return self._made(
            Search(word=word, operand=left, needle=needle, is_negated=is_negated, **place)
        )

    def _negated(self, sign: Token, operand: Node) -> Node:
        if isinstance(operand, Number):
            return operand.negated(sign.start)
        return self._made(Nothing(operand=operand, **_around(operand, start=sign.start)))

    def _truth(self, node: Node) -> Node:
        """Check that a node may stand where true or false is wanted."""
        if isinstance(node, VALUES) and not isinstance(node, Property):
            raise fault(
                node.start, "expected a condition, found a value; compare it with something"
            )
        return node

    def _made(self, node: Node) -> Node:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise fault(node.start, f"more than {NODES_MAX} parts in one expression")
        if node.depth > DEPTH_MAX:
            raise fault(node.start, f"more than {DEPTH_MAX} levels inside each other")
        return node

    def _take(self, word: str) -> Token:
        token = self._tokens.take_if(word)
        if token is None:
            raise self._tokens.expected(f"`{word}`")
        return token

    def _take_text(self) -> str:
        if self._tokens.next.kind is not Kind.TEXT:
            raise self._tokens.expected(Kind.TEXT.value)
        return self._tokens.take().text


def _around(
    first: Node, last: Node | None = None, *, start: int | None = None, end: int | None = None
) -> dict[str, int]:
    """Return place and depth of a node that holds one or two others."""
    last = first if last is None else last
    return {
        "start": first.start if start is None else start,
        "end": last.end if end is None else end,
        "depth": 1 + max(first.depth, last.depth),
    }


def _is_literal(node: Node) -> bool:
    return isinstance(node, Text | Constant) or (isinstance(node, Number) and node.is_literal)


def _check_bounds(low: Node, high: Node) -> None:
    """Refuse bounds between which nothing lies; only those that are written out are looked at."""
    for bound in (low, high):
        if isinstance(bound, Constant) and bound.value is None:
            raise fault(bound.start, "expected a number or a property as a bound, found NULL")
    if not (isinstance(low, Number) and isinstance(high, Number)):
        return
    if low.is_literal and high.is_literal and low.value > high.value:
        raise fault(low.start, f"nothing is BETWEEN {low.value} AND {high.value}; swap them")


def _whole(token: Token) -> Number:
    digits = token.text.rstrip("lL")
    if digits[0] == "0" and len(digits) > 1:
        raise fault(token.start, "expected a number without leading zeros")
    if len(digits) > len(str(LONG_MAX)) or int(digits) > LONG_MAX:
        raise fault(
            token.start, f"expected a number of at most {LONG_MAX}; or write it with a point"
        )
    return whole_number(int(digits), token.start, token.end)


def _double(token: Token) -> Number:
    value = float(token.text)
    if value == 0:
        raise _zero(token)
    if math.isinf(value):
        raise fault(token.start, "expected a number that a double can hold, at most 1.8E308")
    return Number(value=value, start=token.start, end=token.end)


def _zero(token: Token) -> SqlError:
    return fault(token.start, "zero with a point is refused, as in the original; write 0")
