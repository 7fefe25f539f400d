"""Selectors and subscriptions: what programs write, what heartbeats say, which messages pass."""

import pytest

from orbitmq.client.message import ReceivedMessage
from orbitmq.client.subscriptions import Selector, Subscription, selector_of
from orbitmq.errors import LocalProtocolError
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.host import Host
from orbitmq.wire.properties import encode_properties


def message(tag: str) -> ReceivedMessage:
    properties = {"TAGS": tag, "KEYS": "k"} if tag else {"KEYS": "k"}
    return ReceivedMessage(
        topic="orders",
        body=b"",
        stored_properties=encode_properties(properties),
        queue=MessageQueue("orders", "broker-a", 0),
        queue_offset=0,
        log_offset=0,
        born_ms=0,
        born_host=Host("127.0.0.1", 1),
        store_ms=0,
        store_host=Host("127.0.0.1", 2),
    )


def passing(selector: Selector) -> list[str]:
    subscription = Subscription("orders", selector, 1)
    return [tag for tag in ("", "a", "b", "Aa", "BB") if subscription.accepts(message(tag))]


def test_a_star_and_nothing_let_everything_through() -> None:
    everything = ["", "a", "b", "Aa", "BB"]
    assert passing(Selector()) == everything
    assert passing(Selector.tags("")) == everything
    assert passing(selector_of(None)) == everything


def test_tags_are_compared_as_texts_not_as_codes() -> None:
    # "Aa" and "BB" have the same code, so a broker lets both through.
    assert passing(Selector.tags("Aa || b")) == ["b", "Aa"]


def test_a_text_is_a_tag_expression() -> None:
    assert selector_of("a || b") == Selector.tags("a || b")


def test_sql_is_left_to_brokers() -> None:
    assert passing(Selector.sql("price > 3")) == ["", "a", "b", "Aa", "BB"]


def test_a_heartbeat_says_expression_tags_and_codes() -> None:
    data = Subscription("orders", Selector.tags("TagB || TagA"), 17).data()
    assert (data.topic, data.sub_string, data.sub_version) == ("orders", "TagB || TagA", 17)
    assert (data.expression_type, data.tags_set) == ("TAG", ["TagA", "TagB"])
    assert data.code_set == [2598919, 2598920]


def test_a_change_makes_a_newer_version_even_when_the_clock_stands() -> None:
    subscription = Subscription("orders", Selector(), 1000)
    subscription.change(Selector.tags("a"), 1000)
    assert subscription.version == 1001
    subscription.change(Selector.tags("b"), 5000)
    assert (subscription.version, list(subscription.tags)) == (5000, ["b"])


@pytest.mark.parametrize(
    ("expression", "kind", "problem"),
    [
        ("|| ||", "TAG", "names no tag; write \\* for all messages"),
        (" ", "SQL92", "an SQL selector has 1 to 16384 characters"),
        ("a", "REGEX", "there is no selector of kind 'REGEX'"),
        ("x" * 8193, "TAG", "8193 characters in an expression, limit 8192"),
    ],
)
def test_what_selects_nothing_is_refused(expression: str, kind: str, problem: str) -> None:
    with pytest.raises(LocalProtocolError, match=problem):
        Selector(expression, kind)
