"""The log that Apache RocketMQ 4.9.8 wrote: every record reads, and writes back to its bytes.

Method: walk the recorded log with our codec and compare each record with what was written down when
the store was recorded; then compare the queues' tag codes with ours.
"""

from collections.abc import Iterator
from functools import cache

import pytest

from orbitmq.wire.batch import encode_batch
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.compression import plain_body
from orbitmq.wire.expression import tag_code
from orbitmq.wire.message_id import decode_offset_id, decode_unique_id, encode_unique_id
from orbitmq.wire.names import SCHEDULE_TOPIC
from orbitmq.wire.properties import (
    ORIGIN_MESSAGE_ID,
    TAGS,
    UNIQ_KEY,
    encode_properties,
    parse_properties,
)
from orbitmq.wire.record import (
    MAGIC_V1,
    Record,
    decode_record,
    encode_blank,
    encode_record,
    is_blank,
    scan_records,
)
from orbitmq.wire.sysflag import is_compressed
from tests.golden.frames import all_recorded
from tests.golden.store import (
    described,
    log_files,
    queue_entries,
    store_files,
    stored_records,
)
from tests.wire.batches import messages_in


def walk() -> Iterator[tuple[Record, bytes]]:
    """Every record of the log with the bytes it was read from."""
    for base_offset, data in log_files():
        start = 0
        while not is_blank(data, start) and any(data[start : start + 8]):
            record, size = decode_record(data, start, base_offset=base_offset)
            yield record, data[start : start + size]
            start += size


@cache
def golden() -> tuple[tuple[Record, bytes], ...]:
    return tuple(walk())


def test_every_record_has_the_fields_that_were_written_down() -> None:
    assert len(golden()) == len(stored_records()) == 2_105
    for (record, data), expected in zip(golden(), stored_records(), strict=True):
        assert described(record, len(data)) == expected
        assert record.magic == MAGIC_V1


def test_every_record_is_written_back_to_equal_bytes() -> None:
    for record, data in golden():
        assert encode_record(record) == data


def test_every_full_log_file_ends_in_a_blank_record_as_ours_would() -> None:
    for base_offset, data in log_files()[:-1]:
        size = sum(
            len(part)
            for record, part in golden()
            if 0 <= record.log_offset - base_offset < len(data)
        )
        assert data[size : size + 8] == encode_blank(len(data) - size)


def test_one_scan_reads_a_whole_log_file() -> None:
    base_offset, data = log_files()[3]
    assert list(scan_records(memoryview(data), base_offset=base_offset)) == [
        record for record, _ in golden() if 0 <= record.log_offset - base_offset < len(data)
    ]


def test_properties_are_written_back_to_equal_bytes_unless_a_name_comes_twice() -> None:
    doubled = 0
    for record, _ in golden():
        if record.properties.count(b"\x01") > len(parse_properties(record.properties)):
            doubled += 1  # a batch: the broker appends the batch's properties, here WAIT, to each
            continue
        assert encode_properties(parse_properties(record.properties)) == record.properties
    assert doubled == 3


def test_tag_codes_of_all_queues_are_the_hashes_of_the_tags() -> None:
    records = {record.log_offset: record for record, _ in golden()}
    seen = 0
    for entry in queue_entries():
        record = records[entry.log_offset]
        assert (record.topic, record.queue_id) == (entry.topic, entry.queue_id)
        assert record.queue_offset == entry.queue_offset
        if entry.topic == SCHEDULE_TOPIC:
            assert entry.tag_code > record.store_ms  # when it is due
            continue
        assert entry.tag_code == tag_code(parse_properties(record.properties).get(TAGS, ""))
        seen += 1
    assert seen > 2_000


def test_the_compressed_body_unpacks() -> None:
    packed = [record for record, _ in golden() if is_compressed(record.sys_flag)]
    assert [record.sys_flag for record in packed] == [0x301]
    assert len(plain_body(packed[0].body, packed[0].sys_flag)) > len(packed[0].body)


def test_message_ids_of_the_java_client_and_broker_are_read() -> None:
    offsets = {record.log_offset for record, _ in golden()}
    for record, _ in golden():
        properties = parse_properties(record.properties)
        if UNIQ_KEY in properties:
            unique_id = decode_unique_id(properties[UNIQ_KEY])
            assert encode_unique_id(unique_id) == properties[UNIQ_KEY]
            assert unique_id.ip == "127.0.0.1"
        if ORIGIN_MESSAGE_ID in properties:
            place = decode_offset_id(properties[ORIGIN_MESSAGE_ID])
            assert place.host == record.store_host
            assert place.log_offset in offsets


def test_the_recording_is_whole() -> None:
    assert {name.partition("/")[0] for name in store_files()} >= {"commitlog", "consumequeue"}


def test_batches_of_recorded_clients_are_written_back_to_equal_bytes() -> None:
    bodies = [
        entry.command.body
        for entry in all_recorded()
        if entry.command.code == RequestCode.SEND_BATCH_MESSAGE and not entry.command.is_response
    ]
    assert len(bodies) >= 4
    for body in bodies:
        assert encode_batch(messages_in(body)) == body


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.POP_MESSAGE])
def test_records_that_recorded_consumers_received_are_written_back_to_equal_bytes(
    code: RequestCode,
) -> None:
    bodies = [
        entry.command.body
        for entry in all_recorded()
        if entry.request is not None and entry.request.code == code and entry.command.body
    ]
    assert bodies
    for body in bodies:
        assert b"".join(map(encode_record, scan_records(body))) == body
