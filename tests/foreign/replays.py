"""Tests of ours that originals pass, too: which are played on which, and which passed there.

In: the report of a run with an original in the place of OrbitMQ. Out: what passed before and did
not now. The record is tests/golden/originals/replay-VERSION.json. Rules:

1. The behaviour suite is played on 4.9.7 only: 5.5.0 answers many refusals with codes of its own.
2. Of the client's tests only those run that ask the system under test (tests/conftest.py).
3. A test that an original fails is a wrong test, or a difference that is not named. Differences
   that are kept are named in the test that skips or asserts them.
4. The record has a hash of each file of tests: one that was changed since is no evidence.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.foreign.records import ASKED_AGAIN, IS_RECORDING, KEPT, ROOT

BEHAVIOUR = ("tests/behaviour",)
CLIENT = ("tests/client", "tests/blocking", "tests/app")
SHELL = ("tests/cli/test_shell_admin.py", "tests/cli/test_shell_streams.py")
LEFT_OUT = (
    "tests/cli/test_shell_admin.py::test_a_mistake_is_one_sentence_with_the_next_step",
    "tests/cli/test_shell_streams.py::test_a_shell_completes_commands_flags_and_names",
)
"""What the shell says before it asks a broker is not played again."""
PLAYED: dict[str, Sequence[str]] = {
    "4.9.7": (*BEHAVIOUR, *CLIENT, *SHELL),
    "5.5.0": (*CLIENT, *SHELL),
}


class Replay(msgspec.Struct):
    """What an original passed."""

    version: str
    hashes: dict[str, str]
    passed: list[str]


def words_for(version: str) -> list[str]:
    """Return pytest's words for the tests that are played on a version."""
    return [*PLAYED[version], *(f"--deselect={name}" for name in LEFT_OUT)]


def recorded(version: str) -> Replay:
    """Return what an original passed when it was last recorded."""
    return msgspec.json.decode(_path(KEPT, version).read_bytes(), type=Replay)


def judge(version: str, passed: Sequence[str]) -> list[str]:
    """Keep what an original passed now; return what it passed before and did not now."""
    files = sorted({name.partition("::")[0] for name in passed})
    found = Replay(version, {file: hash_of(ROOT / file) for file in files}, sorted(passed))
    path = _path(KEPT if IS_RECORDING else ASKED_AGAIN, version)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    return sorted({*recorded(version).passed} - {*passed})


def hash_of(path: Path) -> str:
    """Return the hash of a file of tests, whatever its comments and its form."""
    code = ast.dump(ast.parse(path.read_text()))
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def _path(folder: Path, version: str) -> Path:
    return folder / f"replay-{version}.json"
