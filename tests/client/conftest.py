"""On an original, only what asks it is played: the other tests here would say the same again.

In: ORBITMQ_JUDGE, the tests that were found. Out: fewer of them, when it names an original.
"""

from pathlib import Path

import pytest

from tests.foreign.judged import judged_original

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of this folder that do not use the system under test."""
    if judged_original() is None:
        return
    left = [each for each in items if HERE in each.path.parents and not _asks_system(each)]
    config.hook.pytest_deselected(items=left)
    gone = set(left)
    items[:] = [each for each in items if each not in gone]


def _asks_system(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and "system" in item.fixturenames
