"""Spark finds the formats by itself, and the modules it looks for never fail, whatever is there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq import Message, Producer
from orbitmq.testing import EmbeddedBroker
from pyspark_orbitmq import DefaultSource
from pyspark_orbitmq_log import DefaultSource as DefaultLogSource

FOUND = """
import sys
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.memory", "512m")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
topic = spark.read.format("rocketmq").option("topic", "found").load()
topic.select("body").write.format("rocketmq").option("topic", "copied").mode("append").save()
log = spark.read.format("rocketmq_log").option("topic", "found").load(sys.argv[1])
copied = spark.read.format("rocketmq").option("topic", "copied").load()
for rows in (topic, log, copied):
    print(sorted(bytes(row.body).decode() for row in rows.select("body").collect()))
print([name for name in sys.modules if name.startswith("orbitmq")])
"""

WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in {missing!r}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Missing())
import pyspark_orbitmq
print(hasattr(pyspark_orbitmq, 'DefaultSource'))
"""


def test_the_modules_that_spark_looks_for_have_the_formats() -> None:
    assert DefaultSource.name() == "rocketmq"
    assert DefaultLogSource.name() == "rocketmq_log"


@pytest.mark.timeout(300)
def test_a_plain_session_finds_both_formats_and_the_environment_s_name_servers(
    tmp_path: Path,
) -> None:
    """Nothing of ours is imported in the program, registered or set: Spark looks by itself.

    In all of its processes pandas cannot be imported: the formats need none.
    """
    (tmp_path / "pandas.py").write_text("raise ImportError('pandas is hidden')")
    with EmbeddedBroker() as broker:
        with Producer(broker.namesrv, group="shop") as producer:
            for number in range(3):
                producer.send(Message("found", b"body %d" % number))
        done = subprocess.run(
            [sys.executable, "-c", FOUND, broker.folder / "store"],
            env=_plain_environment(broker.namesrv, tmp_path),
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    sent = str([f"body {number}" for number in range(3)])
    assert done.stdout.splitlines()[-4:] == [sent, sent, sent, "[]"]


def _plain_environment(namesrv: str, modules: Path) -> dict[str, str]:
    """Return that of a user whose Python has the package, with one variable of ours."""
    kept = ("HOME", "JAVA_HOME", "PATH", "TMPDIR")
    given = {name: os.environ[name] for name in kept if name in os.environ}
    given["PYTHONPATH"] = os.pathsep.join([str(modules), os.environ.get("PYTHONPATH", "")])
    return {**given, "PYSPARK_PYTHON": sys.executable, "NAMESRV_ADDR": namesrv}


def test_without_spark_or_arrow_the_module_is_imported_and_empty() -> None:
    for missing in (["pyspark"], ["pyarrow"], ["pyspark", "pyarrow", "numpy", "pandas"]):
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT.format(missing=missing)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert done.stdout.strip() == "False", missing
