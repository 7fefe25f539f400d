"""What is stored of properties and what they ask for: a table, and any text with a model."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orbitmq.core import AdmittedBatch, Refusal, Way, admit, admit_batch, tag_code_in, with_entries
from orbitmq.core.admit import Admitted
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.expression import tag_code
from orbitmq.wire.properties import parse_properties
from tests.core.admitted import Expected, expected, found

ID = b"UNIQ_KEY\x01" + b"0A" * 16
A = tag_code("a")
PIECES = st.sampled_from(
    [
        *(b"TAGS", b"TAGS\x01", b"\x01", b"\x02", b"a", b"UNIQ_KEY\x01", ID, b"XTAGS\x01t", b"="),
        *(ID + b"\x02TAGS\x01t", b"CLUSTER\x01x", b"x\x01INNER_", b"\x02INNER_NUM\x011", b"\0"),
        *(b"WAIT\x01true", b"WAIT\x01", b"\x02WAIT\x01true\x02", b"\x02WAIT\x01false\x02", b"true"),
        *(b"DELAY\x01", b"DELAY\x013\x02", b"\x02DELAY\x010\x02", b"+9", b"-1", b"TRAN_MSG\x01"),
        *(b"\x02TRAN_MSG\x01TRUE\x02", b"TIMER_DELAY_MS\x01", b"\x02TIMER_DELIVER_MS\x010\x02"),
        *("ä".encode(), b"\xff", b"INNER_MULTI_DISPATCH\x01%LMQ%a", b"INNER_MULTI_QUEUE_OFFSET"),
    ]
)
TEXTS = st.lists(PIECES, max_size=8).map(b"".join)

STORED: dict[str, tuple[bytes, Expected]] = {
    "nothing": (b"", Expected(b"", 0, 0, False, True, "")),
    "open": (b"TAGS\x01a", Expected(b"TAGS\x01a\x02", A, 0, False, True, "")),
    "closed": (b"TAGS\x01a\x02", Expected(b"TAGS\x01a\x02", A, 0, False, True, "")),
    "empty entries": (b"\x02\x02K\x01k\x02\x02", Expected(b"K\x01k\x02", 0, 0, False, True, "")),
    "waits": (b"WAIT\x01true\x02A\x01a", Expected(b"A\x01a\x02", 0, 0, False, True, "")),
    "waits twice": (b"WAIT\x01true\x02WAIT\x01true", Expected(b"", 0, 0, False, True, "")),
    "does not wait": (b"WAIT\x01false", Expected(b"WAIT\x01false\x02", 0, 0, False, False, "")),
    "a name's end": (b"XWAIT\x01true", Expected(b"XWAIT\x01true\x02", 0, 0, False, True, "")),
    "the cluster": (b"CLUSTER\x01c\x02A\x01a", Expected(b"A\x01a\x02", 0, 0, False, True, "")),
    "a level": (
        b"DELAY\x013\x02WAIT\x01true",
        Expected(b"DELAY\x013\x02WAIT\x01true\x02", 0, 3, False, True, ""),
    ),
    "level 0": (b"DELAY\x010", Expected(b"DELAY\x010\x02", 0, 0, False, True, "")),
    "a half message": (
        b"TRAN_MSG\x01true",
        Expected(b"TRAN_MSG\x01true\x02", 0, 0, True, True, ""),
    ),
    "two tags": (
        b"TAGS\x01b\x02TAGS\x01a",
        Expected(b"TAGS\x01b\x02TAGS\x01a\x02", A, 0, False, True, ""),
    ),
    "no text": (b"A\x01\xff", Expected("A\x01\ufffd\x02".encode(), 0, 0, False, True, "")),
    "no timer": (
        b"TIMER_DELAY_MS\x010",
        Expected(b"TIMER_DELAY_MS\x010\x02", 0, 0, False, True, ""),
    ),
}
REFUSED: dict[bytes, tuple[ResponseCode, str]] = {
    b"A\x01\0": (ResponseCode.MESSAGE_ILLEGAL, "NUL"),
    b"\0": (ResponseCode.MESSAGE_ILLEGAL, "NUL"),
    b"TIMER_DELAY_SEC\x019": (ResponseCode.MESSAGE_ILLEGAL, "timed messages"),
    b"INNER_NUM\x011": (ResponseCode.MESSAGE_ILLEGAL, "INNER_NUM is reserved"),
    b"INNER_MULTI_DISPATCH\x01%LMQ%a": (ResponseCode.MESSAGE_ILLEGAL, "enableMultiDispatch"),
    b"DELAY\x01soon": (ResponseCode.SYSTEM_ERROR, "whole number"),
    b"DELAY\x013000000000": (ResponseCode.SYSTEM_ERROR, "whole number"),
}


@pytest.mark.parametrize("case", STORED.values(), ids=STORED)
def test_properties_of_a_single_message_are_stored(case: tuple[bytes, Expected]) -> None:
    text, stored = case
    assert found(admit(text)) == stored


@pytest.mark.parametrize("text", REFUSED)
def test_what_no_message_may_have_is_refused_with_its_name(text: bytes) -> None:
    refusal = admit(text)
    assert isinstance(refusal, Refusal)
    code, word = REFUSED[text]
    assert refusal.code == code
    assert word in refusal.remark


def test_light_queues_are_for_single_messages_that_do_not_wait() -> None:
    text = b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02"
    message = admit(text, takes_lights=True)
    assert isinstance(message, Admitted)
    assert (message.own, message.light_names, message.is_ordinary) == (text, "%LMQ%a", False)
    assert isinstance(admit(text + b"DELAY\x011", takes_lights=True), Refusal)
    assert isinstance(admit(text, Way.BATCH, takes_lights=True), Refusal)
    assert found(admit(text + b"A\x01a", Way.AGAIN)) == Expected(
        b"A\x01a\x02", 0, 0, False, True, ""
    )


def test_what_was_stored_before_is_stored_again_as_it_is_but_for_the_cluster() -> None:
    text = b"DELAY\x01x\x02WAIT\x01true\x02TIMER_DELAY_SEC\x011\x02INNER_NUM\x011\x02CLUSTER\x01c"
    again = admit(text, Way.AGAIN)
    assert isinstance(again, Admitted)
    assert again.own == text.removesuffix(b"CLUSTER\x01c")
    assert again.values["DELAY"] == "x"


@settings(max_examples=500)
@given(TEXTS, st.sampled_from(Way), st.booleans())
@example(b"WAIT\x01true\x02WAIT\x01true\x02WAIT\x01true", Way.SEND, False)
@example(b"AWAIT\x01true\x02WAIT\x01true", Way.SEND, False)
def test_any_text_is_admitted_as_the_slow_reading_says(
    text: bytes, way: Way, takes_lights: bool
) -> None:
    admitted = admit(text, way, takes_lights=takes_lights)
    assert found(admitted) == expected(text, way, takes_lights=takes_lights)


@given(st.lists(TEXTS, min_size=1, max_size=6), TEXTS)
@example([ID, ID + b"\x02TAGS\x01t\x02", ID + b"\x02TAGS\x01u"], b"WAIT\x01true\x02")
@example([ID + b"A\x02TAGS\x01t"], b"")
@example([ID + b"\x02A\x01a", b"\x02A\x01a", b"A\x01a", b"\x02\x02A\x01a"], b"")
@example([ID + b"\x02TAGS\x01t", b"a\x01" + ID + b"\x02TAGS\x01u"], b"\x02\x02TAGS\x01v")
def test_each_message_of_a_batch_is_admitted_like_one_alone(
    texts: list[bytes], shared: bytes
) -> None:
    alone = [expected(text + b"\x02" + shared, Way.BATCH) for text in texts]
    admitted = admit_batch(texts, shared)
    refusals = [one for one in alone if isinstance(one, ResponseCode)]
    if refusals:
        assert isinstance(admitted, Refusal)
        assert admitted.code == refusals[0]
        return
    assert isinstance(admitted, AdmittedBatch)
    stored = [one for one in alone if isinstance(one, Expected)]
    assert admitted.owns == [one.own for one in stored]
    assert admitted.tags_codes == [one.tags_code for one in stored]


@given(TEXTS)
@example(b"TAGS\x01a\x02TAGS\x01")
@example(b"TAGS\x01" + b"a" * 256)
@example(b"TAGS\x01a\x01b")
def test_the_code_is_that_of_the_tag_that_parsing_finds(text: bytes) -> None:
    assert tag_code_in(text) == tag_code(parse_properties(text).get("TAGS", ""))


def test_entries_replace_those_of_their_names() -> None:
    own = with_entries(b"A\x01a\x02AB\x01b\x02A\x01c\x02", {"A": "d", "C": "e"})
    assert own == b"AB\x01b\x02A\x01d\x02C\x01e\x02"
    assert with_entries(b"", {"A": "a"}) == b"A\x01a\x02"
