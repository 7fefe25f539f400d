"""Spark finds the format by itself, and the module it looks for never fails, whatever is there."""

import subprocess
import sys

from pyspark_orbitmq import DefaultSource

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


def test_spark_finds_the_format_rocketmq() -> None:
    assert DefaultSource.name() == "rocketmq"


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
