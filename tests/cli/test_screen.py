"""What reaches a terminal: nothing that came over the network, raw."""

import json

import pytest

from orbitmq.cli import screen as screens
from orbitmq.cli.process import complain
from orbitmq.cli.screen import RED, Screen
from orbitmq.errors import MQError

EVIL = "shop\x1b]0;owned\x07\x9b2J\r"
SAFE = r"shop\x1b]0;owned\x07\x9b2J\r"


def test_a_line_with_a_name_from_the_network_carries_no_escape_sequence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Symptom: `topic list` wrote names of topics, and `group show` and `tail` those of clients and
    brokers, as they came: whoever registers one could write to the terminal of an administrator."""
    screen = Screen(is_json=False)
    screen.line(EVIL)
    screen.heading(f"{EVIL}: 3 messages")
    assert capsys.readouterr().out == f"{SAFE}\n{SAFE}: 3 messages\n"


def test_our_own_colours_stay_and_others_do_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screens, "is_coloured", lambda: True)
    screen = Screen(is_json=False)
    screen.line(screen.colour(f"{EVIL}\x1b[8m", RED) + " ok")
    assert capsys.readouterr().out == f"\x1b[31m{SAFE}\\x1b[8m\x1b[0m ok\n"


def test_json_says_the_same_without_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Screen(is_json=True).value({"name": EVIL})
    Screen(is_json=True).json_line({"name": EVIL})
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in lines] == [{"name": EVIL}] * 2
    assert all(line.isprintable() for line in lines)


def test_an_error_that_quotes_a_server_is_written_without_escapes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    complain("orbitmq topic list", MQError(f"first\nsecond {EVIL}"))
    assert capsys.readouterr().err == f"orbitmq topic list: first\nsecond {SAFE}\n"
