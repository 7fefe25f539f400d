"""What the tests of the hot core share: states, frames, and the implementations to test.

Every test of the core runs once per entry of IMPLEMENTATIONS; the compiled twin is added here.
"""

import importlib
import importlib.util
from types import ModuleType

from orbitmq import core as chosen_core
from orbitmq.core import CoreState, Origin, Subscription, chosen, plain
from orbitmq.wire.command import Command, encode_command
from orbitmq.wire.host import Host, pack_host

IMPLEMENTATIONS: dict[str, ModuleType] = {"plain": plain}
if importlib.util.find_spec(chosen.MODULE) is not None:
    IMPLEMENTATIONS["compiled"] = importlib.import_module(chosen.MODULE)

BORN = Host("10.1.2.3", 4567)
STORE = Host("127.0.0.1", 10911)
ORIGIN = Origin(pack_host(BORN), pack_host(STORE))
"""Of the core that this process has chosen; see `origin`."""
NOW_MS = 1_700_000_000_000


def origin(core: ModuleType) -> Origin:
    """Return where the messages come from, as a core of two has it."""
    made: Origin = core.Origin(pack_host(BORN), pack_host(STORE))
    return made


def new_state(
    core: ModuleType = chosen_core, file_size: int = 1 << 20, queue_count: int = 4
) -> CoreState:
    """Return a state with topic T, group G that has subscribed to all of it, and an empty log."""
    state: CoreState = core.CoreState(core.LogTail(file_size, 0), "DefaultCluster", "DefaultRegion")
    state.set_store_id(b"7F00000100002A9F")
    topic = state.topics["T"] = core.Topic("T", queue_count, is_plain=True, is_readable=True)
    for queue_id in range(queue_count):
        topic.queues[queue_id] = core.Queue("T", queue_id, 0)
    state.groups.add("G")
    state.subscriptions["G", "T"] = Subscription(7, None)
    return state


def send_frame(body: bytes = b"hello", *, code: int = 310, **changes: str | int) -> bytes:
    """Return a send as a Java client writes it; `changes` are header or ext fields."""
    letters = {
        "a": "PG",
        "b": "T",
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": "1699999999999",
        "h": "3",
        "i": "UNIQ_KEY\x01ABC\x02TAGS\x01TagA",
        "j": "0",
        "k": "false",
        "l": "0",
        "m": "false",
    }
    opaque = int(changes.pop("opaque", 1))
    flag = int(changes.pop("flag", 0))
    letters.update({name: str(value) for name, value in changes.items()})
    fields = (
        letters
        if code != 10
        else {_LONG.get(letter, letter): text for letter, text in letters.items()}
    )
    return encode_command(Command(code, opaque=opaque, flag=flag, fields=fields, body=body))


_LONG = dict(
    zip(
        "abcdefghijklm",
        (
            "producerGroup",
            "topic",
            "defaultTopic",
            "defaultTopicQueueNums",
            "queueId",
            "sysFlag",
            "bornTimestamp",
            "flag",
            "properties",
            "reconsumeTimes",
            "unitMode",
            "maxReconsumeTimes",
            "batch",
        ),
        strict=True,
    )
)


def pull_frame(queue_offset: int, **changes: str | int) -> bytes:
    """Return a pull of queue 0 as a push consumer writes it."""
    opaque = int(changes.pop("opaque", 1))
    fields = {
        "consumerGroup": "G",
        "topic": "T",
        "queueId": "0",
        "queueOffset": str(queue_offset),
        "maxMsgNums": "32",
        "sysFlag": "2",
        "commitOffset": "0",
        "suspendTimeoutMillis": "15000",
        "subVersion": "7",
    }
    fields.update({name: str(value) for name, value in changes.items()})
    return encode_command(Command(11, opaque=opaque, fields=fields))


def publish(state: CoreState) -> bytes:
    """Do what the store does at the end of a turn, into memory; return the log's bytes so far."""
    tail = state.tail
    data = bytes(tail.take().data)
    for topic in state.topics.values():
        for queue in topic.queues.values():
            queue.readable_offset = queue.next_offset
    written = b"".join(bytes(tail.views[number]) for number in sorted(tail.views))
    written = written[: tail.written_offset] + data
    tail.written.advance(tail.end_offset)
    for number in range(-(-len(written) // tail.file_size)):
        piece = written[number * tail.file_size : (number + 1) * tail.file_size]
        tail.views[number] = memoryview(piece.ljust(tail.file_size, b"\0"))
    return written
