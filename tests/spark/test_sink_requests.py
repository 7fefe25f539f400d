"""Rows become requests: properties, flags, queues, sizes; every row once and in order."""

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.queue_choice import queue_of_key
from orbitmq.errors import LocalProtocolError
from orbitmq.spark.sink_keys import TaskKey
from orbitmq.spark.sink_messages import messages_of, rows_by_topic
from orbitmq.spark.sink_options import sink_options
from orbitmq.spark.sink_requests import Request, Requests
from orbitmq.wire.batch import decode_batch
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.compression import plain_body
from orbitmq.wire.properties import parse_properties

TASK = TaskKey("query", 1, 2)
QUEUES = [MessageQueue("t", name, number) for name in ("a", "b") for number in range(3)]
MAP = pa.map_(pa.string(), pa.string())


def requests(columns: dict[str, Any], **options: str) -> list[Request]:
    arrays = {
        name: pa.array(values) if isinstance(values, list) else values
        for name, values in columns.items()
    }
    numbers = np.arange(len(arrays["body"]), dtype=np.uint64)
    made = sink_options({"namesrvAddr": "localhost:1", "topic": "t", **options})
    return list(Requests("t", QUEUES, made).of(messages_of(TASK, arrays, numbers)))


def read(request: Request) -> list[tuple[bytes, dict[str, str], int]]:
    """Return bodies, properties and flags of a request's messages."""
    if request.is_batch:
        return [
            (message.body, parse_properties(message.properties), message.flag)
            for message in decode_batch(request.body).messages()
        ]
    body = plain_body(request.body, request.sys_flag)
    return [(body, parse_properties(request.properties), request.flag)]


def test_tags_keys_flags_and_properties_arrive_as_they_were_given() -> None:
    own = pa.array([[("colour", "red"), ("x", "ä\x01b")], None, []], MAP)
    (request,) = requests(
        {
            "body": ["one", "two", "three"],
            "tags": ["paid", None, ""],
            "keys": pa.array([["k1", "k2"], None, ["k3"]], pa.list_(pa.string())),
            "flag": pa.array([7, None, -1], pa.int32()),
            "properties": own,
        }
    )
    first, second, third = read(request)
    unique = [TASK.id_of(number) for number in range(3)]
    assert first == (
        b"one",
        {
            "UNIQ_KEY": unique[0],
            "colour": "red",
            "x": "ä\x01b",
            "KEYS": "k1 k2",
            "TAGS": "paid",
        },
        7,
    )
    assert second == (b"two", {"UNIQ_KEY": unique[1]}, 0)
    assert third == (b"three", {"UNIQ_KEY": unique[2], "KEYS": "k3"}, -1)


def test_keys_of_any_kind_of_list_are_words_and_null_ones_none() -> None:
    kind = pa.list_(pa.field("element", pa.string(), nullable=False))
    strict = pa.array([["k1"], [], None], kind)
    (request,) = requests({"body": ["1", "2", "3"], "keys": strict})
    assert [found.get("KEYS") for _, found, _ in read(request)] == ["k1", None, None]
    holed = pa.array([["k1", None, "k2"], [None], None], pa.list_(pa.string()))
    (request,) = requests({"body": ["1", "2", "3"], "keys": holed})
    assert [found.get("KEYS") for _, found, _ in read(request)] == ["k1 k2", None, None]


def test_the_unique_id_is_the_first_property_as_java_clients_expect_it_to_be_found() -> None:
    (request,) = requests({"body": ["x"], "tags": ["t"]})
    (message,) = decode_batch(request.body).messages()
    assert message.properties.startswith(b"UNIQ_KEY\x01" + TASK.id_of(0).encode() + b"\x02TAGS\x01")


def test_system_properties_in_the_rows_own_map_are_left_out() -> None:
    own = pa.array(
        [[("TAGS", "x"), ("UNIQ_KEY", "y"), ("DELAY", "3"), ("mine", "z"), ("e", "")]], MAP
    )
    (request,) = requests({"body": ["x"], "properties": own})
    assert read(request)[0][1] == {"UNIQ_KEY": TASK.id_of(0), "mine": "z"}


def test_a_slice_of_a_batch_has_its_own_properties() -> None:
    own = pa.array([[("n", str(number))] for number in range(10)], MAP).slice(4, 3)
    bodies = pa.array([str(number) for number in range(10)]).slice(4, 3)
    (request,) = requests({"body": bodies, "properties": own})
    assert [(body, found["n"]) for body, found, _ in read(request)] == [
        (b"4", "4"),
        (b"5", "5"),
        (b"6", "6"),
    ]


def test_a_msg_id_of_the_rows_own_is_the_unique_id() -> None:
    (request,) = requests({"body": ["x", "y"], "msgId": ["MINE", None]})
    ids = [found["UNIQ_KEY"] for _, found, _ in read(request)]
    assert ids == ["MINE", TASK.id_of(1)]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"body": ["x", None, ""]}, r"column body of row 1 of this task \(and 1 more\): is null"),
        ({"body": ["x"], "tags": ["a\x02b"]}, "column tags of row 0 of this task: holds"),
        ({"body": ["x"], "keys": ["a\x02b"]}, "column keys of row 0"),
        ({"body": ["x"], "properties": pa.array([[("a\x01", "b")]], MAP)}, "column properties"),
        ({"body": ["x"], "properties": pa.array([[("a", "b\x02")]], MAP)}, "column properties"),
        ({"body": ["x"], "tags": ["a" * 40_000]}, "more than 32767 bytes of properties"),
        ({"body": ["x"], "queueId": [9]}, "no queue queueId 9 to write to; it has a:0, a:1"),
        (
            {"body": ["x"], "queueId": [1]},
            "several brokers have queueId 1.*add a column brokerName",
        ),
        ({"body": ["x"], "queueId": [1], "brokerName": ["c"]}, "no queue c:1"),
    ],
)
def test_a_row_that_cannot_be_sent_is_named(columns: dict[str, Any], said: str) -> None:
    with pytest.raises(LocalProtocolError, match=said):
        requests(columns)


def test_rows_of_one_sharding_key_go_to_the_queue_that_java_chooses_in_their_order() -> None:
    keys = [f"user-{number % 7}" if number % 5 else None for number in range(200)]
    made = requests({"body": [str(n) for n in range(200)], "shardingKey": keys}, batchSize="9")
    seen: list[int] = []
    for request in made:
        for body, found, _ in read(request):
            key = found.get("__SHARDINGKEY")
            assert request.queue == (queue_of_key(QUEUES, key) if key else None)
            seen.append(int(body))
    for queue in QUEUES:
        theirs = [n for r in made if r.queue == queue for n in r.numbers]
        assert theirs == sorted(theirs)
    assert sorted(seen) == list(range(200))


def test_rows_with_a_queue_of_their_own_go_there() -> None:
    made = requests(
        {"body": ["x", "y", "z"], "queueId": [2, None, 0], "brokerName": ["b", None, "a"]}
    )
    assert {(r.queue, r.numbers) for r in made} == {
        (QUEUES[5], (0,)),
        (None, (1,)),
        (QUEUES[0], (2,)),
    }


def test_round_robin_ignores_what_would_choose_a_queue() -> None:
    (request,) = requests(
        {"body": ["x", "y"], "shardingKey": ["a", "b"]}, queueSelector="roundRobin"
    )
    assert request.queue is None
    assert read(request)[0][1]["__SHARDINGKEY"] == "a"


def test_delayed_compressed_and_oversize_rows_are_sent_alone() -> None:
    bodies = ["small", "s" * 3_000, "later", "o" * 90_000, "small again"]
    levels = pa.array([0, None, 3, 0, 0], pa.int32())
    made = requests(
        {"body": bodies, "delayTimeLevel": levels}, compressOver="2000", batchBytes="80000"
    )
    assert [r.is_batch for r in made] == [True, False, False, False, True]
    assert [body.decode() for r in made for body, _, _ in read(r)] == bodies
    assert read(made[2])[0][1]["DELAY"] == "3"
    assert made[2].is_timed
    assert len(made[3].body) < 1_000
    assert made[1].sys_flag == 1


def test_an_oversize_row_without_compression_is_sent_as_it_is() -> None:
    (request,) = requests({"body": ["o" * 90_000]}, batchBytes="80000")
    assert not request.is_batch
    assert request.sys_flag == 0
    assert read(request)[0][1]["WAIT"] == "true"


def test_a_row_that_grows_by_being_compressed_is_sent_as_it_is() -> None:
    body = random.Random(7).randbytes(5_000)
    (request,) = requests({"body": [body]}, compressOver="2000")
    assert (request.body, request.sys_flag) == (body, 0)


def test_a_delivery_time_travels_in_milliseconds() -> None:
    times = pa.array([1_700_000_000_123_456, None], pa.timestamp("us", tz="UTC"))
    made = requests({"body": ["x", "y"], "deliverTimestamp": times})
    assert read(made[0])[0][1]["TIMER_DELIVER_MS"] == "1700000000123"
    assert made[1].is_batch


@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=80),
    st.integers(1, 20),
    st.integers(600, 3_000),
)
def test_every_row_is_in_one_request_whatever_the_limits(
    sizes: list[int], batch_size: int, batch_bytes: int
) -> None:
    made = requests(
        {"body": [b"x" * size for size in sizes]},
        batchSize=str(batch_size),
        batchBytes=str(batch_bytes),
    )
    assert [n for r in made for n in r.numbers] == list(range(len(sizes)))
    assert [len(body) for r in made for body, _, _ in read(r)] == sizes
    assert all(len(r.numbers) <= batch_size for r in made)
    assert all(len(r.body) <= batch_bytes for r in made if len(r.numbers) > 1)


def test_what_is_stored_of_a_request_can_be_taken_out() -> None:
    (request,) = requests({"body": ["a", "b", "c"]})
    left = request.without(frozenset({0, 2, 99}))
    assert left.numbers == (1,)
    assert [body for body, _, _ in read(left)] == [b"b"]


def test_rows_are_parted_by_topic_in_their_order() -> None:
    columns = {"topic": pa.array(["x", "y", "x"]), "body": pa.array(["1", "2", "3"])}
    found = list(rows_by_topic(columns, np.arange(3), ""))
    assert [(t, c["body"].to_pylist(), n.tolist()) for t, c, n in found] == [
        ("x", ["1", "3"], [0, 2]),
        ("y", ["2"], [1]),
    ]
    ((topic, _, _),) = rows_by_topic(columns, np.arange(3), "forced")
    assert topic == "forced"


def test_a_row_without_a_topic_is_named() -> None:
    columns = {"topic": pa.array(["x", None]), "body": pa.array(["1", "2"])}
    with pytest.raises(LocalProtocolError, match="column topic of row 1"):
        list(rows_by_topic(columns, np.arange(2), ""))
