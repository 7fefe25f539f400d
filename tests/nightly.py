"""Which tests belong to `make test`, and which to a part of `make nightly`.

In: the marker `nightly("part")` of a test, the option `--nightly PART`. Out: the tests that run.

Rules:
1. Without the option everything runs that has no such marker. With it, only what is marked with
   that part (`all`: with any), and nothing else.
2. A part that is not in PARTS is an error, of a marker as of the option.
"""

import pytest

PARTS = ("originals", "clients", "kills", "spark", "fuzz", "torture", "exchange")


def add_option(parser: pytest.Parser) -> None:
    """Make `--nightly` known."""
    parser.addoption(
        "--nightly", choices=[*PARTS, "all"], help="run only the tests of this part of the nightly"
    )


def parts_of(item: pytest.Item) -> set[str]:
    """Return the parts that a test is marked with."""
    parts = {str(mark.args[0]) for mark in item.iter_markers("nightly")}
    if not parts <= set(PARTS):
        raise pytest.UsageError(f"{item.nodeid}: no such part of the nightly: {parts - set(PARTS)}")
    return parts


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave in `items` what runs (rule 1)."""
    wanted = config.getoption("--nightly")
    left_out = [item for item in items if not _runs(parts_of(item), wanted)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def _runs(parts: set[str], wanted: str | None) -> bool:
    if wanted is None:
        return not parts
    return bool(parts) and (wanted == "all" or wanted in parts)
