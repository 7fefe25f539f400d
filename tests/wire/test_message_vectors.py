"""What the classes of Apache RocketMQ 5.5.0 made of given messages (tests/golden/README.md)."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from orbitmq.wire.batch import BatchMessage, encode_batch
from orbitmq.wire.compression import plain_body
from orbitmq.wire.host import Host
from orbitmq.wire.java import string_hash
from orbitmq.wire.message_id import decode_offset_id, encode_offset_id
from orbitmq.wire.record import MAGIC_V1, MAGIC_V2, Record, decode_record, encode_record
from tests.wire.batches import messages_in

VECTORS = Path(__file__).parents[1] / "golden" / "message-vectors.jsonl"


@cache
def vectors(kind: str) -> tuple[dict[str, Any], ...]:
    lines = VECTORS.read_text().splitlines()
    return tuple(entry for entry in map(json.loads, lines) if entry["kind"] == kind)


def expected_record(vector: dict[str, Any]) -> Record:
    return Record(
        topic=vector["topic"],
        body=b"a body",
        properties=b"TAGS\x01TagA\x02",
        queue_id=3,
        flag=7,
        born_ms=1_794_770_315_227,
        born_host=Host(vector["born_ip"], 59_162),
        store_ms=1_794_770_315_418,
        store_host=Host(vector["store_ip"], 10_911),
        reconsume_times=2,
        prepared_offset=4_000_000_000,
        magic=MAGIC_V2 if len(vector["topic"]) > 127 else MAGIC_V1,
    )


@pytest.mark.parametrize("number", range(8))
def test_records_of_both_versions_and_all_hosts_equal_the_original_s(number: int) -> None:
    vector = vectors("record")[number]
    data = bytes.fromhex(vector["record"])
    assert encode_record(expected_record(vector)) == data
    record, size = decode_record(data)
    assert size == len(data)
    assert (record.topic, record.born_host.ip) == (vector["topic"], vector["born_ip"])
    assert record.store_host.ip == vector["store_ip"]


def test_the_eight_records_are_eight_kinds() -> None:
    kinds = {(v["born_ip"], v["store_ip"], v["topic"]) for v in vectors("record")}
    assert len(kinds) == 8


def test_offset_ids_equal_the_original_s() -> None:
    for vector in vectors("record"):
        host = Host(vector["store_ip"], 10_911)
        assert encode_offset_id(host, 6_000_000_000) == vector["offset_id"]
        assert decode_offset_id(vector["offset_id"]) == (host, 6_000_000_000)


@pytest.mark.parametrize("number", range(3))
def test_bodies_that_java_compressed_unpack(number: int) -> None:
    vector = vectors("compressed")[number]
    packed = bytes.fromhex(vector["body"])
    assert plain_body(packed, vector["bits"] | 1, 6_000) == b"orbit " * 1_000


def test_a_java_batch_is_read_and_written_back() -> None:
    (vector,) = vectors("batch")
    data = bytes.fromhex(vector["body"])
    messages = [
        BatchMessage(f"body {n}".encode(), f"WAIT\x01true\x02n\x01标{n}\x02".encode(), n)
        for n in range(3)
    ]
    assert messages_in(data) == messages
    assert encode_batch(messages) == data


def test_hashes_equal_java_s() -> None:
    assert len(vectors("hash")) == 10
    for vector in vectors("hash"):
        text = bytes.fromhex(vector["utf16"]).decode("utf-16-be")
        assert string_hash(text) == vector["hash"]
