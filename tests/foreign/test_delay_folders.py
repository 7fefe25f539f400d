"""Delayed messages in a folder that changes hands: each broker delivers what the other left.

The judge is the original: it must take `delayOffset.json` and the schedule queues of ours for its
own, and ours those of the original. Every stop is a clean one; then nobody delivers twice.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.wire.record import Record
from tests.behaviour.requests import fill
from tests.behaviour.test_delay import delivered
from tests.foreign.stores import SMALL, DataFolder, Opened, check_store, original_on, ours_on
from tests.wire_client import WireClient

pytestmark = [pytest.mark.nightly("exchange"), pytest.mark.foreign, pytest.mark.slow]

LEVELS = {"messageDelayLevel": "1s 15s 1h"}


def send_all(opened: Opened, name: str) -> None:
    """Send a message of each level."""
    with WireClient(opened.broker) as client:
        for level in (1, 2, 3):
            body = f"{name} {level}".encode()
            fill(client, "Delayed", [body], i=f"UNIQ_KEY\x01{name}{level}\x02DELAY\x01{level}")


def all_delivered(opened: Opened, count: int) -> list[bytes]:
    """What was delivered, when it is so much."""
    with WireClient(opened.broker) as client:
        records: list[Record] = delivered(client, "Delayed", "G", count)
    return [record.body for record in records]


def test_a_folder_that_changes_hands_delivers_every_delayed_message_once(
    tmp_path: Path, namesrv: str
) -> None:
    folder = DataFolder(tmp_path / "data", {**SMALL, **LEVELS})
    offsets = folder.store / "config" / "delayOffset.json"
    with ours_on(folder) as ours:
        send_all(ours, "ours")
        assert all_delivered(ours, 1) == [b"ours 1"]
    assert b'"offsetTable":{1:1}' in offsets.read_bytes()
    check_store(folder)
    with original_on("4.9.7", folder, namesrv) as original:
        send_all(original, "original")
        names = all_delivered(original, 3)
        assert sorted(names) == [b"original 1", b"ours 1", b"ours 2"]
    assert b"deliveredLogOffset" not in offsets.read_bytes(), "the original wrote its own"
    check_store(folder)
    with ours_on(folder) as ours:
        send_all(ours, "again")
        names = all_delivered(ours, 6)
    assert sorted(names[3:]) == [b"again 1", b"again 2", b"original 2"]
    assert b'"offsetTable":{1:3,2:3}' in offsets.read_bytes()
    check_store(folder)
