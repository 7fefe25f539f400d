"""The synchronous `submit`: messages are handed to the loop in batches, nobody waits for it."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, wait
from contextlib import contextmanager

import pytest

from orbitmq import Message, Producer
from orbitmq.blocking.facade import BACKGROUND
from orbitmq.errors import ClientStateError, LimitExceeded, LocalProtocolError, SendFailed
from orbitmq.testing import EmbeddedBroker

LIMIT_S = 20.0


@contextmanager
def loop_held_up() -> Iterator[None]:
    """Keep the background loop from doing anything."""
    thread = BACKGROUND.join()
    begun, end = threading.Event(), threading.Event()

    async def hold() -> None:
        begun.set()
        end.wait(LIMIT_S)

    held = thread.submit(hold())
    begun.wait(LIMIT_S)
    try:
        yield
    finally:
        end.set()
        held.result(LIMIT_S)
        BACKGROUND.leave(thread)


def _queue_offsets(producer: Producer, count: int, topic: str) -> list[int]:
    sent = [producer.submit(Message(topic, b"%d" % n), key="one queue") for n in range(count)]
    return [future.result(LIMIT_S).queue_offset for future in sent]


def test_submit_waited_for_the_loop_thread_with_each_message(
    orbitmq_broker: EmbeddedBroker, orbitmq_topic: str
) -> None:
    """Symptom: 124 to 164 µs a message, two round trips between the threads for each."""
    with Producer(orbitmq_broker.namesrv, "shop") as producer:
        with loop_held_up():
            for _ in range(600):
                producer.room()
            futures = [producer.submit(Message(orbitmq_topic, b"x")) for _ in range(600)]
            assert not any(future.done() for future in futures)
        assert len({future.result(LIMIT_S).offset_id for future in futures}) == 600


def test_messages_handed_over_together_keep_their_order(
    orbitmq_broker: EmbeddedBroker, orbitmq_topic: str
) -> None:
    with Producer(orbitmq_broker.namesrv, "shop") as producer:
        assert _queue_offsets(producer, 1500, orbitmq_topic) == list(range(1500))


def test_what_waits_for_the_loop_counts_as_in_flight(
    orbitmq_broker: EmbeddedBroker, orbitmq_topic: str
) -> None:
    namesrv = orbitmq_broker.namesrv
    message = Message(orbitmq_topic, b"x" * 10)
    with (
        Producer(namesrv, "shop", sends_in_flight_max=3) as few,
        Producer(namesrv, "shop2", bytes_in_flight_max=25) as small,
    ):
        with loop_held_up():
            futures = [one.submit(message) for one in (few, small) for _ in range(3)]
            assert not few.has_room
            with pytest.raises(LimitExceeded, match="3 sends with 30 bytes") as caught:
                few.submit(message)
            assert caught.value.setting == "sends_in_flight_max"
            with pytest.raises(LimitExceeded) as caught:
                small.submit(message)
            assert caught.value.setting == "bytes_in_flight_max"
        few.room()
        assert not wait(futures, LIMIT_S).not_done


def test_mistakes_are_raised_at_once_and_take_no_room(
    orbitmq_broker: EmbeddedBroker, orbitmq_topic: str
) -> None:
    with Producer(orbitmq_broker.namesrv, "shop", sends_in_flight_max=1) as producer:
        with pytest.raises(LocalProtocolError, match="the body is empty"):
            producer.submit(Message(orbitmq_topic, b""))
        with pytest.raises(LocalProtocolError, match="position 1"):
            producer.submit(Message("a b", b"x"))
        with pytest.raises(SendFailed, match="time-out"):
            producer.submit(Message(orbitmq_topic, b"x"), timeout=0)
        assert producer.submit(Message(orbitmq_topic, b"x")).result(LIMIT_S).queue_offset == 0


def test_close_and_flush_wait_for_what_was_only_handed_over(
    orbitmq_broker: EmbeddedBroker, orbitmq_topic: str
) -> None:
    with Producer(orbitmq_broker.namesrv, "shop") as producer:
        first = [producer.submit(Message(orbitmq_topic, b"x")) for _ in range(700)]
        producer.flush()
        assert all(future.done() for future in first)
        second = [producer.submit(Message(orbitmq_topic, b"x")) for _ in range(700)]
    assert all(future.done() and future.exception() is None for future in second)
    with pytest.raises(ClientStateError, match="closed"):
        producer.submit(Message(orbitmq_topic, b"x"))


def test_a_future_that_is_cancelled_in_time_stops_its_message(
    orbitmq_broker: EmbeddedBroker, orbitmq_topic: str
) -> None:
    with Producer(orbitmq_broker.namesrv, "shop") as producer:
        with loop_held_up():
            stopped, sent = (producer.submit(Message(orbitmq_topic, b"x"), key=1) for _ in "ab")
            assert stopped.cancel()
        assert sent.result(LIMIT_S).queue_offset == 0
        with pytest.raises(CancelledError):
            stopped.result()
        producer.flush()


def test_submitting_without_a_cluster_fails_in_the_future() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        namesrv = f"127.0.0.1:{silent.getsockname()[1]}"
        with Producer(namesrv, "shop", close_timeout_s=0.01) as producer:
            future = producer.submit(Message("Topic", b"waits for a route"))
        assert isinstance(future.exception(LIMIT_S), ClientStateError)
