"""SQL filters in plain Python: whether a whole record passes an expression.

In: an expression, and records as views of the log or as bytes. Out: True or False.

Rule: the record was checked when it was written or read.
"""

from orbitmq.sql import Expression
from orbitmq.wire.properties import parse_properties
from orbitmq.wire.record import properties_of


class SqlFilter:
    """Whether a whole record passes an expression."""

    __slots__ = ("_expression",)

    def __init__(self, expression: Expression) -> None:
        self._expression = expression

    def __call__(self, record: memoryview) -> bool:
        """Look at the record's properties."""
        return self._expression.accepts(parse_properties(properties_of(record)))
