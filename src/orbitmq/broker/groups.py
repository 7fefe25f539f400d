"""The broker's consumer groups: their settings, and which of them the hot path may serve.

In: group settings and the names that clients consume under. Out: `subscriptionGroup.json`.

Rules:
1. A group that nobody made is made with the original's defaults on first use, unless the broker was
   told not to (autoCreateSubscriptionGroup); the system's own groups always are.
2. A group that is forbidden to read a topic (5.x) is none of the hot path's business: the pull
   handler looks at every request of it.
"""

from pathlib import Path

from orbitmq.broker.table import TableFile
from orbitmq.core import CoreState
from orbitmq.errors import RequestFailed
from orbitmq.wire.bodies_namesrv import (
    DataVersion,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
)
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.names import SYSTEM_GROUPS, group_fault, is_system_group
from orbitmq.world.clock import Clock
from orbitmq.world.files import Files

GROUP_COUNT_MAX = 50_000
"""Groups of one broker; above it no new one is made."""

FORBIDDEN_READ = 4
"""The bit in 5.x's table of what groups may not do."""


class GroupTable:
    """All consumer groups of one broker."""

    def __init__(
        self, files: Files, folder: Path, core: CoreState, clock: Clock, *, is_auto_made: bool
    ) -> None:
        self._core = core
        self._clock = clock
        self.is_auto_made = is_auto_made
        self._configs: dict[str, SubscriptionGroupConfig] = {}
        self._forbidden: dict[str, dict[str, int]] = {}
        self._withheld: set[str] = set()
        self._version = DataVersion(timestamp_ms=clock.wall_ms())
        self.file = TableFile(files, folder / "subscriptionGroup.json", self.snapshot)
        saved = self.file.load(SubscriptionGroupTable)
        if saved is not None:
            self._version = saved.data_version
            self._forbidden = saved.forbidden_table or {}
            for config in saved.subscription_group_table.values():
                self._adopt(config)
        for name in sorted(SYSTEM_GROUPS - self._configs.keys()):
            self.put(SubscriptionGroupConfig(group_name=name))

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """Give a group's settings, made now where that is allowed; None otherwise."""
        config = self._configs.get(group)
        if config is None and (self.is_auto_made or is_system_group(group)):
            if group_fault(group) is not None or len(self._configs) >= GROUP_COUNT_MAX:
                return None
            config = SubscriptionGroupConfig(group_name=group)
            self.put(config)
        return config

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """Give a group's settings if it is there; makes nothing."""
        return self._configs.get(group)

    def put(self, config: SubscriptionGroupConfig) -> None:
        """Add a group or change its settings."""
        self._adopt(config)
        self._note_change()

    def check_room(self, new_count: int) -> None:
        """Raise RequestFailed when so many new groups are too many."""
        if len(self._configs) + new_count > GROUP_COUNT_MAX:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"this broker has {len(self._configs)} groups, limit {GROUP_COUNT_MAX}; delete some"
                " (deleteSubGroup)",
            )

    def remove(self, group: str) -> bool:
        """Take a group out; whether it was there."""
        config = self._configs.pop(group, None)
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
        if group in self._configs:
            self._adopt(self._configs[group])
        self._note_change()

    def is_withheld(self, group: str) -> bool:
        """Whether a group's pulls are kept from the hot path for now."""
        return group in self._withheld

    def withhold(self, group: str, *, is_withheld: bool) -> None:
        """Keep a group's pulls from the hot path, or let it have them again."""
        (self._withheld.add if is_withheld else self._withheld.discard)(group)
        if group in self._configs:
            self._adopt(self._configs[group])

    def snapshot(self) -> SubscriptionGroupTable:
        """Give the whole table as it is saved."""
        forbidden = {group: dict(topics) for group, topics in self._forbidden.items()}
        return SubscriptionGroupTable(
            data_version=self._version,
            subscription_group_table=dict(self._configs),
            forbidden_table=forbidden or None,
        )

    def _note_change(self) -> None:
        self._version = DataVersion(
            counter=self._version.counter + 1,
            timestamp_ms=self._clock.wall_ms(),
            state_version=self._version.state_version,
        )
        self.file.mark()

    def _adopt(self, config: SubscriptionGroupConfig) -> None:
        name = config.group_name
        self._configs[name] = config
        is_plain = config.consume_enable and config.consume_broadcast_enable
        is_plain = is_plain and name not in self._forbidden and name not in self._withheld
        if is_plain:  # else the handler decides
            self._core.groups.add(name)
        else:
            self._core.groups.discard(name)
