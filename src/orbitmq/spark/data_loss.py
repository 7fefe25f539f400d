"""Messages that are gone before they were read: an error, or a warning; and every loss in words.

In: a queue or a log, and what is gone of it. Out: DataLoss, or a line in the log.

Rules:
1. With `failOnDataLoss` (the default) nothing is skipped: the error names topic, broker, queue and
   offsets, and what to change.
2. Without it reading goes on behind the gap, and a warning says the same.
3. This needs no client: readers of files report losses, too.
"""

import logging

from orbitmq.errors import MQError
from orbitmq.wire.bodies_client import MessageQueue

log = logging.getLogger(__name__)

KEEP_FILES = "Keep files longer (fileReservedTime) or read sooner. "
"""What helps a reader of a store folder."""


_WHY_OTHERS = "its topic was deleted and made again, or its broker has lost its newest messages"


class DataLoss(MQError):
    """Messages that should be read are not there any more."""


def report_loss(place: MessageQueue | str, what: str, *, fails: bool, advice: str = "") -> None:
    """Say what is lost of a queue or a log; raises DataLoss if that is to be an error."""
    where = place if isinstance(place, str) else name_of(place)
    if fails:
        raise DataLoss(
            f"{where}: {what}. {advice}If that may be, set the option 'failOnDataLoss' to false: "
            "reading then goes on with what is there"
        )
    log.warning("%s: %s; reading goes on with what is there", where, what)


def name_of(queue: MessageQueue) -> str:
    """Return a queue's name for people."""
    return f"queue {queue.queue_id} of topic {queue.topic} at broker {queue.broker_name}"


# --- losses in words ---


def removed(begin: int, end: int) -> str:
    """Say that a queue no longer has these messages."""
    return f"messages from offset {begin} to {end - 1} are gone before they were read"


def removed_bytes(begin: int, end: int) -> str:
    """Say that a log no longer has these bytes."""
    return f"bytes {begin} to {end - 1} of the log were removed before they were read"


def behind_end(offset: int, end: int) -> str:
    """Say that a queue ends before an offset that was asked for."""
    return (
        f"offset {offset} is behind its end, {end}: the topic was deleted and made again, or the "
        "offset is wrong"
    )


def topic_deleted(offset: int) -> str:
    """Say that a queue's topic is gone, and was read up to an offset."""
    return (
        "its topic was deleted, as its broker says; messages from offset "
        f"{offset} on that were not read are lost"
    )


def messages_replaced(offset: int) -> str:
    """Say that a queue has another message before an offset than the one that was read."""
    return f"its message at offset {offset - 1} is not the one that was read there: {_WHY_OTHERS}"


def ends_earlier(end: int, offset: int) -> str:
    """Say that a queue ends before an offset up to which it was read."""
    return f"it ends at {end}, but was read up to {offset}: {_WHY_OTHERS}"
