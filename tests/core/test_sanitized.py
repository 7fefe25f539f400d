"""The compiled core is watched: no byte read or written that is not its own, no memory kept.

In: the core built with AddressSanitizer, beside the tests of the core; ten million messages. Out: a
report of the sanitizer, or memory that grows, as a failure.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.core.hot import IMPLEMENTATIONS

pytestmark = [
    pytest.mark.nightly("core"),
    pytest.mark.timeout(3_000),
    pytest.mark.skipif("compiled" not in IMPLEMENTATIONS, reason="it is not built"),
]

ROOT = Path(__file__).parent.parent.parent
WATCHED = (
    "test_cores_agree.py",
    "test_core.py",
    "test_rows.py",
    "test_batches.py",
    "test_sql_filters.py",
)
MESSAGES = 10_000_000
GROWTH_MAX = 4 << 20


def sanitizer() -> str:
    """Where the compiler has the sanitizer's library; empty: it has none."""
    found = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return found if Path(found).is_absolute() else ""


def test_the_tests_of_the_core_pass_under_the_address_sanitizer(tmp_path: Path) -> None:
    library = sanitizer() if shutil.which("gcc") else ""
    if not library:
        pytest.skip("gcc has no AddressSanitizer here")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    ignored = shutil.ignore_patterns("*.so", "*.c", "__pycache__")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=ignored)
    flags = "-fsanitize=address -fno-omit-frame-pointer -g -O1"
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=tmp_path,
        env={**os.environ, "CFLAGS": flags, "LDFLAGS": "-fsanitize=address"},
        check=True,
    )
    tests = [str(ROOT / "tests" / "core" / name) for name in WATCHED]
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            *tests,
            "-k",
            "not 5_ms",
        ],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(tmp_path / "src"),
            "PYTHONMALLOC": "malloc",  # else the sanitizer sees nothing of small objects
            "LD_PRELOAD": library,
            "ASAN_OPTIONS": "detect_leaks=0",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-4_000:] + run.stderr[-4_000:]
    assert "passed" in run.stdout


LOAD = """
import resource, sys
from benchmarks.frames import NOW_MS, send_frame, pull_frame
from benchmarks.in_process import ORIGIN, new_state
from orbitmq.core import handle_one_read

state = new_state()
data = b"".join(send_frame(number, 100) for number in range(64)) + pull_frame(0)
marks = []
for turn in range(int(sys.argv[1]) // 64):
    result = handle_one_read(state, data, 0, ORIGIN, NOW_MS)
    assert result.sends == 64
    staged = state.tail.take()
    for queue, _ in staged.grown:
        queue.take_back(0)
    del staged, result
    if turn in (5_000, int(sys.argv[1]) // 64 - 1):
        marks.append(int(open("/proc/self/statm").read().split()[1]) * 4_096)
print(marks[1] - marks[0])
"""


def test_ten_million_messages_leave_no_memory_behind() -> None:
    run = subprocess.run(
        [sys.executable, "-c", LOAD, str(MESSAGES)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "ORBITMQ_CORE": "compiled"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(run.stdout) < GROWTH_MAX
