"""The notebook of the examples runs from top to bottom, in the session that tests share."""

import json
import re
import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # a whole program, on a machine that may be busy

NOTEBOOK = Path(__file__).parents[2] / "examples/spark/orders.ipynb"


def _cells() -> list[str]:
    """Return the notebook's cells of code."""
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    return ["".join(cell["source"]) + "\n" for cell in cells if cell["cell_type"] == "code"]


def test_the_notebook_runs_from_top_to_bottom(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "notebook.py"
    path.write_text("\n".join(_cells()))
    totals = runpy.run_path(str(path), run_name="__main__")["totals"]
    assert [int(amount) for amount in totals["amount"]] == [6633, 6567, 6700]
    printed = capsys.readouterr()
    assert "|     AT|    67|" in printed.out
    assert re.search(r"by_country  200 rows .* orders: no lag  ended", printed.err)


def test_the_notebook_has_no_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
