"""What the makers of generated pages share: write the page, or say that it is out of date.

In: a page's path, its text, the arguments of the command line. Out: the file, or with --check
nothing but an exit code.
"""

import sys
from pathlib import Path


def write_or_check(path: Path, text: str, arguments: list[str], tool: str) -> int:
    """Write the page; with --check give 1 when it differs."""
    if "--check" not in arguments:
        path.write_text(text)
        return 0
    if path.exists() and path.read_text() == text:
        return 0
    sys.stderr.write(f"{path.name} is out of date: run python -m tools.{tool}\n")
    return 1
