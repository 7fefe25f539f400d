"""A run of the tests: what fails and then passes is unstable, what fails twice has failed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nightly import LONG_FORMS, PARTS
from tests.reported import Report
from tests.whole_run import forms

ROOT = Path(__file__).parents[1]
HOOKS = """\
from tests import nightly, reported

def pytest_addoption(parser):
    nightly.add_option(parser)
    reported.add_option(parser)

def pytest_configure(config):
    config.addinivalue_line("markers", "once: counts")
    config.addinivalue_line("markers", "nightly(part, short): later")

def pytest_collection_modifyitems(config, items):
    nightly.choose(config, items)

def pytest_terminal_summary(terminalreporter):
    reported.write(terminalreporter.config, terminalreporter.stats)
"""
TESTS = """\
import os, time
from pathlib import Path
import pytest

def test_passes():
    pass

def test_is_unstable():
    path = Path("unstable")
    is_first = not path.exists()
    path.touch()
    assert not is_first

@pytest.mark.once
def test_counts():
    path = Path("counts")
    is_first = not path.exists()
    path.touch()
    assert not is_first

def test_fails():
    raise AssertionError("always")

def test_hangs_the_second_time():
    path = Path("hangs")
    if path.exists():
        time.sleep(60)
    path.touch()
    raise AssertionError("the first time")

@pytest.mark.nightly("kills")
def test_of_the_nightly():
    print("T6 long")

@pytest.mark.nightly("fuzz", short=True)
def test_of_both():
    assert os.environ.get("ORBITMQ_FUZZ_EXAMPLES") in (None, "7")
"""


def whole_run(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the tests above in a folder of their own."""
    (folder / "conftest.py").write_text(HOOKS)
    (folder / "test_it.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\n")
    hidden = ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "ORBITMQ_FUZZ_EXAMPLES")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    return subprocess.run(
        [sys.executable, "-m", "tests.whole_run", "-p", "no:randomly", *words, "--workers", "0"],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def named(word: str, said: str) -> set[str]:
    return set(re.findall(rf"^{word}: test_it.py::(\w+)", said, re.MULTILINE))


def test_a_run_that_passes_shows_pytests_last_line_the_minutes_and_the_dearest_files(
    tmp_path: Path,
) -> None:
    done = whole_run(tmp_path, "-k", "passes or of_both")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^=+ 2 passed, .*in [\d.]+s =+$", done.stdout, re.MULTILINE)
    assert re.search(r"^ +\d+\.\d  test_it\.py$", done.stdout, re.MULTILINE)
    assert re.search(r"^make test: \d+\.\d minutes, passed$", done.stdout, re.MULTILINE)
    assert named("unstable", done.stdout) == named("failed", done.stdout) == set()


def test_what_passes_alone_is_unstable_and_the_run_passes(tmp_path: Path) -> None:
    done = whole_run(tmp_path, "-k", "passes or unstable")
    assert done.returncode == 0, done.stdout + done.stderr
    assert named("unstable", done.stdout) == {"test_is_unstable"}
    assert named("failed", done.stdout) == set()


def test_what_fails_twice_or_has_the_marker_once_has_failed(tmp_path: Path) -> None:
    """Symptom: a lost message that only the first run's seed found passed in the second."""
    done = whole_run(tmp_path, "-k", "unstable or counts or fails")
    assert done.returncode == 1, done.stdout + done.stderr
    assert named("unstable", done.stdout) == {"test_is_unstable"}
    assert named("failed", done.stdout) == {"test_counts", "test_fails"}
    assert re.search(r"^make test: .* minutes, FAILED$", done.stdout, re.MULTILINE)


def test_the_second_run_ends_in_time_and_what_it_did_not_reach_has_failed(tmp_path: Path) -> None:
    done = whole_run(tmp_path, "-k", "unstable or hangs", "--again-limit", "8")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "out of time after 8 s" in done.stdout
    unstable, failed = named("unstable", done.stdout), named("failed", done.stdout)
    assert "test_hangs_the_second_time" in failed  # it may have come first
    assert unstable | failed == {"test_is_unstable", "test_hangs_the_second_time"}


def test_a_part_runs_its_own_tests_in_their_long_form(tmp_path: Path) -> None:
    kills = whole_run(tmp_path, "--part", "kills")
    assert "1 passed" in kills.stdout
    assert "nightly-kills: " in kills.stdout
    fuzz = whole_run(tmp_path, "--part", "fuzz", FUZZ_EXAMPLES="7")
    assert fuzz.returncode == 0, fuzz.stdout
    assert "1 passed" in fuzz.stdout


def test_a_run_that_cannot_begin_fails(tmp_path: Path) -> None:
    assert whole_run(tmp_path, "nowhere.py").returncode not in (0, 1)


def test_makes_variables_reach_the_tests_under_their_own_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KILLS", "12")
    assert forms("kills") == {"ORBITMQ_KILLS": "12"}
    assert forms("clients") == {}
    makefile = (ROOT / "Makefile").read_text()
    (exported,) = re.findall(r"^export (.*)$", makefile, re.MULTILINE)
    assert {name for named in LONG_FORMS.values() for name in named} == set(exported.split())


def test_make_has_a_target_for_every_part() -> None:
    (parts,) = re.findall(r"^PARTS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert parts.split() == [*PARTS]


def test_a_report_of_a_run_that_died_is_empty(tmp_path: Path) -> None:
    assert Report.read(tmp_path / "nothing") == Report()
