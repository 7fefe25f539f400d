"""Which tests belong to `make test`, and which to a part of `make nightly`.

In: the marker `nightly("part")` of a test, the option `--nightly PART`. Out: the tests that run.

Rules:
1. Without the option everything runs that has no such marker. With it, only what is marked with
   that part (`all`: with any), and nothing else.
2. `nightly("part", short=True)` is a test with two forms: the short one runs without the option,
   the long one with it. What makes it long is an environment variable (LONG_FORMS).
3. A property test (hypothesis) needs no marker: it is short here and long in `fuzz`.
4. A part that is not in PARTS is an error, of a marker as of the option.
"""

import os
from collections.abc import Mapping

import pytest

PARTS = {
    "originals": "what originals answer, recorded anew and compared with the records",
    "clients": "programs with every foreign client and the official tools, on ours and originals",
    "exchange": "store folders that change hands with original brokers",
    "kills": "a broker under load is killed, KILLS times",
    "spark": "clusters of Spark, its streams on originals, SPARK_KILLS kills of each kind",
    "core": "the compiled core under sanitizers, and its leaks",
    "bench": "the benchmarks, which must run and print their ratios",
    "fuzz": "FUZZ_EXAMPLES inputs for each decoder, many examples for each property",
    "torture": "the long forms of the programmes: model, crash states, damage, cuts, full disks",
}
"""What `make nightly-PART` does."""

LONG_FORMS: Mapping[str, Mapping[str, str]] = {
    "exchange": {"EXCHANGE_ROUNDS": "ORBITMQ_EXCHANGE_ROUNDS"},
    "kills": {"KILLS": "ORBITMQ_KILLS"},
    "spark": {"SPARK_KILLS": "ORBITMQ_T16_KILLS", "SPARK_BACKLOG": "ORBITMQ_T16_BACKLOG"},
    "fuzz": {"FUZZ_EXAMPLES": "ORBITMQ_FUZZ_EXAMPLES"},
    "torture": {"TORTURE": "ORBITMQ_TORTURE"},
}
"""For each part: make's variables, and the environment variables that tests read instead."""


PROPERTY_EXAMPLES, PROPERTY_EXAMPLES_LONG = 30, 500


def property_examples() -> int:
    """Return how many examples a property gets that does not say so itself."""
    is_long = "ORBITMQ_FUZZ_EXAMPLES" in os.environ
    return PROPERTY_EXAMPLES_LONG if is_long else PROPERTY_EXAMPLES


def add_option(parser: pytest.Parser) -> None:
    """Make `--nightly` known."""
    parser.addoption(
        "--nightly", choices=[*PARTS, "all"], help="run only the tests of this part of the nightly"
    )


def parts_of(item: pytest.Item) -> set[str]:
    """Return the parts that a test is marked with."""
    parts = {str(mark.args[0]) for mark in item.iter_markers("nightly")}
    if isinstance(item, pytest.Function) and hasattr(item.function, "hypothesis"):
        parts.add("fuzz")
    if not parts <= set(PARTS):
        unknown = parts - set(PARTS)
        raise pytest.UsageError(f"{item.nodeid}: no such part of the nightly: {unknown}")
    return parts


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave in `items` what runs (rules 1 and 2)."""
    wanted = config.getoption("--nightly")
    left_out = [item for item in items if not _runs(item, wanted)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def _runs(item: pytest.Item, wanted: str | None) -> bool:
    parts = parts_of(item)
    if wanted is None:
        return all(mark.kwargs.get("short") for mark in item.iter_markers("nightly"))
    return bool(parts) and (wanted == "all" or wanted in parts)
