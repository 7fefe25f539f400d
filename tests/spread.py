"""How the tests are spread over workers: which files share one, and which begin first.

In: a test's id. Out: the name of the piece of work that it belongs to, and the piece's rank. Rules:

1. A file is one piece: what it starts is started once.
2. Files of Spark's tests that use its session are one piece: a JVM is started once for all of them.
3. Pieces that take long begin first, longest first. Otherwise the run ends with one worker at
   work on the last of them and nothing for the others to do.
"""

import functools
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SPARK = "tests/spark/"
SESSION = re.compile(r"^(    |def \w+\(.*)spark: SparkSession", re.MULTILINE)
"""How a test asks for the session."""

LONG = (
    SPARK,
    "tests/spark/test_docs.py",
    "tests/foreign/test_examples.py",
    "tests/foreign/test_store_originals.py",
    "tests/foreign/test_clients.py",
    "tests/foreign/test_namesrv_originals.py",
    "tests/docs/test_every_example.py",
    "tests/reliability/test_kills.py",
    "tests/reliability/test_builds.py",
    "tests/store/test_crash_states.py",
    "tests/store/test_queue_ext_writing.py",
    "tests/store/test_damage.py",
    "tests/cli/test_shell_admin.py",
    "tests/cli/test_shell_streams.py",
    "tests/cli/test_log_elsewhere.py",
    "tests/cli/test_log_folders.py",
    "tests/client/test_producer_outages.py",
    "tests/reliability/test_s2_settings.py",
    "tests/client/test_push_retry.py",
    "tests/test_tidy.py",
)
"""Pieces that take half a minute or more, in the order in which they begin."""


@functools.cache
def shares_session(file: str) -> bool:
    """Return whether a file of tests uses Spark's session."""
    return file.startswith(SPARK) and SESSION.search((ROOT / file).read_text()) is not None


def piece_of(test_id: str) -> str:
    """Return the piece of work that a test belongs to."""
    file = test_id.partition("::")[0]
    return SPARK if shares_session(file) else file


def rank_of(test_id: str) -> int:
    """Return a number that is smaller for what begins earlier."""
    piece = piece_of(test_id)
    return LONG.index(piece) if piece in LONG else len(LONG)
