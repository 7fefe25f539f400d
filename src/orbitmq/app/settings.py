"""An application's settings: arguments, a file, the environment.

In: keyword arguments of App, a TOML file, variables. Out: one frozen value, and for each listener
whether it is on and what was set for it.

Rules:
1. The environment wins over the file, the file over arguments: what operates a program has the last
   word over what it was written with.
2. File (`orbitmq.toml`, or the path in ORBITMQ_FILE): a table [app], and [listeners.NAME] for
   listeners. Environment: ORBITMQ_NAMESRV, ORBITMQ_NAMESPACE, and ORBITMQ_LISTENER_NAME_ENABLED,
   _GROUP, _TOPIC, _SELECTOR, _NAMESRV, _CONCURRENCY with the listener's name in capitals.
3. An unknown name in the file is an error that names it, that of a listener as well.
"""

import os
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from orbitmq.errors import SettingError
from orbitmq.world.files import Files
from orbitmq.world.tls import TlsClientSettings

FILE_VARIABLE = "ORBITMQ_FILE"
FILE_DEFAULT = "orbitmq.toml"
PREFIX = "ORBITMQ_"
LISTENER_PREFIX = PREFIX + "LISTENER_"


class ListenerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What file and environment may say of a listener; None leaves what the code says."""

    enabled: bool = True
    topic: str | None = None
    group: str | None = None
    selector: str | None = None
    namesrv: str | None = None
    concurrency: int | None = None


class AppSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an application is run with."""

    namesrv: str = ""
    """Name servers; empty: the environment's NAMESRV_ADDR."""
    group: str = "orbitmq_app"
    """The producer group, and the consumer group of listeners that name none."""
    namespace: str = ""
    tls: TlsClientSettings | None = None
    """In a file a table [app.tls]."""


FILE_OPTIONS = ("namespace", "tls")
"""Options of all clients that a file may say as well."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    app: dict[str, Any] = {}
    listeners: dict[str, dict[str, Any]] = {}


class Loaded(msgspec.Struct, frozen=True):
    """The settings in force; listeners by their names in capitals."""

    app: AppSettings
    listeners: Mapping[str, ListenerSettings]
    named_in_file: Collection[str] = ()
    """The listeners that the file speaks of, as it writes them."""

    def of(self, name: str) -> ListenerSettings:
        """Return what was set for a listener."""
        return self.listeners.get(name.upper(), ListenerSettings())


def load(given: Mapping[str, Any], files: Files, path: str | None = None) -> Loaded:
    """Put arguments, file and environment together; raises SettingError for what cannot be used."""
    environment = os.environ
    read = _read_file(files, path or environment.get(FILE_VARIABLE))
    words = {"namesrv": PREFIX + "NAMESRV", "namespace": PREFIX + "NAMESPACE"}
    named = {key: environment[name] for key, name in words.items() if environment.get(name)}
    listeners = {name.upper(): fields for name, fields in read.listeners.items()}
    for name, fields in _from_environment(environment).items():
        listeners[name] = listeners.get(name, {}) | fields
    try:
        return Loaded(
            msgspec.convert({**given, **read.app, **named}, AppSettings),
            msgspec.convert(listeners, dict[str, ListenerSettings], strict=False),
            tuple(read.listeners),
        )
    except msgspec.ValidationError as error:
        raise SettingError(f"the application's settings: {error}") from None


def _read_file(files: Files, path: str | None) -> _File:
    """Read the file that was asked for, or the one in the current folder if it is there."""
    shown = path or FILE_DEFAULT
    data = files.read(Path(shown))
    if data is None:
        if path:
            raise SettingError(f"there is no settings file {path}")
        return _File()
    try:
        return msgspec.convert(tomllib.loads(data.decode()), _File)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise SettingError(f"{shown}: {error}") from None


def _from_environment(environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return what variables say of listeners, by their names in capitals."""
    found: dict[str, dict[str, Any]] = {}
    for variable, value in environment.items():
        name, _, field = variable.removeprefix(LISTENER_PREFIX).rpartition("_")
        is_known = field.lower() in ListenerSettings.__struct_fields__
        if variable.startswith(LISTENER_PREFIX) and name and is_known:
            found.setdefault(name, {})[field.lower()] = value
    return found
