"""The Java that a program on the JVM would be started with: where it is and how new.

In: the environment. Out: a path and the number of its version, or nothing.

Rules:
1. JAVA_HOME counts before PATH, as Spark's own scripts have it.
2. The version stands in the installation's `release` file; only without one is Java asked.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

ANSWER_LIMIT_S = 60.0
"""A JVM says its version in a tenth of a second; on a machine that swaps it takes longer."""

_VERSION = re.compile(r'(?:JAVA_VERSION=|version )"(?P<whole>(?:1\.)?(?P<major>\d+)[^"]*)"')


class Java(NamedTuple):
    """A Java that was found; `major` is 0 when it does not say its version."""

    path: Path
    major: int
    version: str


def find_java() -> Java | None:
    """Return the Java that Spark would start, or None."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None or not os.access(found, os.X_OK):
        return None
    path = Path(found)
    told = _VERSION.search(_release_of(path) or _asked(path))
    return Java(path, int(told["major"]), told["whole"]) if told else Java(path, 0, "")


def _release_of(path: Path) -> str:
    try:
        return (path.resolve().parent.parent / "release").read_text(errors="replace")
    except OSError:
        return ""


def _asked(path: Path) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - the user's own Java, with a fixed argument
            [path, "-version"], capture_output=True, text=True, timeout=ANSWER_LIMIT_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stderr + done.stdout
