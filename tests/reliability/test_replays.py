"""Failures of others (reliability-tests.md 5), each replayed: the broker must not repeat them.

A live original showed each; what it did there stands in the first line of the test.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.wire.batch import BatchMessage, encode_batch
from orbitmq.wire.record import Record, scan_records
from tests.behaviour.requests import fill, pull_request, send_request
from tests.reliability.load_hostile import HOST_BITS, MESSAGE_ILLEGAL
from tests.reliability.processes import broker_process
from tests.wire_client import WireClient

TOPIC = "Replay"
OTHER = "Replay_Other"
LIGHT_KEYS = ("-D", "enableLmq=true", "-D", "enableMultiDispatch=true")
COUNT = 50
UNREAD_COUNT = 3_000
MEMORY_MIB_MAX = 64


def records(client: WireClient, topic: str) -> Iterator[Record]:
    """What queue 0 of a topic holds."""
    end = int(client.ask(30, topic=topic, queueId=0).fields["offset"])
    offset = 0
    while offset < end:
        answer = client.call(pull_request(topic, "Reader", offset))
        yield from scan_records(answer.body)
        offset = max(offset + 1, int(answer.fields["nextBeginOffset"]))


@pytest.mark.parametrize("bits", HOST_BITS)
def test_host_bits_that_a_sender_sets_cost_no_message_after_a_kill(
    tmp_path: Path, bits: int
) -> None:
    """Seen on originals: the record is malformed, and recovery cuts off everything behind it."""
    before, behind = ([b"%s %d" % (word, n) for n in range(COUNT)] for word in (b"a", b"b"))
    batch = encode_batch([BatchMessage(b"evil"), BatchMessage(b"evil")])
    with broker_process(tmp_path) as broker:
        with WireClient(broker.address) as client:
            fill(client, TOPIC, before)
            fill(client, TOPIC, [b"evil"], f=bits)
            fill(client, TOPIC, [batch], f=bits, m="true")
            fill(client, TOPIC, [b"evil"], f=bits, i="DELAY\x011")
            fill(client, TOPIC, behind)
        broker.program.kill()
    with broker_process(tmp_path) as broker, WireClient(broker.address) as client:
        found = list(records(client, TOPIC))
        bodies = [record.body for record in found if record.body != b"evil"]
        assert bodies == before + behind
        assert len(found) >= len(bodies) + 3
        assert {(record.born_host.ip, record.store_host.ip) for record in found} == {
            ("127.0.0.1", "127.0.0.1")
        }


@pytest.mark.parametrize("keys", [(), LIGHT_KEYS], ids=["without", "with light queues"])
def test_a_property_that_is_reserved_for_brokers_hides_no_message_of_others(
    tmp_path: Path, keys: tuple[str, ...]
) -> None:
    """Seen on originals: INNER_MULTI_DISPATCH of one client makes others' messages unreadable."""
    evil = f"INNER_MULTI_DISPATCH\x01{OTHER},%LMQ%{OTHER}\x02INNER_MULTI_QUEUE_OFFSET\x010,0"
    batch = encode_batch([BatchMessage(b"good"), BatchMessage(b"evil", evil.encode())])
    bodies = [b"%d" % number for number in range(COUNT)]
    with broker_process(tmp_path, *keys) as broker:
        with WireClient(broker.address) as client:
            for body in bodies:
                for request in (
                    send_request(TOPIC, b"evil", i=f"INNER_MULTI_DISPATCH\x01{OTHER}"),
                    send_request(TOPIC, b"evil", i=f"INNER_MULTI_DISPATCH\x01%LMQ%/../{OTHER}"),
                    send_request(TOPIC, b"evil", i=evil),
                    send_request(TOPIC, b"evil", i=f"{evil}\x02DELAY\x011"),
                    send_request(TOPIC, batch, i="", m="true"),
                ):
                    assert client.call(request).code == MESSAGE_ILLEGAL
                fill(client, OTHER, [body])
            assert [record.body for record in records(client, OTHER)] == bodies
        broker.program.kill()
    with broker_process(tmp_path, *keys) as broker, WireClient(broker.address) as client:
        assert [record.body for record in records(client, OTHER)] == bodies
        assert client.ask(30, topic=TOPIC, queueId=0).fields["offset"] == "0"


def test_a_peer_that_asks_much_and_never_reads_holds_up_nobody(tmp_path: Path) -> None:
    """Seen on 4.9.7: the broker hangs."""
    with broker_process(tmp_path) as broker, WireClient(broker.address) as client:
        fill(client, TOPIC, [bytes(30_000)] * 30)
        before_mib = broker.own_mib()
        with WireClient(broker.address) as unread:
            unread.patience(1.0)
            try:
                for _ in range(UNREAD_COUNT):
                    unread.send(pull_request(TOPIC, "Unread", 0))
            except TimeoutError:
                pass  # the broker takes no more of them: as it should be
            for number in range(COUNT):
                fill(client, OTHER, [b"%d" % number])
            assert len(list(records(client, OTHER))) == COUNT
            assert broker.own_mib() - before_mib <= MEMORY_MIB_MAX
