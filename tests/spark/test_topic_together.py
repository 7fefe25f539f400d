"""Messages that were sent together: brokers store a name twice, and they are read as quickly."""

import pyarrow as pa

from orbitmq import Message, Producer
from orbitmq.arrow.columns import arrow_schema
from orbitmq.arrow.entries import find_entries
from orbitmq.arrow.segments import bytes_of
from orbitmq.testing import EmbeddedBroker
from orbitmq.wire.properties import parse_properties
from tests.spark.topics import make, read_batch


def test_messages_of_a_batch_are_read_by_columns_though_a_name_is_stored_twice(
    orbitmq_broker: EmbeddedBroker,
) -> None:
    make(orbitmq_broker, "together", 1)
    with Producer(namesrv=orbitmq_broker.namesrv, group="g") as producer:
        sent = [Message("together", b"x", tag=f"t{number}") for number in range(20)]
        producer.send_batch(sent, timeout=10)
    stored = [
        row["properties"]
        for row in read_batch(
            orbitmq_broker, arrow_schema(["properties"], properties="string"), topic="together"
        )
    ]
    assert stored[0].count("WAIT\x01") == 2  # as the original has it
    maps = read_batch(orbitmq_broker, arrow_schema(["properties"]), topic="together")
    assert [dict(row["properties"]) for row in maps] == [
        parse_properties(text.encode()) for text in stored
    ]
    memory, borders = bytes_of(pa.array([text.encode() for text in stored], type=pa.binary()))
    assert find_entries(memory, borders) is not None
