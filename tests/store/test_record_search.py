"""Where the log goes on behind damage: all who read it agree, whatever was done to it."""

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from orbitmq.core import LogTail, Walked
from orbitmq.store.log_folders import LogFolders
from orbitmq.store.log_reader import LogReader
from orbitmq.store.log_source import Gap, LogFiles
from orbitmq.store.log_walk import Damage, LogWalk
from orbitmq.store.scan import Scan
from orbitmq.wire.record import encode_blank, encode_record
from orbitmq.wire.sysflag import is_compressed
from orbitmq.world.files import SystemFiles
from tests.arrow.made import plain
from tests.spark.logs import MadeLog, bad_ranges, offsets, read_rows

FILE_SIZE = 2_048
RECORD_COUNT = 24


class Bad(NamedTuple):
    """What is done to one record: `data` is written at a position of it, repeated."""

    record: int
    position: int
    data: bytes
    repeats: int = 1


NOISE = st.sampled_from([b"\0", b"\xff", b"\x7f", encode_blank(500)[4:]]) | st.binary(
    min_size=1, max_size=8
)
BAD = st.builds(
    Bad,
    record=st.integers(0, RECORD_COUNT - 1),
    position=st.sampled_from([0, 1, 2, 3, 4, 7, 8, 28, 35, 36, 84, 86, 87, 95])
    | st.integers(0, 300),
    data=NOISE,
    repeats=st.sampled_from([1, 1, 1, 4, 40, 400]),
)
TOPIC = Bad(2, 95, b"\0", 3)
"""No CRC protects the topic."""
BLANK = Bad(0, 4, encode_blank(8)[4:])
"""The magic of the blank that closes a file, in the middle of it."""
COMPRESSED = Bad(2, 39, b"\1")
"""No CRC protects the sysFlag: the body is said to be compressed, and is not."""
BODIES = st.sampled_from(["short", "long", "record", "blank"])
BLANK_LEFT = st.integers(8, FILE_SIZE)


def made(root: Path, bodies: list[str], left: int) -> MadeLog:
    """Return a log; bodies hold other things that the log could go on with."""
    log = MadeLog(root, FILE_SIZE)
    for number in range(RECORD_COUNT):
        kind = bodies[number % len(bodies)]
        body = b"short" if kind == "short" else bytes(range(1, 200))
        if kind == "record":  # whole, and it says that it lies just where it does
            inside = log.end + 88
            is_first = log.end % FILE_SIZE + 600 > FILE_SIZE
            body = encode_record(plain(number, log_offset=88 if is_first else inside))
        elif kind == "blank":
            body = encode_blank(left) * 5
        log.append(plain(number, body=body))
    return log


def spoil(log: MadeLog, bad: Iterable[Bad], *, keeps_last: bool) -> None:
    end = log.starts[-1] if keeps_last else log.end
    for record, position, data, repeats in bad:
        at = log.starts[record] + position
        log.write(at, (data * repeats)[: max(0, end - at)])


def split(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ranges cut where files end: some readers look at one file only."""
    return [
        (max(start, at), min(end, at + FILE_SIZE))
        for start, end in ranges
        for at in range(start - start % FILE_SIZE, end, FILE_SIZE)
    ]


def scanned(files: SystemFiles, folders: LogFolders) -> tuple[list[Walked], list[tuple[int, int]]]:
    numbers = [start // FILE_SIZE for start in folders.starts()]
    found = list(
        Scan(LogFiles(files, folders, FILE_SIZE, numbers), 0, 0, is_prefix_only=False).walk()
    )
    gaps = [(item.start, item.end) for item in found if isinstance(item, Gap)]
    return [item for item in found if isinstance(item, Walked)], gaps


def walked(files: SystemFiles, folders: LogFolders) -> tuple[list[int], list[tuple[int, int]]]:
    found = list(LogWalk(files, folders).walk())
    gaps = [(item.start, item.end) for item in found if isinstance(item, Damage)]
    return [item.log_offset for item in found if isinstance(item, Walked)], gaps


def followed(files: SystemFiles, folders: LogFolders, end: int) -> list[int]:
    reader = LogReader(files, folders, LogTail(FILE_SIZE, end))
    at, found = 0, []
    while at < end:
        records, following = reader.records(at)
        found += [record.log_offset for record in records]
        if following <= at:
            break
        at = following
    return found


@example(bad=[TOPIC], bodies=["short"], left=8, keeps_last=True)
@example(bad=[BLANK], bodies=["short"], left=8, keeps_last=True)
@example(bad=[COMPRESSED], bodies=["short"], left=8, keeps_last=True)
@settings(max_examples=60, deadline=None)
@given(
    bad=st.lists(BAD, min_size=1, max_size=6),
    bodies=st.lists(BODIES, min_size=1, max_size=4),
    left=BLANK_LEFT,
    keeps_last=st.booleans(),
)
def test_all_readers_find_the_same_records_behind_damage(
    bad: list[Bad], bodies: list[str], left: int, keeps_last: bool
) -> None:
    with TemporaryDirectory() as folder:
        log = made(Path(folder), bodies, left)
        spoil(log, bad, keeps_last=keeps_last)
        files = SystemFiles()
        folders = LogFolders(files, (log.folder,))
        whole, gaps = scanned(files, folders)
        records = [record.log_offset for record in whole]
        assert walked(files, folders) == (records, gaps)
        assert followed(files, folders, log.end) == records
        if keeps_last:  # what ends the log, Spark judges as recovery does after a crash
            found = read_rows(Path(folder), onCorruptRecord="quarantine", verifyCrc="true")
            # Spark opens bodies, too: one that does not open is bad, and the log goes on behind it.
            shut = [one for one in whole if is_compressed(one.sys_flag)]
            bad_bodies = [(one.log_offset, one.log_offset + one.size) for one in shut]
            assert sorted(offsets(found)) == [
                record.log_offset for record in whole if record not in shut
            ]
            assert sorted(split(bad_ranges(found))) == sorted(split([*gaps, *bad_bodies]))
