"""The newest Python is found by its version, and gets what the lock file names."""

import sys
from pathlib import Path

from tests.newest import LOCK, NEEDED, newest, requirements


def python_that_says(folder: Path, version: str) -> Path:
    (folder / version / "bin").mkdir(parents=True)
    program = folder / version / "bin/python"
    program.write_text(f"#!/bin/sh\necho Python {version}\n")
    program.chmod(0o755)
    return program


def test_the_newest_is_found_and_an_older_or_a_broken_one_is_not(tmp_path: Path) -> None:
    python_that_says(tmp_path, f"3.{sys.version_info.minor - 1}.9")
    python_that_says(tmp_path, "3.28.10")
    wanted = python_that_says(tmp_path, "3.29.0")
    (tmp_path / "3.29.5/bin").mkdir(parents=True)
    assert newest(tmp_path.glob("3.*/bin")) == wanted


def test_a_requirement_keeps_its_hashes() -> None:
    lines = requirements(LOCK.read_text(), ["pytest", "cffi"]).splitlines()
    assert [line.partition("==")[0] for line in lines if "==" in line] == ["cffi", "pytest"]
    assert sum("--hash=sha256:" in line for line in lines) > 2


def test_the_lock_file_has_every_package_that_is_needed() -> None:
    found = requirements(LOCK.read_text(), NEEDED)
    assert [name for name in NEEDED if f"{name}==" not in found] == []
