"""Expressions made at random, and what they mean, by a second and simpler evaluator.

In: a source of choices. Out: trees, their texts, and values of trees. The evaluator walks the tree
and knows the rules one by one; it shares nothing with `orbitmq.sql`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

Tree = tuple[Any, ...]

NAMES = ("a", "b", "c", "missing")
TEXTS = ("5", "3", "-2", "3.5", "x", "true", "3000000000", "5d", "NaN", "0", "abc", " 5", "1e2")
NUMBERS = ("1", "3", "5", "0", "3000000000", "2.5", "3.5", "1e2", "7L")
QUOTED = ("x", "5", "abc", "true", "it's")


class Choices(Protocol):
    """Where randomness comes from."""

    def choice(self, options: Sequence[Any]) -> Any: ...

    def randint(self, low: int, high: int) -> int: ...


class Failed(Exception):
    """Two values that cannot be compared."""


def make_truth(choices: Choices, depth: int) -> Tree:
    """Return a tree that is true, false or unknown."""
    kinds = list(_MAKERS)
    if depth > 0:
        kinds += ["and", "or", "not", "and", "or"]
    kind = choices.choice(kinds)
    if kind in _MAKERS:
        return _MAKERS[kind](choices, depth)
    count = 1 if kind == "not" else choices.randint(2, 3)
    return (kind, *(make_truth(choices, depth - 1) for _ in range(count)))


def _name(choices: Choices) -> Tree:
    return ("name", choices.choice(NAMES))


def _make_equal(choices: Choices, depth: int) -> Tree:
    sign = choices.choice(("=", "<>"))
    return ("equal", sign, _name(choices), make_value(choices, depth))


def _make_order(choices: Choices, _depth: int) -> Tree:
    sign = choices.choice(("<", "<=", ">", ">="))
    return ("order", sign, make_bound(choices), make_bound(choices))


def _make_between(choices: Choices, _depth: int) -> Tree:
    low, high = sorted((choices.randint(-9, 9), choices.randint(-9, 9)))
    bounds = (("number", str(low)), ("number", str(high)))
    return ("between", choices.randint(0, 1), _name(choices), *bounds)


def _make_in(choices: Choices, _depth: int) -> Tree:
    values = [choices.choice(QUOTED) for _ in range(choices.randint(1, 3))]
    return ("in", choices.randint(0, 1), choices.choice(NAMES), values)


def _make_null(choices: Choices, depth: int) -> Tree:
    return ("null", choices.randint(0, 1), make_value(choices, depth))


def _make_search(choices: Choices, _depth: int) -> Tree:
    word = choices.choice(("CONTAINS", "STARTSWITH", "ENDSWITH"))
    name, needle = choices.choice(NAMES), choices.choice(QUOTED)
    return ("search", word, choices.randint(0, 1), name, needle)


_MAKERS: dict[str, Callable[[Choices, int], Tree]] = {
    "equal": _make_equal,
    "order": _make_order,
    "between": _make_between,
    "in": _make_in,
    "null": _make_null,
    "search": _make_search,
    "property": lambda choices, _depth: _name(choices),
    "constant": lambda choices, _depth: ("constant", choices.choice((True, False))),
}


def make_value(choices: Choices, depth: int) -> Tree:
    kind = choices.choice(("name", "number", "text", "truth"))
    if kind == "truth" and depth > 0:
        return ("group", make_truth(choices, depth - 1))
    if kind == "number":
        return (kind, choices.choice(NUMBERS))
    if kind == "text":
        return (kind, choices.choice(QUOTED))
    return ("name", choices.choice(NAMES))


def make_bound(choices: Choices) -> Tree:
    if choices.randint(0, 1):
        return ("name", choices.choice(NAMES))
    return ("number", choices.choice(NUMBERS))


# --- texts ---


def text_of(tree: Tree) -> str:
    """Write a tree down, with parentheses wherever they may matter."""
    return _WRITERS[tree[0]](*tree[1:])


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _joined(word: str) -> Callable[..., str]:
    return lambda *parts: f" {word} ".join(f"({text_of(part)})" for part in parts)


def _compared(sign: str, left: Tree, right: Tree) -> str:
    return f"{text_of(left)} {sign} {text_of(right)}"


def _not(is_negated: int) -> str:
    return "NOT " if is_negated else ""


_WRITERS: dict[str, Callable[..., str]] = {
    "and": _joined("AND"),
    "or": _joined("OR"),
    "not": lambda part: f"NOT ({text_of(part)})",
    "equal": _compared,
    "order": _compared,
    "between": lambda negated, *parts: (
        f"{text_of(parts[0])} {_not(negated)}BETWEEN {text_of(parts[1])} AND {text_of(parts[2])}"
    ),
    "in": lambda negated, name, values: (
        f"{name} {_not(negated)}IN ({', '.join(map(_quoted, values))})"
    ),
    "null": lambda negated, part: f"{text_of(part)} IS {_not(negated)}NULL",
    "search": lambda word, negated, name, needle: f"{name} {_not(negated)}{word} {_quoted(needle)}",
    "constant": lambda value: str(value).upper(),
    "group": lambda part: f"({text_of(part)})",
    "text": _quoted,
    "number": str,
    "name": str,
}


# --- meaning ---


def meaning(tree: Tree, properties: Mapping[str, str]) -> bool | None:
    """Return what a tree says of a message; raises Failed."""
    kind, *parts = tree
    if kind == "and":
        return _join(
            [meaning(part, properties) for part in _until(parts, properties, False)], False
        )
    if kind == "or":
        return _join([meaning(part, properties) for part in _until(parts, properties, True)], True)
    if kind == "not":
        found = meaning(parts[0], properties)
        return None if found is None else not found
    if kind == "name":
        return None if parts[0] not in properties else False
    if kind == "constant":
        return bool(parts[0])
    if kind == "group":
        return meaning(parts[0], properties)
    return _RULES[kind](parts, properties)


def _until(parts: list[Tree], properties: Mapping[str, str], stop: bool) -> list[Tree]:
    """Return the operands up to the first that decides."""
    for number, part in enumerate(parts):
        if meaning(part, properties) is stop:
            return parts[: number + 1]
    return parts


def _join(found: list[bool | None], decisive: bool) -> bool | None:
    if decisive in found:
        return decisive
    return None if None in found else not decisive


def _value(tree: Tree, properties: Mapping[str, str]) -> object:
    kind, *parts = tree
    if kind == "name":
        return properties.get(parts[0])
    if kind == "text":
        return parts[0]
    if kind == "number":
        return _Number(parts[0])
    return _value(parts[0], properties) if kind == "group" else meaning(tree, properties)


class _Number:
    """A number with the kind that Java gives it."""

    def __init__(self, text: str) -> None:
        self.is_double = any(sign in text for sign in ".eE")
        self.value: float = float(text) if self.is_double else int(text.rstrip("L"))
        self.most = 2**31 - 1 if abs(self.value) <= 2**31 - 1 else 2**63 - 1

    def read(self, text: str) -> float:
        """Read a text as this kind of number."""
        if self.is_double:
            return _double(text)
        if text != text.strip() or not text.lstrip("+-").isdigit():
            raise Failed
        value = int(text)
        if abs(value) > self.most:
            raise Failed
        return value


def _double(text: str) -> float:
    text = text.strip()
    text = text[:-1] if text[-1:] in ("d", "f") else text
    try:
        value = float(text)
    except ValueError:
        raise Failed from None
    return float("inf") if value != value else value  # Java: NaN is above all


def _equal(parts: list[Any], properties: Mapping[str, str]) -> bool | None:
    sign, left, right = parts[0], _value(parts[1], properties), _value(parts[2], properties)
    if left is None:
        return None if right is not None else sign == "="
    if right is None:
        is_same = False
    elif isinstance(right, _Number):
        is_same = right.read(str(left)) == right.value
    elif isinstance(right, bool):
        is_same = (str(left).lower() == "true") == right
    else:
        is_same = bool(left == right)
    return bool(is_same == (sign == "="))


def _order(parts: list[Any], properties: Mapping[str, str]) -> bool | None:
    sign, left, right = parts[0], _value(parts[1], properties), _value(parts[2], properties)
    if left is None or right is None:
        return None
    if isinstance(left, _Number):
        a, b = left.value, right.value if isinstance(right, _Number) else left.read(str(right))
    elif isinstance(right, _Number):
        a, b = right.read(str(left)), right.value
    else:
        a, b = _double(str(left)), _double(str(right))
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[sign]


def _between(parts: list[Any], properties: Mapping[str, str]) -> bool | None:
    is_negated, name, low, high = parts
    signs = ("<", ">") if is_negated else (">=", "<=")
    pair = [("order", signs[0], name, low), ("order", signs[1], name, high)]
    return meaning(("or" if is_negated else "and", *pair), properties)


def _in(parts: list[Any], properties: Mapping[str, str]) -> bool | None:
    is_negated, name, values = parts
    value = properties.get(name)
    return None if value is None else (value in values) != bool(is_negated)


def _null(parts: list[Any], properties: Mapping[str, str]) -> bool | None:
    return (_value(parts[1], properties) is None) != bool(parts[0])


def _search(parts: list[Any], properties: Mapping[str, str]) -> bool | None:
    word, is_negated, name, needle = parts
    value = properties.get(name)
    if value is None:
        return False
    at = value.find(needle)
    found = {
        "CONTAINS": at >= 0,
        "STARTSWITH": at == 0,
        "ENDSWITH": value.endswith(needle),
    }[word]
    return bool(found) != bool(is_negated)


_RULES: dict[str, Callable[[list[Any], Mapping[str, str]], bool | None]] = {
    "equal": _equal,
    "order": _order,
    "between": _between,
    "in": _in,
    "null": _null,
    "search": _search,
}
