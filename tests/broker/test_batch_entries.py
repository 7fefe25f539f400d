"""Messages of a batch as they are stored: the quick look at properties and the exact one agree."""

from types import SimpleNamespace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.context import Context
from orbitmq.broker.handlers.send import _batch_entry
from orbitmq.broker.puts import closed, without_cluster
from orbitmq.wire.batch import BatchMessage
from orbitmq.wire.expression import tag_code
from orbitmq.wire.headers_client import SendMessage
from orbitmq.wire.properties import parse_properties

CLUSTER = "CLUSTER\x01Shop"
CONTEXT = cast(
    "Context",
    SimpleNamespace(core=SimpleNamespace(cluster_property=CLUSTER, body_size_max=1_000)),
)
HEADER = SendMessage(
    producer_group="P",
    topic="T",
    default_topic="TBW102",
    default_topic_queue_count=4,
    queue_id=0,
    sys_flag=0,
    born_ms=1,
    flag=0,
)
PIECES = st.sampled_from(
    [
        "TAGS",
        "TAGS\x01",
        "\x01",
        "\x02",
        "a",
        "UNIQ_KEY\x01",
        "CLUSTER\x01x",
        "XTAGS\x01t",
        "ä",
        "=",
    ]
)


@given(st.lists(PIECES, max_size=12).map("".join))
def test_a_message_of_a_batch_is_stored_as_the_exact_reading_says(text: str) -> None:
    stamp, body, stored = _batch_entry(CONTEXT, HEADER, BatchMessage(b"x", text.encode()))
    assert body == b"x"
    assert stored.decode() == closed(without_cluster(text.lstrip("\x02"))) + CLUSTER
    assert stamp.tags_code == tag_code(parse_properties(text).get("TAGS", ""))
