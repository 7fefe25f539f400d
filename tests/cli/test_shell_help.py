"""Help texts, versions and mistakes of the command line, each named for its symptom."""

import re
import shlex
from pathlib import Path

import pytest

from orbitmq.cli.main import make_parser
from tests.behaviour.consumers import Fresh
from tests.cli.commands import Running
from tests.cli.shell_runs import NOBODY, shell
from tests.foreign.judged import System
from tools.commands_page import commands, help_texts

pytestmark = pytest.mark.timeout(120)


def test_no_help_text_shows_a_doubled_percent_sign() -> None:
    texts = dict(help_texts())
    assert "%DLQ%billing" in texts["orbitmq consume"]
    assert [name for name, text in texts.items() if "%%" in text] == []


def _options() -> dict[str, set[str]]:
    """The options of each command, by its name."""
    return {
        name: {word for action in parser._actions for word in action.option_strings}
        for name, parser in commands("orbitmq", make_parser())
    }


def test_help_texts_name_only_options_that_there_are() -> None:
    there = set().union(*_options().values())
    for name, text in help_texts():
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))
        assert name.startswith("mq") or named <= there, name


def test_examples_in_help_texts_are_commands_that_are_understood(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen = 0
    for _, text in help_texts():
        for line in text.splitlines():
            command = re.sub(r" > (?!\d)\S+$", "", re.split(r"\s{2,}|#", line.strip())[0].strip())
            if command.startswith("orbitmq "):
                seen += 1
                make_parser().parse_args(shlex.split(command)[1:])  # else SystemExit
    assert seen > 20
    assert not capsys.readouterr().err


def test_defaults_in_help_texts_are_the_defaults() -> None:
    for name, parser in commands("orbitmq", make_parser()):
        for action in parser._actions:
            told = re.search(r"default:? ([^\s,;)]+)", action.help or "")
            assert told is None or told.group(1) == str(action.default), (name, action.help)


def test_the_version_is_an_option_too(tmp_path: Path) -> None:
    assert shell(tmp_path, "--version") == shell(tmp_path, "version")
    assert shell(tmp_path, "--version").out.startswith("orbitmq ")


@pytest.mark.parametrize("words", [(), ("topic",), ("group",), ("message",), ("store",)])
def test_a_command_without_a_verb_shows_its_help(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = shell(tmp_path, *words)
    assert (done.code, done.out) == (2, "")
    assert shell(tmp_path, *words, "--help").out == done.err


@pytest.mark.parametrize(
    "words", [("tail", "T", "--from", "earlist"), ("group", "reset", "G", "T", "--to", "yesterday")]
)
def test_a_mistyped_place_is_answered_with_all_that_are_allowed(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = shell(tmp_path, *words, NAMESRV_ADDR=NOBODY)
    assert done.code == 2
    for allowed in ("earliest", "latest", "-10m", "now"):
        assert allowed in done.err.splitlines()[-1]


@pytest.mark.parametrize("level", ["0", "19", "99", "-1", "two"])
def test_a_delay_level_that_does_not_exist_is_refused(tmp_path: Path, level: str) -> None:
    done = shell(tmp_path, "send", "T", "x", f"--delay-level={level}", NAMESRV_ADDR=NOBODY)
    assert done.code == 2
    assert f"'{level}' is not a level from 1 to 18" in done.err


def test_a_reset_of_a_mistyped_group_does_not_create_it(
    system: System, fresh_name: Fresh, tmp_path: Path
) -> None:
    topic, namesrv = fresh_name("Topic"), ("--namesrv", system.namesrv)
    group = fresh_name("Typo")
    assert shell(tmp_path, "topic", "create", topic, *namesrv).code == 0
    done = shell(tmp_path, "group", "reset", group, topic, "--to", "earliest", *namesrv)
    assert (done.code, done.out) == (1, "")
    assert f"there is no group {group}" in done.err
    assert f"orbitmq group create {group}" in done.err
    assert group not in shell(tmp_path, "group", "list", "--names", *namesrv).out


def test_a_check_of_a_healthy_folder_warns_of_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    words = ("up", "--data-dir", str(folder), "--namesrv-port", "0", "--broker-port", "0")
    with Running("orbitmq", *words, folder=tmp_path) as server:
        ready = dict(word.split("=") for word in server.line().split()[1:])
        namesrv = ("--namesrv", ready["namesrv"])
        assert shell(tmp_path, "send", "T", "x", "--delay-level", "1", *namesrv).code == 0
        assert shell(tmp_path, "consume", "T", "--group", "G", "-n", "1", *namesrv).code == 0
        changed = shell(tmp_path, "broker", "set", "broker-a", "fileReservedTime=48", *namesrv)
        assert (changed.code, changed.out.split()) == (0, ["fileReservedTime", "48"])
        shown = shell(tmp_path, "broker", "show", "broker-a", "--settings", *namesrv)
        assert "fileReservedTime" in shown.out
        assert server.stop() == 0
    assert (folder / "store" / "config" / "broker.properties").exists()
    checked = shell(tmp_path, "store", "check", str(folder))
    assert checked.code == 0
    assert [line for line in checked.out.splitlines() if line.startswith("warning")] == []
