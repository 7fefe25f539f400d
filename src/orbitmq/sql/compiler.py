"""From the nodes of an SQL92 expression to one function over a message's properties.

In: a node. Out: a function that gives True, False or None (unknown), or raises NotComparable.

Rules, all the original's:
1. Logic has three values. AND and OR stop at the first operand that decides, so that an operand
   behind it is not evaluated; NOT of unknown is unknown.
2. A property is text. Compared with a number it is read as that number's kind, with TRUE or FALSE
   as a truth, with another property by `<` and its like as a double. Text that cannot be
   parsed so makes the whole expression fail: the message does not match, not even under NOT.
3. Two missing values are equal; a missing left one is unknown; a missing right one is unequal.
4. A truth compared with a text from the left cannot be compared (the text from the left can).
5. A property by itself is no truth: false, or unknown when it is missing.
6. CONTAINS and its like are false for everything but texts, also under their own NOT, and for an
   empty text.
"""

import operator
import re
from collections.abc import Callable, Mapping

from orbitmq.sql.nodes import (
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
)
from orbitmq.sql.numbers import NotComparable, to_order

Properties = Mapping[str, str]
Value = str | bool | float | None
Evaluate = Callable[[Properties], Value]
Judge = Callable[[Properties], bool | None]

_SIGNS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}

PLAIN_SEARCH_MAX = 65_536
"""Up to this product of lengths a plain search cannot be slow."""


def compile_truth(node: Node) -> Judge:
    """Return the function for a node that stands where true or false is wanted."""
    if isinstance(node, Property):
        name = node.name
        return lambda properties: None if properties.get(name) is None else False
    return _TRUTHS[type(node)](node)


def _value(node: Node) -> Evaluate:
    """Return the function for a node that stands where any value may."""
    if isinstance(node, Property):
        name = node.name
        return lambda properties: properties.get(name)
    if isinstance(node, Text | Number):
        value = node.value
        return lambda _properties: value
    if isinstance(node, Nothing):
        return _nothing(node)
    return _TRUTHS[type(node)](node)


def _nothing(node: Nothing) -> Judge:
    """Return NULL, once it is sure that what is negated can be evaluated."""
    evaluate = _value(node.operand)

    def judge(properties: Properties) -> None:
        evaluate(properties)

    return judge


def _constant(node: Constant) -> Judge:
    value = node.value
    return lambda _properties: value


# --- logic ---


def _all(node: All) -> Judge:
    judges = tuple(map(compile_truth, node.operands))

    def judge(properties: Properties) -> bool | None:
        result: bool | None = True
        for one in judges:
            found = one(properties)
            if found is False:
                return False
            if found is None:
                result = None
        return result

    return judge


def _any(node: Any) -> Judge:
    judges = tuple(map(compile_truth, node.operands))

    def judge(properties: Properties) -> bool | None:
        result: bool | None = False
        for one in judges:
            found = one(properties)
            if found:
                return True
            if found is None:
                result = None
        return result

    return judge


def _not(node: Not) -> Judge:
    return _negated(compile_truth(node.operand))


def _negated(inner: Judge) -> Judge:
    def judge(properties: Properties) -> bool | None:
        found = inner(properties)
        return None if found is None else not found

    return judge


def _is_null(node: IsNull) -> Judge:
    evaluate, is_negated = _value(node.operand), node.is_negated
    return lambda properties: (evaluate(properties) is None) is not is_negated


# --- equality ---


def _equal(node: Equal) -> Judge:
    left, right = node.left, node.right
    if isinstance(right, Number):
        judge = _equal_to_number(left, right, if_missing=None)
    elif isinstance(left, Number):
        judge = _equal_to_number(right, left, if_missing=False)
    elif isinstance(left, Property) and isinstance(right, Text):
        judge = _property_is(left.name, right.value)
    else:
        judge = _equal_values(_value(left), _value(right))
    return _negated(judge) if node.is_negated else judge


def _property_is(name: str, text: str) -> Judge:
    def judge(properties: Properties) -> bool | None:
        value = properties.get(name)
        return None if value is None else value == text

    return judge


def _equal_to_number(other: Node, number: Number, *, if_missing: bool | None) -> Judge:
    expected, convert = number.value, number.convert
    if isinstance(other, Number):
        is_equal = _same_kind(other, number, operator.eq)
        return lambda _properties: is_equal
    evaluate = _value(other)

    def judge(properties: Properties) -> bool | None:
        value = evaluate(properties)
        if isinstance(value, str):
            return convert(value) == expected
        return if_missing if value is None else False

    return judge


def _equal_values(left: Evaluate, right: Evaluate) -> Judge:
    """Compare texts, truths and what is missing."""

    def judge(properties: Properties) -> bool | None:
        a, b = left(properties), right(properties)
        if a is None:
            return True if b is None else None
        if b is None:
            return False
        if isinstance(a, str) and isinstance(b, bool):
            return (a.lower() == "true") is b
        if isinstance(a, bool) and isinstance(b, str):
            raise NotComparable
        return a == b

    return judge


# --- order ---


def _order(node: Order) -> Judge:
    left, right, sign = node.left, node.right, _SIGNS[node.sign]
    if isinstance(left, Number) and isinstance(right, Number):
        result = _same_kind(left, right, sign)
        return lambda _properties: result
    if isinstance(left, Property) and isinstance(right, Number):
        return _property_against(left.name, sign, right)
    if isinstance(left, Number) and isinstance(right, Property):
        return _property_against(right.name, _SIGNS[_MIRRORED[node.sign]], left)
    if isinstance(left, Property) and isinstance(right, Property):
        return _property_against_property(left.name, sign, right.name)
    return _against_nothing(_value(left), _value(right))


def _property_against(name: str, sign: Callable[[float, float], bool], number: Number) -> Judge:
    bound, convert = number.value, number.convert

    def judge(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else sign(convert(text), bound)

    return judge


def _property_against_property(
    left: str, sign: Callable[[float, float], bool], right: str
) -> Judge:
    def judge(properties: Properties) -> bool | None:
        a, b = properties.get(left), properties.get(right)
        if a is None or b is None:
            return None
        return sign(to_order(a), to_order(b))

    return judge


def _against_nothing(left: Evaluate, right: Evaluate) -> Judge:
    """Compare what can only be unknown, or fail."""

    def judge(properties: Properties) -> None:
        if left(properties) is not None:
            right(properties)

    return judge


def _same_kind(left: Number, right: Number, sign: Callable[[float, float], bool]) -> bool:
    """Compare two numbers; when one is a double, both are, as in Java."""
    if isinstance(left.value, float) or isinstance(right.value, float):
        return sign(float(left.value), float(right.value))
    return sign(left.value, right.value)


# --- sets and searches ---


def _among(node: Among) -> Judge:
    name, values, is_negated = node.name, node.values, node.is_negated

    def judge(properties: Properties) -> bool | None:
        value = properties.get(name)
        return None if value is None else (value in values) is not is_negated

    return judge


def _search(node: Search) -> Judge:
    evaluate, is_negated = _value(node.operand), node.is_negated
    is_in = _SEARCHES[node.word](node.needle)
    if not node.needle:
        return lambda _properties: False

    def judge(properties: Properties) -> bool | None:
        value = evaluate(properties)
        return isinstance(value, str) and is_in(value) is not is_negated

    return judge


def _contains(needle: str) -> Callable[[str], bool]:
    find = re.compile(re.escape(needle)).search  # linear whatever the texts; `in` is not

    def is_in(text: str) -> bool:
        if len(text) * len(needle) <= PLAIN_SEARCH_MAX:
            return needle in text
        return find(text) is not None

    return is_in


_SEARCHES: dict[str, Callable[[str], Callable[[str], bool]]] = {
    "CONTAINS": _contains,
    "STARTSWITH": lambda needle: lambda text: text.startswith(needle),
    "ENDSWITH": lambda needle: lambda text: text.endswith(needle),
}

_TRUTHS: dict[type[Node], Callable[..., Judge]] = {
    All: _all,
    Among: _among,
    Any: _any,
    Constant: _constant,
    Equal: _equal,
    IsNull: _is_null,
    Not: _not,
    Order: _order,
    Search: _search,
}
