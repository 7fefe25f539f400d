"""The settings page says what the tables say, and every setting says what it does.

In: the settings tables and docs/reference/settings.md. Out: a failure for a page that is out of
date, and for a setting that a reader could not understand.
"""

import re
from pathlib import Path

import pytest

from orbitmq.config import SETTINGS_BY_PROCESS, Settings, facts_of
from tools import settings_page

PROCESSES = list(SETTINGS_BY_PROCESS.values())


def test_the_settings_page_is_up_to_date() -> None:
    assert settings_page.main(["--check"]) == 0


def test_a_changed_page_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = settings_page.PAGE_PATH.read_text(encoding="utf-8")
    copy = tmp_path / "settings.md"
    copy.write_text(page.replace("9876", "9877", 1), encoding="utf-8")
    monkeypatch.setattr(settings_page, "PAGE_PATH", copy)
    assert settings_page.main(["--check"]) == 1
    assert "out of date" in capsys.readouterr().err


@pytest.mark.parametrize("settings_type", PROCESSES)
def test_every_setting_has_one_sentence_and_an_original_s_key(
    settings_type: type[Settings],
) -> None:
    for one in facts_of(settings_type):
        assert one.sentence.endswith("."), one.key
        assert one.sentence[0].isupper() or one.sentence[0].isdigit(), one.key
        assert len(one.sentence) < 120, one.key
    for key, no_effect in settings_type.without_effect.items():
        assert no_effect.reason, key
        assert not no_effect.reason.endswith("."), key


@pytest.mark.parametrize("settings_type", PROCESSES)
def test_no_path_address_or_port_can_be_changed_over_the_network(
    settings_type: type[Settings],
) -> None:
    """S2: paths, addresses and what is executed never become changeable by accident."""
    risky = {"path", "addr", "address", "port", "dir", "home", "host", "ip", "tls", "class", "plug"}
    for one in facts_of(settings_type):
        words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", one.key)}
        is_risky = bool(words & risky) or one.key.lower().endswith(("file", "name", "cmd"))
        assert not (is_risky and one.changeable), one.key


@pytest.mark.parametrize("settings_type", PROCESSES)
def test_defaults_are_allowed_values(settings_type: type[Settings]) -> None:
    for one in facts_of(settings_type):
        if one.kind is int:
            assert one.least is not None
            assert one.most is not None
            assert one.least <= int(one.default) <= one.most, one.key
    assert not {one.key for one in facts_of(settings_type)} & set(settings_type.without_effect)
