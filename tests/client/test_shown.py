"""What a program's author sees without having set up anything: warnings, and messages printed."""

import subprocess
import sys
from pathlib import Path

from orbitmq.client.message import ReceivedMessage
from orbitmq.testing import EmbeddedBroker
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.host import Host
from orbitmq.wire.properties import encode_properties

PROGRAM = """
import sys, threading
from orbitmq import ConsumeFromWhere, Message, Producer, PushConsumer

namesrv, topic = sys.argv[1:]
done = threading.Event()

def fail(message):
    done.set()
    raise ValueError("no such customer")

first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
consumer = PushConsumer(namesrv, "failing", fail, from_where=first)
consumer.subscribe(topic)
with Producer(namesrv, "shop") as producer, consumer:
    producer.send(Message(topic, b"x"))
    assert done.wait(30)
"""


def test_a_failing_handler_printed_nothing_where_logging_is_not_configured(
    orbitmq_broker: EmbeddedBroker, orbitmq_topic: str
) -> None:
    words = [sys.executable, "-c", PROGRAM, orbitmq_broker.namesrv, orbitmq_topic]
    done = subprocess.run(words, capture_output=True, check=True, text=True, timeout=60)
    assert "the handler failed; 1 message starting at" in done.stderr
    assert "will be redelivered" in done.stderr
    assert "ValueError: no such customer" in done.stderr
    assert not done.stdout


def test_a_printed_message_showed_raw_properties_and_neither_tag_nor_keys() -> None:
    host = Host("127.0.0.1", 1)
    properties = {
        "UNIQ_KEY": "ID",
        "KEYS": "17 18",
        "TAGS": "paid",
        "colour": "red",
        "WAIT": "true",
    }
    message = ReceivedMessage(
        topic="orders",
        body=b"x" * 200,
        stored_properties=encode_properties(properties),
        queue=MessageQueue("orders", "broker-a", 3),
        queue_offset=7,
        log_offset=1,
        born_ms=0,
        born_host=host,
        store_ms=0,
        store_host=host,
    )
    assert repr(message) == (
        f"ReceivedMessage(topic='orders', body=b'{'x' * 78}… (200 bytes), tag='paid', "
        "keys=['17', '18'], properties={'colour': 'red'}, queue=broker-a/3, queue_offset=7, "
        "message_id='ID')"
    )


def test_make_run_took_no_ports() -> None:
    words = ["make", "-n", "run", "NAMESRV_PORT=19876", "BROKER_PORT=19911"]
    root = Path(__file__).parents[2]
    told = subprocess.run(words, cwd=root, capture_output=True, check=True, text=True).stdout
    assert "--namesrv-port 19876 --broker-port 19911" in told
