"""What cannot run here, and what may not pass in a second run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.must_run import cannot, mount

ROOT = Path(__file__).parents[1]
TESTS = """\
import pytest

@pytest.mark.once
def test_marked():
    pass

def test_other():
    pass
"""
HOOK = """\
from tests.must_run import check_may_run_again

def pytest_configure(config):
    config.addinivalue_line("markers", "once: counts")

def pytest_runtest_setup(item):
    check_may_run_again(item)
"""


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


@pytest.mark.parametrize(
    ("is_second", "outcome"), [(False, "2 passed"), (True, "1 passed, 1 error")]
)
def test_a_lost_message_that_only_the_first_run_found_fails_the_second_too(
    tmp_path: Path, is_second: bool, outcome: str
) -> None:
    (tmp_path / "conftest.py").write_text(HOOK)
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_it.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "ORBITMQ_SECOND_RUN": str(int(is_second))},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert outcome in done.stdout, done.stdout
    assert done.returncode == int(is_second)
    assert ("seed that repeats it" in done.stdout) == is_second


def test_the_second_run_of_make_says_that_it_is_one() -> None:
    lines = (ROOT / "Makefile").read_text().splitlines()
    again = [line.partition("||")[2] for line in lines if "||" in line and "$(FAILED)" in line]
    assert len(again) == 3
    assert all("$(AGAIN)" in line for line in again)
    assert "AGAIN := ORBITMQ_SECOND_RUN=1 $(PYTEST)" in lines
