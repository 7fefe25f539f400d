"""The broker's consumer groups: their settings, and which of them the hot path may serve.

In: group settings and the names that clients consume under. Out: `subscriptionGroup.json`.

Rules:
1. A group that nobody made is made with the original's defaults on first use, unless the broker was
   told not to (autoCreateSubscriptionGroup); the system's own groups always are.
2. A group that is forbidden to read a topic (5.x), or broadcasts though it may not, is none of the
   hot path's business: the pull handler looks at every request of it.
3. Above GROUP_COUNT_MAX groups, or rows.SIZE_MAX bytes of settings, no new one is made, and
   the log says so.
"""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from orbitmq.broker.encoded_rows import SIZE_MAX, EncodedRows, TableLimits
from orbitmq.broker.light_queues import LightQueues, light_group
from orbitmq.broker.repeated_failures import RepeatedFailure
from orbitmq.broker.table import TableFile
from orbitmq.config import BrokerSettings
from orbitmq.core import CoreState
from orbitmq.errors import RequestFailed
from orbitmq.wire.bodies_namesrv import (
    DataVersion,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
)
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.names import SYSTEM_GROUPS, group_fault, is_system_group
from orbitmq.wire.ready_tables import write_group_table
from orbitmq.world.clock import Clock
from orbitmq.world.files import Files

log = logging.getLogger(__name__)

GROUP_COUNT_MAX = 50_000
"""Groups of one broker; above it no new one is made."""

FORBIDDEN_READ = 4
"""The bit in 5.x's table of what groups may not do."""


class GroupTable:
    """All consumer groups of one broker."""

    def __init__(
        self,
        files: Files,
        folder: Path,
        core: CoreState,
        clock: Clock,
        settings: BrokerSettings,
        light: LightQueues,
    ) -> None:
        self._core = core
        self._clock = clock
        self.is_auto_made = settings.auto_create_subscription_group
        self._light = light
        self._rows: EncodedRows[SubscriptionGroupConfig] = EncodedRows()
        self._forbidden: dict[str, dict[str, int]] = {}
        self._withheld: set[str] = set()
        self._broadcasting: set[str] = set()
        self._full_failures = RepeatedFailure(log, clock)
        self._version = DataVersion(timestamp_ms=clock.wall_ms())
        self.file = TableFile(files, folder / "subscriptionGroup.json", self.contents)
        saved = self.file.load(SubscriptionGroupTable)
        if saved is not None:
            self._version = saved.data_version
            self._forbidden = saved.forbidden_table or {}
            for config in saved.subscription_group_table.values():
                self._adopt(config)
        for name in sorted(SYSTEM_GROUPS - self._rows.values.keys()):
            self.put(SubscriptionGroupConfig(group_name=name))

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """Return a group's settings, made now where that is allowed; None otherwise."""
        config = self.get(group)
        if config is None and (self.is_auto_made or is_system_group(group)):
            config = SubscriptionGroupConfig(group_name=group)
            if group_fault(group) is not None or self._room_fault([config]) is not None:
                return None  # what is full was told
            self.put(config)
        return config

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """Return a group's settings if it is there; makes nothing."""
        config = self._rows.values.get(group)
        if config is None and self._light.has(group):
            return light_group(group)
        return config

    def names(self) -> list[str]:
        """Return the names of all groups."""
        return list(self._rows.values)

    def put(self, config: SubscriptionGroupConfig) -> None:
        """Add a group or change its settings; what light groups have stays, as originally."""
        if self._light.has(config.group_name):
            return
        self._adopt(config)
        self._note_change()

    def check_room(self, configs: Iterable[SubscriptionGroupConfig]) -> None:
        """Raise RequestFailed when there is no room for these groups."""
        fault = self._room_fault(configs)
        if fault is not None:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, fault)

    def _room_fault(self, configs: Iterable[SubscriptionGroupConfig]) -> str | None:
        limits = TableLimits("groups", GROUP_COUNT_MAX, SIZE_MAX, "delete some (deleteSubGroup)")
        fault = self._rows.room_fault({config.group_name: config for config in configs}, limits)
        if fault is not None:
            self._full_failures.report(fault)
        return fault

    def remove(self, group: str) -> bool:
        """Take a group out; whether it was there."""
        config = self._rows.remove(group)
        self._core.groups.discard(group)
        if config is None and self._forbidden.pop(group, None) is None:
            return False
        self._forbidden.pop(group, None)
        self._note_change()
        return True

    def is_readable(self, group: str, topic: str) -> bool:
        """Whether the group is not forbidden to read the topic."""
        return not self._forbidden.get(group, {}).get(topic, 0) & FORBIDDEN_READ

    def set_readable(self, group: str, topic: str, *, is_readable: bool) -> None:
        """Forbid a group to read a topic, or allow it again."""
        topics = self._forbidden.setdefault(group, {})
        bits = topics.pop(topic, 0) & ~FORBIDDEN_READ
        bits |= 0 if is_readable else FORBIDDEN_READ
        if bits:
            topics[topic] = bits
        if not topics:
            del self._forbidden[group]
        self._look_at(group)
        self._note_change()

    def is_withheld(self, group: str) -> bool:
        """Whether a group's pulls are kept from the hot path for now."""
        return group in self._withheld

    def withhold(self, group: str, *, is_withheld: bool) -> None:
        """Keep a group's pulls from the hot path, or let it have them again."""
        (self._withheld.add if is_withheld else self._withheld.discard)(group)
        self._look_at(group)

    def note_model(self, group: str, *, is_broadcasting: bool) -> None:
        """Take note of how the group's members consume: one that broadcasts may be refused."""
        if is_broadcasting != (group in self._broadcasting):
            (self._broadcasting.add if is_broadcasting else self._broadcasting.discard)(group)
            self._look_at(group)

    def contents(self) -> Callable[[], bytes]:
        """Return what makes the table as it is now into a body; that may run in a thread."""
        version, rows = self._version, self._rows.written()
        forbidden = {group: dict(topics) for group, topics in self._forbidden.items()}
        return lambda: write_group_table(version, rows, forbidden)

    def _note_change(self) -> None:
        self._version = DataVersion(
            counter=self._version.counter + 1,
            timestamp_ms=self._clock.wall_ms(),
            state_version=self._version.state_version,
        )
        self.file.mark()

    def _adopt(self, config: SubscriptionGroupConfig) -> None:
        self._rows.put(config.group_name, config)
        self._look_at(config.group_name)

    def _look_at(self, group: str) -> None:
        """Let the hot path have the group's pulls where nothing about them is to be decided."""
        config = self._rows.values.get(group)
        is_plain = (
            config is not None
            and config.consume_enable
            and (config.consume_broadcast_enable or group not in self._broadcasting)
            and group not in self._forbidden
            and group not in self._withheld
        )
        (self._core.groups.add if is_plain else self._core.groups.discard)(group)
