"""Recorded requests about consumers, and bodies of locks and resets, are read and written again."""

from typing import Any

import msgspec

from orbitmq.wire import headers_consume as hc
from orbitmq.wire.bodies_client import read_queue_key
from orbitmq.wire.bodies_consume import LockBatch, LockedQueues, ResetOffsets
from orbitmq.wire.fastjson import read_json, write_json
from orbitmq.wire.fields import Header, read_header, write_header
from tests.golden.frames import Recorded, all_recorded

HEADERS: dict[int, type[Header]] = {
    203: hc.GetConsumerConnections,
    204: hc.GetProducerConnections,
    208: hc.GetConsumeStats,
    220: hc.ResetClientOffset,
    222: hc.ResetOffset,
    300: hc.QueryGroupsOfTopic,
    307: hc.GetConsumerRunningInfo,
    309: hc.ConsumeMessageDirectly,
    317: hc.GetBrokerConsumeStats,
}
WRITTEN_DEFAULTS = {(222, "queueId"), (222, "offset")}
"""5.x has these two in its request."""


def requests(*codes: int) -> list[Recorded]:
    entries = all_recorded()
    return [one for one in entries if not one.command.is_response and one.command.code in codes]


def test_every_field_of_a_recorded_request_is_kept() -> None:
    seen, defaults = set(), set()
    for entry in requests(*HEADERS):
        code, fields = entry.command.code, entry.command.fields
        written = write_header(read_header(HEADERS[code], fields))
        assert {name: written[name] for name in fields} == fields, entry.place
        defaults |= {(code, name) for name in written.keys() - fields.keys()}
        seen.add(code)
    assert seen == HEADERS.keys()
    assert defaults == WRITTEN_DEFAULTS


def test_the_locks_that_java_and_go_ask_for_are_read_the_same_way() -> None:
    languages = set()
    for entry in requests(41, 42):
        batch = read_json(entry.command.body, LockBatch)
        written = write_json(batch, standard=True)
        if entry.capture.startswith("go"):  # it has its own order of keys
            assert msgspec.json.decode(written) == msgspec.json.decode(entry.command.body)
        else:
            assert written == entry.command.body, entry.place
        languages.add(entry.command.language)
    assert languages == {"JAVA", "GO"}


def test_answers_to_locks_are_written_as_recorded() -> None:
    count = 0
    for entry in all_recorded():
        if entry.request is not None and entry.request.code == 41:
            held = read_json(entry.command.body, LockedQueues)
            assert write_json(held, standard=True) == entry.command.body, entry.place
            count += 1
    assert count == 15


def test_new_offsets_are_written_with_queues_as_keys() -> None:
    (first, _) = requests(220)
    table = read_json(first.command.body, dict[str, Any])["offsetTable"]
    offsets = {read_queue_key(key): offset for key, offset in table.items()}
    assert len(offsets) == 4
    assert write_json(ResetOffsets(offset_table=offsets), standard=False) == first.command.body
