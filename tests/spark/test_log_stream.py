"""A log followed as it grows: offsets, limits, waiting, files that retention takes away."""

import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes

from orbitmq.arrow.columns import arrow_schema
from orbitmq.errors import CorruptRecord, SettingError
from orbitmq.spark import log_files, log_stream
from orbitmq.spark.data_loss import DataLoss
from orbitmq.spark.log_options import log_options
from orbitmq.spark.log_stream import LogStreamReader
from orbitmq.wire.record import encode_record
from tests.arrow.made import plain
from tests.spark.logs import FILE_SIZE, MadeLog, offsets

ALL = ReadAllAvailable()


def stream(root: Path, **options: str) -> LogStreamReader:
    return LogStreamReader(log_options({"path": str(root), **options}), arrow_schema())


def rows_between(reader: LogStreamReader, start: Any, end: Any) -> list[int]:
    copied = pickle.loads(pickle.dumps(reader))
    parts = copied.partitions(start, end)
    rows = [row for part in parts for batch in copied.read(part) for row in batch.to_pylist()]
    return offsets(rows)


def all_batches(reader: LogStreamReader, limit: ReadLimit) -> list[list[int]]:
    """What a query reads batch by batch until nothing is left."""
    reader.prepareForTriggerAvailableNow()
    batches = []
    start = reader.initialOffset()
    while (end := reader.latestOffset(start, limit)) != start:
        batches.append(rows_between(reader, start, end))
        start = end
    return batches


@pytest.fixture
def made(tmp_path: Path) -> MadeLog:
    made = MadeLog(tmp_path)
    made.append(*(plain(number) for number in range(100)))
    return made


def test_a_stream_has_every_record_once_in_batches_of_the_limit(made: MadeLog) -> None:
    reader = stream(made.root, maxBytesPerTrigger="1000")
    limit = reader.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxBytes)
    batches = all_batches(reader, limit)
    assert [each for batch in batches for each in batch] == made.starts
    assert len(batches) > 10
    size = made.starts[1]
    assert all(len(batch) <= 1_000 // size + 1 for batch in batches)


def test_a_limit_smaller_than_a_record_still_goes_on(made: MadeLog) -> None:
    batches = all_batches(stream(made.root), ReadMaxBytes(1))
    assert [each for batch in batches for each in batch] == made.starts


def test_without_a_limit_one_batch_takes_all(made: MadeLog) -> None:
    assert all_batches(stream(made.root), ALL) == [made.starts]


def test_what_came_after_the_start_of_available_now_is_left_for_the_next_run(
    made: MadeLog,
) -> None:
    reader = stream(made.root)
    reader.prepareForTriggerAvailableNow()
    before = list(made.starts)
    made.append(plain(200))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert rows_between(reader, start, end) == before
    assert reader.latestOffset(end, ALL) == end


def test_a_batch_run_again_reads_the_same(made: MadeLog) -> None:
    reader = stream(made.root)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    before = list(made.starts)
    made.append(*(plain(number) for number in range(50)))
    assert rows_between(stream(made.root), start, end) == before


def test_it_waits_for_what_is_written_and_goes_on_at_once(made: MadeLog) -> None:
    reader = stream(made.root)
    start = {"physicalOffset": made.end}
    assert reader.latestOffset(start, ALL) == start
    writer = threading.Timer(0.2, made.append, [plain(500)])
    writer.start()
    end = reader.latestOffset(start, ALL)
    writer.join()
    assert rows_between(reader, start, end) == made.starts[-1:]
    assert reader.reportLatestOffset() == end


def test_it_goes_on_in_files_that_are_made_later(made: MadeLog) -> None:
    reader = stream(made.root)
    start = {"physicalOffset": made.end}
    files = len(list(made.folder.iterdir()))
    first_new = len(made.starts)
    seen: list[int] = []
    for _ in range(6):
        made.append(*(plain(number) for number in range(9)))
        end = reader.latestOffset(start, ALL)
        seen += rows_between(reader, start, end)
        start = end
    assert len(list(made.folder.iterdir())) > files
    assert seen == made.starts[first_new:]


def test_a_stream_of_a_store_without_records_waits_for_the_first(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    reader = stream(tmp_path)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start
    made = MadeLog(tmp_path)
    made.append(plain(1))
    assert rows_between(reader, start, reader.latestOffset(start, ALL)) == made.starts


def test_a_record_under_way_is_left_for_the_next_batch(made: MadeLog) -> None:
    reader = stream(made.root)
    record = encode_record(plain(1, body=b"x" * 300, log_offset=made.end))
    made.write(made.end, record[:200])
    start = {"physicalOffset": made.end}
    assert reader.latestOffset(start, ALL) == start
    made.write(made.end, record)
    assert rows_between(reader, start, reader.latestOffset(start, ALL)) == [made.end]


def test_damage_at_the_start_of_a_batch_is_told(made: MadeLog) -> None:
    start = {"physicalOffset": made.end}
    made.append(plain(1), plain(2))
    made.write(start["physicalOffset"] + 4, b"\0")
    reader = stream(made.root)
    end = reader.latestOffset(start, ALL)
    with pytest.raises(CorruptRecord, match="'onCorruptRecord'"):
        rows_between(reader, start, end)
    reader = stream(made.root, onCorruptRecord="skip")
    assert rows_between(reader, start, end) == made.starts[-1:]


def test_zeros_that_a_crash_left_are_told_once_there_is_a_record_behind_them(
    made: MadeLog, caplog: pytest.LogCaptureFixture
) -> None:
    reader = stream(made.root, onCorruptRecord="skip")
    start = reader.latestOffset(reader.initialOffset(), ALL)
    lost = made.end
    made.append(plain(1))
    made.write(lost, bytes(made.end - lost))
    assert reader.latestOffset(start, ALL) == start
    made.append(plain(2))
    end = reader.latestOffset(start, ALL)
    assert rows_between(reader, start, end) == made.starts[-1:]
    assert f"bytes {lost} to {made.starts[-1] - 1} of the log" in caplog.text


def test_more_zeros_than_are_looked_through_are_passed_with_the_next_file(
    made: MadeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "LOOK_AHEAD_BYTES", 300)
    reader = stream(made.root, onCorruptRecord="skip")
    start = reader.latestOffset(reader.initialOffset(), ALL)
    lost, count = made.end, len(made.starts)
    made.append(*(plain(number) for number in range(6)))
    made.write(lost, bytes(made.starts[-1] - lost))
    assert made.file(lost) == made.file(made.starts[-1])
    assert made.starts[-1] - lost > 300
    assert reader.latestOffset(start, ALL) == start
    while made.file(made.starts[-1]) == made.file(lost):
        made.append(plain(7))
    end = reader.latestOffset(start, ALL)
    assert rows_between(reader, start, end) == made.starts[count + 5 :]


def test_two_damages_side_by_side_at_the_border_of_two_batches_are_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Symptom: a batch began with a bad record that the one before had told of already."""
    made = MadeLog(tmp_path)
    made.append(*[plain(1, body=b"x" * 60)] * 20)
    bad = made.starts[9:11]
    for each in bad:
        made.write(each + 90, b"?")
    reader = stream(tmp_path, onCorruptRecord="skip", verifyCrc="true")
    batches = all_batches(reader, ReadMaxBytes(bad[1]))
    assert len(batches) == 2
    assert [each for batch in batches for each in batch] == made.starts[:9] + made.starts[11:]
    assert caplog.text.count("are skipped") == 1


def test_files_that_retention_removed_before_they_were_read_are_a_loss(
    made: MadeLog, caplog: pytest.LogCaptureFixture
) -> None:
    reader = stream(made.root)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    made.file(0).unlink()
    with pytest.raises(DataLoss, match=r"bytes 0 to 4095 .*'failOnDataLoss' to false"):
        reader.partitions(start, end)
    careless = stream(made.root, failOnDataLoss="false")
    assert rows_between(careless, start, end) == [each for each in made.starts if each >= FILE_SIZE]
    assert "bytes 0 to 4095" in caplog.text


def test_a_log_that_ends_before_the_checkpoint_is_another_one(
    made: MadeLog, tmp_path: Path
) -> None:
    other = MadeLog(tmp_path / "other")
    other.append(plain(1), plain(2))
    start = {"physicalOffset": made.end}
    with pytest.raises(DataLoss, match="which was read already"):
        stream(other.root).latestOffset(start, ALL)
    careless = stream(other.root, failOnDataLoss="false")
    end = careless.latestOffset(start, ALL)
    assert rows_between(careless, start, end) == other.starts


def test_the_start_is_where_a_record_begins_and_stays_there(made: MadeLog) -> None:
    reader = stream(made.root, startingPhysicalOffset=str(made.starts[50] - 1))
    assert reader.initialOffset() == {"physicalOffset": made.starts[50]}
    made.file(0).unlink()
    assert reader.initialOffset() == {"physicalOffset": made.starts[50]}
    beginning = stream(made.root)
    assert beginning.initialOffset() == {"physicalOffset": FILE_SIZE}


def test_a_start_behind_the_end_is_refused(made: MadeLog) -> None:
    """Once: it began at the end, and gave records that begin before the start."""
    reader = stream(made.root, startingPhysicalOffset=str(made.starts[-1] + 100_000))
    with pytest.raises(SettingError, match="is behind the log's end"):
        reader.initialOffset()


def test_an_end_inside_a_record_lets_a_later_run_go_on_behind_it(made: MadeLog) -> None:
    """Once: the checkpoint held an offset at which no record begins, and the next run failed."""
    reader = stream(made.root, endingPhysicalOffset=str(made.starts[60] + 1))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert rows_between(reader, start, end) == made.starts[:61]
    further = stream(made.root)
    assert rows_between(further, end, further.latestOffset(end, ALL)) == made.starts[61:]


def test_an_end_before_the_checkpoint_is_waited_at(
    made: MadeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once: Spark was answered at once each time, and asked again without a pause."""
    looks: list[float] = []
    monkeypatch.setattr(log_stream, "pause", looks.append)
    monkeypatch.setattr(log_stream, "WAIT_S", 0.2)
    reader = stream(made.root, endingPhysicalOffset=str(made.starts[10]))
    at = {"physicalOffset": made.starts[50]}
    assert reader.latestOffset(at, ALL) == at
    assert looks


def test_a_stream_ends_at_the_offset_that_was_asked_for(made: MadeLog) -> None:
    reader = stream(made.root, endingPhysicalOffset=str(made.starts[60]))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert rows_between(reader, start, end) == made.starts[:60]
    assert reader.latestOffset(end, ALL) == end
