"""Messages of a batch as they are stored: the quick look at properties and the exact one agree."""

from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orbitmq.broker.batches import stored_columns
from orbitmq.broker.context import Context
from orbitmq.broker.puts import closed, without_cluster
from orbitmq.errors import RequestFailed
from orbitmq.wire.batch import Batch
from orbitmq.wire.expression import tag_code
from orbitmq.wire.properties import parse_properties

CLUSTER = "CLUSTER\x01Shop"
CONTEXT = cast(
    "Context",
    SimpleNamespace(core=SimpleNamespace(cluster_property=CLUSTER, body_size_max=1_000)),
)
ID = "UNIQ_KEY\x01" + "0A" * 16
PIECES = st.sampled_from(
    [
        "TAGS",
        "TAGS\x01",
        "\x01",
        "\x02",
        "a",
        "UNIQ_KEY\x01",
        ID,
        ID + "\x02TAGS\x01t",
        "CLUSTER\x01x",
        "\x02x\x01INNER_",
        "XTAGS\x01t",
        "ä",
        "=",
    ]
)
TEXTS = st.lists(PIECES, max_size=8).map("".join)


def cut_of(texts: list[bytes]) -> Batch:
    return Batch([b"x"] * len(texts), texts, [0] * len(texts))


@given(st.lists(TEXTS, min_size=1, max_size=5), TEXTS)
@example([ID, ID + "\x02TAGS\x01t\x02", ID + "\x02TAGS\x01u"], "WAIT\x01true\x02")
@example([ID + "A\x02TAGS\x01t"], "")
@example([ID + "\x02TAGS\x01t", "a\x01" + ID + "\x02TAGS\x01u"], "\x02\x02TAGS\x01v")
def test_messages_of_a_batch_are_stored_as_the_exact_reading_says(
    texts: list[str], shared: str
) -> None:
    owns = [text.encode() for text in texts]
    stored = stored_columns(CONTEXT, cut_of(owns), shared.encode())
    assert stored.bodies == [b"x"] * len(texts)
    whole = [(text.rstrip("\x02") + "\x02" + shared).lstrip("\x02") for text in texts]
    assert [(text + stored.ending).decode() for text in stored.properties] == [
        closed(without_cluster(text)) + CLUSTER for text in whole
    ]
    assert stored.tags_codes == [tag_code(parse_properties(text).get("TAGS", "")) for text in whole]


ALIKE = ID + "\x02KEYS\x01k%03d\x02TAGS\x01%s\x02A\x01%s"


@given(
    st.sampled_from(["t", "%d"]),
    st.sampled_from(["b", "%02d"]),
    st.integers(0, 39),
    st.integers(0, 80),
    st.sampled_from("\x01\x02TX"),
)
@example("t", "b", 0, 49, "k")
@example("%d", "%02d", 39, 51, "X")
def test_one_odd_message_among_many_that_are_alike_has_the_code_of_its_own_tag(
    tag: str, last: str, number: int, place: int, char: str
) -> None:
    tags = [tag % (at % 3) if "%" in tag else tag for at in range(40)]
    lasts = [last % at if "%" in last else last for at in range(40)]
    texts = [ALIKE % (at, *each) for at, each in enumerate(zip(tags, lasts, strict=True))]
    texts[number] = texts[number][:place] + char + texts[number][place + 1 :]
    stored = stored_columns(CONTEXT, cut_of([text.encode() for text in texts]), b"")
    assert stored.tags_codes == [tag_code(parse_properties(text).get("TAGS", "")) for text in texts]


def test_one_odd_message_leaves_the_others_as_they_are() -> None:
    owns = [b"A\x01a", b"B\x01\xff", b"C\x01\xc3\xa4\x02"]
    stored = stored_columns(CONTEXT, cut_of(owns), b"")
    own = [text.removesuffix(CLUSTER.encode()) for text in stored.properties]
    assert own == [b"A\x01a\x02", "B\x01\ufffd\x02".encode(), b"C\x01\xc3\xa4\x02"]


@pytest.mark.parametrize("text", [b"A\x01\0", b"INNER_NUM\x011", b"TIMER_DELAY_SEC\x019"])
def test_one_message_that_no_record_may_hold_is_found_among_others(text: bytes) -> None:
    with pytest.raises(RequestFailed):
        stored_columns(CONTEXT, cut_of([b"A\x01a", text, b""]), b"")
