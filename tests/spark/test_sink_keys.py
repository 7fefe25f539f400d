"""Keys of rows: the same for the same row, and when a task may be a repetition."""

import itertools
import uuid

import numpy as np
import pytest

from orbitmq.errors import SettingError
from orbitmq.spark.sink_keys import BEGIN, END, TaskKey, Write, current_task, task_key
from orbitmq.wire.message_id import decode_unique_id

runs = (str(uuid.UUID(int=number)) for number in itertools.count())
STREAM = Write(is_stream=True)
NAMELESS = Write()


def found(run: str, batch: int) -> dict[str, str]:
    return {
        "sql.streaming.queryId": "query",
        "streaming.sql.batchId": str(batch),
        "spark.jobGroup.id": run,
        "spark.app.id": "app",
        "spark.sql.execution.id": "7",
    }


def test_ids_of_many_rows_are_those_of_single_ones() -> None:
    task = TaskKey("query", 3, 70_000)
    numbers = [BEGIN, 1, 255, 65_536, 2**32, END - 1, END]
    ids = task.ids_of(np.array(numbers, np.uint64)).to_pylist()
    assert ids == [task.id_of(number) for number in numbers]
    assert all(len(each) == 32 for each in ids)
    assert len(set(ids)) == len(ids)
    decode_unique_id(ids[1])  # other clients read times and addresses from it


def test_query_batch_and_partition_make_different_ids() -> None:
    tasks = [TaskKey("a", 1, 1), TaskKey("b", 1, 1), TaskKey("a", 2, 1), TaskKey("a", 1, 2)]
    assert len({task.id_of(5) for task in tasks}) == 4
    assert TaskKey("a", 1, 1, attempt=3).id_of(5) == tasks[0].id_of(5)


def test_only_the_first_batch_of_a_run_may_be_a_repetition() -> None:
    run = next(runs)
    assert task_key(found(run, 8), (0, 0), STREAM).may_be_repeated
    assert task_key(found(run, 8), (1, 0), STREAM).may_be_repeated
    assert not task_key(found(run, 9), (0, 0), STREAM).may_be_repeated
    assert task_key(found(run, 9), (0, 1), STREAM).may_be_repeated, "a second attempt"
    assert task_key(found(next(runs), 10), (0, 0), STREAM).may_be_repeated, "another run"


@pytest.mark.parametrize("run", ["", "my job group"])
def test_a_run_that_is_not_known_may_repeat_everything(run: str) -> None:
    assert all(task_key(found(run, batch), (0, 0), STREAM).may_be_repeated for batch in (1, 2, 3))


def test_writes_of_one_function_of_foreach_batch_have_keys_of_their_own() -> None:
    """Once: the second write of a batch found the first one's rows, and stored nothing."""
    properties = found(next(runs), 8)
    writes = [STREAM, NAMELESS, *(Write(name=name, is_idempotent=True) for name in ("a", "b"))]
    ids = [task_key(properties, (0, 0), write).id_of(1) for write in writes]
    assert len(set(ids)) == len(ids)
    again = task_key({**properties, "spark.jobGroup.id": next(runs)}, (0, 0), writes[-1])
    assert again.id_of(1) == ids[-1], "the same write of the same batch in another run"
    with pytest.raises(SettingError, match="foreachBatch needs the option 'writeId'"):
        task_key(properties, (0, 0), Write(is_idempotent=True))


def test_a_batch_write_is_known_by_its_name_or_by_its_execution() -> None:
    nameless = {**found("", 0), "sql.streaming.queryId": "", "streaming.sql.batchId": ""}
    assert not task_key(nameless, (0, 0), NAMELESS).may_be_repeated
    assert task_key(nameless, (0, 1), NAMELESS).may_be_repeated
    named = task_key(nameless, (0, 0), Write(name="daily"))
    assert named.may_be_repeated
    other = {**nameless, "spark.app.id": "another"}
    assert task_key(other, (0, 0), Write(name="daily")).id_of(1) == named.id_of(1)
    assert task_key(other, (0, 0), NAMELESS).id_of(1) != task_key(nameless, (0, 0), NAMELESS).id_of(
        1
    )


def test_outside_of_a_task_nothing_is_written() -> None:
    with pytest.raises(SettingError, match="Spark's tasks"):
        current_task(NAMELESS)
