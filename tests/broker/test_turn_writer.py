"""The end of a turn: one write, then answers that are true, or nobody hears that it is stored."""

import ast
from dataclasses import fields
from pathlib import Path

import pytest

from orbitmq.broker.context import Context
from orbitmq.core import Queue
from orbitmq.errors import StoreError
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import encode_command
from tests.behaviour.requests import pull_request, send_request
from tests.broker.running import Running
from tests.broker.test_large_batches import port_of, served, with_broker
from tests.broker.test_send_checks import context_of
from tests.net.running import connected
from tests.store.refusing import RefusingFiles

BROKER = Path(__file__).parents[2] / "src" / "orbitmq" / "broker"


def test_reads_of_one_turn_share_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(at: Running, _files: RefusingFiles) -> None:
        context, sizes = context_of(at), list[int]()
        write = context.store.write_staged

        def counted() -> set[Queue]:
            sizes.append(len(context.core.tail.staged))
            return write()

        async with connected(port_of(at)) as first, connected(port_of(at)) as second:
            ours = [await served(at, client) for client in (first, second)]
            monkeypatch.setattr(context.store, "write_staged", counted)
            for connection in ours:
                context.hot.read_frames(connection, encode_command(send_request("B")), 0)
            assert not sizes, "nothing is written before the turn ends"
            assert [(await client.answer()).code for client in (first, second)] == [0, 0]
        assert len(sizes) == 1

    with_broker(tmp_path, act)


@pytest.mark.parametrize("error", [ValueError("a bug"), StoreError("no")], ids=["bug", "refusal"])
def test_a_write_that_fails_tells_nobody_that_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Refused, all are told; when it failed in a way nobody foresaw, all are disconnected."""

    def fails() -> None:
        raise error

    async def act(at: Running, _files: RefusingFiles) -> None:
        context, told = context_of(at), list[StoreError | None]()
        async with connected(port_of(at)) as first, connected(port_of(at)) as second:
            ours = [await served(at, client) for client in (first, second)]
            with monkeypatch.context() as patched:
                patched.setattr(context.store, "write_staged", fails)
                for connection in ours:
                    context.hot.read_frames(connection, encode_command(send_request("B")), 0)
                context.writer.after_write(told.append)
                if isinstance(error, StoreError):
                    answers = [await client.answer() for client in (first, second)]
                    assert {one.code for one in answers} == {ResponseCode.SERVICE_NOT_AVAILABLE}
                else:
                    assert [await client.ended() for client in (first, second)] == [b"", b""]
        assert len(told) == 1
        assert told[0] is not None

    with_broker(tmp_path, act)


def test_what_a_call_behind_a_write_stages_is_written_by_the_next(tmp_path: Path) -> None:
    async def act(at: Running, _files: RefusingFiles) -> None:
        context, told = context_of(at), list[StoreError | None]()
        writer = context.writer
        writer.after_write(lambda _error: writer.after_write(told.append))
        answer = await at.call(send_request("B"))
        assert (await at.call(pull_request("B", "G", int(answer.fields["queueOffset"])))).code == 0
        assert told == [None]

    with_broker(tmp_path, act)


def calls_of(path: Path) -> set[str]:
    """The names of the methods that a module calls."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return {
        node.func.attr
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }


@pytest.mark.parametrize(
    ("method", "module"),
    [
        ("write_staged", "turn_writer.py"),  # the one writer
        ("publish", "turn_writer.py"),
        ("require", ""),  # the store itself, by its options
        ("before_write", "overload.py turn_writer.py"),
    ],
)
def test_one_place_writes_and_shows(method: str, module: str) -> None:
    found = {path.name for path in BROKER.rglob("*.py") if method in calls_of(path)}
    assert found == set(module.split())


def test_the_context_is_a_bag_of_parts() -> None:
    """It decides nothing: whoever has something to do is a part of its own."""
    parts = {field.name for field in fields(Context)}
    verbs = {
        name
        for name, value in vars(Context).items()
        if callable(value) and not name.startswith("__") and name not in parts
    }
    assert verbs == {"change_settings", "set_store_host"}
