"""Key-value settings by namespace, as the original keeps them in kvConfig.json.

In: the file's bytes, and changes. Out: values, and the next contents of the file. The queue plans
of ordered topics are the namespace ORDER_TOPIC_CONFIG.

Rules:
1. The file is `{"configTable":{namespace:{key:value}}}`; the original reads ours and we read its.
2. A change makes a new table and leaves the old one alone, so that a failed write changes nothing.
3. A damaged file does not stop the start: its contents are kept beside it under another name, and
   said so. It is never the only copy that is written over.
4. Names, values and the whole have limits; a file that is larger already is read, but cannot grow.
"""

from functools import partial
from pathlib import Path

import msgspec

from orbitmq.errors import RemoteProtocolError, RequestFailed, StoreError
from orbitmq.namesrv.route_limits import name_fault
from orbitmq.net.saving import Save, read_file
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.fastjson import read_json, write_json
from orbitmq.world.files import Files

NAMESPACES_MAX = 1_000
KEYS_MAX = 10_000
VALUE_CHARS_MAX = 65_536
TABLE_CHARS_MAX = 4_194_304
"""All names and values together; a register answer carries a namespace and must fit a frame."""

DAMAGED_COPIES_MAX = 100
"""A file that was damaged more often than that is somebody's loop."""

Table = dict[str, dict[str, str]]


class _File(msgspec.Struct):
    configTable: Table = {}  # noqa: N815 - the file's name


class KvSettings:
    """The table that is in force, which is the one on the disk."""

    def __init__(self, table: Table | None = None) -> None:
        self._table = table or {}

    def get(self, namespace: str, key: str) -> str | None:
        """Return a value."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Return all keys of a namespace, or None when nothing was ever put there."""
        return self._table.get(namespace)

    def summary(self) -> str:
        """Say how much there is; nothing when there is nothing. Values may be secret."""
        counts = [f"{name} {len(keys)}" for name, keys in self._table.items()]
        more = f" and {len(counts) - 10} more namespaces" if len(counts) > 10 else ""
        return f"key-value settings: {', '.join(counts[:10])}{more}" if counts else ""

    def put(self, namespace: str, key: str, value: str) -> Save:
        """Return the file with one value more; raises RequestFailed when it may not grow so far."""
        keys = self._table.get(namespace, {})
        fault = name_fault("namespace", namespace) or name_fault("key", key)
        if fault is None and len(value) > VALUE_CHARS_MAX:
            fault = f"a value of {len(value)} characters, allowed 0 to {VALUE_CHARS_MAX}"
        if fault is None and key not in keys:
            fault = self._fault_of_growth(namespace)
        changed = {**self._table, namespace: {**keys, key: value}}
        if fault is None and _chars(changed) > max(TABLE_CHARS_MAX, _chars(self._table)):
            fault = f"all values together would pass {TABLE_CHARS_MAX} characters"
        if fault is not None:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, fault)
        return self._save(changed)

    def delete(self, namespace: str, key: str) -> Save | None:
        """Return the file without a key, or None when it is not there; its namespace stays."""
        keys = self._table.get(namespace, {})
        if key not in keys:
            return None
        left = {name: value for name, value in keys.items() if name != key}
        return self._save({**self._table, namespace: left})

    def _fault_of_growth(self, namespace: str) -> str | None:
        if namespace not in self._table and len(self._table) >= NAMESPACES_MAX:
            return f"{len(self._table)} namespaces are there, the limit is {NAMESPACES_MAX}"
        count = sum(len(keys) for keys in self._table.values())
        return f"{count} keys are there, the limit is {KEYS_MAX}" if count >= KEYS_MAX else None

    def _save(self, table: Table) -> Save:
        data = write_json(_File(configTable=table), standard=True)
        return Save(data, partial(self._commit, table))

    def _commit(self, table: Table) -> None:
        self._table = table


def load_kv(files: Files, path: Path) -> tuple[KvSettings, str | None]:
    """Read the file; give its table and, when it cannot be used, a sentence that says so."""
    data = read_file(files, path)
    if data is None:
        return KvSettings(), None
    if not data.strip():
        return KvSettings(), f"{path} is empty; starting without key-value settings"
    try:
        return KvSettings(read_json(data, _File).configTable), None
    except RemoteProtocolError as error:
        aside = _set_aside(files, path, data)
        return KvSettings(), (
            f"{path} is damaged ({error.detail}) and was not used; it is kept as {aside}. Starting"
            " without key-value settings: mend the copy, put it back and restart"
        )


def _set_aside(files: Files, path: Path, data: bytes) -> Path:
    """Keep `data` beside `path` under a name of its own; give that name."""
    for number in range(1, DAMAGED_COPIES_MAX + 1):
        aside = path.with_name(f"{path.name}.damaged-{number}")
        present = files.read(aside)
        if present == data:
            return aside
        if present is None:
            files.replace(aside, data)
            return aside
    raise StoreError(
        f"{path} is damaged, and {DAMAGED_COPIES_MAX} damaged copies are there; move them away"
    )


def _chars(table: Table) -> int:
    return sum(
        len(namespace) + sum(len(key) + len(value) for key, value in keys.items())
        for namespace, keys in table.items()
    )
