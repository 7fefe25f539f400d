"""What originals answered to the compatibility programs, kept as data: tests/golden/originals.

In: a program's name, its sources. Out: what its run on an original stated. Rules:

1. A record names the versions that answered and has a hash of the program that asked. A record of
   another program is no evidence: reading it fails, and says how to make it anew.
2. `make nightly-originals` asks again and fails where an answer differs, with the new answers below
   build/originals; `make records` puts them into their place.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.foreign.compat import Key, Played, differences
from tests.foreign.peers import HERE

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "tests/golden/originals"
ASKED_AGAIN = ROOT / "build/originals"
IS_RECORDING = os.environ.get("ORBITMQ_RECORD") == "1"

SOURCES = {
    "java": ("java/Compat*.java", "java/Inbox.java", "java/Json.java", "java/Stage.java"),
    "go": ("go/compat/*.go", "go/go.sum"),
    "node": ("node/*.js", "node/package-lock.json"),
    "python": ("python/compat.py", "python/requirements.txt"),
}
"""What makes up the programs of a language."""


class Record(msgspec.Struct):
    """A run of a program on originals."""

    versions: Sequence[str]
    hash: str
    facts: dict[str, dict[str, Any]]
    measures: dict[str, dict[str, float]]


def recorded(name: str) -> Played:
    """Return what originals answered to a program (rule 1)."""
    record = msgspec.json.decode(_path(KEPT, name).read_bytes(), type=Record)
    assert record.hash == hash_of(name), (
        f"the program {name} was changed since originals answered it: `make records`"
    )
    return Played(_flat(record.facts), _flat(record.measures))


def keep(name: str, versions: Sequence[str], played: Played) -> None:
    """Compare a run on originals with its record, or make the record (rule 2)."""
    assert played.errors == {}
    record = Record(versions, hash_of(name), _nested(played.facts), _nested(played.measures))
    path = _path(KEPT if IS_RECORDING else ASKED_AGAIN, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(record, order="sorted")) + b"\n")
    assert differences(recorded(name), played) == {}, f"recorded, now; the run is in {path}"


def hash_of(name: str) -> str:
    """Return the hash of a program's sources."""
    paths = [path for one in SOURCES[name.partition("-")[0]] for path in HERE.glob(one)]
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"


def _nested(flat: dict[Key, Any]) -> dict[str, dict[str, Any]]:
    nested: dict[str, dict[str, Any]] = {}
    for (scenario, name), value in flat.items():
        nested.setdefault(scenario, {})[name] = value
    return nested


def _flat(nested: dict[str, dict[str, Any]]) -> dict[Key, Any]:
    return {
        (scenario, name): value
        for scenario, values in nested.items()
        for name, value in values.items()
    }
