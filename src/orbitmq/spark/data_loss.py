"""Messages that are gone before they were read: an error, or a line in the log.

In: ranges of offsets and what queues hold. Out: the ranges that can be read.

Rules:
1. With `failOnDataLoss` (the default) nothing is skipped: the error names topic, broker, queue and
   both offsets, and what to change.
2. Without it reading goes on behind the gap, and a warning says the same.
"""

import logging

from orbitmq.errors import MQError
from orbitmq.spark.queue_words import told_of
from orbitmq.wire.bodies_client import MessageQueue

log = logging.getLogger(__name__)


class DataLoss(MQError):
    """Messages that should be read are not there any more."""


def lost(queue: MessageQueue, what: str, *, fails: bool) -> None:
    """Say that messages of a queue are gone; raises DataLoss if that is to be an error."""
    if fails:
        raise DataLoss(
            f"{told_of(queue)}: {what}. If that may be, set the option 'failOnDataLoss' to false: "
            "reading then goes on with what is there"
        )
    log.warning("%s: %s; reading goes on with what is there", told_of(queue), what)


def told_gap(begin: int, end: int) -> str:
    """Return a gap in words."""
    return f"messages from offset {begin} to {end - 1} are gone before they were read"
