"""The synchronous client: the asynchronous one, waited for, from any thread."""

import asyncio
import inspect
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing

import pytest

import orbitmq
from orbitmq import Admin, ConsumeFromWhere, Message, Producer, PullConsumer, PushConsumer, aio
from orbitmq.blocking.facade import Facade
from orbitmq.errors import ClientStateError, LimitExceeded, MQError, RouteNotFound, SettingError
from orbitmq.testing import EmbeddedBroker
from tests.foreign.judged import System
from tests.net.running import open_descriptors
from tools import blocking_source

LIMIT_S = 20.0
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
FreshName = Callable[[str], str]


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """For one test: its own threads come and go, and other tests look at threads."""
    with EmbeddedBroker() as embedded:
        yield embedded


@pytest.fixture
def namesrv(system: System) -> str:
    """Of OrbitMQ or of an original; `broker` is for what only it can do."""
    return system.namesrv


def _client_threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("orbitmq-client")]


# --- it is the same client ---


def test_the_synchronous_classes_are_those_that_the_tool_would_make() -> None:
    assert blocking_source.main(["--check"]) == 0


def test_a_changed_asynchronous_class_is_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = blocking_source.source_of(blocking_source.TWINS[0])
    monkeypatch.setattr(
        blocking_source, "source_of", lambda _twin: made.replace("def send(", "def sent(")
    )
    assert blocking_source.main(["--check"]) == 1
    assert "out of date" in capsys.readouterr().err


def test_both_clients_have_the_same_names() -> None:
    assert set(dir(orbitmq)) - {"__version__"} == set(aio.__all__)


TWINS = ["Producer", "PushConsumer", "PullConsumer", "Admin"]


def _public_names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize("name", TWINS)
def test_the_synchronous_admin_lacked_topics_running_info_and_consume_directly(name: str) -> None:
    one, other = getattr(orbitmq, name), getattr(aio, name)
    left_out = {method for kind, method in blocking_source.LEFT_OUT if kind == name}
    assert left_out <= _public_names(other), "an exception for nothing"
    assert _public_names(other) - left_out <= _public_names(one)
    assert _public_names(one) - _public_names(other) <= _attributes(other)


def _attributes(kind: type) -> set[str]:
    """What an object has that its class does not know of."""
    made = kind("127.0.0.1:9876", group="g") if kind is not aio.Admin else kind("127.0.0.1:9876")
    return {name for name in vars(made) if not name.startswith("_")}


@pytest.mark.parametrize("name", TWINS)
def test_attributes_that_a_constructor_sets_are_there_synchronously(name: str) -> None:
    assert _attributes(getattr(aio, name)) <= _public_names(getattr(orbitmq, name))


@pytest.mark.parametrize("name", TWINS)
def test_twins_take_the_same_arguments(name: str) -> None:
    one, other = getattr(orbitmq, name), getattr(aio, name)
    for method in sorted(_public_names(one) - {"start", "close"}):
        mine, theirs = getattr(one, method), getattr(other, method, None)
        if inspect.isfunction(mine):
            assert inspect.isfunction(theirs), method
            of_mine, of_theirs = inspect.signature(mine), inspect.signature(theirs)
            assert str(of_mine.replace(return_annotation=None)) == str(
                of_theirs.replace(return_annotation=None)
            ), method


def test_the_synchronous_admin_names_topics_and_has_a_consumer_consume(
    namesrv: str, fresh_name: FreshName
) -> None:
    topic, group, seen = fresh_name("Topic"), fresh_name("Group"), threading.Semaphore(0)
    with Producer(namesrv, "shop") as producer:
        sent = producer.send(Message(topic, b"one"))
    consumer = PushConsumer(namesrv, group, lambda _message: seen.release(), from_where=FIRST)
    consumer.subscribe(topic)
    with consumer, Admin(namesrv) as admin:
        assert seen.acquire(timeout=LIMIT_S)
        assert topic in admin.topics()
        assert admin.running_info(group, consumer.client_id).subscriptions
        message = admin.message(sent.offset_id)
        result = admin.consume_directly(group, consumer.client_id, message)
        assert result.result == "CR_SUCCESS"
        assert seen.acquire(timeout=LIMIT_S)


def test_a_star_import_gave_nothing_though_type_checkers_took_it() -> None:
    program = "from orbitmq import *; print(*sorted(name for name in dir() if name[0] != '_'))"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert told.stdout.decode().split() == sorted(aio.__all__)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        getattr(orbitmq, "Nothing")  # noqa: B009 - it is asked for to be missing


# --- it works ---


def test_a_message_goes_round(namesrv: str, fresh_name: FreshName) -> None:
    topic, bodies, is_there = fresh_name("Topic"), [], threading.Event()

    def on_message(message: orbitmq.ReceivedMessage) -> None:
        bodies.append((message.body, message.tag, message.keys))
        is_there.set()

    consumer = PushConsumer(namesrv, fresh_name("Group"), on_message, from_where=FIRST)
    consumer.subscribe(topic)
    with Producer(namesrv=namesrv, group="shop") as producer, consumer:
        producer.send(Message(topic, b"hello", tag="paid", keys=["42"]), timeout=3)
        assert is_there.wait(LIMIT_S)
    assert bodies == [(b"hello", "paid", ["42"])]


def test_a_loop_over_a_push_consumer_takes_each_message_once(
    namesrv: str, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("Group")
    with Producer(namesrv, "shop") as producer:
        for number in range(5):
            producer.send(Message(topic, str(number).encode()))
    seen = []
    consumer = PushConsumer(namesrv, group, from_where=FIRST)
    consumer.subscribe(topic)
    with consumer:
        for message in consumer:
            seen.append(message.body)
            if len(seen) == 5:
                break
    assert sorted(seen) == [b"0", b"1", b"2", b"3", b"4"]
    with Admin(namesrv) as admin:
        assert admin.progress(group).lag == 0


def test_a_pull_consumer_polls_without_a_loop(namesrv: str, fresh_name: FreshName) -> None:
    topic = fresh_name("Topic")
    with Producer(namesrv, "shop") as producer:
        queue = producer.send(Message(topic, b"one")).queue
    with PullConsumer(namesrv, fresh_name("Group")) as consumer:
        consumer.assign([queue])
        consumer.seek_to_begin(queue)
        assert [message.body for message in consumer.poll(timeout=LIMIT_S)] == [b"one"]


def test_a_synchronous_loop_over_a_pull_consumer_that_raised_lost_its_message(
    namesrv: str, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("Group")
    with Producer(namesrv, "shop") as producer:
        for number in range(6):
            producer.send(Message(topic, str(number).encode()), key="one queue")
    consumer = PullConsumer(namesrv, group, from_where=FIRST)
    consumer.start()
    consumer.subscribe(topic)
    with pytest.raises(ZeroDivisionError), closing(consumer):
        _ = [1 // (4 - int(message.body)) for message in consumer]
    with PullConsumer(namesrv, group) as consumer:
        consumer.subscribe(topic)
        assert next(iter(consumer)).body == b"4"


def test_submitted_messages_are_futures_of_any_thread(namesrv: str, fresh_name: FreshName) -> None:
    topic = fresh_name("Topic")
    with Producer(namesrv, "shop") as producer:
        futures = [producer.submit(Message(topic, b"x" * 100)) for _ in range(200)]
        results = [future.result(LIMIT_S) for future in futures]
    assert len({result.offset_id for result in results}) == 200


def test_a_submit_without_room_raises_and_is_not_hidden_in_its_future() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        Producer(
            f"127.0.0.1:{silent.getsockname()[1]}",
            "shop",
            sends_in_flight_max=1,
            close_timeout_s=0.01,
        ) as producer,
    ):
        first = producer.submit(Message("Topic", b"waits for a route"))
        with pytest.raises(LimitExceeded, match="sends_in_flight_max"):
            producer.submit(Message("Topic", b"one too many"))
        assert not first.done()
    with pytest.raises(ClientStateError, match="closed before it could be sent"):
        first.result(LIMIT_S)


def test_errors_are_those_of_the_asynchronous_client(namesrv: str) -> None:
    with Admin(namesrv) as admin, pytest.raises(RouteNotFound, match="no route for topic Nothing"):
        admin.topic_route("Nothing")
    with pytest.raises(SettingError, match="no option retries"):
        Producer(namesrv, "shop", retries=3)  # type: ignore[call-arg]  # the mistake that is tested


def test_many_threads_share_one_producer(namesrv: str, fresh_name: FreshName) -> None:
    topic = fresh_name("Topic")
    with Producer(namesrv, "shop") as producer, ThreadPoolExecutor(8) as pool:
        sends = [pool.submit(producer.send, Message(topic, b"x")) for _ in range(400)]
        ids = {send.result(LIMIT_S).message_id for send in sends}
    assert len(ids) == 400


# --- its end ---


def test_nothing_is_left_of_closed_clients(system: System, fresh_name: FreshName) -> None:
    namesrv = system.namesrv
    before, threads = open_descriptors(), set(threading.enumerate())
    topic = fresh_name("Topic")
    pushing = PushConsumer(namesrv, fresh_name("Group"), lambda message: None)
    pushing.subscribe(topic)
    pulling = PullConsumer(namesrv, fresh_name("Group"))
    pulling.subscribe(topic)
    with Producer(namesrv, "shop") as producer, pushing, pulling, Admin(namesrv) as admin:
        admin.create_topic(topic)
        producer.send(Message(topic, b"x"))
        pulling.poll(timeout=0.1)
        assert len(open_descriptors()) > len(before)
    assert set(threading.enumerate()) <= threads
    assert open_descriptors() <= before


def test_all_clients_of_a_process_share_one_loop(namesrv: str, fresh_name: FreshName) -> None:
    assert _client_threads() == []
    with (
        Producer(namesrv, "shop"),
        Producer(namesrv, "another_shop"),
        PushConsumer(namesrv, fresh_name("Group"), lambda message: None),
        PullConsumer(namesrv, fresh_name("Group")),
        Admin(namesrv),
    ):
        assert _client_threads() == ["orbitmq-client"]
    assert _client_threads() == []


def test_closing_twice_does_nothing_and_use_after_it_is_refused(namesrv: str) -> None:
    producer = Producer(namesrv, "shop").start()
    producer.close()
    producer.close()
    with pytest.raises(ClientStateError, match="this client is closed"):
        producer.send(Message("T", b"x"))


def test_a_start_that_fails_leaves_no_thread() -> None:
    with pytest.raises(SettingError, match="not an address"), Producer("nowhere", "shop"):
        pass
    assert _client_threads() == []


def test_an_async_handler_that_waits_for_its_own_client_is_told(
    namesrv: str, fresh_name: FreshName
) -> None:
    topic, errors, is_there = fresh_name("Topic"), [], threading.Event()
    with Producer(namesrv, "shop") as producer:

        async def on_message(_message: orbitmq.ReceivedMessage) -> None:
            try:
                producer.send(Message(topic, b"more"))
            except ClientStateError as error:
                errors.append(str(error))
            is_there.set()

        consumer = PushConsumer(namesrv, fresh_name("Group"), on_message, from_where=FIRST)
        consumer.subscribe(topic)
        with consumer:
            producer.send(Message(topic, b"x"))
            assert is_there.wait(LIMIT_S)
    assert "cannot be waited for on its own loop" in errors[0]


def test_an_interrupted_wait_cancels_what_it_waited_for() -> None:
    """Ctrl-C during a send must not leave it under way."""
    begun, cancelled = threading.Event(), threading.Event()

    class Endless:
        async def start(self) -> None:
            """Begin."""

        async def close(self) -> None:
            """End."""

        async def __aexit__(self, *_words: object) -> None:
            """End."""

        async def work(self) -> None:
            begun.set()
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                cancelled.set()
                raise

    facade = Facade(Endless)
    future = facade._begin(facade._twin.work())
    assert begun.wait(LIMIT_S)
    future.cancel()
    assert cancelled.wait(LIMIT_S)
    facade.close()


# --- as the asynchronous twin does it ---


def test_a_loop_ends_when_another_thread_closes_the_consumer(
    namesrv: str, fresh_name: FreshName
) -> None:
    for kind in (PushConsumer, PullConsumer):
        topic = fresh_name("Topic")
        with Producer(namesrv, "shop") as producer:
            producer.send(Message(topic, b"x"))
        consumer = kind(namesrv, fresh_name("Group"), from_where=FIRST)
        consumer.subscribe(topic)
        consumer.start()
        seen = 0
        for _message in consumer:
            seen += 1
            closing = threading.Thread(target=consumer.close)
            closing.start()
            closing.join(LIMIT_S)
        assert seen == 1
        assert _client_threads() == []


def test_a_message_whose_loop_failed_comes_again_when_close_is_called_by_hand(
    broker: EmbeddedBroker, fresh_name: FreshName
) -> None:
    """The exception is under way in the program's thread, the close on the loop's."""
    topic, group = fresh_name("Topic"), fresh_name("Group")
    namesrv, waiting = broker.namesrv, broker.delayed_count
    with Producer(namesrv, "shop") as producer:
        producer.send(Message(topic, b"x"))
    consumer = PushConsumer(namesrv, group, from_where=FIRST)
    consumer.subscribe(topic)
    consumer.start()

    def work() -> None:
        try:
            for message in consumer:
                raise ValueError(message.body)
        finally:
            consumer.close()

    with pytest.raises(ValueError, match="x"):
        work()
    broker.wait_for_delayed(waiting + 1, timeout=LIMIT_S)


def test_what_needs_no_cluster_is_told_after_the_end_as_well(namesrv: str) -> None:
    with PullConsumer(namesrv, "pulling") as consumer:
        running = [consumer.is_running]
    running.append(consumer.is_running)
    assert running == [True, False]
    assert consumer.settings.group == "pulling"
    with pytest.raises(ClientStateError, match="closed"):
        consumer.assignment()


def test_what_needs_no_waiting_may_be_asked_on_the_loop(
    namesrv: str, fresh_name: FreshName
) -> None:
    """Listeners and asynchronous handlers run there."""
    told: list[object] = []
    is_told = threading.Event()

    def changed(_topic: str, _queues: object, _mine: object) -> None:
        try:
            told.append(consumer.is_suspended)
        except ClientStateError as error:
            told.append(error)
        is_told.set()

    topic = fresh_name("Topic")
    with Producer(namesrv, "shop") as producer:
        producer.send(Message(topic, b"x"))
    consumer = PushConsumer(
        namesrv, fresh_name("Group"), lambda message: None, queue_listener=changed
    )
    consumer.subscribe(topic)
    with consumer:
        assert is_told.wait(LIMIT_S)
    assert told[0] is False


def test_closing_in_many_threads_at_once_leaves_other_clients_alone(namesrv: str) -> None:
    with Admin(namesrv) as other, ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            producer = Producer(namesrv, "shop").start()
            for closing in [pool.submit(producer.close) for _ in range(8)]:
                closing.result(LIMIT_S)
        assert other.clusters()


def test_a_second_close_waits_for_the_first(namesrv: str) -> None:
    """It returned at once and took the loop away from the first."""
    begun, go_on, ended = threading.Event(), threading.Event(), []

    class Slow:
        def __init__(self) -> None:
            self.is_closed = False

        async def start(self) -> None:
            """Begin."""

        async def close(self) -> None:
            if not self.is_closed:
                self.is_closed = True
                begun.set()
                while not go_on.is_set():
                    await asyncio.sleep(0.001)
                ended.append("first")

        async def __aexit__(self, *_words: object) -> None:
            """End."""

    facade = Facade(Slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(facade.close)
        assert begun.wait(LIMIT_S)
        second = pool.submit(facade.close)
        wait([second], 0.1)
        go_on.set()
        first.result(LIMIT_S)
        second.result(LIMIT_S)
    assert ended == ["first"]
    assert _client_threads() == []


# --- its texts ---

ASYNCHRONOUS = re.compile(r"\bawait|\basyncio|\basync (with|for)|event loop|coroutine")


@pytest.mark.parametrize("name", TWINS)
def test_texts_for_synchronous_users_said_await(name: str) -> None:
    kind = getattr(orbitmq, name)
    texts = [kind.__doc__, *(getattr(kind, one).__doc__ for one in _public_names(kind))]
    assert [text for text in texts if ASYNCHRONOUS.search(text or "")] == []


@pytest.mark.parametrize("name", TWINS)
def test_errors_before_the_start_and_after_the_end_said_await(name: str) -> None:
    client = getattr(orbitmq, name)("127.0.0.1:1", **({"group": "g"} if name != "Admin" else {}))
    for state in ("start", "closed|make a"):
        names = sorted(_public_names(type(client)))  # so that nothing is subscribed before assign
        told = [text for one in names if (text := _refusal(client, one))]
        assert len(told) > 3
        assert [text for text in told if ASYNCHRONOUS.search(text)] == []
        assert [text for text in told if not re.search(state, text)] == []
        client.close()


def _refusal(client: object, name: str) -> str:
    """What a client says to a call in a wrong state, if that is what it minds."""
    if name in ("start", "close", "run"):
        return ""
    try:
        found = getattr(client, name)
        if callable(found):
            found(*_some_arguments(getattr(type(client), name)))
    except ClientStateError as error:
        return str(error)
    except (MQError, ValueError, TypeError, AttributeError):
        pass
    return ""


def _some_arguments(method: object) -> list[object]:
    """A topic's name for each argument that must be there; most methods look at no more."""
    if not inspect.isfunction(method):
        return []
    parameters = list(inspect.signature(method).parameters.values())[1:]
    return ["T" for one in parameters if one.default is one.empty and one.kind != one.KEYWORD_ONLY]
