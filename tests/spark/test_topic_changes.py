"""Streams whose options or clusters are others than those their checkpoint was made with."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from orbitmq.blocking import Admin
from orbitmq.errors import MQError
from orbitmq.spark.data_loss import DataLoss
from orbitmq.spark.offsets import nested, offsets_in
from orbitmq.spark.topic_stream import TopicStreamReader
from orbitmq.testing import EmbeddedBroker
from tests.spark.topics import (
    COLUMNS,
    forget_old,
    forgetful_broker,
    make,
    numbers,
    options_of,
    rows_of,
    send,
)

QUICK = {"longPollMs": "200", "routeCacheTtlMs": "0", "fetchOffset.retryIntervalMs": "20"}
ALL = ReadAllAvailable()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def stream(broker: EmbeddedBroker, **given: str) -> TopicStreamReader:
    given = {**QUICK, "startingOffsets": "earliest", **given}
    return TopicStreamReader(options_of(broker, is_stream=True, **given), COLUMNS)


def step(reader: TopicStreamReader, start: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    end = reader.latestOffset(start, ALL)
    return end, numbers(rows_of(reader, reader.partitions(start, end)))


# --- other options ---


@pytest.mark.parametrize("fewer", [{"topic": "kept"}, {"topicsPattern": "kep."}])
def test_a_topic_taken_out_of_the_options_waits_in_the_checkpoint(
    broker: EmbeddedBroker, fewer: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    both = {"topics": "kept,left"}
    kept, left = make(broker, "kept", 1), make(broker, "left", 1)
    for queues in (kept, left):
        send(broker, queues, range(2))
    reader = stream(broker, **both)
    at, _ = step(reader, reader.initialOffset())
    before = offsets_in(at)
    for queues in (kept, left):
        send(broker, queues, [2])
    with caplog.at_level(logging.WARNING):
        fewer_reader = stream(broker, **fewer)
        at, found = step(fewer_reader, at)
        assert step(fewer_reader, at) == (at, [])
    assert found == [2], "of the topic that is still asked for"
    assert sum("no option asks for it" in line for line in caplog.messages) == 1
    assert offsets_in(at) == {kept[0]: before[kept[0]] + 1, left[0]: before[left[0]]}
    at, found = step(stream(broker, **both), at)
    assert found == [2], "of the topic that is asked for again, where it was left"


def test_a_topic_taken_out_of_the_options_is_not_committed_any_more(
    broker: EmbeddedBroker,
) -> None:
    """Symptom: the group's offset jumped back in a topic that another query reads by now."""
    kept, moved = make(broker, "stays", 1), make(broker, "moved", 1)
    for queues in (kept, moved):
        send(broker, queues, range(3))
    given = {"startingOffsets": "earliest", "consumerGroup": "both"}
    first = stream(broker, topics="stays,moved", **given)
    at, _ = step(first, first.initialOffset())
    send(broker, moved, range(3, 9))
    other = stream(broker, topics="moved", **given)
    other.commit(step(other, other.initialOffset())[0])
    send(broker, kept, [3])
    rest = stream(broker, topics="stays", **given)
    rest.commit(step(rest, at)[0])
    with Admin(broker.namesrv) as admin:
        found = [admin.group_offset("both", queue) for queue in (*kept, *moved)]
    assert found == [4, 9]


def test_queues_taken_out_of_assign_are_not_read(broker: EmbeddedBroker) -> None:
    queues = make(broker, "assigned")
    send(broker, queues, range(2))
    reader = stream(broker, topic="assigned")
    at, _ = step(reader, reader.initialOffset())
    send(broker, queues, range(2, 4))
    one = json.dumps({"assigned": {queues[0].broker_name: [1]}})
    assert step(stream(broker, assign=one), at)[1] == [3]


# --- a query that is to end ---


def test_a_query_that_is_to_end_fails_when_no_name_server_answers() -> None:
    """Once: it ended well, having read nothing."""
    with EmbeddedBroker() as broker:
        send(broker, make(broker, "unreachable", 1), range(3))
        reader = stream(broker, topic="unreachable")
        reader.initialOffset()
        broker.kill()
        with pytest.raises(MQError):
            reader.prepareForTriggerAvailableNow()


@pytest.mark.parametrize("fails", [True, False])
def test_a_query_that_is_to_end_tells_of_a_topic_that_is_gone(
    broker: EmbeddedBroker, fails: bool
) -> None:
    name, there = f"gone{fails}", f"there{fails}"
    gone, kept = make(broker, name, 1), make(broker, there, 1)
    for queues in (gone, kept):
        send(broker, queues, range(2))
    at = nested({gone[0]: 1, kept[0]: 1})
    with Admin(broker.namesrv) as admin:
        admin.delete_topic(name)
    given = {"topics": f"{name},{there}", "failOnDataLoss": str(fails).lower()}
    reader = stream(broker, **given)
    reader.prepareForTriggerAvailableNow()
    if fails:
        with pytest.raises(DataLoss, match=f"queue 0 of topic {name}"):
            reader.latestOffset(at, ALL)
    else:
        assert step(reader, at)[1] == [1]


# --- retention ---


def test_what_follows_a_removed_range_comes_once() -> None:
    """Once: a range of which nothing was left gave the first message behind it, twice in all."""
    with forgetful_broker() as broker:
        queues = make(broker, "overtaken")
        send(broker, queues, range(0, 400, 2), size=2_000)
        first = forget_old(broker, queues[0])
        send(broker, queues, [1])
        reader = stream(broker, topic="overtaken", failOnDataLoss="false")
        start, end = nested({queues[0]: 0, queues[1]: 0}), nested({queues[0]: 1, queues[1]: 1})
        assert numbers(rows_of(reader, reader.partitions(start, end))) == [1]
        behind = nested({queues[0]: first + 1, queues[1]: 1})
        assert numbers(rows_of(reader, reader.partitions(end, behind))) == [2 * first]
