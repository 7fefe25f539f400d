"""`orbitmq run module:app`: an application as a program, and again after each change."""

from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq import Message, Producer
from tests.cli.commands import Running, run_command
from tests.foreign.judged import System

pytestmark = pytest.mark.timeout(120)

FreshName = Callable[[str], str]

APP = """\
from orbitmq.aio import ConsumeFromWhere
from orbitmq.app import App

app = App({namesrv!r}, {group!r})


@app.listener({topic!r}, from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
async def {listener}(body: str) -> None:
    print("{listener} got", body, flush=True)
"""


def _write(folder: Path, system: System, topic: str, group: str, listener: str = "hear") -> None:
    text = APP.format(namesrv=system.namesrv, topic=topic, group=group, listener=listener)
    (folder / "worker.py").write_text(text)


def _send(system: System, topic: str, body: bytes) -> None:
    with Producer(system.namesrv, "test") as producer:
        producer.send(Message(topic, body))


def test_an_application_consumes_until_it_is_stopped(
    system: System, tmp_path: Path, fresh_name: FreshName
) -> None:
    topic = fresh_name("Topic")
    _write(tmp_path, system, topic, fresh_name("Group"))
    _send(system, topic, b"hello")
    with Running("orbitmq", "run", "worker", folder=tmp_path) as command:
        lines = {command.line(), command.line()}
        assert lines == {"ready listeners=hear", "hear got hello"}
        assert command.stop() == 0
        assert command.rest() == ""


def test_a_changed_source_starts_it_again_and_a_mistake_is_waited_out(
    system: System, tmp_path: Path, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("Group")
    _write(tmp_path, system, topic, group)
    with Running("orbitmq", "run", "worker:app", "--reload", folder=tmp_path) as command:
        first = {command.line(), command.line()}
        assert first == {f"ready reload={tmp_path}", "ready listeners=hear"}
        (tmp_path / "worker.py").write_text("app = 1 +\n")
        command.await_log("waiting for a change")
        _write(tmp_path, system, topic, group, listener="listen")
        assert command.line() == "ready listeners=listen"
        _send(system, topic, b"again")
        assert command.line() == "listen got again"
        assert command.stop() == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nothing",), "there is no module nothing in"),
        (("worker:shop",), "worker has no App called shop"),
        (("worker", "--file", "none.toml"), "there is no settings file none.toml"),
    ],
)
def test_what_cannot_be_run_is_said_in_one_line(
    system: System, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    _write(tmp_path, system, "T", "G")
    done = run_command("orbitmq", "run", *words, folder=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr.splitlines()[-1]
    assert done.stdout == ""


def test_a_module_that_an_application_misses_is_not_taken_for_the_application(
    tmp_path: Path,
) -> None:
    """`work` is missing in `worker`, whose name begins with it."""
    (tmp_path / "worker.py").write_text("import work\n")
    done = run_command("orbitmq", "run", "worker", folder=tmp_path)
    assert done.returncode == 1
    assert "No module named 'work'" in done.stderr
