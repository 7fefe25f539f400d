"""Retention: which log files may go, and when the disk is too full to take messages.

In: the facts of one check (files and their ages, space, clocks). Out: what to remove, whether to
refuse, and why. Nothing here touches a file; queues and index follow what became of the log.

Rules:
1. Files go from the oldest on, at most `batch_max` a check, never the last one. The first that is
   too young ends it: nothing is removed in the middle.
2. Age counts in the hours set for it, when a disk is fuller than the first ratio, or when asked by
   hand. Above the second ratio (and with is_forcible) age does not count.
3. Writes are refused above the third ratio, and only when little room is left in bytes as well: a
   tenth of a big disk is room enough. That ends by itself.
4. A wall clock that jumped forward makes nothing old until a second check says the same. Of the
   first check after a start nobody knows: it counts as a jump.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from orbitmq.errors import SettingError
from orbitmq.world.files import Space

MANUAL_ROUNDS = 20
"""How many checks a removal by hand is good for, as in the original."""

JUMP_MS_MAX = 60_000
"""How much more the wall clock may move than the monotonic one between two checks."""

_HOUR_MS = 3_600_000
_GIB = 1 << 30


class RetentionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When files are old and disks are full; the defaults are the original's."""

    reserved_ms: int = 72 * _HOUR_MS
    delete_hours: str = "04"
    max_used_ratio: float = 0.75
    clean_forcibly_ratio: float = 0.85
    warning_ratio: float = 0.90
    is_forcible: bool = True
    least_free_bytes: int = 5 * _GIB
    """Ours: with so much room left, writes are not refused whatever the ratio is."""
    batch_max: int = 10


class LogFile(NamedTuple):
    """A log file: its number (first offset // file size) and when it was last written to."""

    number: int
    modified_ms: int


class Disk(NamedTuple):
    """The disk that holds a folder."""

    folder: Path
    space: Space


class Facts(NamedTuple):
    """What one check is told. `local_hour` is that of the wall clock, where the broker runs."""

    log_files: Sequence[LogFile]
    disks: Sequence[Disk]
    wall_ms: int
    monotonic_s: float
    local_hour: int


class Decision(NamedTuple):
    """What follows from one check; `reason` says why files go, or why none do although asked."""

    remove: list[int]
    refusal: str
    reason: str
    is_forced: bool = False
    """Whether files go that are younger than they should become, for lack of space."""


class Retention:
    """Decides, check by check."""

    def __init__(self, settings: RetentionSettings) -> None:
        self._settings = settings
        self._hours = parse_hours(settings.delete_hours)
        self._rounds = 0
        self._clock: tuple[int, float] | None = None

    def change(self, settings: RetentionSettings) -> None:
        """Decide by other settings from the next check on; raises SettingError for no hours."""
        hours = parse_hours(settings.delete_hours)
        self._settings, self._hours = settings, hours

    def ask_manual(self, rounds: int = MANUAL_ROUNDS) -> None:
        """Let the next checks remove what is old, whatever the hour and the space."""
        self._rounds = rounds

    def full_folders(self, disks: Sequence[Disk]) -> frozenset[Path]:
        """Say in which of several folders no file is made: age does not count on their disks."""
        limit = self._settings.clean_forcibly_ratio
        return frozenset(disk.folder for disk in disks if used_ratio(disk.space) > limit)

    def decide(self, facts: Facts) -> Decision:
        """Say what to remove now and whether to refuse writes."""
        doubt = self._doubt(facts)
        fullest = max(facts.disks, key=lambda disk: used_ratio(disk.space), default=None)
        ratio = used_ratio(fullest.space) if fullest is not None else 0.0
        cause = self._cause(facts, fullest, ratio)
        refusal = self._refusal(facts.disks)
        if not cause:
            return Decision([], refusal, "")
        is_forced = self._settings.is_forcible and ratio > self._settings.clean_forcibly_ratio
        if doubt and not is_forced:
            reason = f"{cause}; but {doubt}: nothing is removed until the next one finds the same"
            return Decision([], refusal, reason)
        remove = self._expired(facts, is_forced=is_forced)
        if not remove and ratio > self._settings.max_used_ratio:
            cause = (
                f"{cause}; but no file may go: {self._retained_because(facts, is_forced=is_forced)}"
            )
        return Decision(remove, refusal, cause, is_forced)

    def _doubt(self, facts: Facts) -> str:
        """Say why this check must not believe the wall clock; the one after it may."""
        before, self._clock = self._clock, (facts.wall_ms, facts.monotonic_s)
        if before is None:
            return "this is the first check after the start, and the wall clock may be wrong"
        passed_ms = (facts.monotonic_s - before[1]) * 1000
        if facts.wall_ms - before[0] - passed_ms > JUMP_MS_MAX:
            return "the wall clock jumped forward since the last check"
        return ""

    def _cause(self, facts: Facts, fullest: Disk | None, ratio: float) -> str:
        """Say why files may go at this check; empty when nothing calls for it."""
        settings = self._settings
        is_asked = self._rounds > 0
        self._rounds -= is_asked
        if fullest is not None and ratio > settings.max_used_ratio:
            setting, limit = "diskMaxUsedSpaceRatio", settings.max_used_ratio
            if settings.is_forcible and ratio > settings.clean_forcibly_ratio:
                setting, limit = "diskSpaceCleanForciblyRatio", settings.clean_forcibly_ratio
            return f"{_fullness(fullest)}, limit {limit:.0%} ({setting})"
        if is_asked:
            return f"asked by hand, {self._rounds} more checks will follow"
        if facts.local_hour in self._hours:
            return f"it is {facts.local_hour:02d} o'clock (deleteWhen {settings.delete_hours})"
        return ""

    def _expired(self, facts: Facts, *, is_forced: bool) -> list[int]:
        files = sorted(facts.log_files)
        remove: list[int] = []
        for number, modified_ms in files[:-1]:
            is_old = facts.wall_ms - modified_ms >= self._settings.reserved_ms
            if len(remove) == self._settings.batch_max or not (is_old or is_forced):
                break
            remove.append(number)
        return remove

    def _retained_because(self, facts: Facts, *, is_forced: bool) -> str:
        if len(facts.log_files) <= 1:
            return "the log's last file stays"
        hours = self._settings.reserved_ms / _HOUR_MS
        text = f"the oldest is younger than {hours:g} h (fileReservedTime)"
        if not is_forced and not self._settings.is_forcible:
            text += ", and age always counts (cleanFileForciblyEnable=false)"
        return text

    def _refusal(self, disks: Sequence[Disk]) -> str:
        settings = self._settings
        for disk in disks:
            is_full = used_ratio(disk.space) > settings.warning_ratio
            if is_full and disk.space.free < settings.least_free_bytes:
                return (
                    f"{_fullness(disk)}, limit {settings.warning_ratio:.0%} "
                    f"(diskSpaceWarningLevelRatio) when less than "
                    f"{settings.least_free_bytes / _GIB:g} GiB is free (diskFreeBytesLeast); free "
                    "space there, or shorten fileReservedTime"
                )
        return ""


def least_used(disks: Sequence[Disk]) -> Disk:
    """Return the disk of which least is used."""
    return min(disks, key=lambda disk: used_ratio(disk.space))


def used_ratio(space: Space) -> float:
    """Return how much of a file system is used, 0 to 1; 0 when it has no size."""
    return 1 - space.free / space.total if space.total > 0 else 0.0


def parse_hours(text: str) -> frozenset[int]:
    """Return the hours of a `;`-separated list; raises SettingError for what is no hour."""
    hours: set[int] = set()
    for part in text.split(";"):
        word = part.strip()
        if not word:
            continue
        if not (word.isascii() and word.isdigit() and int(word) < 24):
            raise SettingError(f"deleteWhen {text!r}: {word!r} is no hour from 00 to 23")
        hours.add(int(word))
    return frozenset(hours)


def _fullness(disk: Disk) -> str:
    return (
        f"the disk of {disk.folder} is {used_ratio(disk.space):.1%} full, "
        f"{disk.space.free / _GIB:.2f} of {disk.space.total / _GIB:.2f} GiB free"
    )
