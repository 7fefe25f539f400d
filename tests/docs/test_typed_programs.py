"""The run of mypy over the documentation's programs sees them all, and can fail."""

import pytest

from tests.docs import typed_programs
from tests.docs.pages import of_language
from tests.typing.wrong import FIRST, LINES, WRONG, found_in, missed


def test_every_program_of_the_pages_is_checked() -> None:
    names = typed_programs.programs()
    assert len(names) > len(of_language("python")) > 30
    assert {"README_block_0", "docs_guides_spark_read_topic"} <= names.keys()


def test_programs_of_a_page_import_each_other_by_their_new_names() -> None:
    text = typed_programs.programs()["docs_guides_applications_test_shop"]
    assert "from docs_guides_applications_shop import" in text


def test_a_mistake_that_is_not_found_is_named() -> None:
    found = dict(enumerate(WRONG.values(), FIRST))
    assert missed(found) == []
    line, kind = next(iter(WRONG.items()))
    assert missed({**found, FIRST: "misc"}) == [f"mypy says misc of `{line}` instead of {kind}"]
    assert len(LINES.splitlines()) == len(WRONG) + FIRST - 1
    assert found_in(["wrong.py:3: error: Too many  [call-arg]", "x:4: note: so"]) == {3: "call-arg"}


def test_a_wrong_program_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ["shop.py:1: error: Incompatible types  [assignment]"]
    said += [f"wrong.py:{n}: error: so  [{kind}]" for n, kind in enumerate(WRONG.values(), FIRST)]
    monkeypatch.setattr(typed_programs, "_mypy", lambda _names: said)
    assert typed_programs.main() == 1
    assert capsys.readouterr().out.splitlines() == said[:1]
    monkeypatch.setattr(typed_programs, "_mypy", lambda _names: said[1:])
    assert typed_programs.main() == 0
