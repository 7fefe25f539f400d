"""`make check`: one run of mypy over all programs of README, docs and examples, and wrong ones.

    python -m tests.docs.typed_programs

In: the Python blocks of the pages, examples/**/*.py, the mistakes of tests/typing. Out: exit code 0
when `mypy --strict` accepts every program, as users type it, and finds every mistake. Rule: the
programs of a page import each other, and two pages have programs of one name; so each becomes a
module whose name begins with its page's.
"""

import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tests.docs.pages import ROOT, of_language
from tests.typing.wrong import LINES, found_in, missed

BUILT = ROOT / "build" / "typed"
WRONG = "wrong.py"
UNTYPED = ("docs_guides_applications_web",)
"""Programs that stand for one of somebody else."""


def programs() -> dict[str, str]:
    """Return the programs by the names of their modules."""
    pages: dict[str, dict[str, str]] = defaultdict(dict)
    for block in of_language("python"):
        page = pages[block.page]
        named = re.match(r"# (\w+)\.py\n", block.text)
        page[named[1] if named else f"block_{len(page)}"] = block.text
    for path in sorted(ROOT.glob("examples/**/*.py")):
        pages[str(path.parent.relative_to(ROOT))][path.stem] = path.read_text()
    found = {
        f"{_word(page)}_{name}": _renamed(text, page, list(texts))
        for page, texts in pages.items()
        for name, text in texts.items()
    }
    return {name: text for name, text in found.items() if name not in UNTYPED}


def _word(page: str) -> str:
    return re.sub(r"\W", "_", page.removesuffix(".md"))


def _renamed(text: str, page: str, names: list[str]) -> str:
    """Have a program import its neighbours under their new names."""
    for name in names:
        module = f"{_word(page)}_{name}"
        text = re.sub(rf"^( *)from {name} import", rf"\1from {module} import", text, flags=re.M)
        text = re.sub(rf"^( *)import {name}$", rf"\1import {module} as {name}", text, flags=re.M)
    return text


def main() -> int:
    """Write the programs, check them, and say what is wrong."""
    BUILT.mkdir(parents=True, exist_ok=True)
    texts = {f"{name}.py": text for name, text in programs().items()} | {WRONG: LINES}
    for path in BUILT.glob("*.py"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        _write(BUILT / name, text)
    said = _mypy(list(texts))
    mistakes = [line for line in said if line.startswith(f"{WRONG}:")]
    told = [line for line in said if line not in mistakes and ": error:" in line]
    told += missed(found_in(mistakes))
    print("\n".join(told) or f"{len(texts)} programs of the documentation are well typed")
    return int(bool(told))


def _write(path: Path, text: str) -> None:
    """Leave a file alone that is as it should be: mypy's cache then knows it."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def _mypy(names: list[str]) -> list[str]:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary"]
    done = subprocess.run(
        [*command, "--cache-dir", str(ROOT / ".mypy_cache/docs"), *names],
        cwd=BUILT,
        env={**os.environ, "MYPYPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.stderr:
        sys.exit(done.stderr)
    return done.stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main())
