"""Why the store takes no records at the moment: one reason at a time, the gravest first.

In: how far the disk is behind, what retention says of its space, a failed sync, and what the broker
says of itself. Out: `refusal` in the tail, which the hot path looks at, and the kind of it, which
decides the answer's code.

Rules:
1. Every text names the cause, the figures and the setting that changes it.
2. All but a halt end by themselves when their cause ends.
3. What ends soon (BEHIND, BUSY) begins as the original's refusals do: clients look at that.
"""

from enum import StrEnum

from orbitmq.core import LogTail
from orbitmq.errors import StoreError
from orbitmq.store.options import StoreOptions

_MIB = 1_048_576
_REJECTED = "[REJECTREQUEST]system busy, start flow control for a while: "


class RefusalKind(StrEnum):
    """What stands in the way, the gravest first."""

    HALTED = "halted"
    DISK = "disk"
    BEHIND = "behind"
    BUSY = "busy"


class Refusals:
    """Keeps the reasons and puts the gravest into the tail."""

    def __init__(self, tail: LogTail, options: StoreOptions) -> None:
        self._tail = tail
        self._options = options
        self._reasons: dict[RefusalKind, str] = {}
        self._unsynced_since_s: float | None = None

    @property
    def kind(self) -> RefusalKind | None:
        """What stands in the way now."""
        return next((kind for kind in RefusalKind if self._reasons.get(kind)), None)

    def halt(self, cause: str) -> None:
        """Take nothing any more until the store is opened anew."""
        if RefusalKind.HALTED not in self._reasons:
            self._set(
                RefusalKind.HALTED,
                f"the store takes no more messages: {cause}; what was acknowledged before can still"
                " be read. Look after the disk, then restart the broker: it reads back what the"
                " disk has",
            )

    def check_not_halted(self) -> None:
        """Raise StoreError when the store is halted."""
        reason = self._reasons.get(RefusalKind.HALTED)
        if reason:
            raise StoreError(reason)

    def note_disk(self, refusal: str) -> None:
        """Take in what retention says of the disk; empty when there is room."""
        self._set(RefusalKind.DISK, refusal)

    def note_behind(self, unsynced_bytes: int, unwritten_bytes: int, now_s: float) -> None:
        """Take in how far the disk is behind the log."""
        if not unsynced_bytes:
            self._unsynced_since_s = None
        elif self._unsynced_since_s is None:
            self._unsynced_since_s = now_s
        options, since_s = self._options, self._unsynced_since_s
        age_ms = 0 if since_s is None else int((now_s - since_s) * 1000)
        reason = ""
        if unsynced_bytes > options.unsynced_bytes_max:
            reason = (
                f"{unsynced_bytes // _MIB} MiB of the log are not synced yet, limit "
                f"{options.unsynced_bytes_max // _MIB} MiB (unsyncedBytesMax): the disk is too slow"
            )
        elif age_ms > options.unsynced_ms_max:
            reason = (
                f"the log has not been synced for {age_ms} ms, limit {options.unsynced_ms_max} ms"
                " (unsyncedMillisMax): the disk is too slow"
            )
        elif unwritten_bytes > options.unwritten_bytes_max:
            reason = (
                f"{unwritten_bytes // _MIB} MiB of queue and index entries wait to be written,"
                f" limit {options.unwritten_bytes_max // _MIB} MiB: the disk is too slow or full"
            )
        if reason or RefusalKind.BEHIND in self._reasons:
            self._set(RefusalKind.BEHIND, reason and _REJECTED + reason)

    def note_busy(self, refusal: str) -> None:
        """Take in why the broker can do no more; empty when it can."""
        self._set(RefusalKind.BUSY, refusal)

    def restart_age(self, since_s: float | None) -> None:
        """Say that a sync is over, and since when there are bytes that it did not cover."""
        self._unsynced_since_s = since_s

    def unsynced_ms(self, now_s: float) -> int:
        """Return how long the oldest unsynced byte has waited."""
        since = self._unsynced_since_s
        return 0 if since is None else int((now_s - since) * 1000)

    def _set(self, kind: RefusalKind, reason: str) -> None:
        if reason:
            self._reasons[kind] = reason
        else:
            self._reasons.pop(kind, None)
        gravest = self.kind
        self._tail.refuse(self._reasons[gravest] if gravest is not None else "")
