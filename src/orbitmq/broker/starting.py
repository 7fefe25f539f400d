"""The settings that a broker starts with, put together from all sources and checked.

In: what a command, a file and earlier runs say. Out: `BrokerStart`, or SettingError.

Rules:
1. Weakest first: defaults, changes that earlier runs kept, NAMESRV_ADDR, the file of -c, what wins
   over it (-D and flags), the file of tls.config.file.
2. A file of -c that --brokers share is not changed: each keeps its changes in its own folder, and
   there they win over the file.
"""

import logging
import re
from pathlib import Path
from typing import NamedTuple

import msgspec

from orbitmq.broker.setting_changes import read_kept_changes
from orbitmq.broker.store_options import check_settings, log_folders
from orbitmq.config import BrokerSettings, load_settings
from orbitmq.errors import SettingError
from orbitmq.net.tls_file import read_tls_file
from orbitmq.store.layout import Folder
from orbitmq.world.files import Files
from orbitmq.world.machine import environment_text
from orbitmq.world.net import split_address

logger = logging.getLogger("orbitmq.broker")

STORE_NAME = "store"
"""The broker's files are in this folder of the data folder; the original would accept it."""

_BROKER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._%@-]{0,126}")


class BrokerStart(NamedTuple):
    """Everything a broker starts with; `file` is the one of -c that changes are kept in."""

    settings: BrokerSettings
    folder: Path
    file: Path | None
    notes: list[str]

    def log_notes(self) -> None:
        """Tell the log what the settings led to."""
        for note in self.notes:
            logger.warning("%s", note)


class Given(NamedTuple):
    """What a command was given: the settings file's pairs, those that win over it, its path."""

    properties: dict[str, str]
    overrides: dict[str, str]
    file: str | None
    is_shared: bool = False
    """Whether other brokers have the same file (rule 2)."""


def put_together(files: Files, folder: Path, given: Given, *, strict: bool = False) -> BrokerStart:
    """Return the start of a broker whose store is in `folder`, unless the settings name another."""
    texts = {"namesrvAddr": environment_text("NAMESRV_ADDR"), **given.properties}
    settings, _ = load_settings(BrokerSettings, texts, given.overrides)
    folder = Path(settings.store_path_root_dir) if settings.store_path_root_dir else folder
    kept = read_kept_changes(files, folder / "config")
    texts = {**texts, **kept} if given.is_shared else {**kept, **texts}
    tls, tls_notes = read_tls_file(files, settings.tls_config_file, BrokerSettings)
    settings, notes = load_settings(
        BrokerSettings, texts, {**given.overrides, **tls}, strict=strict
    )
    notes += tls_notes
    _check_texts(settings)
    file = Path(given.file) if given.file and not given.is_shared else None
    notes += [
        f"{key} of {given.file} wins over {key}={value}, which was changed over the network"
        for key, value in kept.items()
        if file is not None and given.properties.get(key, value) != value
    ]
    logs = log_folders(settings) or (Folder(folder).log_in_root,)
    settings = msgspec.structs.replace(
        settings,
        store_path_root_dir=str(folder),
        store_path_commit_log=settings.multi_path_splitter.join(map(str, logs)),
    )
    return BrokerStart(settings, folder, file, notes)


def _check_texts(settings: BrokerSettings) -> None:
    """Refuse what cannot be obeyed before anything is opened."""
    check_settings(settings)
    if _BROKER_NAME.fullmatch(settings.broker_name) is None:
        raise SettingError(
            f"brokerName={settings.broker_name[:200]!r} cannot be used: it names a topic and a"
            " folder; take up to 127 letters, digits and . _ - % @, a letter or digit first"
        )
    for address in filter(None, map(str.strip, settings.namesrv_addr.split(";"))):
        try:
            split_address(address)
        except SettingError as error:
            raise SettingError(f"namesrvAddr: {error}") from None
