"""What originals passed is on record, and of the tests as they are now."""

from pathlib import Path

import pytest

from tests.foreign import replays
from tests.foreign.judged import VERSIONS
from tests.foreign.records import ROOT


def test_an_original_passed_the_behaviour_suite_as_it_is_now() -> None:
    record = replays.recorded("4.9.7")
    files = {
        str(path.relative_to(ROOT)): replays.hash_of(path)
        for path in (ROOT / "tests/behaviour").glob("test_*.py")
    }
    changed = [file for file, made in files.items() if record.hashes.get(file) != made]
    assert changed == [], "changed since an original passed them: make records"
    assert sum(name.startswith("tests/behaviour/") for name in record.passed) > 280


@pytest.mark.parametrize("version", VERSIONS)
def test_originals_passed_the_clients_tests(version: str) -> None:
    passed = replays.recorded(version).passed
    for folder, least in {"client": 240, "blocking": 15, "app": 8, "cli": 12}.items():
        found = sum(name.startswith(f"tests/{folder}/") for name in passed)
        assert found > least, folder


def test_what_an_original_passed_before_and_not_now_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    passed = replays.recorded("4.9.7").passed
    monkeypatch.setattr(replays, "ASKED_AGAIN", tmp_path)
    assert replays.judge("4.9.7", passed) == []
    assert replays.judge("4.9.7", passed[1:]) == passed[:1]


def test_comments_do_not_change_a_test(tmp_path: Path) -> None:
    texts = ("a = 1", "a  =  1  # one", "a = 2")
    hashes = []
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.py").write_text(text)
        hashes.append(replays.hash_of(tmp_path / f"{number}.py"))
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize("name", replays.LEFT_OUT)
def test_what_is_left_out_is_there(name: str) -> None:
    path, _, function = name.partition("::")
    assert f"def {function}(" in (ROOT / path).read_text()
