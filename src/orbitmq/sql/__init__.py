"""SQL92 filters: the text of an expression in, a predicate over message properties out.

One entry point, `compile_expression`. Nothing here reads a clock, a file or a message: an
expression sees a mapping of names to texts and says yes or no.
"""

from orbitmq.sql.expression import EXPRESSION_CHARS_MAX, Expression, compile_expression

__all__ = ["EXPRESSION_CHARS_MAX", "Expression", "compile_expression"]
