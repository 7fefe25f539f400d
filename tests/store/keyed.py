"""Messages for the key index, and a model that says what a look-up must give.

In: random numbers, or the recorded store. Out: messages as the core leaves them, a clock that
stands still, and `Model`: the plain dictionary that an index must agree with.
"""

import gzip
import io
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

from orbitmq.core import rows_of
from orbitmq.core.record_keys import keys_in
from orbitmq.store.key_index import IndexJob, KeyIndex, KeyQuery
from orbitmq.wire.java import index_hash
from orbitmq.wire.properties import encode_properties
from orbitmq.world.files import Files
from tests.golden.store import FOLDER, stored_records

Keyed = tuple[str, int, int, bytes]
"""Topic, log offset, store time in ms, properties."""

INDEX = Path("/store/index")
EVER = (0, 2**62)
GOLDEN_SLOTS, GOLDEN_ENTRIES = 500, 200
FIRST_MS = 1_700_000_000_000
_ROLLBACK = 0b1100


class StillClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_ms = FIRST_MS

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_s(self) -> float:
        return self.now_ms / 1000

    def file_stamp(self, wall_ms: int) -> int:
        return wall_ms


def key_index(files: Files, slots: int = 20, entries: int = 30, *, is_on: bool = True) -> KeyIndex:
    """Return an index with small files, at the usual place."""
    clock = StillClock()
    return KeyIndex(files, INDEX, clock, slot_count=slots, entry_count=entries, is_on=is_on)


def feed(index: KeyIndex, messages: Iterable[Keyed]) -> None:
    """Hand messages to an index, all at once."""
    found = [rows_of(*message) for message in messages]
    index.add(b"".join(rows for rows, _ in found), sum(left_out for _, left_out in found))


def message(log_offset: int, keys: str = "", topic: str = "T", store_ms: int = FIRST_MS) -> Keyed:
    """Return a message with KEYS and no unique id."""
    properties = encode_properties({"KEYS": keys, "TAGS": "a"} if keys else {"TAGS": "a"})
    return topic, log_offset, store_ms, properties


def random_messages(chance: Random, count: int, log_offset: int = 0) -> list[Keyed]:
    """Return messages in log order: with and without ids and keys, few words, two topics."""
    messages: list[Keyed] = []
    for _ in range(count):
        properties = {
            "TAGS": "a",
            "KEYS": " ".join(chance.choices("abcdef", k=chance.randrange(4))),
        }
        if chance.random() < 0.7:
            properties["UNIQ_KEY"] = f"{chance.randrange(16**12):032X}"
        kept = {name: value for name, value in properties.items() if value}
        store_ms = FIRST_MS + log_offset * 3
        messages.append((chance.choice("TU"), log_offset, store_ms, encode_properties(kept)))
        log_offset += chance.randrange(100, 400)
    return messages


class Model:
    """Which log offsets a hash leads to, oldest first."""

    def __init__(self, messages: Iterable[Keyed] = ()) -> None:
        self.offsets: dict[int, list[int]] = {}
        self.keys: set[tuple[str, str]] = set()
        self.add(messages)

    def add(self, messages: Iterable[Keyed]) -> None:
        for topic, log_offset, _, properties in messages:
            for key in keys_in(properties).filed:
                self.keys.add((topic, key))
                found = self.offsets.setdefault(index_hash(f"{topic}#{key}"), [])
                if found[-1:] != [log_offset]:
                    found.append(log_offset)

    def expected(self, topic: str, key: str) -> list[int]:
        return self.offsets.get(index_hash(f"{topic}#{key}"), [])[::-1]

    def check(self, index: KeyIndex, absent: Iterable[tuple[str, str]] = ()) -> None:
        """Assert that the index gives what is here, and for `absent` keys nothing else."""
        index.drain()
        for topic, key in {*self.keys, *absent}:
            assert index.lookup(KeyQuery(topic, key, *EVER, 1_000_000)) == self.expected(
                topic, key
            ), key


def steps(job: IndexJob) -> Iterator[str]:
    """Run a job, stopping after each of its steps."""
    for name in ("write_entries", "sync", "write_slots", "sync"):
        getattr(job, name)()
        yield name


def flush(index: KeyIndex) -> None:
    """Bring everything to the disk."""
    job = index.freeze()
    if job is not None:
        list(steps(job))
        index.finish(job)


def golden_messages() -> list[Keyed]:
    """Return the messages of the recorded store that the original files: all but rollbacks."""
    return [
        (
            record["topic"],
            record["offset"],
            record["store_timestamp"],
            encode_properties(record["properties"]),
        )
        for record in stored_records()
        if record["sys_flag"] & _ROLLBACK != _ROLLBACK
    ]


def golden_index(name: str) -> dict[str, bytes]:
    """Return the index files of `store-clean` or `store-crashed`, oldest first."""
    packed = io.BytesIO(gzip.decompress((FOLDER / f"{name}.tar.gz").read_bytes()))
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=packed) as archive:
        for member in archive.getmembers():
            content = archive.extractfile(member)
            if content is not None and "/index/" in member.name:
                found[member.name.rpartition("/")[2]] = content.read()
    return dict(sorted(found.items()))
