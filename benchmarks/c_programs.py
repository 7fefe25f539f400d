"""The programs in C: the load generator and the bare server, built when they are needed.

In: a source of this folder. Out: the path of a program. Rule: it is built when it is missing or
older than any C source, under another name first, so that nobody starts half a program.
"""

import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
BUILD_LIMIT_S = 120


class BuildFailed(Exception):
    """A program in C could not be built."""


def build(name: str, program: Path | None = None) -> Path:
    """Build `name`.c if that was not done since it was changed; return the program."""
    program = program or HERE / "build" / name
    newest = max(path.stat().st_mtime for path in (*HERE.glob("*.c"), *HERE.glob("*.h")))
    if program.exists() and program.stat().st_mtime >= newest:
        return program
    compiler = shutil.which("gcc")
    if compiler is None:
        raise BuildFailed(f"gcc is not installed; {name} is written in C and needs it")
    program.parent.mkdir(parents=True, exist_ok=True)
    part = program.with_name(f"{program.name}.{os.getpid()}")
    command = [compiler, "-O2", "-Wall", "-Wextra", "-o", str(part), str(HERE / f"{name}.c")]
    built = subprocess.run(
        command, capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False
    )
    if built.returncode != 0:
        raise BuildFailed(f"gcc refused {name}.c:\n{built.stderr}")
    part.rename(program)
    return program
