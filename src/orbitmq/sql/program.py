"""An expression as a small program: what the compiled core runs over the bytes of a record.

In: the nodes of an expression. Out: its steps, each before its operands; or None: only the
functions of `compiler` say what it means.

Rules:
1. The program says what `compiler` says, which is the reference. It has the ordinary steps only:
   properties beside constants, sets and searches, joined by AND, OR and NOT.
2. It is data: a reader needs no function of ours.
"""

import typing
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from orbitmq.sql.nodes import (
    All,
    Among,
    Any,
    Constant,
    Equal,
    IsNull,
    Node,
    Not,
    Number,
    Order,
    Property,
    Search,
    Text,
)

NAMES_MAX = 16
VALUES_MAX = 256
"""Of one set: longer ones are kept once, in the functions."""


class Op(IntEnum):
    """What a step does."""

    ALL = 0
    ANY = 1
    NOT = 2
    CONSTANT = 3
    EXISTS = 4
    """A property where a truth is wanted: false, or unknown when it is missing."""
    IS_NULL = 5
    EQUALS_TEXT = 6
    EQUALS_TRUTH = 7
    COMPARE_WHOLE = 8
    COMPARE_DOUBLE = 9
    COMPARE_PROPERTIES = 10
    AMONG = 11
    CONTAINS = 12
    STARTSWITH = 13
    ENDSWITH = 14


class Sign(IntEnum):
    """How a property is compared with what is right of it."""

    LESS = 0
    AT_MOST = 1
    GREATER = 2
    AT_LEAST = 3
    EQUAL = 4


class Step(NamedTuple):
    """One step; which fields count depends on `op`."""

    op: Op
    after: int = 0
    """Where the steps of its operands end."""
    name: int = 0
    """The property, by its place among the program's names."""
    other: int = 0
    sign: Sign = Sign.EQUAL
    is_long: bool = False
    number: float = 0
    text: bytes = b""
    texts: frozenset[bytes] = frozenset()
    is_true: bool = False
    """The constant; for IS NULL, sets and searches: whether it is negated."""
    is_false_if_missing: bool = False
    """Else a missing property makes it unknown."""


class Program(NamedTuple):
    """The steps of an expression, and the properties that they look at."""

    names: tuple[bytes, ...]
    steps: tuple[Step, ...]


class _NoProgram(Exception):
    """A step that programs do not have."""


def make_program(node: Node) -> Program | None:
    """Return the program of a checked expression, if it has one."""
    maker = _Maker()
    try:
        maker.add(node)
    except (_NoProgram, UnicodeEncodeError):
        return None
    return Program(tuple(maker.names), tuple(maker.steps))


_SIGNS = {"<": Sign.LESS, "<=": Sign.AT_MOST, ">": Sign.GREATER, ">=": Sign.AT_LEAST}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


class _Maker:
    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.names: dict[bytes, int] = {}

    def add(self, node: Node) -> None:
        """Add the steps of a node that stands where a truth is wanted."""
        add = _ADD.get(type(node))
        if add is None:
            raise _NoProgram
        add(self, node)

    def joined(self, op: Op, *operands: Node) -> None:
        """Add a step and, behind it, its operands."""
        place = len(self.steps)
        self.steps.append(Step(op))
        for operand in operands:
            self.add(operand)
        self.steps[place] = Step(op, after=len(self.steps))

    def single(self, op: Op, **fields: typing.Any) -> None:
        """Add a step without operands."""
        self.steps.append(Step(op, after=len(self.steps) + 1)._replace(**fields))

    def name(self, node: Node) -> int:
        """Return the place of a property's name."""
        if not isinstance(node, Property):
            raise _NoProgram
        name = node.name.encode()
        place = self.names.setdefault(name, len(self.names))
        if place >= NAMES_MAX:
            raise _NoProgram
        return place

    def compare(self, name: int, sign: Sign, number: Number, *, is_false: bool = False) -> None:
        """Add the comparison of a property with a number."""
        is_double = isinstance(number.value, float)
        self.single(
            Op.COMPARE_DOUBLE if is_double else Op.COMPARE_WHOLE,
            name=name,
            sign=sign,
            is_long=number.is_long,
            number=number.value,
            is_false_if_missing=is_false,
        )

    def equal(self, node: Equal) -> None:
        """Add an equality; `<>` is its negation."""
        if node.is_negated:
            place = len(self.steps)
            self.steps.append(Step(Op.NOT))
            self._equal(node.left, node.right)
            self.steps[place] = Step(Op.NOT, after=len(self.steps))
        else:
            self._equal(node.left, node.right)

    def _equal(self, left: Node, right: Node) -> None:
        if isinstance(right, Number):
            self.compare(self.name(left), Sign.EQUAL, right)
        elif isinstance(left, Number):
            self.compare(self.name(right), Sign.EQUAL, left, is_false=True)
        elif isinstance(right, Text):
            self.single(Op.EQUALS_TEXT, name=self.name(left), text=right.value.encode())
        elif isinstance(left, Text):
            text, name = left.value.encode(), self.name(right)
            self.single(Op.EQUALS_TEXT, name=name, text=text, is_false_if_missing=True)
        elif isinstance(right, Constant):
            self.single(Op.EQUALS_TRUTH, name=self.name(left), is_true=right.value)
        else:
            raise _NoProgram

    def order(self, node: Order) -> None:
        """Add a comparison by `<` and its like."""
        left, right, sign = node.left, node.right, _SIGNS[node.sign]
        if isinstance(right, Number):
            self.compare(self.name(left), sign, right)
        elif isinstance(left, Number):
            self.compare(self.name(right), _SIGNS[_MIRRORED[node.sign]], left)
        else:
            name, other = self.name(left), self.name(right)
            self.single(Op.COMPARE_PROPERTIES, name=name, other=other, sign=sign)

    def among(self, node: Among) -> None:
        """Add a look into a set."""
        if len(node.values) > VALUES_MAX:
            raise _NoProgram
        texts = frozenset(value.encode() for value in node.values)
        name = self.name(Property(name=node.name, start=node.start, end=node.end))
        self.single(Op.AMONG, name=name, texts=texts, is_true=node.is_negated)

    def search(self, node: Search) -> None:
        """Add a search; one for nothing finds nothing."""
        if not node.needle:
            self.single(Op.CONSTANT, is_true=False)
            return
        name, text = self.name(node.operand), node.needle.encode()
        self.single(Op[node.word], name=name, text=text, is_true=node.is_negated)

    def constant(self, node: Constant) -> None:
        """Add TRUE or FALSE."""
        if node.value is None:
            raise _NoProgram
        self.single(Op.CONSTANT, is_true=node.value)


_ADD: dict[type[Node], Callable[..., None]] = {
    All: lambda maker, node: maker.joined(Op.ALL, *node.operands),
    Any: lambda maker, node: maker.joined(Op.ANY, *node.operands),
    Not: lambda maker, node: maker.joined(Op.NOT, node.operand),
    Property: lambda maker, node: maker.single(Op.EXISTS, name=maker.name(node)),
    IsNull: lambda maker, node: maker.single(
        Op.IS_NULL, name=maker.name(node.operand), is_true=node.is_negated
    ),
    Constant: _Maker.constant,
    Equal: _Maker.equal,
    Order: _Maker.order,
    Among: _Maker.among,
    Search: _Maker.search,
}
