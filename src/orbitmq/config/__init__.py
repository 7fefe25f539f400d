"""Every setting of every process: one table each, one machinery.

`settings` turns `.properties` text into typed values and says what it thinks of unknown keys,
`properties` reads and writes Java's text form, and there is one module of facts for each process.
docs/reference/settings.md is made from these tables.
"""

from collections.abc import Mapping

from orbitmq.config.broker import BrokerSettings
from orbitmq.config.namesrv import NamesrvSettings
from orbitmq.config.properties import (
    edit_properties,
    file_text,
    parse_properties,
    write_properties,
)
from orbitmq.config.server import ServerSettings
from orbitmq.config.settings import (
    Fact,
    NoEffect,
    Settings,
    as_properties,
    change_settings,
    fact,
    facts_of,
    load_settings,
    refusals,
    render_properties,
)

SETTINGS_BY_PROCESS: Mapping[str, type[Settings]] = {
    "Name server": NamesrvSettings,
    "Broker": BrokerSettings,
}
"""What the settings page shows, in this order."""

__all__ = [
    "SETTINGS_BY_PROCESS",
    "BrokerSettings",
    "Fact",
    "NamesrvSettings",
    "NoEffect",
    "ServerSettings",
    "Settings",
    "as_properties",
    "change_settings",
    "edit_properties",
    "fact",
    "facts_of",
    "file_text",
    "load_settings",
    "parse_properties",
    "refusals",
    "render_properties",
    "write_properties",
]
