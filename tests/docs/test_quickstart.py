"""The two quickstart programs, run as a reader would run them."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from orbitmq import Message, Producer
from orbitmq.testing import EmbeddedBroker

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"
COUNT = 1000
LIMIT_S = 120
NOBODY = "127.0.0.1:1"


@contextmanager
def running(name: str, namesrv: str) -> Iterator[subprocess.Popen[str]]:
    """A program, for the length of the block."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), namesrv]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as program:  # type: ignore[call-overload]  # a table
        try:
            yield program
        finally:
            program.kill()


def lines_of(stream: IO[str] | None, count: int) -> list[str]:
    assert stream is not None
    return [stream.readline() for _ in range(count)]


def test_the_producer_sends_1000_greetings_and_the_consumer_prints_them_whatever_their_tag() -> (
    None
):
    with EmbeddedBroker() as broker:
        with running("quickstart_producer", broker.namesrv) as producer:
            out, err = producer.communicate(timeout=LIMIT_S)
            assert (producer.returncode, err) == (0, "")
        results = out.splitlines()
        assert len(results) == COUNT
        assert all("SEND_OK" in line and "TopicTest" in line for line in results)
        with Producer(broker.namesrv, "another") as another:
            another.send(Message("TopicTest", b"of another tag", tag="TagB"))
        with running("quickstart_consumer", broker.namesrv) as consumer:
            shown = lines_of(consumer.stdout, COUNT + 2)
            consumer.send_signal(signal.SIGINT)
            consumer.communicate(timeout=LIMIT_S)
    assert "Consumer Started.\n" in shown
    received = [line for line in shown if " Receive New Messages: " in line]
    greetings = {line.partition("Messages: ")[2].partition(" ")[2] for line in received}
    expected = {f"Hello RocketMQ {number}\n" for number in range(COUNT)} | {"of another tag\n"}
    assert greetings == expected


def test_the_producer_waits_a_second_after_an_error() -> None:
    with running("quickstart_producer", NOBODY) as producer:
        assert NOBODY in lines_of(producer.stderr, 1)[0]  # what the client logs
        said = lines_of(producer.stderr, 1)
        begun_s = time.monotonic()
        said += lines_of(producer.stderr, 3)
        took_s = time.monotonic() - begun_s
    assert took_s > 2.8  # three waits; the first line may have been read a little late
    assert all("TopicTest" in line for line in said)
