"""The same program under spark-submit, on a real master with two workers, in both packagings.

In: a wheel of this source, installed in an environment of its own; the golden store; a broker. Out:
what the program says, and that it ran where it should: on both workers, with the wheel's code.
"""

import itertools
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq import Message, Producer, PullConsumer
from orbitmq.testing import EmbeddedBroker
from tests.docs.pages import beginning_with
from tests.golden.store import CLEAN, stored_records, unpack_store
from tests.spark.standalone import WORKER_COUNT, running_cluster, submit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # many JVMs start on two cores

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "examples/spark/copy_orders.py"
MESSAGE_COUNT = 200
WHERE = """\
import runpy, sys
from orbitmq.spark import session

def look(batches):
    import os, orbitmq, pyarrow as pa
    for _ in batches:
        yield pa.RecordBatch.from_pydict(
            {"file": [orbitmq.__file__], "python": [sys.executable], "folder": [os.getcwd()]}
        )

spark = session()
rows = spark.range(0, 64, 1, 16).mapInArrow(look, "file string, python string, folder string")
for row in rows.distinct().collect():
    print(row.file, row.python, row.folder)
print("zone", spark.conf.get("spark.sql.session.timeZone"), spark.sparkContext.master)
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""
"""Says where tasks run, and then runs another program in the same session: Java starts once."""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with our wheel; what we depend on comes from the one that runs this."""
    folder = tmp_path_factory.mktemp("packaging")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", source / "src", ignore=ignored)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    wheel = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(source)]
    subprocess.run(wheel, check=True, timeout=120)
    made = folder / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True, timeout=120)
    (found,) = folder.glob("orbitmq-*.whl")
    install = [*pip, "--python", str(made / "bin/python"), "install", "--no-deps", str(found)]
    subprocess.run(install, check=True, timeout=120)
    (packages,) = made.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return made


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as address:
        yield address


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with (
        EmbeddedBroker() as running,
        Producer(running.namesrv, group="shop") as producer,
    ):
        for number in range(MESSAGE_COUNT):
            producer.send(Message("orders", b"%d" % number, tag="paid"))
        yield running


def installed(environment: Path) -> dict[str, str]:
    """The settings for executors that have the environment on their disk."""
    return {"spark.pyspark.python": str(environment / "bin/python")}


def archived(environment: Path, folder: Path) -> dict[str, str]:
    """The settings for executors that get the environment with the job."""
    packed = folder / "env.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(environment, ".")
    return {
        "spark.archives": f"{packed}#env",
        "spark.pyspark.python": "./env/bin/python",
        "spark.pyspark.driver.python": str(environment / "bin/python"),
    }


def test_the_guide_shows_the_settings_that_are_run_here(tmp_path: Path) -> None:
    """The lines of docs/guides/spark.md name no cluster that a test could reach."""
    environment = tmp_path / "env"
    environment.mkdir()
    shown = []
    for command in beginning_with("spark-submit"):
        words = list(itertools.pairwise(shlex.split(command.line)))
        settings = dict(word.split("=", 1) for name, word in words if name == "--conf")
        if "--archives" in dict(words):
            settings["spark.archives"] = dict(words)["--archives"]
        shown.append(settings)
    mine, sent = installed(Path("/opt/jobs")), archived(environment, tmp_path)
    assert shown == [
        mine,
        {name: value.replace(f"{tmp_path}/", "") for name, value in sent.items()},
    ]


@pytest.mark.parametrize("packaging", ["installed", "archive"])
def test_a_program_copies_a_topic_and_reads_a_store_on_two_workers(
    packaging: str, cluster: str, environment: Path, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    is_archive = packaging == "archive"
    settings = archived(environment, tmp_path) if is_archive else installed(environment)
    where, store = tmp_path / "where.py", tmp_path / "store"
    where.write_text(WHERE)
    unpack_store(CLEAN, store)
    arguments = [str(PROGRAM), broker.namesrv, "orders", "orders_copy", str(store)]
    *said, zone, copied, stored = submit(cluster, where, arguments, settings).splitlines()
    assert zone == f"zone UTC {cluster}"
    places = [line.split() for line in said]
    assert len({folder for _, _, folder in places}) == WORKER_COUNT
    for file, python, folder in places:
        home = Path(folder) / "env" if is_archive else environment
        assert Path(python) == home / "bin/python"
        assert re.search(r"/site-packages/orbitmq/__init__.py$", file)
        assert not Path(file).is_relative_to(ROOT)
        assert Path(file).resolve().is_relative_to(home.resolve()) or is_archive
    assert copied == f"copied {MESSAGE_COUNT}"
    assert stored == f"stored {len(stored_records())}"
    with PullConsumer(broker.namesrv, group="looking") as consumer:
        ends = [consumer.max_offset(queue) for queue in consumer.queues("orders_copy")]
    assert sum(ends) == MESSAGE_COUNT
