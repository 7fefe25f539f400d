"""`make test-newest`: a choice of unit tests on the newest Python that is installed.

    python -m tests.newest

In: the Pythons on the PATH and in ~/.pyenv/versions, the lock file. Out: exit code 0 when the tests
pass there, or when no newer Python than this one is installed, which is said. Rule: an environment
is made once for a Python and a lock file, below build/newest; it has what the tests need and no
Spark.
"""

import hashlib
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from shutil import rmtree, which

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements/dev.txt"
BUILT = ROOT / "build/newest"
NEEDED = (
    *("cffi", "cryptography", "execnet", "hypothesis", "iniconfig", "lz4", "msgspec", "packaging"),
    *("pluggy", "pycparser", "pygments", "pytest", "pytest-randomly", "pytest-timeout"),
    *("pytest-xdist", "sortedcontainers", "typing-extensions", "uvloop", "zlib-ng", "zstandard"),
)
TESTS = ("tests/core", "tests/net", "tests/sql", "tests/wire", "tests/world")
MINORS = range(sys.version_info.minor + 1, 30)
"""Python 3's minor versions that are newer than this one."""


def newest(folders: Iterable[Path]) -> Path | None:
    """Return the newest of the Pythons that are newer than this one."""
    found: dict[tuple[int, ...], Path] = {}
    for folder in folders:
        if matched := re.fullmatch(r"3\.(\d+)\.(\d+)", folder.parent.name):
            found[3, int(matched[1]), int(matched[2])] = folder / "python"
    for minor in MINORS:
        if path := which(f"python3.{minor}"):
            found.setdefault((3, minor, -1), Path(path))
    newer = {
        version: path
        for version, path in found.items()
        if version[1] in MINORS and _version(path) == version[1]
    }
    return newer[max(newer)] if newer else None


def _version(python: Path) -> int | None:
    """Return the minor version that a program says it has; None when it does not run."""
    try:
        done = subprocess.run([python, "-V"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    said = re.match(r"Python 3\.(\d+)", done.stdout)
    return int(said[1]) if said and not done.returncode else None


def requirements(lock: str, names: Sequence[str]) -> str:
    """Return the lines of a lock file, with hashes, for some packages."""
    blocks = re.split(r"^(?=\S)", lock, flags=re.MULTILINE)
    return "".join(block for block in blocks if block.partition("==")[0] in names)


def environment(python: Path) -> Path:
    """Return the Python of an environment with what the tests need."""
    wanted = requirements(LOCK.read_text(), NEEDED)
    key = hashlib.sha256(f"{python} {wanted}".encode()).hexdigest()[:16]
    folder = BUILT / key
    if not (folder / "complete").exists():
        rmtree(BUILT, ignore_errors=True)
        subprocess.run([python, "-m", "venv", folder], check=True)
        (folder / "requirements.txt").write_text(wanted)
        pip = [
            str(folder / "bin/python"),
            "-m",
            "pip",
            "--disable-pip-version-check",
            "-q",
            "install",
        ]
        pip += ["--require-hashes", "--no-deps", "-r", str(folder / "requirements.txt")]
        subprocess.run(pip, check=True)
        site = next(folder.glob("lib/python3*/site-packages"))
        (site / "orbitmq.pth").write_text(f"{ROOT / 'src'}\n")
        (folder / "complete").touch()
    return folder / "bin/python"


def main() -> int:
    """Run the tests there."""
    python = newest((Path.home() / ".pyenv/versions").glob("3.*/bin"))
    if python is None:
        print(f"no newer Python than {sys.version.split()[0]} is installed", flush=True)
        return 0
    words = ["-q", "-p", "no:cacheprovider", *TESTS]
    return subprocess.run([environment(python), "-m", "pytest", *words], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
