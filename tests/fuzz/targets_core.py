"""Fuzz targets of the hot core and of settings files.

Rule: whatever a peer sends, one read ends with the state in order: what is used lies inside the
read, what is staged is whole records that a reader accepts, and every send is answered once.
"""

from collections.abc import Callable

from orbitmq.config import parse_properties, write_properties
from orbitmq.errors import SettingError
from orbitmq.wire.command import decode_command
from orbitmq.wire.frame import FrameDecoder
from orbitmq.wire.record import scan_records
from tests.core.hot import (
    IMPLEMENTATIONS,
    NOW_MS,
    new_state,
    origin,
    publish,
    pull_frame,
    send_frame,
)


def fuzz_one_read(data: bytes) -> None:
    """One read of anything, behind a message that is there already."""
    for core in IMPLEMENTATIONS.values():
        state = new_state(core)
        core.handle_one_read(state, send_frame(), 0, origin(core), NOW_MS)
        publish(state)
        result = core.handle_one_read(state, data, 0, origin(core), NOW_MS)
        assert 0 <= result.used <= len(data)
        assert result.log_end == state.tail.end_offset
        staged = len(state.tail.staged)
        assert state.tail.end_offset - state.tail.written_offset == staged
        records = list(scan_records(publish(state)))
        assert len(records) == sum(queue.next_offset for queue in state.topics["T"].queues.values())
        answers = FrameDecoder().feed(b"".join(result.answers))
        sent = [answer for answer in map(decode_command, answers) if "msgId" in answer.fields]
        assert len(sent) <= len(records) - 1  # one-way sends are not answered


def fuzz_settings_file(data: bytes) -> None:
    """Java properties; what was read is written and read again alike."""
    try:
        properties = parse_properties(data)
    except SettingError:
        return
    assert parse_properties(write_properties(properties)) == properties


TARGETS: dict[str, Callable[[bytes], None]] = {
    "one read": fuzz_one_read,
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
    "settings file": [
        b"listenPort=9876\n# note\nbindAddress = 0.0.0.0\n",
        b"a\\:b:c\\\n  d\nk\\u0041=\\t\\u20AC\n!x\n= y\n",
    ],
}
