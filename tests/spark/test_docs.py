"""The pages about Spark: every program on them runs as it stands, in order.

In: the README, docs/start/spark.md, the guides. Out: a failure that names the page.
The programs of a page run in a process of their own, which `NAMESRV_ADDR` tells of a new broker and
whose folder is a temporary one; they share a session, started with `session()`'s settings.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq import Message, Producer
from orbitmq.spark.session import LOCAL_SETTINGS, SHARED_SETTINGS
from orbitmq.testing import EmbeddedBroker
from tests.golden.store import unpack_store
from tests.spark.sinking import stored
from tools import spark_page

pytestmark = pytest.mark.timeout(600)  # whole programs, on a machine that may be busy

ROOT = Path(__file__).parents[2]
PAGES = ("start/spark", "guides/spark", "guides/spark-recipes", "guides/spark-logs")
RECIPES = "guides/spark-recipes"
README = (ROOT / "README.md").read_text()
LIMIT_S = 540
README_BATCH, README_BATCHES = 500, 12
"""Messages of 1 KB: several times what `show()` reads before it has its twenty rows."""
PATHS = (str(ROOT / "src"), str(ROOT))


def _programs(text: str) -> dict[str, str]:
    """Return the programs of a page by the names in their first lines."""
    found = {}
    for indent, block in re.findall(r"^( *)```python\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL):
        lines = [line.removeprefix(indent) for line in block.splitlines()]
        found[lines[0].removeprefix("# ")] = "\n".join(lines) + "\n"
    return found


PROGRAMS = {page: _programs((ROOT / "docs" / f"{page}.md").read_text()) for page in PAGES}
README_PROGRAM = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[2]


@pytest.fixture
def namesrv() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        yield broker.namesrv


def _run(programs: dict[str, str], folder: Path, namesrv: str, *again: str) -> None:
    """Run programs as they stand in a process of their own, in order; some of them once more."""
    for name, text in programs.items():
        (folder / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.page_programs", *programs, *again],
        cwd=folder,
        env={**os.environ, "NAMESRV_ADDR": namesrv, "PYTHONPATH": os.pathsep.join(PATHS)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr


def test_each_program_has_a_name() -> None:
    names = [name for programs in PROGRAMS.values() for name in programs]
    assert len(names) >= 14
    assert all(re.fullmatch(r"\w+\.py", name) for name in names), names


@pytest.mark.parametrize("page", [page for page in PAGES if page != RECIPES])
def test_the_programs_of_a_page_run_in_their_order(page: str, namesrv: str, tmp_path: Path) -> None:
    if page == "guides/spark-logs":
        unpack_store("store-clean", tmp_path / "data" / "store")
    _run(PROGRAMS[page], tmp_path, namesrv)


def test_the_recipes_run_and_a_replay_that_is_started_again_stores_nothing_twice(
    namesrv: str, tmp_path: Path
) -> None:
    """Symptom: a restart had other rows under the same name, and stored them."""
    _run(PROGRAMS[RECIPES], tmp_path, namesrv, "replay.py")
    orders = stored(namesrv, "shop_orders")
    assert [message.tag for message in orders] == ["new"] * 61, "one came between the replays"
    replayed = stored(namesrv, "shop_orders_again")
    assert sorted(int(message.keys[0]) for message in replayed) == list(range(60))
    assert {message.properties["shop"] for message in replayed} == {"Graz"}


def test_the_readme_s_spark_program_runs_without_a_traceback(namesrv: str, tmp_path: Path) -> None:
    """Symptom: `show()` of a longer topic stopped reading early, and a worker said so at length."""
    batch = [Message("orders", b"x" * 1_000, tag="paid") for _ in range(README_BATCH)]
    with Producer(namesrv, group="shop") as producer:
        for _ in range(README_BATCHES):
            producer.send_batch(batch)
    text = README_PROGRAM.replace("127.0.0.1:9876", namesrv)
    _run({"readme.py": text}, tmp_path, namesrv)
    copied = [message.tag for message in stored(namesrv, "orders_copy")]
    assert copied == ["copied"] * README_BATCH * README_BATCHES


# --- what pages say ---


def test_the_page_of_options_is_up_to_date() -> None:
    assert spark_page.main(["--check"]) == 0


def test_every_option_that_the_guides_name_exists() -> None:
    known = (ROOT / "docs/reference/spark-options.md").read_text()
    for page in PAGES:
        text = (ROOT / "docs" / f"{page}.md").read_text()
        named = set(re.findall(r'\.option\("(\w+)"', text)) | set(re.findall(r"`(\w+)=", text))
        own = {"checkpointLocation", "compression", "commit", "output", "registry", "metrics_port"}
        assert [name for name in sorted(named - own) if f"| `{name}` |" not in known] == [], page


def test_the_guide_gives_a_reason_for_every_setting() -> None:
    guide = (ROOT / "docs/guides/spark.md").read_text()
    rows = [line for line in guide.splitlines() if line.startswith("| `spark.")]
    for name in LOCAL_SETTINGS:
        (row,) = [row for row in rows if f"`{name}`" in row]
        assert ("| everywhere |" in row) == (name in SHARED_SETTINGS), name
