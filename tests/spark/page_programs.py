"""Runs programs of a page one after the other: what test_docs starts, in the folder of the page.

    python -m tests.spark.page_programs first.py second.py

They share a session with the settings of `session()`, but small and quick to start.
"""

import runpy
import sys
from datetime import UTC, datetime, timedelta
from functools import cache

from orbitmq.spark import session


def main(names: list[str]) -> None:
    """Run programs; the first failure ends it."""
    session(
        cores=2, is_quick_start=True, uses_internals=True, settings={"spark.driver.memory": "768m"}
    )
    for name in names:
        print(f"--- {name}", flush=True)
        sys.argv = [name, *_arguments(name)]
        runpy.run_path(name, run_name="__main__")


@cache
def _arguments(name: str) -> list[str]:
    """Return what a program must be told: a replay its span, the same each time."""
    now = datetime.now(UTC)
    span = (now - timedelta(hours=1), now)
    return [time.isoformat() for time in span] if name == "replay.py" else []


if __name__ == "__main__":
    main(sys.argv[1:])
