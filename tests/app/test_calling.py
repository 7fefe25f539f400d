"""Handlers get the parts of a message by their parameters' names and annotations."""

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import pytest

from orbitmq.aio import MessageQueue, ReceivedMessage
from orbitmq.app import Header
from orbitmq.app.bodies import BodyError
from orbitmq.app.calling import call_of
from orbitmq.errors import SettingError
from orbitmq.wire.host import Host
from orbitmq.wire.properties import encode_properties

PROPERTIES = {"KEYS": "k1 k2", "TAGS": "paid", "UNIQ_KEY": "U1", "region": "north", "count": "3"}


def _message() -> ReceivedMessage:
    return ReceivedMessage(
        topic="orders",
        body=b'{"id": 7}',
        stored_properties=encode_properties(PROPERTIES),
        queue=MessageQueue("orders", "broker-a", 2),
        queue_offset=5,
        log_offset=100,
        born_ms=0,
        born_host=Host("127.0.0.1", 1),
        store_ms=0,
        store_host=Host("127.0.0.1", 2),
        reconsume_times=1,
    )


def _body_first(order: dict[str, int], key: str, tag: str) -> object:
    return order, key, tag


def _only_message(message: ReceivedMessage) -> object:
    return message.body


def _any_name_for_the_message(one: ReceivedMessage) -> object:
    return one.body


def _all_parts(keys: Any, topic: Any, message_id: Any, reconsume_times: Any, queue: Any) -> object:
    return keys, topic, message_id, reconsume_times, queue


def _headers(headers: dict[str, str]) -> object:
    return headers["region"]


def _header_by_name(body: bytes, region: str, count: int, missing: str = "none") -> object:
    return body, region, count, missing


def _header_renamed(where: Annotated[str, Header("region")], body: bytes) -> object:
    return where, body


def _no_annotation(order, key):  # type: ignore[no-untyped-def]  # users write such handlers, too
    return order, key


def _typed_key(
    order: dict[str, int], message_id: Annotated[str, "an id"], key: str | None
) -> object:
    return order, message_id, key


def _number_as_key(body: bytes, tag: str = "none", key: int = 0) -> object:
    return tag, key


@pytest.mark.parametrize(
    ("function", "result"),
    [
        (_body_first, ({"id": 7}, "k1", "paid")),
        (_only_message, b'{"id": 7}'),
        (_any_name_for_the_message, b'{"id": 7}'),
        (_all_parts, (["k1", "k2"], "orders", "U1", 1, MessageQueue("orders", "broker-a", 2))),
        (_headers, "north"),
        (_header_by_name, (b'{"id": 7}', "north", 3, "none")),
        (_header_renamed, ("north", b'{"id": 7}')),
        (_no_annotation, ({"id": 7}, "k1")),
        (_typed_key, ({"id": 7}, "U1", "k1")),
    ],
)
def test_parameters_get_what_they_name(function: Callable[..., Any], result: object) -> None:
    assert call_of(function)(_message()) == result


def test_a_header_that_is_missing_is_named() -> None:
    def handler(body: bytes, shop: str) -> None:
        """Never called."""

    with pytest.raises(BodyError, match="property shop"):
        call_of(handler)(_message())


def test_a_header_that_does_not_fit_is_named() -> None:
    def handler(body: bytes, region: int) -> None:
        """Never called."""

    with pytest.raises(BodyError, match="property region"):
        call_of(handler)(_message())


def test_parameters_that_cannot_be_bound_are_told_when_the_function_is_decorated() -> None:
    def handler(*parts: str) -> None:
        """Never called."""

    with pytest.raises(SettingError, match="handler: parameter parts must be an ordinary one"):
        call_of(handler)


def test_annotations_as_texts_are_understood() -> None:
    def handler(order: "dict[str, int]") -> int:
        return order["id"]

    assert call_of(handler)(_message()) == 7


def test_a_key_is_read_as_its_annotation_says() -> None:
    """It came as text although the handler wants a number."""
    call = call_of(_number_as_key)
    assert call(_with({"KEYS": "17"})) == ("none", 17)
    assert call(_with({})) == ("none", 0)
    with pytest.raises(BodyError, match="property key"):
        call(_with({"KEYS": "seventeen"}))


def _with(properties: dict[str, str]) -> ReceivedMessage:
    return msgspec.structs.replace(_message(), stored_properties=encode_properties(properties))


def test_a_body_that_is_called_message_is_refused_when_it_is_decorated() -> None:
    """The handler got a ReceivedMessage where it wants an order."""

    def handle(message: dict[str, int]) -> None:
        """Take a body, it seems."""

    with pytest.raises(SettingError, match=r"message gets the ReceivedMessage.*another name"):
        call_of(handle)


def test_an_annotation_that_names_nothing_is_told() -> None:
    def handle(order: object) -> None:
        """Take what there is not."""

    handle.__annotations__["order"] = "Nothing"
    with pytest.raises(SettingError, match="an annotation names Nothing"):
        call_of(handle)
