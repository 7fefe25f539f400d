"""The judge itself: it must notice what it is there to notice. No original and no JVM needed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.foreign.accounts import assert_accounted, assert_all_accepted
from tests.foreign.judged import judged_original
from tests.foreign.peers import Line, require_tool
from tests.foreign.running import ProgramFailed, running

READY_AND_WAIT = "print('ready namesrv=h:1 broker=-', flush=True); import time; time.sleep(60)"


def a_message(number: int, **changes: object) -> Line:
    line: Line = {"event": "sent", "status": "SEND_OK", "topic": "t", "brokerName": "b"}
    line |= {"queueId": 0, "queueOffset": number, "msgId": f"id-{number}", "body": f"t-{number}"}
    return {**line, **changes}


def test_messages_that_all_came_back_are_accepted() -> None:
    sent = [a_message(0), a_message(1)]
    assert_all_accepted(sent, "t", 2)
    assert_accounted(sent, list(reversed(sent)))


@pytest.mark.parametrize(
    ("received", "complaint"),
    [
        ([a_message(0)], "never came"),
        ([a_message(0), a_message(1), a_message(1)], "more than once"),
        ([a_message(0), a_message(1), a_message(2)], "nobody sent"),
        ([a_message(0), a_message(1, body="other")], "another body"),
        ([a_message(0), a_message(1, msgId="other")], "another body or id"),
    ],
)
def test_messages_missing_doubled_strange_or_changed_are_found(
    received: list[Line], complaint: str
) -> None:
    with pytest.raises(AssertionError, match=complaint):
        assert_accounted([a_message(0), a_message(1)], received)


@pytest.mark.parametrize(
    "second",
    [
        a_message(1, status="FLUSH_DISK_TIMEOUT"),
        a_message(1, queueOffset=2),
        a_message(1, queueOffset=0),
        a_message(1, msgId="id-0"),
        a_message(1, topic="other"),
    ],
)
def test_sends_refused_or_answered_with_a_wrong_place_are_found(second: Line) -> None:
    with pytest.raises(AssertionError):
        assert_all_accepted([a_message(0), second], "t", 2)


def test_program_is_ready_by_its_line_and_must_stop_with_exit_code_0() -> None:
    stops = f"import signal; signal.signal(signal.SIGTERM, lambda *_: exit(0)); {READY_AND_WAIT}"
    with running([sys.executable, "-c", stops]) as ready:
        assert ready == {"namesrv": "h:1", "broker": "-"}


@pytest.mark.parametrize(
    ("program", "complaint"),
    [
        ("import sys; print('the reason', file=sys.stderr)", "the reason"),
        ("import time; time.sleep(60)", "not ready after"),
        ("print('hello')", "instead of a ready line"),
        (READY_AND_WAIT, "exit code -15"),
    ],
)
def test_program_that_is_never_ready_or_dies_of_the_signal_is_reported(
    program: str, complaint: str
) -> None:
    with (
        pytest.raises(ProgramFailed, match=complaint),
        running([sys.executable, "-c", program], ready_limit_s=1 if "sleep" in program else 20),
    ):
        pass


def test_missing_tool_skips_with_its_name_and_fails_when_all_tests_must_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("ORBITMQ_TEST_ALL", raising=False)
    with pytest.raises(pytest.skip.Exception, match="`mvn` is not installed"):
        require_tool("mvn")
    monkeypatch.setenv("ORBITMQ_TEST_ALL", "1")
    with pytest.raises(pytest.fail.Exception, match="`mvn` is not installed"):
        require_tool("mvn")


def test_judge_variable_names_an_original_or_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORBITMQ_JUDGE", "original-4.9.7")
    assert judged_original() == "4.9.7"
    monkeypatch.setenv("ORBITMQ_JUDGE", "somebody")
    with pytest.raises(ValueError, match="original-VERSION"):
        judged_original()
    monkeypatch.delenv("ORBITMQ_JUDGE")
    assert judged_original() is None
