"""The properties of a message as consumers get them, byte by byte."""

from collections.abc import Callable

import pytest

from orbitmq.wire.command import Command
from orbitmq.wire.record import scan_records
from tests.behaviour.requests import pull_request, send_request
from tests.behaviour.test_send_checks import batch_request
from tests.foreign.asking import await_claim
from tests.foreign.judged import System
from tests.wire_client import WireClient

Fresh = Callable[[str], str]

CLOSED = "TAGS\x01A\x02KEYS\x01k\x02"
SENDS: dict[str, Callable[[str], Command]] = {
    "closed": lambda topic: send_request(topic, i=CLOSED),
    "open": lambda topic: send_request(topic, i=CLOSED[:-1]),
    "none": lambda topic: send_request(topic, i=""),
    "with a cluster": lambda topic: send_request(topic, i=f"{CLOSED}CLUSTER\x01other\x02"),
    "in a batch": batch_request,
}


@pytest.mark.parametrize("kind", SENDS)
def test_stored_properties_have_the_cluster_and_no_separator_at_their_end(
    system: System, fresh_name: Fresh, kind: str
) -> None:
    """Symptom: clients for Node showed a property without name and value for every message."""
    topic = fresh_name("properties")
    with WireClient(system.broker) as client:
        answer = client.call(SENDS[kind](topic))
        assert answer.code == 0, answer.remark
        pulls = (client.call(pull_request(topic, "G", 0)) for _ in range(100))
        # An original fills its queues a moment after the answer.
        records: list[bytes] = []

        def is_found() -> bool:
            records[:] = [record.properties for record in scan_records(next(pulls).body)]
            return bool(records)

        await_claim(is_found, "the message can be pulled", 5)
    for properties in records:
        entries = properties.split(b"\x02")
        assert b"" not in entries
        assert entries.count(b"CLUSTER\x01DefaultCluster") == 1
        assert sum(entry.startswith(b"CLUSTER\x01") for entry in entries) == 1
