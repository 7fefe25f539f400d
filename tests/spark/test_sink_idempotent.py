"""delivery=idempotent: what is stored after repetitions, cuts, crashes and late requests."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Any

import pyarrow as pa
import pytest

from orbitmq import Admin
from orbitmq.errors import ConnectionClosed
from orbitmq.spark.cluster import cluster_of
from orbitmq.spark.sink_keys import TaskKey
from orbitmq.spark.sink_ledger import group_of
from orbitmq.spark.sink_sending import SinkFailed
from orbitmq.spark.sink_writing import SinkPlan, TopicStreamWriter
from orbitmq.testing import EmbeddedBroker
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from tests.spark.sinking import bodies, plan, run_task, stored

Names = Callable[[str], str]

ROWS = 60


class CutShort(Exception):
    """What ends an attempt in the middle."""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(scope="module")
def without_index() -> Iterator[EmbeddedBroker]:
    """A broker whose index knows no key, as an original's after a crash."""
    with EmbeddedBroker(settings={"messageIndexEnable": "false"}) as broker:
        yield broker


def idempotent(broker: EmbeddedBroker, topic: str, *columns: str, **options: str) -> SinkPlan:
    given = {"delivery": "idempotent", "fenceMs": "0", "batchSize": "4", **options}
    if topic:
        given["topic"] = topic
    return plan(broker, ["body", *columns], **given)


def rows(count: int = ROWS, size: int = 10) -> list[Any]:
    texts = [f"row {number:03d}" for number in range(count)]
    return [
        pa.record_batch({"body": texts[start : start + size]}) for start in range(0, count, size)
    ]


def cut(batches: list[Any], after: int) -> Iterator[Any]:
    yield from batches[:after]
    raise CutShort


def expected(count: int = ROWS) -> list[str]:
    return [f"row {number:03d}" for number in range(count)]


@contextmanager
def requests_of(made: SinkPlan) -> Iterator[list[Command]]:
    """All requests that tasks of a plan send in this process."""
    cluster = cluster_of(made.options)
    instance = cluster.wait(cluster.instance())
    seen: list[Command] = []

    def note(_address: str, command: Command) -> None:
        seen.append(command)

    instance.remote.before_request.append(note)
    try:
        yield seen
    finally:
        instance.remote.before_request.remove(note)


def counted(seen: list[Command]) -> Counter[RequestCode]:
    return Counter(RequestCode(command.code) for command in seen)


# --- repetitions ---


def test_a_repeated_task_stores_nothing_and_one_look_up_decides(
    broker: EmbeddedBroker, fresh_name: Names
) -> None:
    topic = fresh_name("twice")
    made = idempotent(broker, topic)
    assert run_task(made, rows()).rows == ROWS
    with requests_of(made) as seen:
        again = run_task(made, rows())
    assert bodies(broker.namesrv, topic) == expected()
    assert (again.rows, again.skipped) == (0, ROWS)
    codes = counted(seen)
    assert codes[RequestCode.QUERY_MESSAGE] == 2
    assert not codes[RequestCode.PULL_MESSAGE]
    assert not codes[RequestCode.SEND_BATCH_MESSAGE]


def test_a_new_batch_of_a_running_query_reads_no_message_back(
    broker: EmbeddedBroker, fresh_name: Names
) -> None:
    topic = fresh_name("new")
    broker.create_topic(topic)
    made = idempotent(broker, topic)
    run_task(made, rows(), TaskKey("query", 1, 0, may_be_repeated=False))
    with requests_of(made) as seen:
        run_task(made, rows(), TaskKey("query", 2, 0, may_be_repeated=False))
    codes = counted(seen)
    assert not codes[RequestCode.PULL_MESSAGE]
    assert codes[RequestCode.QUERY_MESSAGE] == 2
    assert len(stored(broker.namesrv, topic)) == 2 * ROWS


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_task_of_a_few_rows_is_recognised(
    broker: EmbeddedBroker, fresh_name: Names, count: int
) -> None:
    topic = fresh_name("few")
    made = idempotent(broker, topic)
    for attempt in range(3):
        run_task(made, rows(count), TaskKey("query", 0, 0, attempt, may_be_repeated=False))
    assert bodies(broker.namesrv, topic) == expected(count)


def test_a_repeated_task_is_recognised_by_the_queues_when_the_index_knows_nothing(
    without_index: EmbeddedBroker, fresh_name: Names
) -> None:
    topic = fresh_name("unindexed")
    made = idempotent(without_index, topic)
    run_task(made, rows())
    again = run_task(made, rows())
    assert bodies(without_index.namesrv, topic) == expected()
    assert again.skipped == ROWS


def test_equal_rows_are_as_many_as_they_were(broker: EmbeddedBroker, fresh_name: Names) -> None:
    topic = fresh_name("equal")
    made = idempotent(broker, topic, batchSize="1")
    same = [pa.record_batch({"body": ["same"] * 7}), pa.record_batch({"body": ["same"] * 5})]
    with pytest.raises(CutShort):
        run_task(made, cut(same, 2))
    run_task(made, same, TaskKey("query", 0, 0, 1))
    assert bodies(broker.namesrv, topic) == ["same"] * 12


# --- attempts that were cut short ---


@pytest.mark.parametrize("after", [1, 2, 3, 5, 6])
def test_an_attempt_that_was_cut_short_is_completed(
    broker: EmbeddedBroker, fresh_name: Names, after: int
) -> None:
    topic = fresh_name("cut")
    made = idempotent(broker, topic)
    with pytest.raises(CutShort):
        run_task(made, cut(rows(), after))
    before = len(stored(broker.namesrv, topic))
    assert 0 < before < ROWS
    done = run_task(made, rows(), TaskKey("query", 0, 0, 1))
    assert bodies(broker.namesrv, topic) == expected()
    assert (done.rows, done.skipped) == (ROWS - before, before)


def test_rows_in_another_order_after_a_shuffle_are_stored_once_each(
    broker: EmbeddedBroker, fresh_name: Names
) -> None:
    topic = fresh_name("shuffled")
    made = idempotent(broker, topic)
    with pytest.raises(CutShort):
        run_task(made, cut(rows(), 4))
    for attempt, order in enumerate([rows()[::-1], rows()[3:] + rows()[:3]], 1):
        with pytest.raises(CutShort):
            run_task(made, cut(order, 2), TaskKey("query", 0, 0, attempt))
    run_task(made, rows()[::-1], TaskKey("query", 0, 0, 3))
    run_task(made, rows(), TaskKey("query", 0, 0, 4))
    assert bodies(broker.namesrv, topic) == expected()
    ids = [message.message_id for message in stored(broker.namesrv, topic)]
    assert len(set(ids)) == ROWS


def test_rows_that_differ_in_tags_or_properties_only_are_different_rows(
    broker: EmbeddedBroker, fresh_name: Names
) -> None:
    topic = fresh_name("tags")
    made = idempotent(broker, topic, "tags", "keys", batchSize="1")
    columns = {"body": ["x"] * 6, "tags": list("aabbcc"), "keys": list("121212")}
    one = pa.record_batch(columns)
    with pytest.raises(CutShort):
        run_task(made, cut([one.slice(0, 3), one.slice(3)], 2))
    backwards = one.take(pa.array([5, 4, 3, 2, 1, 0]))
    run_task(made, [backwards], TaskKey("query", 0, 0, 1))
    found = sorted((m.tag, m.keys[0]) for m in stored(broker.namesrv, topic))
    assert found == sorted(zip("aabbcc", "121212", strict=True))


def test_rows_that_differ_in_their_queue_only_are_different_rows(
    broker: EmbeddedBroker, fresh_name: Names
) -> None:
    """Symptom: a queue got its row twice and another one none, after an attempt was cut short."""
    topic = fresh_name("queues")
    broker.create_topic(topic)
    made = idempotent(broker, topic, "queueId", batchSize="1")
    one = pa.record_batch({"body": ["same"] * 4, "queueId": [0, 1, 2, 3]})
    shuffled = [one.slice(at, 1) for at in (0, 3, 1, 2)]

    def cut_when_two_are_stored() -> Iterator[Any]:
        yield from shuffled[:3]
        while len(stored(broker.namesrv, topic)) < 2:
            pass
        raise CutShort

    with pytest.raises(CutShort):
        run_task(made, cut_when_two_are_stored())
    run_task(made, [one], TaskKey("query", 0, 0, 1))
    assert [message.queue.queue_id for message in stored(broker.namesrv, topic)] == [0, 1, 2, 3]


def test_rows_of_any_queue_are_recognised_where_they_lie(
    broker: EmbeddedBroker, fresh_name: Names
) -> None:
    topic = fresh_name("any")
    broker.create_topic(topic)
    made = idempotent(broker, topic, "queueId", batchSize="1")
    one = pa.record_batch({"body": ["same"] * 4, "queueId": pa.array([None, 1, None, 1])})
    with pytest.raises(CutShort):
        run_task(made, cut([one.slice(at, 1) for at in range(4)], 3))
    run_task(made, [one], TaskKey("query", 0, 0, 1))
    found = [message.queue.queue_id for message in stored(broker.namesrv, topic)]
    assert len(found) == 4
    assert found.count(1) >= 2


def test_an_ordered_task_that_was_cut_short_keeps_the_order_of_its_keys(
    broker: EmbeddedBroker, fresh_name: Names
) -> None:
    topic = fresh_name("ordered")
    made = idempotent(broker, topic, "shardingKey")
    texts = [str(number) for number in range(ROWS)]
    batches = [
        pa.record_batch({"body": texts[at : at + 10], "shardingKey": list("abcdeabcde")})
        for at in range(0, ROWS, 10)
    ]
    with pytest.raises(CutShort):
        run_task(made, cut(batches, 4))
    run_task(made, batches, TaskKey("query", 0, 0, 1))
    last: dict[str, int] = {}
    for message in stored(broker.namesrv, topic):
        assert last.get(message.sharding_key, -1) < int(message.body)
        last[message.sharding_key] = int(message.body)
    assert bodies(broker.namesrv, topic) == sorted(texts)


def test_a_column_of_topics_is_completed_topic_by_topic(
    broker: EmbeddedBroker, fresh_name: Names
) -> None:
    one, two = fresh_name("one"), fresh_name("two")
    made = idempotent(broker, "", "topic")
    batches = [
        pa.record_batch({"body": batch.column(0), "topic": [one, two] * 5}) for batch in rows()
    ]
    with pytest.raises(CutShort):
        run_task(made, cut(batches, 3))
    for attempt in (1, 2):
        run_task(made, batches, TaskKey("query", 0, 0, attempt))
    assert bodies(broker.namesrv, one) + bodies(broker.namesrv, two) == [
        *expected()[::2],
        *expected()[1::2],
    ]


# --- what is on its way ---


def test_rows_that_an_earlier_attempt_still_had_on_the_way_are_waited_for(
    broker: EmbeddedBroker, fresh_name: Names
) -> None:
    topic = fresh_name("late")
    broker.create_topic(topic)
    made = idempotent(broker, topic, fenceMs="700")
    late: list[Exception] = []

    def send_late() -> None:
        try:
            run_task(made, cut(rows(), 3), TaskKey("query", 0, 0, may_be_repeated=False))
        except CutShort as error:
            late.append(error)

    timer = Timer(0.2, send_late)
    timer.start()
    run_task(made, rows(), TaskKey("query", 0, 0, 1))
    timer.join()
    assert late, "the earlier attempt has sent its rows in the meantime"
    assert bodies(broker.namesrv, topic) == expected()


def test_a_broker_that_is_killed_in_mid_task_has_every_row_once(fresh_name: Names) -> None:
    topic = fresh_name("killed")
    with EmbeddedBroker() as mortal:
        mortal.create_topic(topic)
        made = idempotent(mortal, topic, fenceMs="100")

        def killing() -> Iterator[Any]:
            for number, batch in enumerate(rows(600, 30)):
                if number % 4 == 2:
                    mortal.kill()
                    mortal.start()
                yield batch

        done = run_task(made, killing())
        assert bodies(mortal.namesrv, topic) == expected(600)
        assert done.rows == 600


def test_an_answer_that_got_lost_is_looked_up_and_not_sent_again(
    broker: EmbeddedBroker, fresh_name: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = fresh_name("unanswered")
    broker.create_topic(topic)
    made = idempotent(broker, topic, batchSize="100")
    cluster = cluster_of(made.options)
    instance = cluster.wait(cluster.instance())
    ask = instance.remote.call
    lost: list[int] = []

    async def lossy(address: str, command: Command, timeout_s: float) -> Command:
        answer = await ask(address, command, timeout_s)
        if command.code == RequestCode.SEND_BATCH_MESSAGE and len(lost) < 3:
            lost.append(command.opaque)
            raise ConnectionClosed("broker", "the answer was lost")
        return answer

    monkeypatch.setattr(instance.remote, "call", lossy)
    run_task(made, rows())
    assert len(lost) == 3
    assert bodies(broker.namesrv, topic) == expected()


def test_at_least_once_sends_again_what_got_no_answer(
    broker: EmbeddedBroker, fresh_name: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = fresh_name("doubled")
    broker.create_topic(topic)
    made = plan(broker, ["body"], topic=topic)
    cluster = cluster_of(made.options)
    instance = cluster.wait(cluster.instance())
    ask = instance.remote.call
    lost: list[int] = []

    async def lossy(address: str, command: Command, timeout_s: float) -> Command:
        answer = await ask(address, command, timeout_s)
        if command.code == RequestCode.SEND_BATCH_MESSAGE and not lost:
            lost.append(command.opaque)
            raise ConnectionClosed("broker", "the answer was lost")
        return answer

    monkeypatch.setattr(instance.remote, "call", lossy)
    run_task(made, rows(10))
    assert bodies(broker.namesrv, topic) == sorted(expected(10) * 2)


def test_a_request_that_never_gets_an_answer_fails_as_unknown(
    broker: EmbeddedBroker, fresh_name: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = fresh_name("unknown")
    made = idempotent(broker, topic, retries="0")
    cluster = cluster_of(made.options)
    instance = cluster.wait(cluster.instance())
    ask = instance.remote.call

    async def lossy(address: str, command: Command, timeout_s: float) -> Command:
        answer = await ask(address, command, timeout_s)
        if command.code == RequestCode.SEND_BATCH_MESSAGE:
            raise ConnectionClosed("broker", "the answer was lost")
        return answer

    monkeypatch.setattr(instance.remote, "call", lossy)
    with pytest.raises(SinkFailed, match="may be stored or not"):
        run_task(made, rows())
    monkeypatch.undo()
    run_task(made, rows(), TaskKey("query", 0, 0, 1))
    assert bodies(broker.namesrv, topic) == expected()


# --- where a batch begins ---


def test_a_repeated_batch_reads_from_where_the_batch_before_it_ended(
    without_index: EmbeddedBroker, fresh_name: Names
) -> None:
    topic = fresh_name("bound")
    without_index.create_topic(topic)
    made = idempotent(without_index, topic)
    query = fresh_name("query")
    for batch in range(3):
        done = run_task(made, rows(), TaskKey(query, batch, 0))
        TopicStreamWriter(made).commit([done], batch)
    with requests_of(made) as seen:
        again = run_task(made, rows(), TaskKey(query, 2, 0, 1))
    assert again.skipped == ROWS
    assert len(stored(without_index.namesrv, topic)) == 3 * ROWS
    pulled = [command for command in seen if command.code == RequestCode.PULL_MESSAGE]
    assert pulled
    first = min(int(command.fields["queueOffset"]) for command in pulled)
    assert first > 0, "the batches before are not read again"


@pytest.mark.parametrize(("look_back_ms", "reads_all"), [("86400000", True), ("0", False)])
def test_a_first_batch_reads_what_others_have_sent_as_far_back_as_it_is_told(
    broker: EmbeddedBroker, fresh_name: Names, look_back_ms: str, reads_all: bool
) -> None:
    topic = fresh_name("back")
    run_task(plan(broker, ["body"], topic=topic), rows())
    made = idempotent(broker, topic, lookBackMs=look_back_ms)
    with requests_of(made) as seen:
        run_task(made, rows(1), TaskKey(fresh_name("write"), 0, 0))
    pulled = [
        int(command.fields["queueOffset"])
        for command in seen
        if command.code == RequestCode.PULL_MESSAGE
    ]
    assert (0 in pulled) == reads_all
    assert len(stored(broker.namesrv, topic)) == ROWS + 1


def test_a_column_of_topics_reads_the_topic_back_with_every_batch(
    broker: EmbeddedBroker, fresh_name: Names
) -> None:
    topic, query = fresh_name("column"), fresh_name("query")
    run_task(plan(broker, ["body"], topic=topic), rows())
    made = idempotent(broker, "", "topic")
    one = pa.record_batch({"body": ["row"], "topic": [topic]})
    for batch in (1, 2):
        with requests_of(made) as seen:
            run_task(made, [one], TaskKey(query, batch, 0, may_be_repeated=False))
        assert counted(seen)[RequestCode.PULL_MESSAGE]


def test_a_topic_that_was_made_again_is_read_from_its_beginning(
    without_index: EmbeddedBroker, fresh_name: Names
) -> None:
    topic, query = fresh_name("remade"), fresh_name("query")
    without_index.create_topic(topic)
    made = idempotent(without_index, topic)
    with Admin(without_index.namesrv) as admin:
        queue = admin.topic_stats(topic).queues[0].queue
        admin.set_group_offset(group_of(query, 4), queue, 1_000_000)
    run_task(made, rows(), TaskKey(query, 5, 0))
    again = run_task(made, rows(), TaskKey(query, 5, 0, 1))
    assert again.skipped == ROWS
    assert bodies(without_index.namesrv, topic) == expected()


def test_the_tasks_of_one_worker_read_a_repeated_batch_once(
    without_index: EmbeddedBroker, fresh_name: Names
) -> None:
    topic = fresh_name("shared")
    without_index.create_topic(topic)
    made = idempotent(without_index, topic)
    query = fresh_name("query")
    for partition in range(4):
        run_task(made, rows(), TaskKey(query, 5, partition, may_be_repeated=False))
    with requests_of(made) as seen:
        for partition in range(4):
            again = run_task(made, rows(), TaskKey(query, 5, partition))
            assert again.skipped == ROWS
    pulled = [
        (command.fields["queueId"], command.fields["queueOffset"])
        for command in seen
        if command.code == RequestCode.PULL_MESSAGE
    ]
    assert len(pulled) == len(set(pulled))


def test_queues_that_can_be_written_and_not_read_are_refused(
    broker: EmbeddedBroker, fresh_name: Names
) -> None:
    """Symptom: rows were doubled, for nobody could see those that the first attempt had stored."""
    topic = fresh_name("unreadable")
    with Admin(broker.namesrv) as admin:
        admin.create_topic(topic, read_queue_count=1, write_queue_count=4)
    with pytest.raises(SinkFailed, match=rf"queue 1 of topic {topic} .* written and not read"):
        run_task(idempotent(broker, topic), rows())
    assert stored(broker.namesrv, topic) == []
    run_task(plan(broker, ["body"], topic=topic), rows())


def test_other_messages_in_the_topic_are_no_rows(
    without_index: EmbeddedBroker, fresh_name: Names
) -> None:
    topic = fresh_name("others")
    made = idempotent(without_index, topic)
    ours = TaskKey("query", 0, 0)
    quoting = f"UNIQ_KEY\x01{ours.id_of(0)}\x02"
    others = [pa.record_batch({"body": [f"row 000 {quoting}"]})]
    run_task(plan(without_index, ["body"], topic=topic), others)
    run_task(made, rows(), ours)
    assert len(stored(without_index.namesrv, topic)) == ROWS + 1
