"""A small healthy store folder made from nothing but records: for tests that then damage it.

In: a few messages. Out: the folder as a mapping of path to bytes, as a broker leaves it after a
clean stop, and that mapping as MemoryFiles. The store itself has no part in it: log, queues and
index are made by `slow_store`.
"""

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from orbitmq.store.checkpoint import Checkpoint, Mark, Stamps, encode_checkpoint
from orbitmq.store.options import StoreOptions
from orbitmq.wire.host import Host
from orbitmq.wire.record import BLANK_MAGIC, Record, encode_record
from tests.store.slow_store import HOLE_SIZE, build_index, build_queues, read_log
from tests.world.memory_files import MemoryFiles

ROOT = Path("/made")
LOG_FILE_SIZE = 1_024
QUEUE_FILE_SIZE = 60
SLOT_COUNT = 7
ENTRY_COUNT = 9
OPTIONS = StoreOptions(
    log_file_size=LOG_FILE_SIZE,
    queue_file_size=QUEUE_FILE_SIZE,
    index_slot_count=SLOT_COUNT,
    index_entry_count=ENTRY_COUNT,
)
BOOT_ID = b"the one boot id."
START_MS = 1_794_770_315_418
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_" + "X" * 4


class Sent(NamedTuple):
    """A message to be in the log."""

    topic: str
    queue_id: int
    properties: str
    sys_flag: int = 0
    body: bytes = b"body"


MESSAGES = (
    Sent("TopicA", 0, "TAGS\x01TagA\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01U1\x02"),
    Sent("TopicA", 1, "UNIQ_KEY\x01U2\x02colour\x01red"),
    Sent("TopicA", 0, "KEYS\x01k1\x02UNIQ_KEY\x01U3\x02TAGS\x01B"),
    Sent("TopicB", 3, "", 0x4),
    Sent(SCHEDULE_TOPIC, 2, "DELAY\x013\x02REAL_TOPIC\x01TopicA\x02UNIQ_KEY\x01U4\x02"),
    Sent("TopicA", 0, "UNIQ_KEY\x01U5\x02", 0x8),
    Sent("TopicA", 0, "UNIQ_KEY\x01U6\x02TAGS\x01TagA\x02", 0x0, bytes(200)),
    Sent("TopicA", 0, "UNIQ_KEY\x01U7\x02KEYS\x01k2\x02"),
    Sent("TopicB", 3, "UNIQ_KEY\x01U8\x02", 0xC),
    Sent("TopicA", 1, "TAGS\x01TagA\x02UNIQ_KEY\x01U9\x02KEYS\x01k1"),
)

TABLES = {
    "topics.json": b'{"dataVersion":{"counter":1},"topicConfigTable":'
    b'{"TopicA":{"topicName":"TopicA"},"TopicB":{"topicName":"TopicB"}}}',
    "consumerOffset.json": b'{"offsetTable":{"TopicA@G":{0:2,1:1}}}',
    "consumerOffset.json.bak": b'{"offsetTable":{"TopicA@G":{0:1}}}',
    "delayOffset.json": b'{"offsetTable":{3:1}}',
    "subscriptionGroup.json": b'{"subscriptionGroupTable":{}}',
    "consumerFilter.json": b'{"filterDataByTopic":{}}',
}


def made_log(messages: Iterable[Sent], file_size: int = LOG_FILE_SIZE) -> dict[str, bytes]:
    """The log's files with the messages back to back, and one prepared file behind."""
    stream = bytearray()
    numbers: dict[tuple[str, int], int] = {}
    for count, sent in enumerate(messages):
        takes_place = not sent.sys_flag & 0x4
        number = numbers.get(sent[:2], 0) if takes_place else 0
        data = _record(sent, count, number, len(stream))
        left = file_size - len(stream) % file_size
        if len(data) + 8 > left:
            stream += struct.pack(">iI", left, BLANK_MAGIC).ljust(left, b"\0")
            data = _record(sent, count, number, len(stream))
        numbers[sent[:2]] = number + takes_place
        stream += data
    file_count = len(stream) // file_size + 2
    whole = bytes(stream).ljust(file_count * file_size, b"\0")
    return {
        f"commitlog/{start:020d}": whole[start : start + file_size]
        for start in range(0, len(whole), file_size)
    }


def _record(sent: Sent, count: int, number: int, log_offset: int) -> bytes:
    return encode_record(
        Record(
            topic=sent.topic,
            body=sent.body,
            properties=sent.properties.encode(),
            queue_id=sent.queue_id,
            queue_offset=number,
            log_offset=log_offset,
            flag=7,
            sys_flag=sent.sys_flag,
            born_ms=START_MS - 3,
            born_host=Host("127.0.0.1", 40_000),
            store_ms=START_MS + 700 * count,
            store_host=Host("127.0.0.1", 10_911),
        )
    )


def derived(log: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files that follow from a log: queues, index, checkpoint."""
    read = read_log(log)
    blobs: dict[str, bytes] = {}
    for (topic, queue_id), entries in build_queues(read.records).items():
        end = max(entries) + 1
        packed = b"".join(
            struct.pack(">qiq", *entries.get(number, (0, HOLE_SIZE, 0))) for number in range(end)
        )
        for start in range(0, len(packed), QUEUE_FILE_SIZE):
            piece = packed[start : start + QUEUE_FILE_SIZE].ljust(QUEUE_FILE_SIZE, b"\0")
            blobs[f"consumequeue/{topic}/{queue_id}/{start:020d}"] = piece
    for number, data in enumerate(build_index(read.records, SLOT_COUNT, ENTRY_COUNT)):
        blobs[f"index/{20261115182457407 + number}"] = data
    store_ms = max((stored.record.store_ms for stored in read.records), default=0)
    mark = Mark(read.end_offset, 0, 0, "", 0, 0, 0, 0)
    checkpoint = Checkpoint(Stamps(store_ms, store_ms, 0), mark, mark, BOOT_ID)
    blobs["checkpoint"] = encode_checkpoint(checkpoint, None).ljust(4_096, b"\0")
    return blobs


def made_folder(messages: Iterable[Sent] = MESSAGES) -> dict[str, bytes]:
    """A whole folder after a clean stop."""
    log = made_log(messages)
    tables = {f"config/{name}": data for name, data in TABLES.items()}
    return {**log, **derived(log), **tables, "lock": b"lock"}


def put_folder(blobs: Mapping[str, bytes], root: Path = ROOT) -> MemoryFiles:
    """A folder's files in memory."""
    files = MemoryFiles(root, root / "commitlog")
    for path, data in blobs.items():
        files.make_folder((root / path).parent)
        files.put(root / path, data)
    return files


def with_flip(blobs: Mapping[str, bytes], path: str, position: int, bit: int) -> dict[str, bytes]:
    """The same folder with one bit of one file turned."""
    data = bytearray(blobs[path])
    data[position] ^= 1 << bit
    return {**blobs, path: bytes(data)}
