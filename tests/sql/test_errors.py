"""What is no expression: refused with the place and what was expected there."""

import pytest

from orbitmq.errors import SqlError
from orbitmq.sql import EXPRESSION_CHARS_MAX, compile_expression
from orbitmq.sql.expression import Expression
from orbitmq.sql.parser import DEPTH_MAX, NODES_MAX, SEARCHES_MAX
from orbitmq.wire.expression import OTHER_CHARS_MAX

WRONG = [
    ("", 1, "expected a property, a number, a text"),
    (" ", 2, "found the end"),
    ("a >", 4, "found the end"),
    ("a = 5 AND", 10, "found the end"),
    ("= 5", 1, "found `=`"),
    ("a ==5", 4, "found `=`"),
    ("a != 5", 3, "write <> for unequal"),
    ('a = "5"', 5, "single quotes"),
    ("a = 'x", 5, "no closing quote"),
    ("a = 5;", 6, "no semicolon"),
    ("a = 5 /* x", 7, "comment has no end"),
    ("a.b = 5", 2, "no word of an expression begins so"),
    ("été = 1", 1, "no word of an expression begins so"),
    ("a * 2 = 4", 3, "no arithmetic"),
    ("(a = 5", 7, "expected `)`"),
    ("()", 2, "found `)`"),
    # behind the end: the original ignores it, and so means something else
    ("a = 5)", 6, "expected an operator or the end, found `)`"),
    ("a = 5 b", 7, "found `b`"),
    ("a = 0x10", 6, "found `x10`"),
    ("a = 5d", 6, "found `d`"),
    ("a LIKE 'x%'", 3, "there is no LIKE"),
    # values where a truth is wanted
    ("5", 1, "expected a condition, found a value"),
    ("'x'", 1, "expected a condition"),
    ("-a", 1, "expected a condition"),
    ("TRUE AND 5", 10, "expected a condition"),
    ("NOT 5", 5, "expected a condition"),
    # comparing
    ("a > 'x'", 5, "only numbers and properties"),
    ("'x' < a", 1, "only numbers and properties"),
    ("a > TRUE", 5, "only numbers and properties"),
    ("a > NULL", 5, "only numbers and properties"),
    ("a > 3 > 2", 1, "only numbers and properties"),
    ("NOT a > 3", 1, "only numbers and properties"),
    ("a CONTAINS 'x' > 3", 1, "only numbers and properties"),
    ("a = NULL", 5, "IS NULL"),
    ("NULL <> a", 1, "IS NULL"),
    ("TRUE = 3", 8, "TRUE and FALSE cannot be compared"),
    ("TRUE <> 'x'", 9, "TRUE and FALSE cannot be compared"),
    # ranges and lists
    ("a BETWEEN 10 AND 1", 11, "nothing is BETWEEN 10 AND 1"),
    ("a BETWEEN 1.5 AND 1", 11, "nothing is BETWEEN 1.5 AND 1"),
    ("a BETWEEN 'a' AND 'b'", 11, "only numbers and properties"),
    ("a BETWEEN NULL AND 1", 11, "found NULL"),
    ("a BETWEEN 1 AND NULL", 17, "found NULL"),
    ("a BETWEEN 1", 12, "expected `AND`"),
    ("a BETWEEN 1 OR 5", 13, "expected `AND`"),
    ("a IN (5)", 7, "expected a text in single quotes, found `5`"),
    ("a IN ()", 7, "expected a text"),
    ("a IN ('5',)", 11, "expected a text"),
    ("a IN ('5' '6')", 11, "expected `)`"),
    ("a IN 'x'", 6, "expected `(`"),
    ("5 IN ('5')", 1, "expected a property before IN"),
    ("NOT a IN ('5')", 1, "expected a property before IN"),
    ("a CONTAINS 5", 12, "expected a text"),
    ("a NOT 5", 7, "expected BETWEEN, IN, CONTAINS"),
    ("a IS 5", 6, "expected `NULL`"),
    ("a IS NOT 5", 10, "expected `NULL`"),
    # numbers
    ("a > 0.0", 5, "write 0"),
    ("a > 0e5", 5, "write 0"),
    ("a > 1e-400", 5, "write 0"),
    ("a < 1e400", 5, "at most 1.8E308"),
    ("a < 9223372036854775808", 5, "at most 9223372036854775807"),
    ("a = 05", 5, "without leading zeros"),
]


@pytest.mark.parametrize(("text", "position", "problem"), WRONG)
def test_an_error_names_the_place_and_the_problem(text: str, position: int, problem: str) -> None:
    with pytest.raises(SqlError) as caught:
        compile_expression(text)
    assert caught.value.position == position
    assert problem in caught.value.problem
    assert str(caught.value).startswith(f"at character {position}: ")


def test_a_failure_is_remembered_and_raised_anew() -> None:
    errors = []
    for _ in range(2):
        with pytest.raises(SqlError) as caught:
            compile_expression("remembered >")
        errors.append(caught.value)
    assert errors[0] is not errors[1], "each has its own traceback"
    assert str(errors[0]) == str(errors[1])


def test_an_expression_is_compiled_once() -> None:
    assert compile_expression("once = 1") is compile_expression("once = 1")


def test_what_is_remembered_is_bounded() -> None:
    first = compile_expression("bounded = 0")
    for number in range(200):
        compile_expression(f"bounded IN ('{'x' * 8_000}', '{number}')")
    assert compile_expression("bounded = 0") is not first


HOSTILE = [
    "(" * 5_000 + "a = 1" + ")" * 5_000,
    "NOT " * 4_000 + "TRUE",
    "-" * 16_000 + "1 = 1",
    "a" + " IS NULL" * 2_000,
    "a = " * 4_000 + "1",
    " OR ".join(["a = 1"] * 1_000),
    " OR ".join(["a CONTAINS 'x'"] * 100),
    "a = 1 OR " * 200_000 + "a = 1",
    "a = '" + "'" * 16_000,
    "/*" * 8_000,
    "a = " + "1" * 16_000,
    "a IN (" + ",".join(["'x'"] * 3_000),
    "a IN (" + ",".join(["'x''''y'"] * 1_500) + ", 5)",
    "a IN (" + ",".join(["'x' /**/"] * 1_000) + ")",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_what_would_cost_too_much_is_refused(text: str) -> None:
    with pytest.raises(SqlError):
        Expression(text)


def test_a_heartbeat_may_carry_every_expression_that_is_taken() -> None:
    assert OTHER_CHARS_MAX == EXPRESSION_CHARS_MAX


def test_lists_may_be_long_spread_out_and_commented() -> None:
    listed = " ,\n".join(f"'{number}''s'" for number in range(1_000))
    expression = Expression(f"a IN (\t{listed} )")
    assert expression.accepts({"a": "999's"})
    assert not expression.accepts({"a": "1000's"})
    assert Expression("a NOT IN ('x' /* one, two */, -- three\n'y')").accepts({"a": "three"})


def test_what_just_fits_is_taken() -> None:
    assert Expression("(" * (DEPTH_MAX - 1) + "a = 1" + ")" * (DEPTH_MAX - 1)).accepts({"a": "1"})
    count = (NODES_MAX - 1) // 3
    assert Expression(" OR ".join(["a = 1"] * count)).accepts({"a": "1"})
    assert Expression(" OR ".join(["a CONTAINS 'x'"] * SEARCHES_MAX)).accepts({"a": "x"})
    text = f"a = '{'x' * (EXPRESSION_CHARS_MAX - 6)}'"
    assert len(text) == EXPRESSION_CHARS_MAX
    assert not Expression(text).accepts({"a": "y"})
