"""Which core a process runs, and what it says of it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq.core import TWINS, chosen, plain
from orbitmq.errors import SettingError
from tests.core.hot import IMPLEMENTATIONS

ROOT = Path(__file__).parent.parent.parent
SHOWN = "import orbitmq.core as c; print(c.CHOSEN.name, c.append.__module__, c.Queue.__module__)"


def shown(wanted: str) -> subprocess.CompletedProcess[str]:
    """What a new process says of its core."""
    return subprocess.run(
        [sys.executable, "-c", SHOWN],
        env={chosen.VARIABLE: wanted},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_environment_forces_the_plain_core() -> None:
    assert shown("plain").stdout.split() == [
        *("plain", "orbitmq.core.plain_append", "orbitmq.core.state")
    ]


@pytest.mark.skipif("compiled" not in IMPLEMENTATIONS, reason="it is not built")
@pytest.mark.parametrize("wanted", ["compiled", "", " "])
def test_the_compiled_core_is_taken_where_it_is_built(wanted: str) -> None:
    assert shown(wanted).stdout.split() == ["compiled", chosen.MODULE, chosen.MODULE]


def test_another_word_is_an_error_that_names_the_right_ones() -> None:
    with pytest.raises(SettingError, match="write plain, compiled"):
        chosen.choose("fast")
    assert "ORBITMQ_CORE is 'fast'" in shown("fast").stderr


def test_without_the_compiled_core_all_works_and_the_log_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chosen, "MODULE", "orbitmq.core.not_built")
    found = chosen.choose("")
    assert (found.compiled, found.name) == (None, "plain")
    assert "no compiled one" in found.reason
    assert "gcc python3-dev" in found.reason
    with pytest.raises(SettingError, match="there is no compiled core"):
        chosen.choose("compiled")


def test_each_core_has_all_that_differs_between_them() -> None:
    for module in (plain, *IMPLEMENTATIONS.values()):
        assert {name for name in TWINS if not hasattr(module, name)} == set()


def test_nobody_takes_from_one_core_what_differs_between_them() -> None:
    """Symptom: a plain queue met a compiled log tail."""
    found = {
        f"{path.relative_to(ROOT)}: {alias.name}"
        for path in [*ROOT.glob("src/orbitmq/**/*.py"), *ROOT.glob("tests/**/*.py")]
        if "orbitmq/core/" not in str(path)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("orbitmq.core.")
        for alias in node.names
        if alias.name in TWINS
    }
    assert found == set()
