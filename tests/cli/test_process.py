"""What every serving command shares: bounded logs, overrides, addresses."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq.cli.process import LineLimit, read_overrides, show_address
from orbitmq.errors import SettingError
from tests.namesrv.registering import HandClock


def line(text: str) -> logging.LogRecord:
    return logging.LogRecord("orbitmq", logging.INFO, "", 0, "%s", (text,), None)


def test_log_lines_are_bounded_in_each_second_and_what_is_left_out_is_counted() -> None:
    clock = HandClock()
    limit = LineLimit(clock, lines_max=3)
    assert [limit.filter(line("a")) for _ in range(5)] == [True, True, True, False, False]
    clock.now_s += 1.0
    first = line("b")
    assert limit.filter(first)
    assert first.getMessage() == "b (2 lines before it left out)"
    second = line("c")
    assert limit.filter(second)
    assert second.getMessage() == "c"


def test_overrides_are_pairs() -> None:
    assert read_overrides(["a=1", " b = c=d", "a=2"]) == {"a": "2", "b": " c=d"}
    for wrong in ("a", "=1", ""):
        with pytest.raises(SettingError, match="KEY=VALUE"):
            read_overrides([wrong])


def test_an_ipv6_host_is_shown_in_brackets() -> None:
    assert show_address("127.0.0.1", 1) == "127.0.0.1:1"
    assert show_address("::1", 1) == "[::1]:1"


def test_a_server_without_uvloop_runs_and_says_what_would_be_quicker(tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['uvloop'] = None; from orbitmq.cli.main import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", hidden, "namesrv", "--port", "0", "--data-dir", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready namesrv=")
        process.terminate()
        logged = process.communicate(timeout=30)[1]
    assert process.returncode == 0
    assert "pip install 'orbitmq[server]'" in logged
