"""Pages that are made from the code say what the code says; links between pages lead somewhere."""

import re
from pathlib import Path

import pytest

from orbitmq.testing import pytest_plugin
from tools import client_page, commands_page, metrics_page, requests_page

ROOT = Path(__file__).parents[2]
FIXTURES = {name for name in dir(pytest_plugin) if name.startswith("orbitmq_")}
"""Named like metrics, but pytest's."""
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def test_the_commands_page_is_up_to_date() -> None:
    assert commands_page.main(["--check"]) == 0


def test_the_metrics_page_is_up_to_date() -> None:
    assert metrics_page.main(["--check"]) == 0


def test_the_requests_page_is_up_to_date() -> None:
    assert requests_page.main(["--check"]) == 0


def test_the_client_page_is_up_to_date() -> None:
    assert client_page.main(["--check"]) == 0


def test_a_changed_page_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "commands.md"
    copy.write_text(commands_page.PAGE.read_text().replace("namesrv", "nameserver", 1))
    monkeypatch.setattr(commands_page, "PAGE", copy)
    assert commands_page.main(["--check"]) == 1
    assert "out of date" in capsys.readouterr().err


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_other_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text())
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing


def test_every_metric_that_the_guides_name_exists() -> None:
    known = (ROOT / "docs/reference/metrics.md").read_text()
    for guide in ROOT.glob("docs/guides/*.md"):
        named = set(re.findall(r"`(orbitmq_\w+)`", guide.read_text())) - FIXTURES
        assert [name for name in named if f"`{name}`" not in known] == [], guide.name
