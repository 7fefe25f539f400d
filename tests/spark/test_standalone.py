"""The same program under spark-submit, on a real master with two workers, in both packagings.

In: an environment with a wheel of this source and what the guide names beside it; the golden store;
a broker. Out: what the program says, and that it ran where it should: on both workers, with the
packages of that environment; a stream's batch that is repeated stores nothing twice.
"""

import itertools
import json
import shlex
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orbitmq import Message, Producer
from orbitmq.testing import EmbeddedBroker
from tests.docs.pages import beginning_with
from tests.golden.store import CLEAN, stored_records, unpack_store
from tests.spark.cluster_program import NO_STREAM
from tests.spark.packaging_parts import made_environment
from tests.spark.sinking import bodies
from tests.spark.standalone import WORKER_COUNT, Cluster, submit

pytestmark = [
    pytest.mark.nightly("spark"),
    pytest.mark.slow,
    pytest.mark.timeout(900),
]  # many JVMs start on two cores

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "examples/spark/copy_orders.py"
EVERYTHING = ROOT / "tests/spark/cluster_program.py"
MESSAGE_COUNT = 200
SENT = sorted(str(number) for number in range(MESSAGE_COUNT))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with what the guide has users install, and nothing else."""
    return made_environment(tmp_path_factory.mktemp("packaging"), documented())


def documented() -> list[str]:
    """What docs/guides/spark.md puts into the archive."""
    (command,) = beginning_with("env/bin/pip install")
    return shlex.split(command.line)[2:]


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
    with tarfile.open(packed, "w:gz", compresslevel=1) as archive:
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


def check_place(place: dict[str, Any], home: Path) -> None:
    """A task's Python and all that it imports are those of an environment."""
    assert Path(place["python"]) == home / "bin/python"
    assert set(place["files"]) >= {"orbitmq", "pyarrow", "pandas"}
    for name, file in place["files"].items():
        assert Path(file).resolve().is_relative_to(home.resolve()), f"{name} is at {file}"
    assert sysconfig.get_path("purelib") not in place["path"]


def check_stream(stream: dict[str, int], namesrv: str) -> None:
    """The stream's last batch was run twice, and stored once."""
    assert stream["batch"] >= 1
    assert stream["again"] > 0, "the last batch was not repeated"
    assert bodies(namesrv, "orders_once") == SENT, "the repeated batch is there twice"


@pytest.mark.parametrize("packaging", ["installed", "archive"])
def test_a_program_copies_a_topic_and_reads_a_store_on_two_workers(
    packaging: str, cluster: Cluster, environment: Path, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    is_archive = packaging == "archive"
    settings = archived(environment, tmp_path) if is_archive else installed(environment)
    store = tmp_path / "store"
    unpack_store(CLEAN, store)
    checkpoint = str(tmp_path / "checkpoint") if is_archive else NO_STREAM  # once is enough
    streamed = [broker.namesrv, "orders", "orders_once", checkpoint]
    copied = [str(PROGRAM), broker.namesrv, "orders", "orders_copy", str(store)]
    said = submit(cluster.address, EVERYTHING, [*streamed, *copied], settings).splitlines()
    told = [json.loads(line) for line in said[:-2]]
    if is_archive:
        check_stream(told.pop(), broker.namesrv)
    *places, about = told
    assert about == {"zone": "UTC", "master": cluster.address}
    assert len({place["folder"] for place in places}) == WORKER_COUNT
    for place in places:
        check_place(place, Path(place["folder"]) / "env" if is_archive else environment)
    assert said[-2:] == [f"copied {MESSAGE_COUNT}", f"stored {len(stored_records())}"]
    assert bodies(broker.namesrv, "orders_copy") == SENT
