"""A log by store times, queues and tags: the rows of a full read, and less that is read."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.arrow.columns import arrow_schema
from orbitmq.spark.log_options import log_options
from orbitmq.spark.log_planning import LogPartition, LogRange
from orbitmq.spark.log_reading import LogFilter
from orbitmq.spark.log_source import LogReader
from orbitmq.spark.log_times import CLOCK_STEP_MS
from orbitmq.wire.record import Record
from tests.arrow.made import plain
from tests.golden.store import CLEAN, CRASHED, stored_records, unpack_store
from tests.spark.logs import MadeStore, offsets, read_rows

BEGIN_MS = 1_700_000_000_000
TOPICS = ["TopicA", "TopicB", "TopicC"]
TAGS = ["TagA", "TagB", ""]


@pytest.fixture(autouse=True)
def small_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    """Borders are looked for to the record: these logs are short."""
    monkeypatch.setattr("orbitmq.spark.log_times.NEAR_BYTES", 0)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records were looked at, batch by batch."""
    counts: list[int] = []
    wanted = LogFilter.wanted

    def counted(self: LogFilter, data: Any, positions: Any) -> Any:
        counts.append(len(positions))
        return wanted(self, data, positions)

    monkeypatch.setattr(LogFilter, "wanted", counted)
    return counts


def message(number: int, store_ms: int, **changes: Any) -> Record:
    tag = changes.pop("tag", "TagA")
    properties = f"TAGS\x01{tag}\x02".encode() if tag else b""
    return plain(number, store_ms=store_ms, properties=properties, **changes)


def planned_ranges(path: Path | str, **chosen: str) -> list[LogRange]:
    parts = LogReader(log_options({"path": str(path), **chosen}), arrow_schema()).partitions()
    return [each for part in parts if isinstance(part, LogPartition) for each in part.ranges]


def regular_store(root: Path, *, count: int = 600, file_size: int = 1 << 20) -> MadeStore:
    """A message each minute, in three topics with two queues each."""
    made = MadeStore(root, file_size)
    made.append(
        *(
            message(
                number,
                BEGIN_MS + 60_000 * number,
                topic=TOPICS[number % 3],
                queue_id=number % 2,
                tag=TAGS[number % 5 % 3],
            )
            for number in range(count)
        )
    )
    made.write_queues()
    return made


def times(begin: int, end: int) -> dict[str, str]:
    """Options for minutes of a regular store."""
    return {
        "startingTimestamp": str(BEGIN_MS + 60_000 * begin),
        "endingTimestamp": str(BEGIN_MS + 60_000 * end),
    }


# --- less is read ---


@pytest.mark.parametrize("chosen", [{}, {"topic": "TopicA"}, {"queues": "1"}], ids=str)
def test_of_a_span_of_times_inside_one_file_little_more_than_its_records_is_planned(
    tmp_path: Path, chosen: dict[str, str]
) -> None:
    """Symptom: an hour of a log whose file holds a day read the whole file."""
    made = regular_store(tmp_path)
    whole = sum(each.size for each in planned_ranges(tmp_path, **chosen))
    part = sum(each.size for each in planned_ranges(tmp_path, **times(300, 320), **chosen))
    assert whole == made.end
    assert part < made.end * (20 + 2 * 12) // 600
    assert planned_ranges(tmp_path, **times(700, 800), **chosen)[0].begin >= made.starts[590]
    assert planned_ranges(tmp_path, **times(-900, -800), **chosen) == []


def test_queue_entries_outside_the_times_are_not_followed(tmp_path: Path, seen: list[int]) -> None:
    made = regular_store(tmp_path)
    rows = read_rows(tmp_path, topic="TopicA", **times(300, 330))
    assert offsets(rows) == made.starts[300:330:3]
    assert 10 <= sum(seen) < 20 < len(made.starts) // 3


def test_without_queue_files_whole_files_are_left_out_only(tmp_path: Path) -> None:
    made = regular_store(tmp_path, file_size=16_384)
    kept = {made.file(each) for each in made.starts[298:323]}
    named = ",".join(map(str, sorted(made.folder.iterdir())))
    for chosen in ({"path": named}, {"path": str(tmp_path), "useConsumeQueue": "false"}):
        ranges = planned_ranges(**chosen, **times(300, 320))
        assert {Path(each.path) for each in ranges} == kept
        assert sum(each.size for each in ranges) == len(kept) * made.file_size
        assert offsets(read_rows(**chosen, **times(300, 320))) == made.starts[300:320]


@pytest.mark.parametrize("chosen", [{"queues": "1"}, {"tags": "TagB"}], ids=str)
@pytest.mark.parametrize("split_size", ["4096", "67108864"])
def test_queues_and_tags_without_a_topic_are_looked_up_in_all_queue_files(
    tmp_path: Path, seen: list[int], chosen: dict[str, str], split_size: str
) -> None:
    """Symptom: they read the whole log."""
    made = regular_store(tmp_path, file_size=16_384)
    wanted = {"queues": range(1, 600, 2), "tags": [n for n in range(600) if n % 5 % 3 == 1]}
    for name in chosen:
        rows = read_rows(tmp_path, splitSizeBytes=split_size, **chosen)
        assert offsets(rows) == [made.starts[number] for number in wanted[name]]
    assert sum(seen) == len(rows) < len(made.starts)


def test_records_of_a_removed_topic_are_found_without_a_topic(
    tmp_path: Path, seen: list[int]
) -> None:
    """No folder tells of it: what entries leave open in a range is read whole."""
    made = MadeStore(tmp_path, file_size=16_384)
    for number in range(600):
        is_removed = 150 < number < 200
        topic = "Removed" if is_removed else "TopicA"
        made.append(message(number, BEGIN_MS, topic=topic, queue_id=number % 2))
    made.write_queues(without=["Removed"])
    assert offsets(read_rows(tmp_path, queues="1")) == made.starts[1::2]
    assert sum(seen) < 300 + 150
    forced = offsets(read_rows(tmp_path, queues="1", useConsumeQueue="true"))
    assert forced == made.starts[1:151:2] + made.starts[201::2]


def test_queue_files_that_may_be_behind_are_not_asked_without_a_topic_either(
    tmp_path: Path, seen: list[int]
) -> None:
    made = regular_store(tmp_path)
    made.write_queues(synced=0)
    assert offsets(read_rows(tmp_path, queues="1")) == made.starts[1::2]
    assert sum(seen) == len(made.starts)


# --- no row is lost ---


@pytest.mark.parametrize("name", [CLEAN, CRASHED])
@pytest.mark.parametrize("chosen", [{}, {"topic": "TopicFill"}, {"queues": "0"}, {"tags": "TagA"}])
def test_a_recorded_store_has_the_same_rows_through_its_queue_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, chosen: dict[str, str]
) -> None:
    monkeypatch.setattr("orbitmq.spark.log_times.CLOCK_STEP_MS", 0)  # it was made in seconds
    unpack_store(name, tmp_path)
    moments = sorted({record["store_timestamp"] for record in stored_records()})
    sizes = []
    for begin, end in pairwise([*moments[:: len(moments) // 5], moments[-1] + 1]):
        span = {"startingTimestamp": str(begin), "endingTimestamp": str(end)}
        rows = read_rows(tmp_path, useConsumeQueue="false", **span, **chosen)
        assert read_rows(tmp_path, **span, **chosen) == rows
        sizes.append(sum(each.size for each in planned_ranges(tmp_path, **span, **chosen)))
    whole = sum(each.size for each in planned_ranges(tmp_path, **chosen))
    assert sum(sizes) < 2 * whole < len(sizes) * whole


STEPS = st.integers(0, 90_000) | st.sampled_from([0, 0, 1, 3_600_000])
BACK = st.sampled_from([0, 0, 0, 1, 30_000, CLOCK_STEP_MS]) | st.integers(0, CLOCK_STEP_MS)


@st.composite
def messages(draw: st.DrawFn) -> list[Record]:
    """Records whose clock was set back by a minute at most, now and then."""
    count = draw(st.integers(2, 120))
    clock_ms, found = BEGIN_MS, []
    random = draw(st.randoms(use_true_random=False))
    steps = draw(st.lists(STEPS, min_size=1, max_size=8))
    backs = draw(st.lists(BACK, min_size=1, max_size=8))
    for number in range(count):
        clock_ms += random.choice(steps)
        found.append(
            message(
                number,
                clock_ms - random.choice(backs),
                topic=random.choice(TOPICS),
                queue_id=random.randrange(4),
                tag=random.choice(TAGS),
            )
        )
    return found


def some_times(draw: Any, made: MadeStore) -> tuple[int, int]:
    moment = st.sampled_from(made.times) | st.integers(min(made.times), max(made.times) + 1)
    ends = sorted((draw(moment), draw(moment) + draw(st.integers(0, 60_000))))
    return ends[0], ends[1]


def choices(draw: Any) -> dict[str, str]:
    possible = {"topic": TOPICS, "queues": ["0", "1,3"], "tags": ["TagA", "TagA || TagB"]}
    return {
        name: draw(st.sampled_from(values))
        for name, values in possible.items()
        if draw(st.booleans())
    }


@settings(max_examples=100)
@given(messages(), st.data())
def test_rows_are_those_of_a_full_read_filtered_afterwards(
    tmp_path_factory: pytest.TempPathFactory, records: list[Record], data: st.DataObject
) -> None:
    made = MadeStore(tmp_path_factory.mktemp("log"), data.draw(st.sampled_from([2_048, 65_536])))
    made.append(*records)
    made.write_queues(
        without=data.draw(st.lists(st.sampled_from(TOPICS), max_size=1)),
        synced=data.draw(st.sampled_from([None, 0, made.starts[len(records) // 2]])),
    )
    begin, end = some_times(data.draw, made)
    chosen = choices(data.draw)
    queues = [int(each) for each in chosen.get("queues", "").split(",") if each]
    tags = [each.strip() for each in chosen.get("tags", "").split("||") if each]
    expected = [
        row
        for row in read_rows(made.root, useConsumeQueue="false")
        if begin <= made.times[made.starts.index(row["physicalOffset"])] < end
        and row["topic"] in (chosen.get("topic"), *([] if "topic" in chosen else TOPICS))
        and (not queues or row["queueId"] in queues)
        and (not tags or row["tags"] in tags)
    ]
    span = {"startingTimestamp": str(begin), "endingTimestamp": str(end)}
    size = data.draw(st.sampled_from(["4096", "67108864"]))
    assert read_rows(made.root, splitSizeBytes=size, **span, **chosen) == expected


@settings(max_examples=40)
@given(messages(), st.data())
def test_damage_costs_no_row_that_is_in_time_and_whole(
    tmp_path_factory: pytest.TempPathFactory, records: list[Record], data: st.DataObject
) -> None:
    made = MadeStore(tmp_path_factory.mktemp("log"), data.draw(st.sampled_from([2_048, 65_536])))
    made.append(*records)
    made.write_queues()
    begin_ms, end_ms = some_times(data.draw, made)
    at_time = data.draw(st.sampled_from(made.starts)) + 56
    at = data.draw(st.just(at_time) | st.integers(0, made.end - 1))
    made.write(at, data.draw(st.sampled_from([b"\0", b"\xff", b"\x01\x02", b"\0\0\xff"])))
    modes = {"onCorruptRecord": "skip", "splitSizeBytes": "4096"}
    full = set(offsets(read_rows(made.root, useConsumeQueue="false", **modes)))
    ends = [*made.starts[1:], made.end]
    is_touched = [start - 3 < at < end for start, end in zip(made.starts, ends, strict=True)]
    in_time = {
        start
        for start, time_ms, touched in zip(made.starts, made.times, is_touched, strict=True)
        if begin_ms <= time_ms < end_ms and not touched
    }
    span = {"startingTimestamp": str(begin_ms), "endingTimestamp": str(end_ms)}
    assert set(offsets(read_rows(made.root, **span, **modes))) >= in_time & full
    by_topic = offsets(read_rows(made.root, topics=",".join(TOPICS), **span, **modes))
    assert set(by_topic) >= in_time & full
    by_queue = offsets(read_rows(made.root, queues="0,1,2,3", **span, **modes))
    assert set(by_queue) >= in_time & full


@pytest.mark.parametrize("wrong", [0, 1 << 50])
def test_one_record_with_a_damaged_time_leaves_nothing_out(tmp_path: Path, wrong: int) -> None:
    """Symptom: the time of a file's first record was believed, whatever had become of it."""
    made = regular_store(tmp_path, file_size=16_384)
    firsts = [each for each in made.starts if each % made.file_size == 0]
    damaged = {*firsts, *made.starts[255:350:10]}
    for start in damaged:
        made.write(start + 56, wrong.to_bytes(8, "big"))
    for chosen in ({}, {"topics": ",".join(TOPICS)}, {"useConsumeQueue": "false"}):
        found = offsets(read_rows(tmp_path, **times(200, 400), **chosen))
        assert set(found) == set(made.starts[200:400]) - damaged
