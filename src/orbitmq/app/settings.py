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

import difflib
import os
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

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
    shown = path or environment.get(FILE_VARIABLE) or FILE_DEFAULT
    read = _read_file(files, path or environment.get(FILE_VARIABLE))
    _converted(read.app, AppSettings, f"{shown}, [app]")
    for name, fields in read.listeners.items():
        _converted(fields, ListenerSettings, f"{shown}, [listeners.{name}]")
    words = {"namesrv": PREFIX + "NAMESRV", "namespace": PREFIX + "NAMESPACE"}
    named = {key: environment[name] for key, name in words.items() if environment.get(name)}
    listeners = {name.upper(): fields for name, fields in read.listeners.items()}
    for name, fields in _from_environment(environment).items():
        listeners[name] = listeners.get(name, {}) | fields
    return Loaded(
        _converted({**given, **read.app, **named}, AppSettings, "App(...)"),
        {
            name: _converted(fields, ListenerSettings, f"listener {name}")
            for name, fields in listeners.items()
        },
        tuple(read.listeners),
    )


S = TypeVar("S", bound=msgspec.Struct)


def _converted(fields: Mapping[str, Any], kind: type[S], where: str) -> S:
    """Return fields as settings; what cannot be used is a SettingError that says where it is."""
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        raise SettingError(f"{where}: {error}{_nearest(fields, kind)}") from None


def _nearest(fields: Mapping[str, Any], kind: type[msgspec.Struct]) -> str:
    unknown = [name for name in fields if name not in kind.__struct_fields__]
    near = difflib.get_close_matches(unknown[0], kind.__struct_fields__, 1) if unknown else []
    return f"; did you mean {near[0]}?" if near else ""


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
            _converted({field.lower(): value}, ListenerSettings, f"variable {variable}")
            found.setdefault(name, {})[field.lower()] = value
    return found
