"""What one task of the sink stores, with a real broker and without Spark."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from orbitmq import Message, Producer
from orbitmq.errors import LocalProtocolError, MQError
from orbitmq.spark import sink_writing
from orbitmq.spark.internals import shorten_rest
from orbitmq.spark.sink_keys import TaskKey
from orbitmq.spark.sink_sending import SinkFailed
from orbitmq.testing import EmbeddedBroker
from tests.spark.sinking import bodies, plan, run_task, stored

Names = Callable[[str], str]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def texts(*numbers: int) -> Any:
    return pa.record_batch({"body": [f"row {number}" for number in numbers]})


def test_all_rows_of_all_batches_are_stored(broker: EmbeddedBroker, fresh_name: Names) -> None:
    topic = fresh_name("all")
    done = run_task(
        plan(broker, ["body"], topic=topic, batchSize="7"),
        [texts(*range(100)), texts(), texts(*range(100, 150))],
    )
    assert bodies(broker.namesrv, topic) == sorted(f"row {number}" for number in range(150))
    assert done.rows == 150
    assert sum(done.ends.values()) == 150


def test_a_task_without_rows_gives_a_message_and_asks_nobody() -> None:
    done = run_task(plan("localhost:1", ["body"], topic="nowhere"), [texts(), texts()])
    assert (done.rows, done.ends) == (0, {})


def test_a_worker_that_has_read_before_it_writes_keeps_the_memory_of_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Symptom: only a worker whose first task was a write kept it; others paid for each page."""
    times: list[int] = []
    monkeypatch.setattr(sink_writing, "keep_freed_memory", lambda: times.append(1))
    monkeypatch.setattr(sink_writing, "write_task", lambda *_: sink_writing.SinkCommit())
    monkeypatch.setattr(sink_writing, "current_task", lambda _: TaskKey("q", 1, 0))
    sink_writing._keep_memory_of_requests.cache_clear()
    shorten_rest()
    for _ in range(2):
        sink_writing.write_rows(plan("localhost:1", ["body"], topic="any"), iter([texts(1)]))
    assert times == [1]


def test_a_missing_topic_is_made_with_the_queues_asked_for(
    broker: EmbeddedBroker, fresh_name: Names
) -> None:
    topic = fresh_name("made")
    run_task(plan(broker, ["body"], topic=topic, newTopicQueues="2", batchSize="1"), [texts(1, 2)])
    assert bodies(broker.namesrv, topic) == ["row 1", "row 2"]


def test_a_topic_that_is_missing_and_may_not_be_made_is_told(fresh_name: Names) -> None:
    topic = fresh_name("never")
    with (
        EmbeddedBroker(settings={"autoCreateTopicEnable": "false"}) as strict,
        pytest.raises(MQError, match=f"{topic}.*autoCreateTopicEnable=false"),
    ):
        run_task(plan(strict, ["body"], topic=topic), [texts(1)])


def test_properties_tags_and_keys_are_read_by_the_ordinary_client(
    broker: EmbeddedBroker, fresh_name: Names
) -> None:
    topic = fresh_name("read")
    rows = pa.record_batch(
        {
            "body": [b"\x00\xff"],
            "tags": ["paid"],
            "keys": ["k1 k2"],
            "flag": pa.array([5], pa.int32()),
            "properties": pa.array([[("colour", "grün")]], pa.map_(pa.string(), pa.string())),
            "shardingKey": ["u1"],
        }
    )
    run_task(plan(broker, rows.schema.names, topic=topic), [rows], TaskKey("q", 1, 2))
    (message,) = stored(broker.namesrv, topic)
    assert (message.body, message.tag, message.keys) == (b"\x00\xff", "paid", ["k1", "k2"])
    assert (message.flag, message.sharding_key) == (5, "u1")
    assert message.properties["colour"] == "grün"
    assert message.message_id == TaskKey("q", 1, 2).id_of(0)


def test_rows_of_a_sharding_key_stay_in_order_over_many_requests(
    broker: EmbeddedBroker, fresh_name: Names
) -> None:
    topic = fresh_name("sharded")
    broker.create_topic(topic, queues=4)
    count = 600
    rows = [
        pa.record_batch(
            {
                "body": [str(number) for number in range(start, start + 50)],
                "shardingKey": [f"key {number % 11}" for number in range(start, start + 50)],
            }
        )
        for start in range(0, count, 50)
    ]
    run_task(plan(broker, ["body", "shardingKey"], topic=topic, batchSize="3"), rows)
    queue_of: dict[str, int] = {}
    last: dict[str, int] = {}
    for message in stored(broker.namesrv, topic):
        key, number = message.sharding_key, int(message.body)
        assert queue_of.setdefault(key, message.queue.queue_id) == message.queue.queue_id
        assert last.get(key, -1) < number
        last[key] = number
    assert sum(1 for _ in stored(broker.namesrv, topic)) == count


def test_a_sharding_key_meets_its_messages_of_other_producers(
    broker: EmbeddedBroker, fresh_name: Names
) -> None:
    topic = fresh_name("meets")
    broker.create_topic(topic, queues=8)
    rows = pa.record_batch({"body": ["of spark"], "shardingKey": ["order-17"]})
    run_task(plan(broker, ["body", "shardingKey"], topic=topic), [rows])
    with Producer(broker.namesrv, group="others") as producer:
        producer.send(Message(topic, b"of a program", sharding_key="order-17"))
    assert len({message.queue for message in stored(broker.namesrv, topic)}) == 1


def test_rows_go_to_the_queue_of_their_column(broker: EmbeddedBroker, fresh_name: Names) -> None:
    topic = fresh_name("queues")
    broker.create_topic(topic, queues=4)
    ids = [3, 1, 3, 0, 1]
    rows = pa.record_batch(
        {"body": [str(each) for each in ids], "queueId": pa.array(ids, pa.int32())}
    )
    run_task(plan(broker, ["body", "queueId"], topic=topic), [rows])
    found = stored(broker.namesrv, topic)
    assert len(found) == 5
    assert all(int(message.body) == message.queue.queue_id for message in found)


def test_rows_are_delivered_after_their_delay(broker: EmbeddedBroker, fresh_name: Names) -> None:
    topic = fresh_name("later")
    rows = pa.record_batch(
        {"body": ["now", "in 10 s"], "delayTimeLevel": pa.array([None, 3], pa.int32())}
    )
    done = run_task(plan(broker, ["body", "delayTimeLevel"], topic=topic), [rows])
    assert bodies(broker.namesrv, topic) == ["now"]
    assert sum(done.ends.values()) == 1, "what waits elsewhere has no place in its topic yet"
    broker.advance(11)
    assert bodies(broker.namesrv, topic) == ["in 10 s", "now"]


def test_a_delivery_time_is_refused_by_a_broker_that_would_ignore_it(
    broker: EmbeddedBroker, fresh_name: Names
) -> None:
    rows = pa.record_batch({"body": ["x"], "deliverTimestamp": [4_000_000_000_000]})
    with pytest.raises(SinkFailed, match=r"older than 5.0.*delayTimeLevel"):
        run_task(plan(broker, rows.schema.names, topic=fresh_name("timed")), [rows])


def test_compressed_and_oversize_bodies_are_read_as_they_were(
    broker: EmbeddedBroker, fresh_name: Names
) -> None:
    topic = fresh_name("large")
    large = ["z" * 50_000, "small", "y" * 700_000]
    rows = pa.record_batch({"body": large})
    run_task(plan(broker, ["body"], topic=topic, compressOver="20000"), [rows])
    run_task(plan(broker, ["body"], topic=topic, batchBytes="1000"), [rows])
    assert bodies(broker.namesrv, topic) == sorted(large * 2)


def test_a_body_that_the_broker_refuses_is_named_with_its_row(
    broker: EmbeddedBroker, fresh_name: Names
) -> None:
    topic = fresh_name("huge")
    rows = pa.record_batch({"body": ["ok", "h" * (4 * 1024 * 1024 + 1)]})
    with pytest.raises(SinkFailed, match=f"rows 1 of this task are not stored.*{topic}.*4194304"):
        run_task(plan(broker, ["body"], topic=topic), [rows])


def test_a_null_body_fails_before_anything_of_its_batch_is_sent(
    broker: EmbeddedBroker, fresh_name: Names
) -> None:
    topic = fresh_name("null")
    broker.create_topic(topic)
    with pytest.raises(LocalProtocolError, match="column body of row 1"):
        run_task(plan(broker, ["body"], topic=topic), [pa.record_batch({"body": ["x", None]})])
    assert stored(broker.namesrv, topic) == []


def test_the_column_topic_says_where_and_the_option_wins(
    broker: EmbeddedBroker, fresh_name: Names
) -> None:
    one, two, forced = fresh_name("one"), fresh_name("two"), fresh_name("forced")
    rows = pa.record_batch({"body": ["1", "2", "3"], "topic": [one, two, one]})
    run_task(plan(broker, ["body", "topic"]), [rows])
    assert bodies(broker.namesrv, one) == ["1", "3"]
    assert bodies(broker.namesrv, two) == ["2"]
    run_task(plan(broker, ["body", "topic"], topic=forced), [rows])
    assert bodies(broker.namesrv, forced) == ["1", "2", "3"]


def test_a_system_topic_in_the_column_is_refused(broker: EmbeddedBroker) -> None:
    rows = pa.record_batch({"body": ["1"], "topic": ["SCHEDULE_TOPIC_XXXX"]})
    with pytest.raises(MQError, match="belongs to the system"):
        run_task(plan(broker, ["body", "topic"]), [rows])


def test_a_namespace_is_put_before_the_topic(broker: EmbeddedBroker, fresh_name: Names) -> None:
    topic = fresh_name("spaced")
    run_task(plan(broker, ["body"], topic=topic, namespace="team"), [texts(1)])
    (message,) = stored(broker.namesrv, f"team%{topic}")
    assert message.properties["INSTANCE_ID"] == "team"


def test_a_broker_that_stays_away_is_told_with_topic_and_queue(fresh_name: Names) -> None:
    topic = fresh_name("away")
    with EmbeddedBroker() as gone:
        gone.create_topic(topic)
        made = plan(gone, ["body"], topic=topic, retries="1")
        run_task(made, [texts(1)])
        gone.kill()
        with pytest.raises(MQError, match=f"rows 0 to 1 of this task.*queue . of topic {topic}"):
            run_task(made, [texts(1, 2)])
        gone.start()


def test_the_first_row_is_stored_before_a_batch_behind_it_is_sent(
    broker: EmbeddedBroker, fresh_name: Names
) -> None:
    """Once: a first batch of one row went out beside the second one."""
    topic = fresh_name("first")
    seen: list[int] = []

    def batches() -> Iterator[Any]:
        yield texts(0)
        yield texts(1, 2)
        seen.append(len(stored(broker.namesrv, topic)))
        yield texts(3)

    run_task(plan(broker, ["body"], topic=topic, delivery="idempotent"), batches())
    assert seen == [1]
    assert bodies(broker.namesrv, topic) == [f"row {number}" for number in range(4)]


def test_a_flag_that_does_not_fit_is_named_with_its_row(
    broker: EmbeddedBroker, fresh_name: Names
) -> None:
    rows = pa.record_batch({"body": ["a", "b"], "flag": pa.array([1, 2**40], pa.int64())})
    with pytest.raises(LocalProtocolError, match=r"column flag of row 1 .* 32 bits"):
        run_task(plan(broker, ["body", "flag"], topic=fresh_name("flags")), [rows])
