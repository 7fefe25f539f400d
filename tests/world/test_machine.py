"""The machine's boot and the local time in names of files."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.world import machine
from orbitmq.world.clock import SystemClock


def test_the_boot_is_the_one_the_system_tells_and_stays_the_same() -> None:
    told = machine._BOOT_ID.read_text().strip().replace("-", "")
    assert machine.boot_id().hex() == told
    assert machine.boot_id() == machine.boot_id()
    assert machine.boot_id() != machine.UNKNOWN_BOOT


@pytest.mark.parametrize("text", [None, "", "not a boot id"])
def test_a_boot_that_the_system_does_not_tell_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    if text is not None:
        (tmp_path / "boot_id").write_text(text)
    monkeypatch.setattr(machine, "_BOOT_ID", tmp_path / "boot_id")
    assert machine.boot_id() == bytes(16)


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    yield monkeypatch
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("name", "stamp"), [("UTC0", 20231114221320007), ("EAST-8", 20231115061320007)]
)
def test_a_stamp_is_local_time_down_to_the_millisecond(
    zone: pytest.MonkeyPatch, name: str, stamp: int
) -> None:
    zone.setenv("TZ", name)
    time.tzset()
    assert SystemClock().file_stamp(1_700_000_000_007) == stamp
