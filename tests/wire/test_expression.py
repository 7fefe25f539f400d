"""Tag expressions, and subscriptions with parts missing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import RemoteProtocolError
from orbitmq.wire.bodies_client import SubscriptionData
from orbitmq.wire.expression import TagFilter, complete_subscription, tag_code

TAGS = st.text(min_size=1).map(str.strip).filter(lambda tag: tag and "|" not in tag)


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_everything_passes_without_tags(expression: str | None) -> None:
    everything = TagFilter.parse(expression)
    assert everything.is_all
    assert everything.matches(0)
    assert everything.matches(2598919)
    assert everything.matches_tag(None)


def test_a_list_lets_its_tags_through() -> None:
    two = TagFilter.parse("TagA || TagB")
    assert two.tags == {"TagA", "TagB"}
    assert two.codes == {2598919, 2598920}
    assert [two.matches(code) for code in (2598919, 2598920, 2598921, 0)] == [
        True,
        True,
        False,
        False,
    ]
    assert [two.matches_tag(tag) for tag in ("TagA", "TagC", None)] == [True, False, False]


@pytest.mark.parametrize("expression", ["A||B", " A|| B ", "A||||B", "||A||B||", "A\t||\nB || A"])
def test_spaces_and_empty_places_do_not_count(expression: str) -> None:
    assert TagFilter.parse(expression).tags == {"A", "B"}


def test_equal_codes_pass_by_code_and_not_by_tag() -> None:
    one = TagFilter.parse("Aa")
    assert one.matches(tag_code("BB"))
    assert not one.matches_tag("BB")


def test_a_star_in_a_list_is_a_tag() -> None:
    assert TagFilter.parse("A || *").tags == {"A", "*"}
    assert TagFilter.parse(" * ").tags == {"*"}


@pytest.mark.parametrize("expression", [" ", "||", " || ", "\t||||"])
def test_a_list_without_tags_is_refused(expression: str) -> None:
    with pytest.raises(RemoteProtocolError, match=r"names no tag; write \* for all") as caught:
        TagFilter.parse(expression)
    assert caught.value.reason == "tag-expression"


@given(st.sets(TAGS, min_size=1, max_size=8))
def test_each_tag_of_a_list_passes(tags: set[str]) -> None:
    chosen = TagFilter.parse("||".join(tags))
    if tags == {"*"}:
        assert chosen.is_all
        return
    assert chosen.tags == tags
    assert all(chosen.matches(tag_code(tag)) and chosen.matches_tag(tag) for tag in tags)


@given(st.text())
def test_arbitrary_text_is_a_filter_or_a_remote_error(text: str) -> None:
    try:
        chosen = TagFilter.parse(text)
    except RemoteProtocolError:
        return
    assert chosen.is_all == (text in {"", "*"})
    assert bool(chosen.tags) == bool(chosen.codes)


def test_no_tag_has_code_0() -> None:
    assert tag_code("") == 0


def test_a_subscription_gets_the_tags_and_codes_of_its_expression() -> None:
    bare = SubscriptionData(topic="T", sub_string="TagB || TagA", sub_version=5)
    assert complete_subscription(bare) == SubscriptionData(
        topic="T",
        sub_string="TagB || TagA",
        sub_version=5,
        tags_set=["TagA", "TagB"],
        code_set=[2598919, 2598920],
    )


def test_tags_and_codes_that_contradict_the_expression_do_not_count() -> None:
    wrong = SubscriptionData(topic="T", sub_string="TagA", tags_set=["X"], code_set=[1])
    whole = complete_subscription(wrong)
    assert (whole.tags_set, whole.code_set) == (["TagA"], [2598919])


def test_an_empty_expression_and_type_become_all_by_tag() -> None:
    whole = complete_subscription(SubscriptionData(topic="T", sub_string="", expression_type=""))
    assert (whole.sub_string, whole.expression_type, whole.tags_set) == ("*", "TAG", [])


def test_an_sql_subscription_has_no_tags() -> None:
    sql = SubscriptionData(topic="T", sub_string="a > 1", expression_type="SQL92")
    assert complete_subscription(sql) == sql


def test_a_subscription_without_any_tag_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="names no tag"):
        complete_subscription(SubscriptionData(topic="T", sub_string="||"))


def test_an_expression_has_a_limit_of_characters_and_of_tags() -> None:
    """Symptom: one heartbeat with two million tags held the loop for seconds."""
    assert len(TagFilter.parse("||".join(f"t{n}" for n in range(256))).tags) == 256
    for expression in ("||".join(f"t{n}" for n in range(257)), "x" * 8_193):
        with pytest.raises(RemoteProtocolError, match="limit"):
            TagFilter.parse(expression)
