"""Expressions made at random mean what a second, simpler evaluator says."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.sql.expression import Expression
from tests.sql.generated import NAMES, TEXTS, Failed, Tree, make_truth, meaning, text_of


class Drawn:
    """Choices that hypothesis makes, and can make smaller."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def choice(self, options: Sequence[Any]) -> Any:
        return self._draw(st.sampled_from(options))

    def randint(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    return make_truth(Drawn(draw), 3)


MESSAGES = st.dictionaries(st.sampled_from(NAMES[:-1]), st.sampled_from(TEXTS))


@settings(max_examples=500, deadline=None)
@given(trees(), MESSAGES)
def test_an_expression_means_what_its_tree_means(tree: Tree, properties: dict[str, str]) -> None:
    text = text_of(tree)
    expected: bool | None
    try:
        expected = meaning(tree, properties)
    except Failed:
        expected = None
    assert Expression(text).value(properties) is expected, text


@settings(max_examples=100, deadline=None)
@given(trees(), MESSAGES)
def test_keywords_spaces_and_comments_do_not_change_the_meaning(
    tree: Tree, properties: dict[str, str]
) -> None:
    text = text_of(tree)
    spread = text.replace(" ", " /* x */\n-- y\n\t")
    expected = Expression(text).value(properties)
    assert Expression(f" ({text}) ").value(properties) is expected
    assert Expression(f"{spread} -- the end").value(properties) is expected
