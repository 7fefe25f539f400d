"""Mistakes that Spark's users made without a word: missing topics, unnamed writes, data folders."""

import logging
from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from orbitmq.spark.log_files import find_log, warn_of_missing_topics
from orbitmq.spark.sink_writing import batch_writer
from orbitmq.world.files import SystemFiles
from tests.arrow.made import plain
from tests.spark.logs import MadeLog

FILES = SystemFiles()


def test_rocketmq_log_refused_a_data_folder_that_store_check_takes(tmp_path: Path) -> None:
    made = MadeLog(tmp_path / "store")
    made.append(plain())
    log = find_log(FILES, str(tmp_path))
    assert log == find_log(FILES, str(tmp_path / "store"))
    assert log.folder is not None
    assert log.folder.root == tmp_path / "store"


def test_a_missing_topic_of_a_log_gave_no_rows_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    MadeLog(tmp_path).append(plain())
    log = find_log(FILES, str(tmp_path))
    warn_of_missing_topics(FILES, log, {"oders"})
    assert not caplog.messages, "without queue files nobody knows"
    (tmp_path / "consumequeue" / "orders").mkdir(parents=True)
    warn_of_missing_topics(FILES, log, {"orders"})
    assert not caplog.messages
    warn_of_missing_topics(FILES, log, {"orders", "oders"})
    (told,) = caplog.messages
    assert told.endswith(f"{tmp_path} has no topic oders; did you mean orders?")


@pytest.mark.parametrize(
    ("options", "is_told"),
    [
        ({"delivery": "idempotent"}, True),
        ({"delivery": "idempotent", "writeId": "load-1"}, False),
        ({}, False),
    ],
)
def test_an_idempotent_write_without_a_name_doubled_on_a_rerun_without_a_word(
    options: dict[str, str], is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    schema = StructType([StructField("body", BinaryType())])
    given = {"topic": "T", "namesrvAddr": "127.0.0.1:1", **options}
    batch_writer(given, schema, overwrite=False)
    assert any("give it a name with writeId" in text for text in caplog.messages) == is_told
