"""Make the synchronous client classes from their asynchronous twins.

In: the public classes of `orbitmq.client`. Out: one file each in src/orbitmq/blocking, with the
same methods, signatures and docstrings, that wait instead of being awaited. A test compares the
files with what this would write, so the two cannot drift.

    python -m tools.blocking_source [--check]
"""

import ast
import importlib
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import NamedTuple

from orbitmq.blocking.facade import Facade
from tools.pages import write_or_check

FOLDER = Path(__file__).resolve().parents[1] / "src" / "orbitmq" / "blocking"


class Twin(NamedTuple):
    """An asynchronous class and the file of its synchronous twin."""

    module: str
    name: str
    file: str


TWINS = (
    Twin("orbitmq.client.producer", "Producer", "producer"),
    Twin("orbitmq.client.push", "PushConsumer", "push_consumer"),
    Twin("orbitmq.client.pull_consumer", "PullConsumer", "pull_consumer"),
    Twin("orbitmq.client.admin", "Admin", "admin"),
)

LEFT_OUT = {
    (
        "Producer",
        "topics",
    ): "its instance asks it which routes it needs; programs know what they send to",
    ("Producer", "submit_from_thread"): "it is what the synchronous submit calls",
}
"""By class and name, what the synchronous twin does without, and why. `start` and `close` are the
facade's own."""

WITHOUT_WAITING = {
    ("Producer", "submit"): "return self._begun().submit_from_thread({passed})",
    (
        "Producer",
        "room",
    ): "if not self._begun().has_room:\n            self._wait(self._twin.room())",
    ("Producer", "has_room"): "return self._begun().has_room",
    ("PushConsumer", "run"): "self._run()",
}
"""By class and name, the bodies of those that programs call for each message: no round trip between
the threads, what they call may be called in any thread. `run` waits for signals, which come to the
main thread."""

HEAD = '''"""`{name}` for programs without an event loop.

In: the calls of `orbitmq.aio.{name}`. Out: the same answers, waited for.
Rule: made by tools/blocking_source.py; change the asynchronous class and run that.
"""
'''

_WORDS = (
    (re.compile(r"await asyncio\.gather\(\*futures\)"), "[future.result() for future in futures]"),
    (re.compile(r"\basync (with|for)\b"), r"\1"),
    (re.compile(r"\bawait "), ""),
    (re.compile(r"\borbitmq\.aio\b"), "orbitmq"),
    (re.compile(r"(>>>|\.\.\.) async def\b"), r"\1 def"),
    (
        re.compile(r"\bA producer belongs to the event loop that started it\."),
        "Threads may share a producer.",
    ),
    (re.compile(r"\basyncio\.Event\(\)"), "threading.Event()"),
)


def main(arguments: list[str]) -> int:
    """Write all files, or check them."""
    return max(
        write_or_check(FOLDER / f"{twin.file}.py", source_of(twin), arguments, "blocking_source")
        for twin in TWINS
    )


def source_of(twin: Twin) -> str:
    """Return the file of one synchronous class."""
    kind = getattr(importlib.import_module(twin.module), twin.name)
    body = ClassBody(kind)
    parts = [HEAD.format(name=twin.name), *body.imports(), "", *body.lines]
    return _formatted("\n".join(parts))


def _formatted(text: str) -> str:
    """Sort the imports, drop those that nobody needs, and lay the text out as all others are."""
    ruff = [sys.executable, "-m", "ruff"]
    name = ["--stdin-filename", str(FOLDER / "made.py"), "-"]
    for words in (["check", "--fix-only", "-q", "--select", "I,F401"], ["format", "-q"]):
        command = [*ruff, *words, *name]
        text = subprocess.run(
            command, input=text, capture_output=True, text=True, check=True
        ).stdout
    return text


class ClassBody:
    """The synchronous twin of one class, made line by line."""

    def __init__(self, kind: type) -> None:
        self._kind = kind
        self._needed: dict[str, str] = {}
        self.lines = [
            f"class {kind.__name__}(Facade[aio.{kind.__name__}]):",
            *_docstring(_doc(kind), 4),
            "",
        ]
        for name, member in public_members(kind):
            self.lines += [*self._member(name, member), ""]

    def imports(self) -> list[str]:
        """Return the imports that the lines need."""
        lines = [
            "from orbitmq import aio",
            "from orbitmq.blocking.facade import Facade",
            "from collections.abc import Callable, Iterator",
            "from orbitmq.client.message import ReceivedMessage",
            "from concurrent.futures import Future",
        ]
        return lines + sorted(set(self._needed.values()))

    def _member(self, name: str, member: object) -> Iterator[str]:
        if isinstance(member, property) and member.fget is not None:
            node = self._parsed(_function(member.fget))
            result = self._text(node.returns)
            yield "    @property"
            yield f"    def {name}(self) -> {result}:"
            yield from _docstring(_doc(member), 8)
            yield f"        {self._body(name, f'return self._there(lambda: self._twin.{name})')}"
            return
        function = _function(member)
        node = self._parsed(function)
        if name == "__init__":
            yield from self._constructor(node, function)
            yield from self._attributes(node)
        elif name == "__aiter__":
            yield "    def __iter__(self) -> Iterator[ReceivedMessage]:"
            yield from _docstring(_doc(function), 8)
            yield "        return self._each(self._twin.__aiter__)"
        else:
            yield from self._method(name, node, function)

    def _constructor(self, node: "_Function", function: FunctionType) -> Iterator[str]:
        yield f"    def __init__({self._arguments(node)}) -> None:"
        yield from _docstring(_doc(function), 8)
        call = f"aio.{self._kind.__name__}({_passed(node.args)})"
        yield f"        super().__init__(lambda: {call})"

    def _attributes(self, constructor: "_Function") -> Iterator[str]:
        """Return the public attributes that a constructor sets, with the texts behind them."""
        for place, node in enumerate(constructor.body):
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Attribute):
                continue
            name = node.target.attr
            if name.startswith("_"):
                continue
            behind = constructor.body[place + 1 : place + 2]
            yield ""
            yield "    @property"
            yield f"    def {name}(self) -> {self._text(node.annotation)}:"
            yield from _docstring(_text_of(behind) or f"Its {name}.", 8)
            yield f"        return self._there(lambda: self._twin.{name})"

    def _method(self, name: str, node: "_Function", function: FunctionType) -> Iterator[str]:
        passed = _passed(node.args)
        call = f"self._twin.{name}({passed})"
        later = f"lambda: {call}" if passed else f"self._twin.{name}"
        result = self._text(node.returns).replace("asyncio.Future", "Future")
        each = re.fullmatch(r"AsyncIterator\[(.*)\]", result)
        if isinstance(node, ast.AsyncFunctionDef):
            wait = f"self._wait({call})"
        elif each is not None:
            result, wait = f"Iterator[{each.group(1)}]", f"self._each({later})"
        else:
            wait = f"self._there({later})"
        yield f"    def {name}({self._arguments(node)}) -> {result}:"
        yield from _docstring(_doc(function), 8)
        body = f"{'' if result == 'None' else 'return '}{wait}"
        yield f"        {self._body(name, body, passed)}"

    def _body(self, name: str, body: str, passed: str = "") -> str:
        special = WITHOUT_WAITING.get((self._kind.__name__, name))
        return body if special is None else special.format(passed=passed)

    def _parsed(self, function: FunctionType) -> "_Function":
        node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            raise TypeError(f"{function} is no function")
        self._note_names(node, inspect.getmodule(function))
        return node

    def _note_names(self, node: "_Function", module: ModuleType | None) -> None:
        """Remember the imports for every name in a signature."""
        if module is None:
            raise TypeError(f"{node.name} belongs to no module")
        known = _imports_of(module.__name__)
        nodes: list[ast.AST] = [node.args] + ([node.returns] if node.returns else [])
        if node.name == "__init__":
            nodes += [one.annotation for one in node.body if isinstance(one, ast.AnnAssign)]
        for name in {one for part in nodes for one in _names_in(part)}:
            if name == self._kind.__name__:
                continue
            if name in known:
                self._needed[name] = known[name]
            elif hasattr(module, name):
                self._needed[name] = f"from {module.__name__} import {name}"

    def _arguments(self, node: "_Function") -> str:
        return self._text(node.args)

    def _text(self, node: ast.AST | None) -> str:
        if node is None:
            return "None"
        if isinstance(node, ast.expr):
            return ast.unparse(_unquoted(node))
        return ast.unparse(_Unquoted().visit(node))


_Function = ast.FunctionDef | ast.AsyncFunctionDef


class _Unquoted(ast.NodeTransformer):
    """Takes the quotes off annotations."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        if node.annotation is not None:
            node.annotation = _unquoted(node.annotation)
        return node


def _unquoted(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return ast.parse(node.value, mode="eval").body
    return node


def _text_of(nodes: list[ast.stmt]) -> str:
    """Return the docstring that stands behind an attribute, or nothing."""
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return inspect.cleandoc(str(node.value.value))
    return ""


def _names_in(node: ast.AST) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            yield one.id
        elif isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield from re.findall(r"[A-Za-z_][A-Za-z0-9_]*", one.value)


def _passed(arguments: ast.arguments) -> str:
    """Return a call's arguments that hand on what came in."""
    words = [one.arg for one in [*arguments.posonlyargs, *arguments.args] if one.arg != "self"]
    if arguments.vararg is not None:
        words.append(f"*{arguments.vararg.arg}")
    words += [f"{one.arg}={one.arg}" for one in arguments.kwonlyargs]
    if arguments.kwarg is not None:
        words.append(f"**{arguments.kwarg.arg}")
    return ", ".join(words)


def public_members(kind: type) -> Iterator[tuple[str, object]]:
    """Return what the synchronous twin of a class is to have, in the order of the source."""
    seen: set[str] = set()
    for base in kind.__mro__[:-1]:
        for name, member in vars(base).items():
            is_wanted = not name.startswith("_") or name in ("__init__", "__aiter__")
            is_method = isinstance(member, FunctionType | property)
            if name in seen or not is_wanted or not is_method:
                continue
            seen.add(name)
            if name.startswith("_") or not (
                hasattr(Facade, name) or (kind.__name__, name) in LEFT_OUT
            ):
                yield name, member


def _function(member: object) -> FunctionType:
    if not isinstance(member, FunctionType):
        raise TypeError(f"{member} is no function")
    return member


def _doc(thing: object) -> str:
    """Return a docstring of its own, not an inherited one."""
    return inspect.cleandoc(thing.__doc__ or "")


def _docstring(text: str, indent: int) -> list[str]:
    for pattern, replacement in _WORDS:
        text = pattern.sub(replacement, text)
    lines = text.splitlines()
    if not lines:
        return []
    quoted = [f'"""{lines[0]}', *lines[1:]] if len(lines) > 1 else [f'"""{lines[0]}"""']
    if len(lines) > 1:
        quoted.append('"""')
    return [" " * indent + line if line else "" for line in quoted]


@cache
def _imports_of(module_name: str) -> dict[str, str]:
    """Return the import statements of a module by the names they bring."""
    module = importlib.import_module(module_name)
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for one in node.names:
                alias = f" as {one.asname}" if one.asname else ""
                line = f"from {node.module} import {one.name}{alias}"
                found[one.asname or one.name] = line
        elif isinstance(node, ast.Import):
            for one in node.names:
                alias = f" as {one.asname}" if one.asname else ""
                found[one.asname or one.name] = f"import {one.name}{alias}"
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
