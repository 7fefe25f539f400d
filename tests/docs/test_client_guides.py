"""The pages about the Python client: every example on them is a file that runs."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.testing import EmbeddedBroker

pytestmark = pytest.mark.timeout(300)  # other processes start, on a machine that may be busy

ROOT = Path(__file__).parents[2]
PAGES = (
    *("start/python-client", "guides/sending", "guides/python-consumers", "guides/applications"),
    "guides/admin",
)
LIMIT_S = 120


def _files(text: str) -> dict[str, str]:
    """Return the examples of a page by the names in their first lines."""
    found = {}
    for indent, block in re.findall(r"^( *)```python\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL):
        lines = [line.removeprefix(indent) for line in block.splitlines()]
        found[lines[0].removeprefix("# ")] = "\n".join(lines) + "\n"
    return found


FILES = {page: _files((ROOT / "docs" / f"{page}.md").read_text()) for page in PAGES}
SCRIPTS = [
    (page, name) for page, files in FILES.items() for name in files if page != "guides/applications"
]


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        yield broker.namesrv


def _run(folder: Path, namesrv: str, *command: str) -> str:
    env = {**os.environ, "NAMESRV_ADDR": namesrv}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if command[0] == "-W":  # what the client logs of a missing topic, say, may stand there
        assert not re.search(r"Warning|Exception ignored|Traceback", done.stderr), done.stderr
    return done.stdout


def test_each_example_is_a_file_with_a_name() -> None:
    names = [name for files in FILES.values() for name in files]
    assert len(names) >= 12
    assert all(re.fullmatch(r"\w+\.py", name) for name in names), names


@pytest.mark.parametrize(("page", "name"), SCRIPTS)
def test_an_example_runs(page: str, name: str, namesrv: str, tmp_path: Path) -> None:
    if name == "bill_orders.py":  # it waits for what the page's first example sends
        (tmp_path / "send_orders.py").write_text(FILES[page]["send_orders.py"])
        assert _run(tmp_path, namesrv, "send_orders.py").startswith("SEND_OK")
    (tmp_path / name).write_text(FILES[page][name])
    _run(tmp_path, namesrv, "-W", "error", name)


def test_the_application_is_tested_as_its_page_says(namesrv: str, tmp_path: Path) -> None:
    for name, text in FILES["guides/applications"].items():
        (tmp_path / name).write_text(text)
    _run(tmp_path, namesrv, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py")
    _run(tmp_path, namesrv, "-c", "import web; assert web.asgi")


def test_the_first_message_program_of_the_readme_runs(namesrv: str) -> None:
    printed = _run(ROOT, namesrv, "examples/python/first_message.py", namesrv)
    assert printed.count("received Hello OrbitMQ") == 3
