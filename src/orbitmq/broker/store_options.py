"""From the broker's settings to what the store and the hot core want to be told.

In: BrokerSettings. Out: StoreOptions, RetentionSettings, limits, the delays of the levels; or
SettingError.
Rule: the store knows no setting's key; this is the one place that translates.
"""

import re
from pathlib import Path

from orbitmq.broker.cold_reads import BULK_FILE_COUNT_MAX, FileLimits
from orbitmq.config import BrokerSettings
from orbitmq.core import CoreState
from orbitmq.errors import SettingError
from orbitmq.store.options import StoreOptions
from orbitmq.store.reading import ColdLimits
from orbitmq.store.retention import RetentionSettings, parse_hours
from orbitmq.store.store import largest_body
from orbitmq.wire.bodies_namesrv import PERM_READ
from orbitmq.world.machine import memory_bytes

_FRACTION = re.compile(r"[0-9]{0,3}\.?[0-9]{1,17}")
_USUAL = BrokerSettings()
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def store_options(settings: BrokerSettings) -> StoreOptions:
    """Return how the store is laid out and when it refuses."""
    return StoreOptions(
        log_folders=log_folders(settings),
        read_only_log_folders=_paths(settings, settings.read_only_commit_log_store_paths),
        log_file_size=settings.mapped_file_size_commit_log,
        queue_file_size=settings.mapped_file_size_consume_queue,
        index_slot_count=settings.max_hash_slot_num,
        index_entry_count=settings.max_index_num,
        is_indexed=settings.message_index_enable,
        delays_ms=parse_delays(settings.message_delay_level),
        is_extended=settings.enable_consume_queue_ext,
        extra_file_size=settings.mapped_file_size_consume_queue_ext,
        is_sync_flush=settings.flush_disk_type == "SYNC_FLUSH",
        unsynced_bytes_max=settings.unsynced_bytes_max,
        unsynced_ms_max=settings.unsynced_millis_max,
        hot_bytes=memory_bytes() * settings.access_message_in_memory_max_ratio // 100,
    )


def log_folders(settings: BrokerSettings) -> tuple[Path, ...]:
    """Return where the log is; none: in the store folder."""
    return _paths(settings, settings.store_path_commit_log)


def _paths(settings: BrokerSettings, text: str) -> tuple[Path, ...]:
    """Return the folders of a list, as the original splits it; blanks do not count."""
    words = text.split(settings.multi_path_splitter)
    return tuple(Path(word.strip()) for word in words if word.strip())


def retention_settings(settings: BrokerSettings) -> RetentionSettings:
    """Return when files are old and disks are full."""
    return RetentionSettings(
        reserved_ms=settings.file_reserved_time * _UNIT_MS["h"],
        delete_hours=settings.delete_when,
        max_used_ratio=settings.disk_max_used_space_ratio / 100,
        clean_forcibly_ratio=_ratio(
            settings.disk_space_clean_forcibly_ratio,
            _USUAL.disk_space_clean_forcibly_ratio,
            settings.disk_space_clean_forcibly_fraction,
            "rocketmq.broker.diskSpaceCleanForciblyRatio",
        ),
        warning_ratio=_ratio(
            settings.disk_space_warning_level_ratio,
            _USUAL.disk_space_warning_level_ratio,
            settings.disk_space_warning_level_fraction,
            "rocketmq.broker.diskSpaceWarningLevelRatio",
        ),
        is_forcible=settings.clean_file_forcibly_enable,
        least_free_bytes=settings.disk_free_bytes_least,
    )


def _ratio(percent: int, default: int, fraction: str, key: str) -> float:
    """A part of the disk: the per-cent setting if it is another than usual, or `fraction`."""
    if not fraction or percent != default:
        return percent / 100
    return _fraction(fraction, key)


def _fraction(text: str, key: str) -> float:
    """Return a part of the disk; raises SettingError for what is none."""
    if _FRACTION.fullmatch(text.strip()) is None or not 0.01 <= float(text) <= 0.99:
        raise SettingError(f"{key}={text[:80]} cannot be used; expected a fraction, 0.01 to 0.99")
    return float(text)


def set_core_limits(core: CoreState, settings: BrokerSettings) -> None:
    """Tell the hot core how large messages and answers may be, and what answers say."""
    core.set_answer(settings.region_id, is_traced=settings.trace_on)
    core.body_size_max = min(settings.max_message_size, largest_body(core.tail.file_size))
    core.send_from_ms = settings.start_accept_send_request_time_stamp
    core.pull_count_max = settings.max_transfer_count_on_message_in_memory
    core.pull_bytes_max = settings.max_transfer_bytes_on_message_in_memory
    core.bulk_bytes_max = settings.max_transfer_bytes_on_bulk_pull
    core.is_pull_plain = is_pull_plain(settings)


def is_pull_plain(settings: BrokerSettings) -> bool:
    """Whether the hot core may answer pulls: no check or choice is asked for beyond its own."""
    return bool(settings.broker_permission & PERM_READ) and not (
        settings.filter_support_retry or settings.slave_read_enable
    )


def file_limits(settings: BrokerSettings) -> FileLimits:
    """Return how much one answer takes from the files."""
    bulk_bytes_max = settings.max_transfer_bytes_on_bulk_pull
    return FileLimits(
        recent=ColdLimits(
            settings.max_transfer_count_on_message_in_memory,
            settings.max_transfer_bytes_on_message_in_memory,
        ),
        old=ColdLimits(
            settings.max_transfer_count_on_message_in_disk,
            settings.max_transfer_bytes_on_message_in_disk,
        ),
        bulk=ColdLimits(BULK_FILE_COUNT_MAX, bulk_bytes_max) if bulk_bytes_max else None,
    )


def check_settings(settings: BrokerSettings) -> None:
    """Raise SettingError for texts that say nothing to the store."""
    if not settings.multi_path_splitter:
        raise SettingError("rocketmq.broker.multiPathSplitter is empty; leave it out, or name one")
    retention_settings(settings)
    parse_hours(settings.delete_when)
    parse_delays(settings.message_delay_level)


def parse_delays(text: str) -> tuple[int, ...]:
    """Return the delay of level 1, 2, 3 … in ms, from words such as `5s 1m 2h`."""
    delays = []
    for word in text.split():
        number, unit = word[:-1], word[-1]
        if unit not in _UNIT_MS or not (number.isascii() and number.isdigit()):
            raise SettingError(
                f"messageDelayLevel {text!r}: {word!r} is no delay; write a number and s, m, h or d"
            )
        delays.append(int(number) * _UNIT_MS[unit])
    return tuple(delays)
