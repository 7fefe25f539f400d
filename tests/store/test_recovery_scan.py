"""Looking for records in damaged and hostile bytes; what follows from a record."""

import struct
import time
from pathlib import Path
from zlib import crc32

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.core import Walked, may_have_keys
from orbitmq.errors import ReadFailed
from orbitmq.store.follow import entry_code
from orbitmq.store.layout import file_name
from orbitmq.store.log_folders import LogFolders
from orbitmq.store.log_source import ZEROS_ENOUGH, Gap, LogFiles
from orbitmq.store.options import DELAYS_MS
from orbitmq.store.record_search import LONG_BODY_SIZE, next_record
from orbitmq.store.scan import Scan
from orbitmq.wire.expression import tag_code
from orbitmq.wire.host import Host
from orbitmq.wire.properties import parse_properties
from orbitmq.wire.record import MAGIC_V1, MAGIC_V2, Record, encode_record
from orbitmq.world.files import AnyPath, SystemFiles
from tests.world.memory_files import MemoryFiles

HOST = Host("127.0.0.1", 10911)
MAGIC = MAGIC_V1.to_bytes(4, "big")


def record(log_offset: int, body: bytes = b"body", **fields: object) -> bytes:
    values = {"topic": "T", "born_host": HOST, "store_host": HOST, **fields}
    whole = Record(body=body, log_offset=log_offset, **values)  # type: ignore[arg-type] # by name
    return encode_record(whole)


@given(
    st.binary(max_size=300), st.sampled_from([0, 1 << 40]), st.sampled_from([MAGIC_V1, MAGIC_V2])
)
def test_the_next_record_is_found_behind_any_bytes(junk: bytes, start: int, magic: int) -> None:
    data = junk + record(start + len(junk), magic=magic) + bytes(50)
    assert next_record(memoryview(data), 0, start) == len(junk)


@given(st.lists(st.sampled_from([MAGIC, MAGIC[:3], b"\0", b"\x00\x00\x00\x70", bytes(40)])))
def test_magics_alone_are_no_records(parts: list[bytes]) -> None:
    assert next_record(memoryview(b"".join(parts)), 0, 0) is None


def test_a_record_is_found_wherever_slices_meet() -> None:
    for at in range((1 << 20) - 40, (1 << 20) + 40, 7):
        data = bytes(at) + record(at) + bytes(10)
        assert next_record(memoryview(data), 1, 0) == at


def test_a_copy_of_a_record_inside_a_body_is_not_taken_for_one_of_the_log() -> None:
    copy = record(0)
    outer = record(500, copy * 3)
    damaged = bytearray(outer)
    damaged[4] ^= 1
    data = bytes(damaged) + record(500 + len(outer))
    assert next_record(memoryview(data), 0, 500) == len(outer)


def test_a_long_record_is_found_and_its_sum_is_checked() -> None:
    body = bytes(range(256)) * 1000
    data = bytearray(b"junk" + record(4, body) + record(4 + len(record(4, body))))
    assert next_record(memoryview(bytes(data)), 0, 0) == 4
    data[LONG_BODY_SIZE + 500] ^= 1
    assert next_record(memoryview(bytes(data)), 0, 0) == 4 + len(record(4, body))


def nested(size: int, count: int) -> bytes:
    """Headers that are all right but for the sum, whose records all end at the same place."""
    whole = record(0, b"")
    head, tail = bytearray(whole[:88]), whole[88:]
    data = bytearray()
    for start in range(0, 88 * count, 88):
        struct.pack_into(">iII", head, 0, size - start, MAGIC_V1, 12345)
        struct.pack_into(">q", head, 28, start)
        struct.pack_into(">i", head, 84, size - len(tail) - start - 88)
        data += head
    return bytes(data.ljust(size - len(tail), b"x") + tail)


def test_a_body_full_of_headers_costs_linear_time() -> None:
    """Each header makes a body up to the end plausible; summing them all would take too long."""
    data = nested(3_000_000, 2_000)
    begin_s = time.process_time()
    for _ in range(20):
        crc32(data)
    each_summed_s = (time.process_time() - begin_s) / 20 * 2_000
    begin_s = time.process_time()
    assert next_record(memoryview(data), 0, 0) is None
    assert time.process_time() - begin_s < each_summed_s / 3


def test_a_gap_ends_at_the_floor_when_nothing_whole_comes_before_it() -> None:
    files = MemoryFiles(Path("/log"))
    first = record(0)
    data = (first + b"\x66" * 200).ljust(1024, b"\0")
    files.put(Path("/log") / f"{0:020d}", data)
    log = LogFiles(files, LogFolders(files, (Path("/log"),)), 1024, [0])
    scan = Scan(log, 0, len(first) + 200, is_prefix_only=False)
    found = [item for item in scan.walk() if isinstance(item, Gap)]
    assert found == [Gap(len(first), len(first) + 200)]
    assert scan.end_offset == len(first) + 200


def test_after_a_kill_the_empty_rest_of_a_large_file_is_not_read() -> None:
    read = []

    class Counting(MemoryFiles):
        def read_at(self, path: AnyPath, position: int, size: int) -> bytes | None:
            read.append(size)
            return bytes(size)

        def data_ranges(self, path: Path, start: int) -> list[tuple[int, int]]:
            return [(start, 1 << 40)]  # this file system does not know its holes

    files = Counting()
    log = LogFiles(files, LogFolders(files, (Path("/log"),)), 1 << 40, [0])
    log.is_killed_only = True
    assert log.first_nonzero(100, 1 << 40) is None
    assert log.last_nonzero(100, 1 << 40) is None
    assert ZEROS_ENOUGH <= sum(read) < ZEROS_ENOUGH + (2 << 20)


def test_holes_behind_the_log_are_not_read(tmp_path: Path) -> None:
    """After a power cut all of the file may hold something, but not where the disk has nothing."""
    read = []

    class Counting(SystemFiles):
        def read_at(self, path: AnyPath, position: int, size: int) -> bytes | None:
            read.append(size)
            return super().read_at(path, position, size)

    size, first, last = 1 << 30, 5_000, (1 << 29) + 17
    with (tmp_path / file_name(size)).open("wb") as file:
        for place in (first, last):
            file.seek(place)
            file.write(b"x")
        file.truncate(size)
    files = Counting()
    log = LogFiles(files, LogFolders(files, (tmp_path,)), size, [1])
    assert log.first_nonzero(size, 2 * size) == size + first
    assert log.first_nonzero(size + first + 1, 2 * size) == size + last
    assert log.first_nonzero(size + first + 1, size + last) is None
    assert log.first_nonzero(size + last + 1, 2 * size) is None
    assert log.last_nonzero(size, 2 * size) == size + last
    assert log.last_nonzero(size, size + last) == size + first
    assert sum(read) < 1 << 20


def test_a_file_whose_holes_the_disk_cannot_tell_is_read() -> None:
    class Refusing(MemoryFiles):
        def data_ranges(self, path: Path, start: int) -> list[tuple[int, int]]:
            raise ReadFailed(f"cannot read {path} behind {start}")

    files = Refusing(Path("/log"))
    files.put(Path("/log") / file_name(0), bytes(700) + b"x" + bytes(299))
    log = LogFiles(files, LogFolders(files, (Path("/log"),)), 1_000, [0])
    assert log.first_nonzero(100, 1_000) == 700
    assert log.last_nonzero(100, 1_000) == 700
    assert log.first_nonzero(701, 1_000) is None


# --- what follows from a record ---

texts = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=5)
names = st.sampled_from(["TAGS", "XTAGS", "TAGSX", "KEYS", ""]) | texts
properties = st.lists(st.tuples(names, texts), max_size=5).map(
    lambda pairs: "\x02".join(f"{name}\x01{value}" for name, value in pairs).encode()
)


def walked(topic: str = "T", data: bytes = b"", store_ms: int = 1000) -> Walked:
    return Walked(0, 100, topic, 0, 0, 0, store_ms, data)


@given(properties | st.binary(max_size=30))
def test_the_code_is_the_hash_of_the_tag_as_the_exact_parser_finds_it(data: bytes) -> None:
    expected = tag_code(parse_properties(data).get("TAGS", ""))
    assert entry_code(walked(data=data), DELAYS_MS) == expected


def test_the_code_of_a_scheduled_message_is_when_it_is_due() -> None:
    def code(delay: bytes) -> int:
        data = b"TAGS\x01a\x02DELAY\x01" + delay
        return entry_code(walked("SCHEDULE_TOPIC_XXXX", data), DELAYS_MS)

    assert code(b"1") == 1000 + 1000
    assert code(b"3") == 1000 + 10_000
    assert code(b"18") == code(b"99") == 1000 + 7_200_000
    assert code(b"0") == code(b"-1") == code(b"x") == code(b"9" * 30) == tag_code("a")
    no_delay = walked("SCHEDULE_TOPIC_XXXX", b"TAGS\x01a")
    assert entry_code(no_delay, DELAYS_MS) == tag_code("a")
    assert entry_code(walked("SCHEDULE_TOPIC_XXXX", b"DELAY\x013"), ()) == 2000


def test_only_rolled_back_messages_are_not_indexed() -> None:
    key = b"KEYS\x01k"
    assert [may_have_keys(flag, key) for flag in (0, 1, 4, 8, 12, 13)] == [True] * 4 + [False] * 2
    assert not may_have_keys(0, b"A" * 32), "there is no name in it"
