"""Make docs/reference/client.md from the client's settings, classes and errors.

In: the settings structs with the sentences behind their fields, the public classes, the exceptions.
Out: the page, or with --check exit code 1 when it is out of date.

    python -m tools.client_page [--check]
"""

import ast
import importlib
import inspect
import sys
from collections.abc import Iterator
from enum import Enum
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import msgspec

from orbitmq import aio, errors
from orbitmq.client.settings import ClientSettings
from tools.pages import write_or_check

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "client.md"

HEAD = """\
# The Python client: names, options, errors

Made by `tools/client_page.py` from the code; do not edit. Every name is in `orbitmq` (synchronous)
and in `orbitmq.aio` (asynchronous, under the same name); `help(orbitmq.Producer)` and editors show
the methods. Options are keyword arguments of the constructors; times are seconds.
"""


class Described(NamedTuple):
    """A settings struct and the class that takes its fields as keyword arguments."""

    title: str
    module: str
    struct: str


OPTIONS = (
    Described("All clients", "orbitmq.client.settings", "ClientSettings"),
    Described("Producer", "orbitmq.client.producer_settings", "ProducerSettings"),
    Described("PushConsumer", "orbitmq.client.push_settings", "PushConsumerSettings"),
    Described("PullConsumer", "orbitmq.client.pull_settings", "PullConsumerSettings"),
)


def render_page() -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *_names(), *_options(), *_errors()]) + "\n"


def _names() -> Iterator[str]:
    yield "## Names\n"
    yield "| name | is |"
    yield "|---|---|"
    for name in aio.__all__:
        yield f"| `{name}` | {_first_line(getattr(aio, name))} |"
    yield ""


def _options() -> Iterator[str]:
    common = set(ClientSettings.__struct_fields__)
    for title, module_name, struct_name in OPTIONS:
        module = importlib.import_module(module_name)
        struct = getattr(module, struct_name)
        sentences = _sentences(module, struct_name)
        yield f"## Options: {title}\n"
        yield "| option | default | means |"
        yield "|---|---|---|"
        for field in msgspec.structs.fields(struct):
            if struct is ClientSettings or field.name not in common:
                default = _shown(field.default)
                yield f"| `{field.name}` | {default} | {sentences[field.name]} |"
        yield ""


def _errors() -> Iterator[str]:
    yield "## Errors\n"
    yield "All are in `orbitmq.errors`; their facts are attributes.\n"
    yield "| error | is a | says |"
    yield "|---|---|---|"
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.MQError):
            base = kind.__mro__[1].__name__
            yield f"| `{name}` | `{base}` | {_first_line(kind)} |"


def _first_line(thing: object) -> str:
    return _cell((inspect.getdoc(thing) or "").partition("\n\n")[0])


def _shown(default: object) -> str:
    if isinstance(default, Enum):
        return f"`{default.name}`"
    if default == "" or default is None:
        return "none"
    is_plain = isinstance(default, bool | int | float | str)
    return f"`{default}`" if is_plain else f"`{type(default).__name__}()`"


def _sentences(module: ModuleType, struct_name: str) -> dict[str, str]:
    """Return the text behind each field of a struct."""
    tree = ast.parse(inspect.getsource(module))
    (body,) = (
        node.body
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == struct_name
    )
    found: dict[str, str] = {}
    for node, behind in pairwise(body):
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and isinstance(behind, ast.Expr)
            and isinstance(behind.value, ast.Constant)
        ):
            found[node.target.id] = _cell(str(behind.value.value))
    return found


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main(arguments: list[str]) -> int:
    """Write the page, or check it."""
    return write_or_check(PAGE, render_page(), arguments, "client_page")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
