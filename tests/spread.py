"""How the tests are spread over workers: which files share one, and which begin first.

In: a test's id. Out: the name of the piece of work that it belongs to, and the piece's rank. Rules:

1. A file is one piece: what it starts is started once.
2. The compatibility programs of all clients are one piece: they are played on the same two systems,
   and both files of the Java client look at the same runs.
3. All tests of Spark that share the session are one piece. Those of pipelines and clusters, which
   are processes of their own, are another; tests of logs need no session at all.
4. Pieces that take long begin first, longest first. Otherwise the run ends with one worker at
   work on the last of them and nothing for the others to do.
"""

COMPAT = "tests/foreign/test_compat_"
SPARK = "tests/spark/"

CLUSTERS = "tests/spark/test_pipeline_kills.py"
CLUSTERS_TOO = "tests/spark/test_standalone.py"
LOGS = ("tests/spark/test_log_reading.py", "tests/spark/test_log_pruning.py")

LONG = (
    SPARK,
    CLUSTERS,
    "tests/foreign/test_client_on_originals.py",
    COMPAT,
    "tests/foreign/test_behaviour_on_originals.py",
    "tests/foreign/test_store_originals.py",
    "tests/foreign/test_examples.py",
    "tests/foreign/test_namesrv_originals.py",
    "tests/foreign/test_mqadmin_topics.py",
    "tests/foreign/test_mqadmin_consumers.py",
    "tests/foreign/test_full_size_log.py",
    "tests/client/test_push_retry.py",
    "tests/client/test_push_java.py",
    *LOGS,
)
"""Pieces that take a minute or more, in the order in which they begin."""


def piece_of(test_id: str) -> str:
    """Return the piece of work that a test belongs to."""
    file = test_id.partition("::")[0]
    if file == CLUSTERS_TOO:
        return CLUSTERS
    if file == CLUSTERS or file in LOGS:
        return file
    return next((piece for piece in (COMPAT, SPARK) if file.startswith(piece)), file)


def rank_of(test_id: str) -> int:
    """Return a number that is smaller for what begins earlier."""
    piece = piece_of(test_id)
    return LONG.index(piece) if piece in LONG else len(LONG)
