"""Fuzz targets of the hot core, of opening a log, and of settings files.

Rule: whatever a peer sends, one read ends with the state in order: what is used lies inside the
read, what is staged is whole records that a reader accepts, and every send is answered once.
"""

from collections.abc import Callable

from orbitmq.config import parse_properties, write_properties
from orbitmq.core import LogTail
from orbitmq.errors import RemoteProtocolError, SettingError, StoreError
from orbitmq.store.load import scan
from orbitmq.wire.command import decode_command
from orbitmq.wire.frame import FrameDecoder
from orbitmq.wire.record import scan_records
from tests.core.hot import (
    IMPLEMENTATIONS,
    NOW_MS,
    ORIGIN,
    new_state,
    publish,
    pull_frame,
    send_frame,
)

FILE_SIZE = 4_096


def fuzz_one_read(data: bytes) -> None:
    """One read of anything, behind a message that is there already."""
    for core in IMPLEMENTATIONS.values():
        state = new_state()
        core.handle_one_read(state, send_frame(), 0, ORIGIN, NOW_MS)
        publish(state)
        result = core.handle_one_read(state, data, 0, ORIGIN, NOW_MS)
        assert 0 <= result.used <= len(data)
        assert result.log_end == state.tail.end_offset
        staged = sum(map(len, state.tail.parts))
        assert state.tail.end_offset - state.tail.written_offset == staged
        records = list(scan_records(publish(state)))
        assert len(records) == sum(queue.next_offset for queue in state.topics["T"].queues.values())
        answers = FrameDecoder().feed(b"".join(result.answers))
        sent = [answer for answer in map(decode_command, answers) if "msgId" in answer.fields]
        assert len(sent) <= len(records) - 1  # one-way sends are not answered


def fuzz_scan_of_a_log(data: bytes) -> None:
    """Any bytes as the files of a log: records or the end, and nothing is read twice."""
    data = data[: 2 * FILE_SIZE]
    tail = LogTail(FILE_SIZE, 0)
    files = [data[:FILE_SIZE], data[FILE_SIZE:]]
    tail.views = {n: memoryview(piece.ljust(FILE_SIZE, b"\0")) for n, piece in enumerate(files)}
    end = 0
    for found in scan(tail, [0, 1]):
        assert found.log_offset >= end
        end = found.log_offset + found.size
        assert end == tail.end_offset
    assert end <= tail.end_offset <= 2 * FILE_SIZE


def fuzz_settings_file(data: bytes) -> None:
    """Java properties; what was read is written and read again alike."""
    try:
        properties = parse_properties(data)
    except SettingError:
        return
    assert parse_properties(write_properties(properties)) == properties


def _log_of_two_files() -> bytes:
    state = new_state(file_size=FILE_SIZE)
    core = IMPLEMENTATIONS["plain"]
    for number in range(4):
        core.handle_one_read(state, send_frame(bytes(1_000 + number)), 0, ORIGIN, NOW_MS)
    return publish(state)


def _small_log() -> bytes:
    state = new_state(file_size=FILE_SIZE)
    IMPLEMENTATIONS["plain"].handle_one_read(state, send_frame() * 3, 0, ORIGIN, NOW_MS)
    return publish(state)


ALLOWED = (RemoteProtocolError, StoreError)
TARGETS: dict[str, Callable[[bytes], None]] = {
    "one read": fuzz_one_read,
    "scan of a log": fuzz_scan_of_a_log,
    "settings file": fuzz_settings_file,
}
SEEDS: dict[str, list[bytes]] = {
    "one read": [
        send_frame(),
        send_frame(code=10, e=3, flag=2),
        pull_frame(0),
        pull_frame(0, sysFlag=6, subscription="*"),
        send_frame(b"x" * 50, i="TAGS\x01a\x02WAIT\x01true\x02") + pull_frame(0) + send_frame(e=1),
    ],
    "scan of a log": [_small_log(), _log_of_two_files()],
    "settings file": [
        b"listenPort=9876\n# note\nbindAddress = 0.0.0.0\n",
        b"a\\:b:c\\\n  d\nk\\u0041=\\t\\u20AC\n!x\n= y\n",
    ],
}
