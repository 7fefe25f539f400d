"""Fuzz targets of SQL92 filters.

Rule: whatever a client writes, it is refused with a place inside the text or one behind its end, or
it compiles and says yes or no to any message; twice the same.
"""

from collections.abc import Callable

from orbitmq.errors import SqlError
from orbitmq.sql.expression import Expression
from orbitmq.wire.bodies_filter import CheckClient
from orbitmq.wire.fastjson import read_json

MESSAGES: tuple[dict[str, str], ...] = (
    {},
    {"a": "5", "b": "x", "c": "3.5", "TAGS": "TagA"},
    {"a": "NaN", "b": "", "c": "0x1p3", "TAGS": "\ud83d"},
)


def fuzz_sql_expression(data: bytes) -> None:
    """An expression, and messages that it is asked about."""
    text = data.decode(errors="replace")
    expression = _compiled(text)
    if isinstance(expression, SqlError):
        assert 1 <= expression.position <= len(text) + 1
        assert expression.problem
        return
    for message in MESSAGES:
        value = expression.value(message)
        assert value in (True, False, None)
        assert expression.accepts(message) is (value is True)
        assert Expression(f"({text}\n)").value(message) is value


def _compiled(text: str) -> Expression | SqlError:
    try:
        return Expression(text)
    except SqlError as error:
        return error


def fuzz_check_client_body(data: bytes) -> None:
    """The body of 46."""
    read_json(data, CheckClient)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "sql expression": fuzz_sql_expression,
    "check client body": fuzz_check_client_body,
}
SEEDS: dict[str, list[bytes]] = {
    "sql expression": [
        b"a > 3 AND b = 'x' OR c IS NOT NULL",
        b"a BETWEEN 1 AND 10 AND NOT (b IN ('x', 'it''s') OR c <> 3.5)",
        b"TAGS NOT CONTAINS 'ag' OR a = -5 = TRUE -- end",
        b"/* c */ $a_1 <= .5e3 AND missing = 7L\nOR -c IS NULL",
        b"((((a = b))))",
    ],
    "check client body": [
        b'{"clientId":"c@1","group":"G","subscriptionData":{"topic":"T","subString":"a > 3",'
        b'"subVersion":1,"expressionType":"SQL92","classFilterMode":false,"codeSet":[],"tagsSet":[]}}',
    ],
}
