"""A log read by ranges of bytes: every record once, every damage told, whatever the ranges."""

import hashlib
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq import Message, Producer
from orbitmq.arrow.columns import arrow_schema
from orbitmq.errors import CorruptRecord, SettingError
from orbitmq.spark.data_loss import DataLoss
from orbitmq.spark.log_files import find_log, log_end
from orbitmq.spark.log_options import log_options
from orbitmq.spark.log_queues import complete_below
from orbitmq.spark.log_source import LogReader
from orbitmq.store.layout import file_name
from orbitmq.testing import EmbeddedBroker
from orbitmq.wire.record import Record, encode_record
from orbitmq.wire.sysflag import Compression
from orbitmq.world.files import SystemFiles
from tests.arrow.made import RECORDS, compressed, plain
from tests.golden.store import CLEAN, CRASHED, queue_entries, stored_records, unpack_store
from tests.spark.logs import FILE_SIZE, MadeLog, bad_ranges, offsets, read_rows, walked

GOLDEN = [CLEAN, CRASHED]
NAMED = RECORDS.filter(lambda record: "\0" not in record.topic)  # no topic is called so


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both recorded stores."""
    roots = {name: tmp_path_factory.mktemp(name) for name in GOLDEN}
    for name, root in roots.items():
        unpack_store(name, root)
    return roots


def doc(row: dict[str, Any]) -> dict[str, Any]:
    """A row with the names of the recording."""
    return {
        "body_crc": row["crc"],
        "body_sha256": hashlib.sha256(row["body"]).hexdigest()[:16],
        "body_size": len(row["body"]),
        "born_host": row["bornHost"],
        "born_timestamp": in_ms(row["bornTimestamp"]),
        "flag": row["flag"],
        "offset": row["physicalOffset"],
        "prepared_transaction_offset": row["preparedTransactionOffset"],
        "properties": dict(row["properties"]),
        "queue_id": row["queueId"],
        "queue_offset": row["queueOffset"],
        "reconsume_times": row["reconsumeTimes"],
        "size": row["size"],
        "store_host": row["storeHost"],
        "store_timestamp": in_ms(row["storeTimestamp"]),
        "sys_flag": row["sysFlag"],
        "topic": row["topic"],
    }


def in_ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000)


@pytest.mark.parametrize("split_size", ["4096", "20000", "67108864"])
@pytest.mark.parametrize("name", GOLDEN)
def test_a_recorded_store_has_the_rows_that_were_recorded(
    golden: dict[str, Path], name: str, split_size: str
) -> None:
    rows = read_rows(golden[name], decompress="false", splitSizeBytes=split_size, verifyCrc="true")
    assert [doc(row) for row in rows] == list(stored_records())


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize("use_queues", ["auto", "false"])
@pytest.mark.parametrize(
    "chosen",
    [
        {"topic": "TopicFill"},
        {"topic": "TopicFill", "queues": "0,2"},
        {"topic": "TopicFill", "tags": "TagA || TagB"},
        {"topics": "TopicFill,SCHEDULE_TOPIC_XXXX", "tags": "TagA"},
        {"topic": "TopicFill", "splitSizeBytes": "4096"},
        {"topic": "NoSuchTopic"},
    ],
    ids=str,
)
def test_chosen_records_are_the_same_through_the_queues_and_through_the_whole_log(
    golden: dict[str, Path], name: str, use_queues: str, chosen: dict[str, str]
) -> None:
    topics = chosen.get("topics", chosen.get("topic", "")).split(",")
    queues = [int(each) for each in chosen.get("queues", "").split(",") if each]
    tags = [each.strip() for each in chosen.get("tags", "").split("||") if each]
    expected = [
        record["offset"]
        for record in stored_records()
        if record["topic"] in topics
        and (not queues or record["queue_id"] in queues)
        and (not tags or record["properties"].get("TAGS") in tags)
    ]
    rows = read_rows(golden[name], useConsumeQueue=use_queues, **chosen)
    assert offsets(rows) == expected
    assert expected or chosen["topic"] == "NoSuchTopic"


def test_tags_with_equal_codes_are_told_apart(golden: dict[str, Path]) -> None:
    by_code: dict[int, set[str]] = {}
    tag_at = {each["offset"]: each["properties"].get("TAGS") for each in stored_records()}
    for entry in queue_entries():
        if entry.topic == "TopicFill" and (tag := tag_at.get(entry.log_offset)):
            by_code.setdefault(entry.tag_code, set()).add(tag)
    alike = next(sorted(tags) for tags in by_code.values() if len(tags) > 1)
    rows = read_rows(golden[CLEAN], topic="TopicFill", tags=alike[0], useConsumeQueue="true")
    assert {row["tags"] for row in rows} == {alike[0]}


def test_queues_that_do_not_fit_the_log_are_not_followed(
    golden: dict[str, Path], tmp_path: Path
) -> None:
    root = tmp_path / "store"
    shutil.copytree(golden[CLEAN], root)
    queue = next((root / "consumequeue" / "TopicFill" / "0").iterdir())
    entries = queue.read_bytes()
    queue.write_bytes((1_234).to_bytes(8, "big") + entries[8:])
    expected = offsets(read_rows(golden[CLEAN], topic="TopicFill"))
    assert offsets(read_rows(root, topic="TopicFill", useConsumeQueue="true")) == expected


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_copy_without_the_file_abort_has_the_messages_that_its_queues_lack(
    tmp_path: Path, has_checkpoint: bool
) -> None:
    """Symptom: the newest messages of a copied live folder were missing, and nobody was told."""
    folder = copy = tmp_path / "node"
    for sent in ([b"1", b"2"], [b"3", b"4", b"5"]):
        with EmbeddedBroker(folder=folder) as broker, Producer(broker.namesrv, group="g") as sender:
            for body in sent:
                sender.send(Message("copied", body), timeout=10)
            copy = tmp_path / f"copy-{len(sent)}"
            for name in ("commitlog", "consumequeue"):
                shutil.copytree(folder / "store" / name, copy / name)
            if has_checkpoint:
                shutil.copy(folder / "store" / "checkpoint", copy / "checkpoint")
    bodies = sorted(row["body"] for row in read_rows(copy, topic="copied"))
    assert bodies == [b"1", b"2", b"3", b"4", b"5"]


def test_the_queues_of_a_store_that_was_stopped_are_believed(
    golden: dict[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "node"
    with EmbeddedBroker(folder=folder) as broker, Producer(broker.namesrv, group="g") as sender:
        sender.send(Message("stopped", b"1"), timeout=10)
    for root in (golden[CLEAN], folder / "store"):
        log = find_log(SystemFiles(), str(root))
        assert complete_below(SystemFiles(), log) >= log_end(SystemFiles(), log.files)


@pytest.mark.parametrize("of", ["root", "folder", "files"])
def test_a_store_its_log_folder_and_its_files_have_the_same_rows(
    golden: dict[str, Path], of: str
) -> None:
    folder = golden[CLEAN] / "commitlog"
    path = {
        "root": str(golden[CLEAN]),
        "folder": str(folder),
        "files": ",".join(map(str, sorted(folder.iterdir()))),
    }[of]
    assert len(read_rows(path)) == len(stored_records())
    assert offsets(read_rows(path, topic="TopicFill")) == [
        each["offset"] for each in stored_records() if each["topic"] == "TopicFill"
    ]


def test_a_log_in_several_folders_is_read_as_one(tmp_path: Path) -> None:
    made = MadeLog(tmp_path)
    made.append(*(plain(number) for number in range(80)))
    other = tmp_path / "disk" / "log"
    other.mkdir(parents=True)
    for path in sorted(made.folder.iterdir())[1::2]:
        path.rename(other / path.name)
    assert offsets(read_rows(f"{made.folder},{other}")) == made.starts
    assert offsets(read_rows(f"{tmp_path},{other}")) == made.starts
    with pytest.raises(CorruptRecord, match="log files are missing here"):
        read_rows(tmp_path)


def test_a_file_that_is_left_out_by_name_is_no_damage_and_one_missing_in_a_folder_is(
    tmp_path: Path,
) -> None:
    made = MadeLog(tmp_path)
    made.append(*(plain(number) for number in range(80)))
    names = sorted(made.folder.iterdir())
    assert len(names) > 2
    left_out = f"{names[0]},{names[2]}"
    expected = [each for each in made.starts if not FILE_SIZE <= each < 2 * FILE_SIZE]
    assert offsets(read_rows(left_out)) == [each for each in expected if each < 3 * FILE_SIZE]
    names[1].unlink()
    with pytest.raises(CorruptRecord, match="log files are missing here"):
        read_rows(tmp_path)
    rows = read_rows(tmp_path, onCorruptRecord="quarantine")
    assert (offsets(rows), bad_ranges(rows)) == (expected, [(FILE_SIZE, 2 * FILE_SIZE)])


# --- what is being written, or was cut off ---


def test_the_log_ends_at_the_first_size_of_zero_and_in_the_file_made_ahead(tmp_path: Path) -> None:
    made = MadeLog(tmp_path)
    made.append(plain(1), plain(2))
    made.write(FILE_SIZE, b"")
    assert offsets(read_rows(tmp_path)) == made.starts


@pytest.mark.parametrize("kept", [4, 30, 100, -1])
def test_a_record_that_was_cut_off_at_the_end_is_no_damage(tmp_path: Path, kept: int) -> None:
    made = MadeLog(tmp_path)
    made.append(plain(1), plain(2))
    made.write(made.end, encode_record(plain(3, log_offset=made.end))[:kept])
    assert offsets(read_rows(tmp_path)) == made.starts


def test_a_last_record_whose_body_is_not_there_yet_is_not_read(tmp_path: Path) -> None:
    made = MadeLog(tmp_path)
    made.append(plain(1), plain(2))
    whole = encode_record(plain(3, body=b"x" * 200, log_offset=made.end))
    made.write(made.end, whole[:100] + bytes(188) + whole[288:])
    assert offsets(read_rows(tmp_path)) == made.starts


def test_an_empty_store_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert read_rows(tmp_path) == []
    MadeLog(tmp_path).write(0, b"")
    assert read_rows(tmp_path) == []


# --- damage ---


def damaged_log(root: Path) -> tuple[MadeLog, tuple[int, int]]:
    """A log of three records, the second without its magic."""
    made = MadeLog(root)
    made.append(plain(1), plain(2), plain(3))
    made.write(made.starts[1] + 4, b"\0\0\0\0")
    return made, (made.starts[1], made.starts[2])


def test_damage_fails_a_query_and_says_where_and_what_to_change(tmp_path: Path) -> None:
    made, bad = damaged_log(tmp_path)
    with pytest.raises(CorruptRecord, match=r"'onCorruptRecord' to skip or quarantine") as caught:
        read_rows(tmp_path)
    assert caught.value.log_offset == bad[0]
    assert str(made.file(0)) in str(caught.value)


def test_damage_is_skipped_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made, bad = damaged_log(tmp_path)
    rows = read_rows(tmp_path, onCorruptRecord="skip")
    assert offsets(rows) == [made.starts[0], made.starts[2]]
    assert f"bytes {bad[0]} to {bad[1] - 1} of the log" in caplog.text


def test_damage_in_quarantine_is_a_row_with_its_place_its_bytes_and_why(tmp_path: Path) -> None:
    made, (begin, end) = damaged_log(tmp_path)
    rows = read_rows(tmp_path, onCorruptRecord="quarantine", includeRaw="true")
    bad = rows[1]
    assert (bad["physicalOffset"], bad["size"]) == (begin, end - begin)
    assert bad["damage"] == "no record begins here"
    assert bad["raw"] == made.file(0).read_bytes()[begin:end]
    rest = {name for name, value in bad.items() if value is None}
    assert rest == set(bad) - {"physicalOffset", "size", "damage", "raw"}
    assert [row["damage"] for row in (rows[0], rows[2])] == [None, None]


def test_a_wrong_crc_is_damage_when_it_is_verified(tmp_path: Path) -> None:
    made = MadeLog(tmp_path)
    made.append(plain(1), plain(2), plain(3))
    made.write(made.starts[1] + 90, b"?")
    assert offsets(read_rows(tmp_path)) == made.starts
    rows = read_rows(tmp_path, onCorruptRecord="quarantine", verifyCrc="true")
    assert bad_ranges(rows) == [(made.starts[1], made.starts[2])]


def test_a_body_that_cannot_be_decompressed_is_damage_and_readable_as_it_is(tmp_path: Path) -> None:
    made = MadeLog(tmp_path)
    made.append(compressed(Compression.ZLIB), plain(2, sys_flag=1), plain(3))
    with pytest.raises(CorruptRecord, match="decompress=false"):
        read_rows(tmp_path)
    rows = read_rows(tmp_path, decompress="false")
    assert [row["body"] for row in rows][1:] == [b"body 2", b"body 3"]


def test_a_size_that_leads_over_good_records_does_not_lose_them(tmp_path: Path) -> None:
    made = MadeLog(tmp_path)
    made.append(*(plain(number) for number in range(10)))
    wrong = made.starts[5] - made.starts[1]
    made.write(made.starts[1], wrong.to_bytes(4, "big"))
    rows = read_rows(tmp_path, onCorruptRecord="quarantine")
    assert offsets(rows) == [made.starts[0], *made.starts[2:]]
    assert bad_ranges(rows) == [(made.starts[1], made.starts[2])]


def test_damage_on_the_border_of_two_tasks_is_told_once(tmp_path: Path) -> None:
    made = MadeLog(tmp_path, file_size=65_536)
    record = plain(1, body=b"", properties=b"a\x01" + b"b" * 157)  # 256 bytes
    made.append(*[record] * 60)
    size = made.starts[1]
    border = next(each for each in made.starts if each and each % 4_096 == 0)
    for bad in (border - size, border, border + size):
        made.write(bad + 4, b"\0")
        rows = read_rows(tmp_path, onCorruptRecord="quarantine", splitSizeBytes="4096")
        assert bad_ranges(rows) == [(bad, bad + size)]
        assert offsets(rows) == [each for each in made.starts if each != bad]
        made.write(bad + 4, b"\xda")


def test_two_damages_side_by_side_at_the_border_of_two_tasks_are_told_once(tmp_path: Path) -> None:
    """Symptom: the second one was in the range of the first, and told again by the next task."""
    made = MadeLog(tmp_path, file_size=65_536)
    made.append(*[plain(1, body=b"x" * 60, properties=b"a\x01" + b"b" * 97)] * 60)  # 256 bytes
    size = made.starts[1]
    border = next(each for each in made.starts if each and each % 4_096 == 0)
    for first in (border - 2 * size, border - size, border):
        for bad in (first, first + size):
            made.write(bad + 90, b"?")
        choices = {"onCorruptRecord": "quarantine", "verifyCrc": "true"}
        rows = read_rows(tmp_path, splitSizeBytes="4096", **choices)
        assert bad_ranges(rows) == [(first, first + 2 * size)]
        assert offsets(rows) == [each for each in made.starts if each not in (first, first + size)]
        for bad in (first, first + size):
            made.write(bad + 90, b"x")


@settings(max_examples=80)
@given(st.lists(NAMED, min_size=1, max_size=8), st.data())
def test_random_damage_at_the_borders_of_tasks_is_told_as_if_there_were_none(
    tmp_path_factory: pytest.TempPathFactory, records: list[Record], data: st.DataObject
) -> None:
    made = MadeLog(tmp_path_factory.mktemp("log"), file_size=65_536)
    while made.end < 13_000:
        made.append(*records)
    borders = st.sampled_from([4_096, 8_192])
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(borders) + data.draw(st.integers(-900, 900))
        made.write(at, data.draw(st.sampled_from([b"\0", b"\xff", bytes(200), b"\1\2\3"])))
    made.append(plain(0))
    verifies = data.draw(st.sampled_from(["true", "false"]))
    choices = {"onCorruptRecord": "quarantine", "verifyCrc": verifies, "decompress": "false"}
    rows = read_rows(made.root, **choices)
    split = read_rows(made.root, splitSizeBytes="4096", **choices)
    assert (offsets(split), bad_ranges(split)) == (offsets(rows), bad_ranges(rows))


@settings(max_examples=60)
@given(st.lists(NAMED, min_size=3, max_size=40), st.data())
def test_after_random_damage_records_and_damage_are_those_of_the_stores_own_reader(
    tmp_path_factory: pytest.TempPathFactory, records: list[Record], data: st.DataObject
) -> None:
    made = MadeLog(tmp_path_factory.mktemp("log"), file_size=2_048)
    made.append(*records)
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, made.end - 1))
        made.write(at, data.draw(st.sampled_from([b"\0", b"\xff", bytes(200), b"\1\2\3"])))
    made.append(plain(0))  # without it the last bytes may be of a record that is under way
    choices = {"onCorruptRecord": "quarantine", "verifyCrc": "true", "decompress": "false"}
    rows = read_rows(made.root, **choices)
    assert (offsets(rows), bad_ranges(rows)) == walked(made.root)
    split = read_rows(made.root, splitSizeBytes="4096", **choices)
    assert offsets(split) == offsets(rows)


def test_a_bad_record_whose_size_leads_behind_the_log_by_chance_hides_nothing(
    tmp_path: Path,
) -> None:
    """Symptom: one of its two sizes led to where nothing was written, so it counted as the last
    one, and a sound record behind the next bad one was lost without a word."""
    made = MadeLog(tmp_path, file_size=2_048)
    made.append(*(plain(number) for number in range(3)))
    bad, size = made.starts[1], made.starts[1]
    properties_at = bad + size - len(plain(1).properties) - 2
    made.write(properties_at, (900).to_bytes(2, "big"))
    made.write(bad + size, bytes(60))  # the next one says nothing of its place any more
    made.append(plain(3))
    rows = read_rows(tmp_path, onCorruptRecord="quarantine")
    assert offsets(rows) == [0, made.starts[3]]
    assert bad_ranges(rows) == [(bad, made.starts[3])]
    assert (offsets(rows), bad_ranges(rows)) == walked(tmp_path)


# --- choosing and leaving out ---


def test_a_range_of_the_log_has_the_records_that_begin_in_it(tmp_path: Path) -> None:
    made = MadeLog(tmp_path)
    made.append(*(plain(number) for number in range(60)))
    begin, end = made.starts[3] + 1, made.starts[40] + 1
    rows = read_rows(tmp_path, startingPhysicalOffset=str(begin), endingPhysicalOffset=str(end))
    assert offsets(rows) == made.starts[4:41]


def test_store_times_choose_records_and_leave_out_files(tmp_path: Path) -> None:
    made = MadeLog(tmp_path)
    made.append(*(plain(number, store_ms=1_000_000 + 60_000 * number) for number in range(100)))
    chosen = {"startingTimestamp": "2920000", "endingTimestamp": "3100000"}
    assert offsets(read_rows(tmp_path, **chosen)) == made.starts[32:35]
    reader = LogReader(log_options({"path": str(tmp_path), **chosen}), arrow_schema())
    ranges = [each for part in reader.partitions() for each in part.ranges]  # type: ignore[attr-defined]  # ours
    files = {made.file(each) for each in made.starts[29:36]}  # a clock's minute, a witness more
    assert {Path(each.path) for each in ranges} == files
    assert len(files) < len(list(made.folder.iterdir()))
    iso = {"startingTimestamp": "1970-01-01T00:46:40Z"}
    assert offsets(read_rows(tmp_path, **iso)) == made.starts[30:]


def test_records_of_a_clock_that_was_set_back_are_not_left_out(tmp_path: Path) -> None:
    """Symptom: rows inside the asked times were missing, where a broker's clock had stepped."""
    made = MadeLog(tmp_path)
    times_ms = [1_000_000 + number if number < 50 else 970_000 + number for number in range(100)]
    made.append(*(plain(number, store_ms=at) for number, at in enumerate(times_ms)))
    for begin, end in ((970_060, 970_070), (1_000_010, 1_000_020), (1_000_049, 1_000_050)):
        chosen = {"startingTimestamp": str(begin), "endingTimestamp": str(end)}
        wanted = [made.starts[place] for place, at in enumerate(times_ms) if begin <= at < end]
        assert wanted
        assert offsets(read_rows(tmp_path, **chosen)) == wanted


def test_small_files_share_a_task_and_long_ones_have_several(tmp_path: Path) -> None:
    made = MadeLog(tmp_path)
    made.append(*(plain(number) for number in range(100)))

    def task_count(split_size: int) -> int:
        given = {"path": str(tmp_path), "splitSizeBytes": str(split_size)}
        return len(LogReader(log_options(given), arrow_schema()).partitions())

    assert task_count(1 << 20) == 1
    assert task_count(FILE_SIZE) == len(list(made.folder.iterdir()))


def test_a_plan_stays_as_it_was_when_a_broker_writes_on(tmp_path: Path) -> None:
    made = MadeLog(tmp_path)
    made.append(plain(1))
    reader = LogReader(log_options({"path": str(tmp_path)}), arrow_schema())
    plan = reader.partitions()
    made.append(plain(2))
    assert sum(batch.num_rows for part in plan for batch in reader.read(part)) == 1
    assert len(read_rows(tmp_path)) == 2


def test_a_file_removed_after_planning_is_a_loss_that_names_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = MadeLog(tmp_path)
    made.append(*(plain(number) for number in range(60)))
    for fails in ("true", "false"):
        given = {"path": str(tmp_path), "failOnDataLoss": fails}
        reader = LogReader(log_options(given), arrow_schema())
        plan = reader.partitions()
        first = made.file(made.starts[0])
        kept = first.read_bytes()
        first.unlink()
        if fails == "true":
            with pytest.raises(DataLoss, match="'failOnDataLoss' to false"):
                list(reader.read(plan[0]))
        else:
            rows = [row for batch in reader.read(plan[0]) for row in batch.to_pylist()]
            assert offsets(rows) == [each for each in made.starts if each >= FILE_SIZE]
            assert str(first) in caplog.text
        first.write_bytes(kept)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "needs the option 'path'"),
        ({"path": " , "}, "'path' is empty"),
        ({"path": "x", "topic": "a", "topics": "b"}, "'topic' and 'topics'"),
        ({"path": "x", "queues": "one"}, "option 'queues'"),
        ({"path": "x", "queues": "0,2147483648"}, "numbers from 0 to 2147483647"),
        ({"path": "x", "tags": "||"}, "option 'tags'"),
        ({"path": "x", "startingTimestamp": "yesterday"}, "option 'startingTimestamp'"),
        ({"path": "x", "startingTimestamp": "2", "endingTimestamp": "1"}, "is before"),
        ({"path": "x", "startingPhysicalOffset": "2", "endingPhysicalOffset": "1"}, "is before"),
        ({"path": "x", "useConsumeQueue": "true"}, "needs 'topic', 'topics', 'queues' or"),
        ({"path": "x", "onCorruptRecord": "ignore"}, "fail, skip, quarantine"),
        ({"path": "x", "splitSizeBytes": "1"}, "splitSizeBytes"),
        ({"path": "x", "maxBytesPerTriger": "1"}, "did you mean 'maxBytesPerTrigger'"),
    ],
)
def test_wrong_options_are_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        log_options(given)


def test_times_are_exact_to_the_millisecond() -> None:
    """Once: floats cut off the last one of some times."""
    for millisecond in range(1_000):
        given = {"path": "x", "startingTimestamp": f"2026-01-31T12:00:00.{millisecond:03d}Z"}
        assert log_options(given).starting_ms == 1_769_860_800_000 + millisecond


def test_a_path_that_is_no_store_is_refused_with_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="there is no"):
        read_rows(tmp_path / "nowhere")
    with pytest.raises(SettingError, match="neither a folder commitlog nor files of a log"):
        read_rows(tmp_path)
    other = tmp_path / "renamed.log"
    other.write_bytes(b"x")
    with pytest.raises(SettingError, match="give it the name it had"):
        read_rows(other)


def test_a_file_of_zeros_beside_the_real_one_hid_a_log_in_two_folders(tmp_path: Path) -> None:
    """Symptom: a file made ahead, on a disk that is read-only now, made it "not of one log"."""
    made = MadeLog(tmp_path / "b")
    made.append(*map(plain, range(40)))
    other = tmp_path / "a" / "commitlog"
    other.mkdir(parents=True)
    (made.file(0)).rename(other / file_name(0))
    (other / file_name(FILE_SIZE)).write_bytes(bytes(FILE_SIZE))
    rows = read_rows(f"{other},{made.folder}")
    assert offsets(rows) == made.starts


def test_files_of_two_stores_are_not_read_as_one_log(tmp_path: Path) -> None:
    for name, size in (("a", 4_096), ("b", 8_192)):
        MadeLog(tmp_path / name, file_size=size, first=8_192).append(plain(1))
    MadeLog(tmp_path / "b", file_size=4_096, first=12_288).append(plain(1))
    with pytest.raises(SettingError, match="not of one log"):
        read_rows(f"{tmp_path / 'a'},{tmp_path / 'b'}")
