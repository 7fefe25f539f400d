"""The shop, as it is without settings around it, and empty of what it saw."""

import os

import pytest

from tests.app import shop


@pytest.fixture(autouse=True)
def _plain_shop(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("ORBITMQ_L") or name in ("ORBITMQ_FILE", "ORBITMQ_NAMESRV"):
            monkeypatch.delenv(name)
    shop.seen.clear()
