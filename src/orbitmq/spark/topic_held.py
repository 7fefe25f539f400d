"""What queues still hold of the ranges that are to be read.

In: ranges, and the first and last offsets of queues. Out: the ranges without what is not there.

Rules:
1. Messages before a queue's first offset are gone, those behind its end were never there or went
   with a topic that was deleted and made again: both are a loss (see `data_loss`).
2. A range that ends where it begins, or before, is empty.
"""

from collections.abc import Collection
from typing import Protocol

from orbitmq.spark.data_loss import behind_end, removed, report_loss
from orbitmq.spark.offsets import Offsets
from orbitmq.spark.topic_planning import Range


class Held(Protocol):
    """Says what queues hold."""

    @property
    def first(self) -> Offsets:
        """The offsets of the oldest messages."""
        ...

    @property
    def last(self) -> Offsets:
        """The offsets behind the newest messages."""
        ...


def held(ranges: Collection[Range], bounds: Held, *, fails: bool) -> list[Range]:
    """Return what can be read of ranges; raises DataLoss if something is gone and `fails`."""
    found = [_held(each, bounds, fails=fails) for each in ranges if each.length > 0]
    return [each for each in found if each.length > 0]


def _held(whole: Range, bounds: Held, *, fails: bool) -> Range:
    queue, begin, end = whole
    first, last = bounds.first[queue], bounds.last[queue]
    if end > last:
        report_loss(queue, behind_end(end, last), fails=fails)
        end = last
    if begin < first:
        report_loss(queue, removed(begin, min(first, end)), fails=fails)
        begin = first
    return Range(queue, begin, max(begin, end))
