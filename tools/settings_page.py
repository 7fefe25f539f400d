"""Make docs/reference/settings.md from the settings tables of `orbitmq.config`.

In: the facts of every process's settings. Out: the text of the page, two tables per process. Run it
as `python tools/settings_page.py` after changing a setting; with `--check` it writes nothing and
exits with 1 when the page is out of date.

1. Rendering is a pure function of the tables; only `main` touches files.
2. The page has no date and no version, so the same tables always give the same bytes.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from orbitmq.config import SETTINGS_BY_PROCESS, Fact, NoEffect, Settings, facts_of

ROOT = Path(__file__).resolve().parent.parent
PAGE_PATH = ROOT / "docs" / "reference" / "settings.md"

_HEAD = """\
# Settings

Every key that the processes know. Keys, files (`-c FILE`, Java `.properties` text) and most
defaults are those of Apache RocketMQ; `-D key=value` on the command line wins over the file. An
unknown key is named with the nearest known one and does not stop the start, unless `--strict` is
given; a value that cannot be used always does. `-p` prints what would be in force.

*Over the network* says whether `mqadmin` may change a key while the process runs. No path, address
or port can be changed that way.

This page is made from `src/orbitmq/config` by `tools/settings_page.py`; change the tables there and
run the tool again.
"""


def render_page(processes: Mapping[str, type[Settings]] = SETTINGS_BY_PROCESS) -> str:
    """Return the whole page."""
    sections = [_section(name, settings_type) for name, settings_type in processes.items()]
    return "\n".join([_HEAD, *sections])


def _section(name: str, settings_type: type[Settings]) -> str:
    rows = [_obeyed_row(one) for one in facts_of(settings_type)]
    lines = [
        f"## {name}",
        "",
        "| key | default | allowed | over the network | what it does |",
        "|---|---|---|---|---|",
        *rows,
    ]
    if settings_type.without_effect:
        lines += [
            "",
            f"### {name}: accepted without effect",
            "",
            "These keys of the original are read and shown again, and change nothing. Values that"
            " would promise what is not kept are refused.",
            "",
            "| key | default there | why |",
            "|---|---|---|",
            *(_no_effect_row(key, one) for key, one in settings_type.without_effect.items()),
        ]
    return "\n".join(lines) + "\n"


def _obeyed_row(one: Fact) -> str:
    default = str(one.default).lower() if isinstance(one.default, bool) else str(one.default)
    sentence = one.sentence
    if one.original == "-":
        sentence += " Not in the original."
    elif one.original is not None:
        sentence += f" The original's default: {one.original}."
    if one.secret:
        sentence += " Never shown."
    cells = (
        f"`{one.key}`",
        _code(default),
        one.expected,
        "yes" if one.changeable else "no",
        sentence,
    )
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _no_effect_row(key: str, one: NoEffect) -> str:
    refused = f" Refused: {', '.join(map(_code, one.refused))}." if one.refused else ""
    return f"| `{key}` | {_code(one.default)} | {_cell(one.reason)}{refused} |"


def _code(value: str) -> str:
    return f"`{value}`" if value else "empty"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def main(arguments: Sequence[str]) -> int:
    """Write the page, or with --check compare it; return the exit code."""
    parser = argparse.ArgumentParser(description="make docs/reference/settings.md")
    parser.add_argument("--check", action="store_true", help="only say whether it is up to date")
    page = render_page()
    if not parser.parse_args(arguments).check:
        PAGE_PATH.parent.mkdir(parents=True, exist_ok=True)
        PAGE_PATH.write_text(page, encoding="utf-8")
        return 0
    if PAGE_PATH.exists() and PAGE_PATH.read_text(encoding="utf-8") == page:
        return 0
    print(
        "docs/reference/settings.md is out of date; run python tools/settings_page.py",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
