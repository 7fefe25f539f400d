"""What cannot run here."""

import importlib.util
from pathlib import Path

import pytest

from orbitmq.core import chosen
from tests.must_run import cannot, mount


def test_what_is_missing_is_skipped_and_fails_when_all_tests_must_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ORBITMQ_TEST_ALL", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no such thing"):
        cannot("no such thing")
    monkeypatch.setenv("ORBITMQ_TEST_ALL", "1")
    with pytest.raises(pytest.fail.Exception, match="no such thing"):
        cannot("no such thing")


@pytest.mark.parametrize("program", [None, "echo denied >&2; exit 32"], ids=["none", "refused"])
def test_a_small_disk_that_cannot_be_mounted_fails_when_all_tests_must_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str | None
) -> None:
    if program is not None:
        (tmp_path / "mount").write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / "mount").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("ORBITMQ_TEST_ALL", "1")
    with pytest.raises(pytest.fail.Exception, match="mount"):
        mount(tmp_path, 1)


def test_the_tests_of_the_compiled_core_are_not_skipped_where_all_tests_must_run() -> None:
    """Symptom: a core that no longer compiles passed, for its tests skip when it is not built."""
    if importlib.util.find_spec(chosen.MODULE) is None:
        cannot("the compiled core is not built: see `python setup.py build_ext --inplace`")
