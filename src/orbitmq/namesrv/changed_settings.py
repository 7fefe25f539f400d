"""Settings that were changed over the network, in force at once and kept for the next start.

In: the settings of the start, the file of earlier changes, and the properties text of request 318.
Out: the settings in force, and the next contents of the file.

Rules:
1. Only settings marked changeable can be changed; one other key refuses the whole request (16).
2. The file holds the changed keys and nothing else. At the start it wins over the settings file, as
   the original writes changes into that; the command line wins over both.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from orbitmq.config import (
    NamesrvSettings,
    load_settings,
    parse_properties,
    refusals,
    write_properties,
)
from orbitmq.errors import SettingError
from orbitmq.net.saving import Save, read_file
from orbitmq.net.settings_changes import read_changes_of
from orbitmq.world.files import Files

CHANGES_FILE = "namesrv.properties"
"""Beside the key-value settings, in the name server's data folder."""


class ChangedSettings:
    """The settings in force, and which of them were changed over the network."""

    def __init__(self, settings: NamesrvSettings, changes: Mapping[str, str]) -> None:
        self.now = settings
        self._changes = dict(changes)

    def change(self, text: bytes) -> Save | None:
        """Return the file with the changes of `text`, or None when there are none in it.

        Raises RequestFailed: 16 for a key that may not be changed, 1 for a value that is wrong.
        """
        settings, wanted = read_changes_of(self.now, text)
        if not wanted:
            return None
        changes = {**self._changes, **wanted}
        return Save(write_properties(changes).encode(), partial(self._commit, settings, changes))

    def _commit(self, settings: NamesrvSettings, changes: dict[str, str]) -> None:
        self.now = settings
        self._changes = changes


def read_changes(files: Files, path: Path) -> dict[str, str]:
    """Return the changes of earlier runs; raises SettingError when the file cannot be used."""
    data = read_file(files, path)
    if data is None:
        return {}
    try:
        changes = parse_properties(data)
        refused = refusals(NamesrvSettings, changes)
    except SettingError as error:
        raise SettingError(f"{path}: {error}") from None
    if refused:
        raise SettingError(f"{path}: {'; '.join(refused)}; remove the line or the file")
    return changes


def load_namesrv_settings(
    changes: Mapping[str, str],
    properties: Mapping[str, str],
    overrides: Mapping[str, str],
    *,
    strict: bool = False,
) -> tuple[NamesrvSettings, list[str]]:
    """Return the settings of a start (rule 2) and notes for the log."""
    settings, notes = load_settings(
        NamesrvSettings, {**properties, **changes}, overrides, strict=strict
    )
    notes += [
        f"{key}={value}, changed over the network, wins over {key}={properties[key]} of the file"
        for key, value in changes.items()
        if key not in overrides and properties.get(key, value) != value
    ]
    return settings, notes
