"""Programs of users: mypy --strict accepts what is right, refuses what is wrong, and they run."""

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import orbitmq.app
import orbitmq.errors
import orbitmq.testing
from orbitmq import aio
from orbitmq.errors import MQError
from orbitmq.testing import EmbeddedBroker

FOLDER = Path(__file__).parent
LIMIT_S = 60.0
LOST = "name server 127.0.0.1:1 does not answer"
"""What the client logs of a name server that a program asks in vain."""


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        yield broker.namesrv


def _run(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def _used_names(program: str) -> set[str]:
    """Return the names that a program uses after it has imported them."""
    nodes = list(ast.walk(ast.parse((FOLDER / program).read_text())))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def _errors() -> dict[str, type[MQError]]:
    """Return the public errors by their names."""
    found = {name: getattr(orbitmq.errors, name) for name in dir(orbitmq.errors)}
    return {
        name: each
        for name, each in found.items()
        if inspect.isclass(each) and issubclass(each, MQError) and not name.startswith("_")
    }


@pytest.mark.parametrize(
    ("program", "names"),
    [
        ("async_program.py", aio.__all__),
        ("sync_program.py", [name for name in dir(orbitmq) if not name.startswith("_")]),
        ("app_program.py", [*orbitmq.app.__all__, *orbitmq.testing.__all__]),
        ("errors_program.py", [*_errors()]),
    ],
)
def test_the_programs_use_every_public_name(program: str, names: list[str]) -> None:
    assert set(names) - _used_names(program) == set()


def test_a_program_reads_every_fact_that_an_error_keeps() -> None:
    tree = ast.parse(inspect.getsource(orbitmq.errors))
    kept = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and isinstance(node.ctx, ast.Store)
    }
    assert len(kept) > 20
    assert kept - _used_names("errors_program.py") == set()


@pytest.mark.parametrize("module", [orbitmq, aio, orbitmq.app, orbitmq.testing, orbitmq.errors])
def test_every_public_name_has_a_docstring(module: ModuleType) -> None:
    assert module.__doc__
    names = getattr(module, "__all__", None) or dir(module)
    named = [getattr(module, name) for name in names if not name.startswith("_")]
    told = [one for one in named if inspect.isclass(one) or inspect.isroutine(one)]
    ours = [one for one in told if one.__module__.startswith("orbitmq")]
    assert ours
    for one in ours:
        assert inspect.getdoc(one), one
    for kind in filter(inspect.isclass, ours):
        for name, member in inspect.getmembers(kind):
            is_told = inspect.isroutine(member) or isinstance(member, property)
            if is_told and not name.startswith("_"):
                assert inspect.getdoc(member), f"{kind.__name__}.{name}"


def test_functions_are_among_what_needs_a_docstring() -> None:
    assert inspect.isroutine(aio.random_queue)
    assert inspect.isroutine(orbitmq.app.with_app)


def test_a_program_that_sets_up_no_logging_sees_warnings_and_nothing_else() -> None:
    program = (
        "import asyncio, logging, orbitmq\n"
        "from orbitmq.errors import ConnectFailed\n"
        "with orbitmq.Producer('127.0.0.1:1', 'quiet') as producer:\n"
        "    try:\n"
        "        producer.send(orbitmq.Message('T', b'x'))\n"
        "    except ConnectFailed:\n"
        "        print('failed')\n"
    )
    done = _run(FOLDER, "-c", program)
    (warning,) = done.stderr.splitlines()
    assert done.stdout == "failed\n"
    assert warning.startswith(LOST)
    quiet = "logging.getLogger('orbitmq').addHandler(logging.NullHandler())\n"
    done = _run(FOLDER, "-c", f"import logging\n{quiet}{program}")
    assert (done.stdout, done.stderr) == ("failed\n", "")


@pytest.mark.parametrize("program", [path.name for path in FOLDER.glob("*_program.py")])
def test_the_programs_run(program: str, namesrv: str) -> None:
    done = _run(FOLDER, "-W", "error", program, namesrv)
    logged = [line for line in done.stderr.splitlines() if not line.startswith(LOST)]
    assert (done.returncode, logged) == (0, [])
    assert done.stdout.splitlines()[-1] in ("messages 6", "messages 5", "done")
