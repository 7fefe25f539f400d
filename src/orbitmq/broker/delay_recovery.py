"""After a start: what was delivered of the delay levels since their file was written.

In: the log behind the file's `deliveredLogOffset`, and the levels' queues. Out: for each level the
next message to deliver. It reads files and runs in a thread.

Rules:
1. A delivered copy is a record outside the schedule topic that names a level and, as the place it
   belongs to, the very queue it is in.
2. Copies of a level come in the order of its queue. Each copy must be like the message that is next
   (its properties, the cluster's name aside); one that is like none is somebody else's.
3. Messages that cannot be delivered have no copy and are passed over. Those of a topic that was
   removed may have one or none.
"""

from collections import deque
from collections.abc import Callable

from orbitmq.broker.delay_copies import delivered_message
from orbitmq.broker.puts import admitted
from orbitmq.broker.queue_follower import read_records
from orbitmq.core import Walked, Way, parse_level
from orbitmq.store.log_reader import LogReader
from orbitmq.store.reading import ColdReader, QueueView
from orbitmq.wire import properties as names
from orbitmq.wire.names import SCHEDULE_TOPIC
from orbitmq.wire.properties import parse_properties

_REAL_TOPIC = f"{names.REAL_TOPIC}{names.NAME_END}".encode()

Copies = dict[int, deque[int]]
"""Level to the likenesses of its delivered copies, in the order of the log."""


def find_copies(log: LogReader, start: int, end: int) -> Copies:
    """Return the delivered copies between two log offsets."""
    copies: Copies = {}
    position = start
    while position < end:
        records, next_position = log.records(position)
        for record in records:
            if record.log_offset < end and _REAL_TOPIC in record.properties:
                _add(copies, record)
        if next_position <= position:
            break
        position = next_position
    return copies


def behind_delivered(
    reader: ColdReader,
    view: QueueView,
    queue_offset: int,
    copies: deque[int],
    removed_end: Callable[[str], int],
) -> int:
    """Return the first offset from `queue_offset` on whose message none of `copies` is for.

    `removed_end` gives where the log ended when a topic was removed.
    """
    offset = queue_offset
    while copies and offset < view.readable_offset:
        records, next_offset = read_records(reader, view, offset)
        for record in records.values():
            message = delivered_message(record)
            if message is None:
                continue
            if _take(copies, _likeness(message.own)):
                queue_offset = record.queue_offset + 1
            elif record.log_offset >= removed_end(message.topic):
                return queue_offset
        if next_offset <= offset:
            break
        offset = next_offset
    return queue_offset


def _take(copies: deque[int], likeness: int) -> bool:
    """Take the first copy that is like a message and what lies before it; False when none is."""
    if likeness not in copies:
        return False
    while copies.popleft() != likeness:
        pass
    return True


def _add(copies: Copies, record: Walked) -> None:
    copy = admitted(record.properties, Way.AGAIN)
    level = parse_level(copy.values.get(names.DELAY, "")) or 0
    place = (record.topic, str(record.queue_id))
    named = (copy.values.get(names.REAL_TOPIC), copy.values.get(names.REAL_QID))
    if level > 0 and record.topic != SCHEDULE_TOPIC and place == named:
        copies.setdefault(level, deque()).append(_likeness(copy.own))


def _likeness(own: bytes) -> int:
    return hash(frozenset(parse_properties(own).items()))
