"""Reading the log from an offset on: its records, and what damage lies between them.

In: the log's files. Out: records in order, gaps, and where the log ends.

Rules:
1. The first bytes p that are no record: when the log goes on at q, in this file or a later one,
   [p, q) is a gap and the walk goes on at q; otherwise the log ends at p. `record_search` finds q.
   A record that the queues refute (entry_proof.py) does not count there: a body can hold whole
   records.
2. It never ends below the floor, up to which the log surely was written. Where only a prefix may be
   kept (after a power cut) it ends at the first p that is not below the floor.
3. Memory is bounded, and time is linear in the bytes looked at, whatever they hold.
"""

from collections.abc import Callable, Iterator

from orbitmq.core import Walked
from orbitmq.store.log_source import Gap, LogFiles, LogSource, walk_file
from orbitmq.store.record_search import resumes_at

LOOK_SIZE = 65_536
"""So much behind the end of a log that was closed must be zeros."""

Refute = Callable[[Walked], bool]


def _nothing_refuted(_walked: Walked) -> bool:
    return False


class _Proven(LogSource):
    """The log's files, without the records that the queues refute."""

    def __init__(self, log: LogFiles, is_refuted: Refute) -> None:
        self._log = log
        self._is_refuted = is_refuted

    def read(self, log_offset: int, size: int) -> bytes:
        """Return bytes of one file, less where it ends."""
        return self._log.read(log_offset, size)

    def file_end(self, log_offset: int) -> int:
        """Return the log offset at which the file of this one ends."""
        return self._log.file_end(log_offset)

    def first_nonzero(self, log_offset: int, end: int) -> int | None:
        """Return the offset of the first byte of [log_offset, end) in one file that is not zero."""
        return self._log.first_nonzero(log_offset, end)

    def accepts(self, walked: Walked) -> bool:
        """Whether a record was written to its end, and is no part of another one's body."""
        is_first = walked.log_offset % self._log.file_size == 0  # there is no outer one
        return self._log.accepts(walked) and (is_first or not self._is_refuted(walked))


class Scan:
    """One walk over the log. `end_offset` holds when it is over."""

    def __init__(
        self,
        log: LogFiles,
        start: int,
        floor: int,
        *,
        is_prefix_only: bool,
        sure_end: int = -1,
        is_refuted: Refute = _nothing_refuted,
    ) -> None:
        """`sure_end`: the log was closed there; when nothing is there, nothing is looked for.

        `is_refuted` tells of a record found inside damage whether it cannot be one of the log.
        """
        self._log = log
        self._floor = floor
        self._is_prefix_only = is_prefix_only
        self._sure_end = sure_end
        self._is_refuted = is_refuted
        self._numbers = set(log.numbers)
        self.end_offset = start
        self.following: int | None = None
        """Where, behind the end, the first record lies that is not kept."""

    def walk(self) -> Iterator[Walked | Gap]:
        """Return records and gaps in order."""
        log = self._log
        while True:
            offset = self.end_offset
            if offset // log.file_size in self._numbers:
                file_end = log.file_end(offset)
                for walked in walk_file(log, offset):
                    self.end_offset = walked.log_offset + walked.size
                    yield walked
                offset = self.end_offset
                if offset == file_end or log.is_filled(offset):
                    self.end_offset = file_end
                    continue
            if offset == self._sure_end and self._is_free(offset):
                return
            gap = self._gap(offset)
            if gap is None:
                return
            yield gap
            self.end_offset = gap.end

    def _gap(self, offset: int) -> Gap | None:
        """Return the damage that begins here, or None when the log ends here."""
        following = self._following(offset)
        if offset < self._floor:
            return Gap(offset, min(following, self._floor) if following else self._floor)
        if following is None:
            return None
        if self._is_prefix_only:
            self.following = following
            return None
        return Gap(offset, following)

    def _following(self, offset: int) -> int | None:
        """Return where, behind bytes that are no record, the log goes on, if it does."""
        log = self._log
        number = offset // log.file_size
        later = [each * log.file_size for each in log.numbers if each > number]
        return resumes_at(_Proven(log, self._is_refuted), offset, later)

    def _is_free(self, offset: int) -> bool:
        number, position = divmod(offset, self._log.file_size)
        if number not in self._numbers:
            return position == 0 and number - 1 in self._numbers
        return not any(self._log.read(offset, LOOK_SIZE))
