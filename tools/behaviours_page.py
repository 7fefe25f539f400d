"""Make docs/reference/behaviours.md from tests/behaviours.toml.

In: the text of the catalogue, one table per behaviour id. Out: the text of the page, a summary and
one table per part. Run it as `python tools/behaviours_page.py` after editing the catalogue; with
`--check` it writes nothing and exits with 1 when the page is out of date.

1. Reading, checking and rendering are pure functions over text; only `main` touches files.
2. A malformed catalogue is refused with every problem named; a page is never made from half of one.
3. The page has no links, no date and no version, so the same catalogue always gives the same bytes.
"""

import argparse
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).resolve().parent.parent
CATALOGUE_PATH = ROOT / "tests" / "behaviours.toml"
PAGE_PATH = ROOT / "docs" / "reference" / "behaviours.md"

STATES = ("planned", "proven", "refused")
# One sentence has to fit into a table row; longer ones hide two behaviours in one id.
SENTENCE_CHARS_MAX = 140

PARTS = {
    "A": "Concepts and operation",
    "B": "Name server, producer and store",
    "C": "Consumption, transactions and queries",
    "D": "Consumer internals and pop",
}

_ID = re.compile(r"[A-D]-[0-9]{3}")
_NAMES_BY_STATE = {
    "planned": {"does", "state"},
    "proven": {"does", "state", "tests"},
    "refused": {"does", "state", "reason"},
}

_HEAD = """\
# Behaviours

What the system does, one sentence per behaviour id. *Proven* names the tests that fail when the
behaviour is lost, *planned* is promised and not proven yet, *refused* says what happens instead.

This page is made from `tests/behaviours.toml` by `tools/behaviours_page.py`; edit the catalogue and
run the tool again.
"""


class CatalogueError(Exception):
    """The catalogue cannot be used; `problems` says everything that is wrong with it."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("tests/behaviours.toml: " + "; ".join(self.problems))


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One entry of the catalogue; `tests` is empty unless proven, `reason` unless refused."""

    id: str
    does: str
    state: str
    tests: tuple[str, ...] = ()
    reason: str = ""


def read_catalogue(text: str) -> tuple[Behaviour, ...]:
    """Return the entries in the order of the file. Raises CatalogueError naming every problem."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CatalogueError([f"not valid TOML: {error}"]) from error
    problems = [problem for id_, entry in tables.items() for problem in _problems(id_, entry)]
    if problems:
        raise CatalogueError(problems)
    return tuple(
        Behaviour(
            id=id_,
            does=entry["does"],
            state=entry["state"],
            tests=tuple(entry.get("tests", ())),
            reason=entry.get("reason", ""),
        )
        for id_, entry in tables.items()
    )


def render_page(behaviours: Sequence[Behaviour]) -> str:
    """Return the whole page: head, summary, and one table per part in the order given."""
    sections = [_HEAD, _summary(behaviours)]
    for letter, title in PARTS.items():
        rows = [_row(behaviour) for behaviour in behaviours if behaviour.id[0] == letter]
        table = ["| id | what it does | state |", "|---|---|---|", *rows]
        sections.append(f"## {letter}: {title}\n\n" + "\n".join(table) + "\n")
    return "\n".join(sections)


def _problems(id_: str, entry: object) -> list[str]:
    if not _ID.fullmatch(id_):
        return [f"{id_} is not an id; write a part A to D and three digits, such as B-007"]
    if not isinstance(entry, Mapping):
        return [f"{id_} is not a table; begin the entry with [{id_}]"]
    state = entry.get("state")
    if not isinstance(state, str) or state not in _NAMES_BY_STATE:
        return [f"{id_} has state {state!r}; use one of {', '.join(STATES)}"]
    unknown = sorted(set(entry) - _NAMES_BY_STATE[state])
    problems = [
        f"{id_} is {state} and has {name!r}, which does not belong there" for name in unknown
    ]
    return problems + _sentence_problems(id_, entry.get("does")) + _state_problems(id_, entry)


def _sentence_problems(id_: str, does: object) -> list[str]:
    if not _is_text(does):
        return [f'{id_} lacks its sentence; add does = "..."']
    if "\n" in does or len(does) > SENTENCE_CHARS_MAX:
        return [f"{id_} needs one line of at most {SENTENCE_CHARS_MAX} characters in 'does'"]
    return []


def _state_problems(id_: str, entry: Mapping[str, object]) -> list[str]:
    if entry["state"] == "refused" and not _is_text(entry.get("reason")):
        return [f"{id_} is refused without a reason; say what happens instead"]
    if entry["state"] != "proven":
        return []
    tests = entry.get("tests")
    if not isinstance(tests, list) or not tests or not all(_is_text(test) for test in tests):
        return [f'{id_} is proven by no test; add tests = ["tests/...::test_..."]']
    return []


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value.strip())


def _summary(behaviours: Sequence[Behaviour]) -> str:
    counts = Counter((behaviour.id[0], behaviour.state) for behaviour in behaviours)
    lines = ["| part | " + " | ".join(STATES) + " | all |", "|---|" + "---:|" * (len(STATES) + 1)]
    for letter, title in PARTS.items():
        row = [counts[letter, state] for state in STATES]
        lines.append(_summary_row(f"{letter}: {title}", row))
    sums = [sum(counts[letter, state] for letter in PARTS) for state in STATES]
    lines.append(_summary_row("all", sums))
    return "\n".join(lines) + "\n"


def _summary_row(name: str, counts: Sequence[int]) -> str:
    return f"| {name} | " + " | ".join(str(count) for count in (*counts, sum(counts))) + " |"


def _row(behaviour: Behaviour) -> str:
    state = behaviour.state
    if behaviour.state == "proven":
        state += ": " + ", ".join(f"`{test}`" for test in behaviour.tests)
    if behaviour.state == "refused":
        state += ": " + behaviour.reason
    return f"| {behaviour.id} | {_cell(behaviour.does)} | {_cell(state)} |"


def _cell(text: str) -> str:
    # Sentences are plain text: `<group>` would vanish as markup, and a bar would end the cell.
    escaped = text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
    return " ".join(escaped.split())


def main(arguments: Sequence[str]) -> int:
    """Write the page, or with --check compare it; return the exit code."""
    parser = argparse.ArgumentParser(description="make docs/reference/behaviours.md")
    parser.add_argument("--check", action="store_true", help="only say whether it is up to date")
    check = parser.parse_args(arguments).check
    try:
        page = render_page(read_catalogue(CATALOGUE_PATH.read_text(encoding="utf-8")))
    except CatalogueError as error:
        print(error, file=sys.stderr)
        return 1
    if check:
        return _compare(page)
    PAGE_PATH.parent.mkdir(parents=True, exist_ok=True)
    PAGE_PATH.write_text(page, encoding="utf-8")
    return 0


def _compare(page: str) -> int:
    if PAGE_PATH.exists() and PAGE_PATH.read_text(encoding="utf-8") == page:
        return 0
    print(
        "docs/reference/behaviours.md is out of date; run python tools/behaviours_page.py",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
