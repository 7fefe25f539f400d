"""`consumer.run()`: a program's last line, ended by SIGTERM or Ctrl-C."""

import signal
import subprocess
import sys

import pytest

from orbitmq import Message, Producer
from orbitmq.testing import EmbeddedBroker

SYNCHRONOUS = """
import sys
from orbitmq import ConsumeFromWhere, PushConsumer

def handle(message):
    print("handled", flush=True)

namesrv, topic = sys.argv[1:]
first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
PushConsumer(namesrv, "running", handle, from_where=first, subscriptions={topic: "*"}).run()
print("closed", flush=True)
"""
ASYNCHRONOUS = SYNCHRONOUS.replace("from orbitmq import", "import asyncio\nfrom orbitmq.aio import")
ASYNCHRONOUS = ASYNCHRONOUS.replace("PushConsumer(namesrv", "asyncio.run(PushConsumer(namesrv")
ASYNCHRONOUS = ASYNCHRONOUS.replace(".run()\nprint", ".run())\nprint")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("program", [SYNCHRONOUS, ASYNCHRONOUS], ids=["sync", "async"])
def test_a_consumer_had_no_run_and_sigterm_killed_it_at_work(
    program: str, number: signal.Signals, orbitmq_broker: EmbeddedBroker, orbitmq_topic: str
) -> None:
    words = [sys.executable, "-c", program, orbitmq_broker.namesrv, orbitmq_topic]
    with Producer(orbitmq_broker.namesrv, "shop") as producer:
        producer.send(Message(orbitmq_topic, b"x"))
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == "handled\n"
            running.send_signal(number)
            assert running.communicate(timeout=60)[0] == "closed\n"
            assert running.returncode == 0
        finally:
            running.kill()
