"""Arguments of wrong types: every one ends in an error that names it, none in a bare one.

The table is made from the signatures, so what is added later is in it: each argument of each public
method of the clients and of `Admin`, each option of each constructor, each field of a message.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, get_type_hints

import pytest

from orbitmq import Compression, aio
from orbitmq.app import App
from orbitmq.client.arguments import is_fit
from orbitmq.client.message import ReceivedMessage
from orbitmq.client.producer_settings import ProducerSettings
from orbitmq.client.pull_settings import PullConsumerSettings
from orbitmq.client.push_settings import PushConsumerSettings
from orbitmq.client.settings import ClientSettings
from orbitmq.errors import ArgumentError, MQError, SettingError
from orbitmq.testing import EmbeddedBroker
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.host import Host
from tests.client.producing import run
from tests.client.scripted import TOPIC, scripted

WRONG: list[Any] = [None, 5, 2.5, "text", b"bytes", True, ["x"], [5], {"a": 1}, {5: "a"}, object()]
QUEUE = MessageQueue("T", "b", 0)
HOST = Host("127.0.0.1", 1)
RIGHT: dict[type, Any] = {
    str: "T",
    int: 1,
    float: 1.0,
    bool: True,
    aio.Message: aio.Message("T", b"x"),
    MessageQueue: QUEUE,
    ReceivedMessage: ReceivedMessage(
        topic="T",
        body=b"",
        queue=QUEUE,
        queue_offset=0,
        log_offset=0,
        born_ms=0,
        born_host=HOST,
        store_ms=0,
        store_host=HOST,
    ),
}
CLIENTS = {
    "Producer": (aio.Producer, {"group": "g"}),
    "PushConsumer": (aio.PushConsumer, {"group": "g"}),
    "PullConsumer": (aio.PullConsumer, {"group": "g"}),
    "Admin": (aio.Admin, {}),
}


class Case(NamedTuple):
    """One argument of one method."""

    client: str
    method: str
    argument: str


def _methods(kind: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in dir(kind):
        member = getattr(kind, name)
        if not name.startswith("_") and inspect.isfunction(member):
            yield name, member


def _cases() -> Iterator[Case]:
    for client, (kind, _) in CLIENTS.items():
        for name, method in _methods(kind):
            hints = get_type_hints(method)
            hints.pop("return")
            hints.pop("options", None)
            yield from (Case(client, name, argument) for argument in hints)


CASES = list(_cases())


def test_the_table_has_all_methods() -> None:
    assert len(CASES) > 180
    assert {case.client for case in CASES} == set(CLIENTS)


def _arguments(method: Callable[..., Any], wrong: str, value: object) -> dict[str, Any]:
    """One wrong argument, and what must be there beside it."""
    hints, given = get_type_hints(method), {wrong: value}
    if "messages" in hints:
        given = {"messages": [aio.Message(TOPIC, b"x")]} | given
    for name, parameter in list(inspect.signature(method).parameters.items())[1:]:
        if (
            name not in (*given, "options")
            and parameter.default is parameter.empty
            and name in hints
        ):
            given[name] = next((RIGHT[kind] for kind in RIGHT if hints[name] is kind), {})
    return given


async def _call(client: object, case: Case, value: object) -> object:
    answer = getattr(client, case.method)(
        **_arguments(getattr(type(client), case.method), case.argument, value)
    )
    return await answer if inspect.isawaitable(answer) else answer


@pytest.mark.parametrize("name", CLIENTS)
def test_a_wrong_type_ended_in_a_bare_type_error_or_attribute_error(name: str) -> None:
    async def main() -> None:
        async with scripted([]) as cluster:
            kind, options = CLIENTS[name]
            client = kind(cluster.namesrv.address, **options)
            if name == "PushConsumer":
                await client.subscribe(TOPIC)
            async with client:
                for case in CASES:
                    if case.client == name:
                        await _refuses(client, case)

    run(main(), 60)


async def _refuses(client: object, case: Case) -> None:
    hint = get_type_hints(getattr(type(client), case.method))[case.argument]
    for value in WRONG:
        if is_fit(value, hint) or (value is True and case.client == "Producer"):
            continue  # True is 1 where every message passes
        with pytest.raises(ArgumentError) as caught:
            pytest.fail(f"{case} took {value!r}: {await _call(client, case, value)}")
        assert caught.value.argument == case.argument, (case, value)
        assert f"{case.argument}" in str(caught.value), (case, value)


# --- options ---

OPTIONS: dict[Any, Callable[[dict[str, Any]], object]] = {
    ProducerSettings: lambda options: aio.Producer("127.0.0.1:1", **options),
    PushConsumerSettings: lambda options: aio.PushConsumer(
        "127.0.0.1:1", **{"group": "g"} | options
    ),
    PullConsumerSettings: lambda options: aio.PullConsumer(
        "127.0.0.1:1", **{"group": "g"} | options
    ),
    ClientSettings: lambda options: App("127.0.0.1:1", **options),
}


@pytest.mark.parametrize("settings", OPTIONS, ids=lambda kind: kind.__name__)
def test_an_option_of_a_wrong_type_was_taken_or_ended_in_a_bare_error(settings: Any) -> None:
    for name, hint in get_type_hints(settings).items():
        if name == "namesrv":
            continue
        for value in WRONG:
            if not is_fit(value, hint):
                with pytest.raises(MQError, match=name):
                    OPTIONS[settings]({name: value})


@pytest.mark.parametrize("kind", [aio.Producer, aio.PushConsumer, aio.PullConsumer])
def test_a_name_server_that_is_no_text_is_refused(kind: type) -> None:
    with pytest.raises(SettingError, match="namesrv is 9876; it must be text"):
        kind(9876, "g")


def test_compression_as_text_ended_in_a_bare_error() -> None:
    with pytest.raises(SettingError, match=r"compression is 'lz4'.*did you mean Compression\.LZ4"):
        aio.Producer(compression="lz4")  # type: ignore[arg-type]  # the mistake that is tested
    assert aio.Producer(compression=Compression.LZ4).settings.compression is Compression.LZ4


# --- messages ---


@pytest.mark.parametrize("field", get_type_hints(aio.Message))
def test_a_field_of_a_message_of_a_wrong_type_ended_in_a_bare_error(field: str) -> None:
    async def main() -> None:
        async with scripted([]) as cluster, aio.Producer(cluster.namesrv.address) as producer:
            for value in WRONG:
                if is_fit(value, get_type_hints(aio.Message)[field]):
                    continue
                if field in ("keys", "waits_for_store") and isinstance(value, str | int):
                    continue  # one key as text, 1 as true
                if value is None and field not in ("topic", "body", "flag", "waits_for_store"):
                    continue  # none
                fields = {"topic": TOPIC, "body": b"x", field: value}
                for send in (producer.send, producer.submit, producer.send_oneway):
                    await _is_refused(send, aio.Message(**fields), field)
                batch = [aio.Message(TOPIC, b"x"), aio.Message(**fields)]
                await _is_refused(producer.send_batch, batch, field)
            assert cluster.sends() == [0]

    run(main())


async def _is_refused(send: Callable[[Any], Any], message: object, field: str) -> None:
    async def sent() -> None:
        answer = send(message)
        if inspect.isawaitable(answer):
            await answer

    with pytest.raises(MQError, match=field.replace("_", ".")):
        await sent()


def test_a_generator_in_send_batch_ended_in_a_bare_type_error() -> None:
    async def main() -> None:
        async with scripted([]) as cluster, aio.Producer(cluster.namesrv.address) as producer:
            with pytest.raises(
                ArgumentError, match=r"messages is <generator.*write list\(messages\)"
            ):
                await producer.send_batch(aio.Message(TOPIC, b"x") for _ in range(2))  # type: ignore[arg-type]  # the mistake
            with pytest.raises(ArgumentError, match=r"messages\[1\] is b'y'"):
                await producer.send_batch([aio.Message(TOPIC, b"x"), b"y"])  # type: ignore[list-item]  # the mistake

    run(main())


def test_a_selector_that_returned_nonsense_ended_in_a_bare_attribute_error() -> None:
    async def main() -> None:
        async with scripted([]) as cluster, aio.Producer(cluster.namesrv.address) as producer:
            message = aio.Message(TOPIC, b"x")
            for nonsense in (None, 0, "queue"):
                found: Any = nonsense

                def choose(_queues: object, _message: object, found: Any = found) -> Any:
                    return found

                with pytest.raises(ArgumentError, match="the selector returned"):
                    await producer.send(message, selector=choose)
            with pytest.raises(MQError, match="timeout is '3'; it must be a number"):
                await producer.send(message, timeout="3")  # type: ignore[arg-type]  # the mistake

    run(main())


# --- consumers ---


@pytest.mark.parametrize(
    ("handler", "text"),
    [
        (lambda: None, r"<lambda>\(\) cannot be called with one argument, a message"),
        (lambda message, topic: None, "missing a required argument: 'topic'"),
        ("bill", "handler is 'bill'; it must be a function of a message"),
    ],
)
def test_a_handler_of_the_wrong_arity_was_taken(handler: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        aio.PushConsumer("127.0.0.1:1", "g", handler)


@pytest.mark.parametrize("handler", [print, lambda *messages: None, lambda m, x=1: None, [].append])
def test_whatever_can_be_called_with_a_message_is_a_handler(handler: Any) -> None:
    aio.PushConsumer("127.0.0.1:1", "g", handler)


@pytest.mark.parametrize("expression", ["a, b", "a,b", "a b", "a | b", "a or b", "a; b"])
def test_a_selector_with_another_separator_was_taken_and_selected_nothing(expression: str) -> None:
    with pytest.raises(MQError, match=r"separate tags by \|\|: 'a \|\| b'"):
        aio.Selector.tags(expression)


def test_a_consumer_without_subscriptions_waited_for_ever(orbitmq_broker: EmbeddedBroker) -> None:
    async def main() -> None:
        async with aio.PullConsumer(orbitmq_broker.namesrv, "g") as pulling:
            with pytest.raises(MQError, match="has no topic and no queue"):
                await pulling.poll(0.1)
        async with aio.PushConsumer(orbitmq_broker.namesrv, "g") as pushing:
            with pytest.raises(MQError, match="has no subscription"):
                async for _ in pushing:
                    pass

    run(main())


# --- applications ---


def test_a_mistyped_option_of_a_listener_failed_at_the_start_only() -> None:
    app = App("127.0.0.1:1")
    with pytest.raises(SettingError, match="no option selctor; did you mean selector"):
        app.listener("orders", selctor="paid")  # type: ignore[call-arg]  # the mistake that is tested
    with pytest.raises(SettingError, match="consume_threads is '8'"):
        app.listener("orders", consume_threads="8")  # type: ignore[arg-type]  # the mistake
    with pytest.raises(ArgumentError, match="topic is None"):
        app.listener(None)  # type: ignore[arg-type]  # the mistake that is tested
