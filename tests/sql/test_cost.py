"""What the most expensive expressions that are taken cost for one message: less than 5 ms.

Measured: up to 1 ms, on a slow host 1.1 ms.
Each figure is processor time, the best of many runs: what the machine can do, not what it does
under other load.
"""

import time

import pytest

from orbitmq.sql.expression import Expression
from orbitmq.sql.parser import NODES_MAX, SEARCHES_MAX

COUNT = (NODES_MAX - 1) // 3
LONG = "a" * 32_000
DIGITS = "1." + "1" * 61
LOOP_S = 0.005
"""No expression may hold the loop up for longer."""

COSTLY = {
    "whole numbers": (" OR ".join(["a = 1"] * COUNT), {"a": "2"}),
    "doubles": (" OR ".join(["a < 1.05"] * COUNT), {"a": DIGITS}),
    "doubles of two properties": (" OR ".join(["a < b"] * COUNT), {"a": DIGITS, "b": DIGITS}),
    "hexadecimal doubles": (
        " OR ".join(["a < b"] * COUNT),
        {"a": "0x1" + "0" * 50 + "p1"} | {"b": "1"},
    ),
    "long texts": (" OR ".join(["a = b"] * COUNT), {"a": LONG[:16_000], "b": LONG[:15_999] + "b"}),
    "not comparable": (
        "NOT (" + " AND ".join(["b = 1"] * 100) + " AND a > 3)",
        {"a": "x", "b": "1"},
    ),
    "searches": (
        " OR ".join([f"a CONTAINS '{'a' * 60}b{'a' * 60}'"] * SEARCHES_MAX),
        {"a": LONG},
    ),
    "short searches": (" OR ".join(["a CONTAINS 'aab'"] * SEARCHES_MAX), {"a": LONG}),
    "searches in a short text": (
        " OR ".join([f"a CONTAINS '{'a' * 12}b{'a' * 12}'"] * SEARCHES_MAX),
        {"a": LONG[:2_400]},
    ),
    "long lists": ("a IN (" + ",".join(f"'{number}'" for number in range(1_500)) + ")", {"a": "x"}),
    "depth": ("NOT (" * 23 + "a = 1" + ")" * 23, {"a": "2"}),
}


@pytest.mark.parametrize("name", COSTLY)
def test_the_most_expensive_expressions_hold_the_loop_for_less_than_5_ms(name: str) -> None:
    text, properties = COSTLY[name]
    expression = Expression(text)
    took_s = []
    for _ in range(60):  # the best of many: others use this machine, too
        start_s = time.thread_time()
        expression.accepts(properties)
        took_s.append(time.thread_time() - start_s)
    assert min(took_s) < LOOP_S
