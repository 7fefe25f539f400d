"""The broker's consumer groups: their settings, and which of them the hot path may serve.

In: group settings and the names that clients consume under. Out: `subscriptionGroup.json`.

Rule: a group that nobody made is made with the original's defaults on first use, unless the broker
was told not to (autoCreateSubscriptionGroup); the system's own groups always are.
"""

from pathlib import Path

from orbitmq.broker.table import TableFile
from orbitmq.core import CoreState
from orbitmq.wire.bodies_namesrv import (
    DataVersion,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
)
from orbitmq.wire.names import SYSTEM_GROUPS, group_fault, is_system_group
from orbitmq.world.clock import Clock
from orbitmq.world.files import Files

GROUP_COUNT_MAX = 50_000
"""Groups of one broker; above it none is made by itself."""


class GroupTable:
    """All consumer groups of one broker."""

    def __init__(
        self, files: Files, folder: Path, core: CoreState, clock: Clock, *, is_auto_made: bool
    ) -> None:
        self._core = core
        self._clock = clock
        self._is_auto_made = is_auto_made
        self._configs: dict[str, SubscriptionGroupConfig] = {}
        self._version = DataVersion(timestamp_ms=clock.wall_ms())
        self.file = TableFile(files, folder / "subscriptionGroup.json", self.snapshot)
        saved = self.file.load(SubscriptionGroupTable)
        if saved is not None:
            self._version = saved.data_version
            for config in saved.subscription_group_table.values():
                self._adopt(config)
        for name in sorted(SYSTEM_GROUPS - self._configs.keys()):
            self.put(SubscriptionGroupConfig(group_name=name))

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """Give a group's settings, made now where that is allowed; None otherwise."""
        config = self._configs.get(group)
        if config is None and (self._is_auto_made or is_system_group(group)):
            if group_fault(group) is not None or len(self._configs) >= GROUP_COUNT_MAX:
                return None
            config = SubscriptionGroupConfig(group_name=group)
            self.put(config)
        return config

    def put(self, config: SubscriptionGroupConfig) -> None:
        """Add a group or change its settings."""
        self._adopt(config)
        self._version = DataVersion(
            counter=self._version.counter + 1,
            timestamp_ms=self._clock.wall_ms(),
            state_version=self._version.state_version,
        )
        self.file.mark()

    def snapshot(self) -> SubscriptionGroupTable:
        """Give the whole table as it is saved."""
        return SubscriptionGroupTable(
            data_version=self._version, subscription_group_table=dict(self._configs)
        )

    def _adopt(self, config: SubscriptionGroupConfig) -> None:
        self._configs[config.group_name] = config
        if config.consume_enable and config.consume_broadcast_enable:  # else the handler decides
            self._core.groups.add(config.group_name)
        else:
            self._core.groups.discard(config.group_name)
