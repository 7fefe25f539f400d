"""Where the behaviour suite asks OrbitMQ for something else than an original.

In: the source of a file of tests/behaviour. Out: the functions of it that branch on which of both
is judged, by their own words or by a name such as `IS_OURS` that was made of them. Branches on
5.5.0 alone do not count: the page of differences is about 4.9.7.
"""

import ast
from collections.abc import Iterable, Iterator

ASKED = "judged_original"
VARIABLE = "ORBITMQ_JUDGE"
ELSEWHERE = "5.5.0"


def branching(source: str, names: Iterable[str] = ()) -> list[str]:
    """Return the functions that branch, and names of marks for the whole file."""
    tree, known = ast.parse(source), {*names, *made_names(source)}
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    found = [node.name for node in functions if _asks(node, known)]
    return found + [name for name in made_names(source) if name == "pytestmark"]


def made_names(source: str) -> list[str]:
    """Return the names of a file whose values say which of both is judged."""
    made: list[str] = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and _asks(node.value, made):
            made += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return made


def _asks(node: ast.AST, known: Iterable[str]) -> bool:
    words = {ASKED, *known}
    return any(
        (isinstance(one, ast.Name) and one.id in words)
        or (isinstance(one, ast.Attribute) and ast.unparse(one) == "system.version")
        or (isinstance(one, ast.Constant) and one.value == VARIABLE)
        for one in _without_elsewhere(node)
    )


def _without_elsewhere(node: ast.AST) -> Iterator[ast.AST]:
    """Walk over a tree, but not into comparisons with 5.5.0."""
    if isinstance(node, ast.Compare) and ELSEWHERE in ast.unparse(node):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _without_elsewhere(child)
