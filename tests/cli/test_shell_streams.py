"""`orbitmq send`, `tail`, `consume` and `completion` as a person or a script runs them."""

import io
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from orbitmq.cli.completion import NAMES
from orbitmq.cli.main import NOUNS
from orbitmq.cli.progress import ProgressLine
from orbitmq.cli.times import span_text, time_ms, time_text
from orbitmq.world.clock import SystemClock
from tests.behaviour.consumers import Fresh
from tests.cli.shell_runs import PATIENCE_S, shell
from tests.foreign.judged import System

pytestmark = pytest.mark.timeout(180)


def lines_of(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def made_topic(system: System, fresh_name: Fresh, tmp_path: Path, queues: int = 2) -> str:
    topic = fresh_name("Topic")
    words = ("topic", "create", topic, "--queues", str(queues), "--namesrv", system.namesrv)
    assert shell(tmp_path, *words).code == 0
    return topic


class Follower:
    """A command that goes on until it is told to stop."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "orbitmq", *words],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "Follower":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def stop(self, number: int) -> tuple[int, str]:
        """Send a signal; return the exit code and what it said on standard error."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, errors


# --- send and tail ---


def test_one_message_is_sent_and_seen_by_tail(
    system: System, fresh_name: Fresh, tmp_path: Path
) -> None:
    topic, namesrv = made_topic(system, fresh_name, tmp_path), ("--namesrv", system.namesrv)
    words = ("send", topic, '{"id":1}', "--tag", "paid", "--key", "1", "--property", "a=b=c")
    sent = shell(tmp_path, *words, *namesrv)
    assert sent.code == 0
    assert re.fullmatch(r"SEND_OK  [0-9A-F]{32}  broker-a/\d@0\n", sent.out)
    shell(tmp_path, "send", topic, "unpaid", *namesrv)
    tail = ("tail", topic, "--from", "-10m", "--no-follow", *namesrv)
    for_people = shell(tmp_path, *tail, "--tag", "paid")
    assert re.fullmatch(
        r'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}  broker-a/\d@0  paid  key=1  \{"id":1\}\n',
        for_people.out,
    )
    seen = lines_of(shell(tmp_path, *tail, "--json").out)
    assert [one["body"] for one in seen] == ['{"id":1}', "unpaid"]
    assert seen[0]["keys"] == ["1"]
    assert seen[0]["properties"]["a"] == "b=c"
    assert seen[0]["message_id"] in sent.out


def test_lines_of_a_file_and_of_a_pipe_are_sent(
    system: System, fresh_name: Fresh, tmp_path: Path
) -> None:
    topic, flags = made_topic(system, fresh_name, tmp_path), ("--namesrv", system.namesrv)
    file = tmp_path / "lines.jsonl"
    file.write_text('{"id":1}\r\n\n{"id":"two"}\n{"id":3}')
    done = shell(tmp_path, "send", topic, "-f", str(file), "--key-field", "id", *flags)
    assert (done.code, done.err) == (0, "")
    assert re.fullmatch(rf"sent 3 messages to {topic} in \d+\.\d s\n", done.out)
    piped = shell(tmp_path, "send", topic, "-f", "-", "--json", *flags, stdin=b"four\nfive\n")
    assert json.loads(piped.out)["sent"] == 2
    with open(file, "rb") as lines:
        command = [sys.executable, "-m", "orbitmq", "send", topic, "-f", "-", *flags]
        subprocess.run(command, stdin=lines, check=True, capture_output=True, timeout=PATIENCE_S)
    seen = lines_of(
        shell(tmp_path, "tail", topic, "--from", "earliest", "--no-follow", "--json", *flags).out
    )
    assert sorted(one["body"] for one in seen) == sorted(
        ['{"id":1}', '{"id":"two"}', '{"id":3}'] * 2 + ["four", "five"]
    )
    assert {"1", "two", "3"} == {key for one in seen for key in one["keys"]}


def test_a_line_that_cannot_be_sent_ends_it_and_says_how_many_were(
    system: System, fresh_name: Fresh, tmp_path: Path
) -> None:
    topic = made_topic(system, fresh_name, tmp_path)
    words = ("send", topic, "-f", "-", "--key-field", "id", "--namesrv", system.namesrv)
    done = shell(tmp_path, *words, stdin=b'{"id":1}\nnonsense\n{"id":3}\n')
    assert (done.code, done.out) == (1, "")
    assert f"1 messages were sent to {topic}, then: the line 'nonsense'" in done.err


def test_many_lines_are_sent_in_their_order_by_a_sharding_key(
    system: System, fresh_name: Fresh, tmp_path: Path
) -> None:
    topic, flags = made_topic(system, fresh_name, tmp_path, 4), ("--namesrv", system.namesrv)
    text = "".join(f"{number}\n" for number in range(2_000))
    words = ("send", topic, "-f", "-", "--sharding-key", "k", *flags)
    assert shell(tmp_path, *words, stdin=text.encode()).code == 0
    tail = ("tail", topic, "--from", "earliest", "--no-follow", "--json", *flags)
    seen = lines_of(shell(tmp_path, *tail).out)
    assert [one["body"] for one in seen] == [str(number) for number in range(2_000)]
    assert len({one["queue_id"] for one in seen}) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_tail_follows_until_it_is_stopped(
    system: System, fresh_name: Fresh, tmp_path: Path, number: int
) -> None:
    topic, flags = made_topic(system, fresh_name, tmp_path), ("--namesrv", system.namesrv)
    shell(tmp_path, "send", topic, "first", *flags)
    with Follower(tmp_path, "tail", topic, "--from", "earliest", "--json", *flags) as tail:
        assert json.loads(tail.line())["body"] == "first"
        shell(tmp_path, "send", topic, "second", *flags)
        assert json.loads(tail.line())["body"] == "second"
        assert tail.stop(number) == (0, "")


def test_tail_ends_after_a_number_of_messages(
    system: System, fresh_name: Fresh, tmp_path: Path
) -> None:
    topic, flags = made_topic(system, fresh_name, tmp_path), ("--namesrv", system.namesrv)
    shell(tmp_path, "send", topic, "-f", "-", *flags, stdin=b"one\ntwo\n")
    done = shell(tmp_path, "tail", topic, "--from", "earliest", "-n", "1", "--json", *flags)
    assert (done.code, len(lines_of(done.out))) == (0, 1)
    words = ("tail", topic, "--from", "earliest", "-n", "3", "--json", *flags)
    with Follower(tmp_path, *words) as tail:
        assert {json.loads(tail.line())["body"] for _ in range(2)} == {"one", "two"}
        shell(tmp_path, "send", topic, "three", *flags)
        assert json.loads(tail.line())["body"] == "three"
        assert tail.process.wait(PATIENCE_S) == 0


def test_a_reader_of_a_pipe_that_has_seen_enough_is_no_error(
    system: System, fresh_name: Fresh, tmp_path: Path
) -> None:
    topic, flags = made_topic(system, fresh_name, tmp_path), ("--namesrv", system.namesrv)
    text = "".join(f"{number}\n" for number in range(2_000))
    shell(tmp_path, "send", topic, "-f", "-", *flags, stdin=text.encode())
    words = ("tail", topic, "--from", "earliest", "--no-follow", *flags)
    with Follower(tmp_path, *words) as tail:
        assert tail.line()
        assert tail.process.stdout is not None
        tail.process.stdout.close()
        assert tail.process.wait(PATIENCE_S) == 0
        assert tail.process.stderr is not None
        assert tail.process.stderr.read() == ""


def test_tail_that_follows_for_nobody_ends_quietly(
    system: System, fresh_name: Fresh, tmp_path: Path
) -> None:
    topic, flags = made_topic(system, fresh_name, tmp_path, 1), ("--namesrv", system.namesrv)
    shell(tmp_path, "send", topic, "first", *flags)
    with Follower(tmp_path, "tail", topic, "--from", "earliest", *flags) as tail:
        assert tail.line()
        assert tail.process.stdout is not None
        tail.process.stdout.close()
        shell(tmp_path, "send", topic, "second", *flags)
        assert tail.process.wait(PATIENCE_S) == 0
        assert tail.process.stderr is not None
        assert tail.process.stderr.read() == ""


def test_bytes_that_are_no_text_are_shown_and_kept(
    system: System, fresh_name: Fresh, tmp_path: Path
) -> None:
    topic, flags = made_topic(system, fresh_name, tmp_path, 1), ("--namesrv", system.namesrv)
    shell(tmp_path, "send", topic, "-f", "-", *flags, stdin=b"\xff\x00\n")
    tail = ("tail", topic, "--from", "earliest", "--no-follow", *flags)
    assert shell(tmp_path, *tail).out.endswith("2 bytes: ff00\n")
    assert lines_of(shell(tmp_path, *tail, "--json").out)[0]["body_base64"] == "/wA="


# --- consume ---


def test_consume_commits_what_it_has_shown(
    system: System, fresh_name: Fresh, tmp_path: Path
) -> None:
    topic, group = made_topic(system, fresh_name, tmp_path), fresh_name("Group")
    flags = ("--json", "--namesrv", system.namesrv)
    shell(tmp_path, "send", topic, "-f", "-", *flags, stdin=b"1\n2\n3\n4\n5\n")
    consume = ("consume", topic, "--group", group, *flags)
    first = lines_of(shell(tmp_path, *consume, "-n", "3").out)
    assert len(first) == 3
    shown = json.loads(shell(tmp_path, "group", "show", group, *flags).out)
    assert shown["lag"] == 2
    with Follower(tmp_path, *consume) as rest:
        second = [json.loads(rest.line()) for _ in range(2)]
        assert {one["body"] for one in first + second} == set("12345")
        assert rest.stop(signal.SIGINT) == (0, "")
    shown = json.loads(shell(tmp_path, "group", "show", group, *flags).out)
    assert shown["lag"] == 0


# --- how far it is ---


class Hours:
    """A clock that goes an hour on with each look."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def wall_ms(self) -> int:
        return 0

    def monotonic_s(self) -> float:
        self.now_s += 3_600
        return self.now_s

    def file_stamp(self, wall_ms: int) -> int:
        return wall_ms


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_a_bar_that_is_wiped_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    with ProgressLine(Hours(), is_wanted=False) as progress:
        progress.tell("bytes read", 5, 20)
        assert shown.getvalue() == "\r[#####...............] bytes read: 5 of 20 (25%)"
    assert shown.getvalue().endswith("\r")


def test_a_pipe_sees_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    with ProgressLine(Hours(), is_wanted=False) as progress:
        progress.tell("bytes read", 5, 20)
    assert shown.getvalue() == ""


def test_sending_lines_shows_on_a_terminal_how_far_it_is(
    system: System, fresh_name: Fresh, tmp_path: Path
) -> None:
    topic = made_topic(system, fresh_name, tmp_path)
    main, side = pty.openpty()
    command = ["send", topic, "-f", "-", "--namesrv", system.namesrv]
    process = subprocess.Popen(
        [sys.executable, "-m", "orbitmq", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=side,
    )
    os.close(side)
    assert process.stdin is not None
    shown = b""
    for _ in range(200):  # it says something once a second, and only if something has come
        process.stdin.write(b"line\n")
        process.stdin.flush()
        if select.select([main], [], [], 0.2)[0]:
            shown += os.read(main, 4_096)
            break
    out, _ = process.communicate(timeout=PATIENCE_S)
    os.close(main)
    assert b"bytes read: " in shown
    assert process.returncode == 0
    assert re.match(rb"sent \d+ messages", out)


# --- times ---


def test_times_are_read_as_people_write_them() -> None:
    now_ms = SystemClock().wall_ms()
    for text, ago_s in (("-10m", 600), ("-1.5h", 5_400), ("-2d", 172_800), ("now", 0)):
        assert abs(now_ms - ago_s * 1000 - time_ms(text)) < 60_000
    assert time_ms("1700000000000") == 1_700_000_000_000
    assert time_ms("2023-11-14T22:13:20+00:00") == 1_700_000_000_000
    assert time_text(0) == ""
    assert time_ms(time_text(1_700_000_000_123)) == 1_700_000_000_123
    assert [span_text(ms) for ms in (0, 59_000, 93_000, 90_061_000)] == [
        "0s",
        "59s",
        "1m33s",
        "1d1h",
    ]


# --- completion ---


ASK = {
    "bash": "COMP_WORDS=({words}); COMP_CWORD={last}; _orbitmq; printf '%s\\n' ${{COMPREPLY[@]}}",
    "zsh": "words=({words}); CURRENT=$#words; _orbitmq",
    "fish": "complete -C (string join ' ' -- {words})",
}
"""How a shell is asked what it offers behind some words, the last of them begun."""

BEFORE = {"zsh": "compdef() {}; _files() {}; compadd() { shift; print -l -- $@ }\n"}
"""Stands for the part of zsh that shows what is offered."""

INSTALLED = [name for name in ASK if shutil.which(name)]


def completed(name: str, folder: Path, *words: str, **variables: str) -> list[str]:
    """What a shell offers behind these words."""
    script = BEFORE.get(name, "") + shell(folder, "completion", name).out
    listed = " ".join(f"'{word}'" for word in words)
    ask = ASK[name].format(words=listed, last=len(words) - 1)
    python = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{python}:{os.environ['PATH']}", **variables}
    environment["HOME"] = str(folder)
    done = subprocess.run(
        [name, "-c", f"{script}\n{ask}"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stderr == ""
    offered = [line.split("\t")[0] for line in done.stdout.splitlines()]
    return [word for word in offered if word.startswith(words[-1])]


@pytest.mark.parametrize("name", INSTALLED)
def test_a_shell_completes_commands_flags_and_names(
    name: str, system: System, fresh_name: Fresh, tmp_path: Path
) -> None:
    assert set(completed(name, tmp_path, "orbitmq", "")) >= set(NOUNS)
    assert completed(name, tmp_path, "orbitmq", "topic", "cr") == ["create"]
    assert "--queues" in completed(name, tmp_path, "orbitmq", "topic", "create", "--q")
    assert "show" in completed(name, tmp_path, "orbitmq", "broker", "")
    topic, group = made_topic(system, fresh_name, tmp_path), fresh_name("Group")
    assert shell(tmp_path, "group", "create", group, "--namesrv", system.namesrv).code == 0
    namesrv = {"NAMESRV_ADDR": system.namesrv}
    assert topic in completed(name, tmp_path, "orbitmq", "tail", topic[:-1], **namesrv)
    assert group in completed(name, tmp_path, "orbitmq", "group", "show", group[:-1], **namesrv)


def test_names_are_asked_for_without_what_a_shell_would_read_in_quotes() -> None:
    """Once: fish refused its whole script because of a `$` between double quotes."""
    for command in NAMES.values():
        assert not set(command) & set("$`\"'\\!")


def test_every_shell_has_a_script_with_every_command(tmp_path: Path) -> None:
    for name in ("bash", "zsh", "fish"):
        done = shell(tmp_path, "completion", name)
        assert (done.code, done.err) == (0, "")
        for noun in NOUNS:
            assert re.search(rf"\b{noun}\b", done.out), (name, noun)
        assert "--sharding-key" in done.out or "-l sharding-key" in done.out
    assert shell(tmp_path, "completion", "tcsh").code == 2
