"""Which Java there is: by JAVA_HOME before PATH, its version from a file or from its own mouth."""

from pathlib import Path

import pytest

from orbitmq.world.java import find_java


def put_java(home: Path, *, release: str | None = None, says: str = "") -> Path:
    """Make an installation whose `java` only says its version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    if release is not None:
        (home / "release").write_text(release)
    return program


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("1.8.0_302", 8), ("21", 21), ("25-ea", 25)]
)
def test_the_version_is_read_from_the_release_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, major: int
) -> None:
    program = put_java(tmp_path, release=f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == (program, major, version)


def test_without_a_release_file_java_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = put_java(tmp_path, says='openjdk version "11.0.2" 2019-01-15')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == (program, 11, "11.0.2")


def test_a_java_that_does_not_say_its_version_is_still_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = put_java(tmp_path, says="hello")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == (program, 0, "")


def test_a_folder_without_java_counts_even_when_the_path_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = put_java(tmp_path / "good", release='JAVA_VERSION="17"')
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "empty"))
    assert find_java() is None
    monkeypatch.delenv("JAVA_HOME")
    assert find_java() == (program, 17, "17")
