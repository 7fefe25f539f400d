"""The broker's settings: every key of the original is known, and what is said to be obeyed is read.

In: the tables of `orbitmq.config`, and what 4.9.7 printed of its own settings. Out: a failure for a
key that is missing, has another default without saying so, or is obeyed by nobody.
"""

import re
from pathlib import Path

import pytest

from orbitmq.config import (
    BrokerSettings,
    edit_properties,
    facts_of,
    load_settings,
    parse_properties,
    render_properties,
)
from orbitmq.errors import SettingError

ROOT = Path(__file__).parent.parent
ORIGINAL = parse_properties((ROOT / "tests/golden/broker-settings-4.9.7.properties").read_bytes())
OBEYED = {one.key: one for one in facts_of(BrokerSettings)}
OF_5_X = {"diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio", "useServerSideResetOffset"}
SYSTEM_PROPERTIES = re.compile(r"tls\.|rocketmq\.(broker|namesrv)\.")


@pytest.mark.parametrize("key", sorted(ORIGINAL))
def test_every_key_of_the_original_is_obeyed_or_accepted_with_a_reason(key: str) -> None:
    assert (key in OBEYED) != (key in BrokerSettings.without_effect)


@pytest.mark.parametrize("key", sorted(key for key, value in ORIGINAL.items() if value))
def test_defaults_are_the_original_s_unless_the_fact_says_so(key: str) -> None:
    if key in OBEYED and OBEYED[key].original is not None:
        assert OBEYED[key].original not in ("", "-")
        return
    assert parse_properties(render_properties(BrokerSettings()))[key] == ORIGINAL[key]


def test_a_file_with_every_key_of_the_original_is_taken_as_it_is() -> None:
    given = {key: value for key, value in ORIGINAL.items() if value}
    settings, notes = load_settings(BrokerSettings, given, strict=True)
    shown = parse_properties(render_properties(settings))
    assert {key: shown[key] for key in given} == given
    assert len(notes) == len(given.keys() & BrokerSettings.without_effect.keys())


def test_keys_that_4_9_7_does_not_have_say_so() -> None:
    extra = {key for key in OBEYED if key not in ORIGINAL and not SYSTEM_PROPERTIES.match(key)}
    assert {key for key in extra if OBEYED[key].original != "-"} == OF_5_X
    unused = set(BrokerSettings.without_effect) - set(ORIGINAL)
    assert {key for key in unused if not SYSTEM_PROPERTIES.match(key)} == set()


def test_every_setting_that_is_said_to_be_obeyed_is_read_somewhere() -> None:
    sources = [
        path.read_text()
        for path in (ROOT / "src/orbitmq").rglob("*.py")
        if path.parent.name != "config"
    ]
    code = "\n".join(sources)
    unread = [one.key for one in OBEYED.values() if not re.search(rf"\.{one.name}\b", code)]
    assert unread == []


def test_what_a_broker_shows_loads_again() -> None:
    settings, _ = load_settings(BrokerSettings, {"brokerName": "b", "myKey": "é\\"})
    again, _ = load_settings(BrokerSettings, parse_properties(render_properties(settings)))
    assert render_properties(again) == render_properties(settings)


# --- changing a settings file ---


@pytest.mark.parametrize(
    ("text", "changes", "expected"),
    [
        ("", {"a": "1"}, "a=1\n"),
        ("# why\na = 1\n\nb=2\n", {"a": "9"}, "# why\na=9\n\nb=2\n"),
        ("a=1\na=2\n", {"a": "9"}, "a=1\na=9\n"),
        ("a=1\\\n  2\\\n  3\nb=2", {"a": "9", "c": "x"}, "a=9\nb=2\nc=x\n"),
        ("a=1\r\nb=2\r\n", {"b": "9"}, "a=1\nb=9\n"),
        ("a:1", {"a": " é"}, "a=\\ \\u00e9"),
    ],
)
def test_changes_are_put_into_a_text_that_keeps_its_other_lines(
    text: str, changes: dict[str, str], expected: str
) -> None:
    changed = edit_properties(text, changes)
    assert changed == expected
    assert parse_properties(changed) == {**parse_properties(text), **changes}


def test_a_text_that_cannot_be_read_is_not_changed() -> None:
    with pytest.raises(SettingError, match="line 1"):
        edit_properties(b"a=\xff", {"b": "1"})
