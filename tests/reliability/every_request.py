"""One request of every code that the broker serves, with every name in it open to choice.

In: a code and a chooser of names. Out: a request whose fields are those of ALL typed headers and
whose body is of the code's kind. Rule: codes come from the broker's own table and fields from the
header classes, so that a new code or field is covered as soon as it is there; a body that no one
has described here fails `undescribed_bodies`.
"""

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

from msgspec import inspect as types

from orbitmq.broker.requests import SERVED
from orbitmq.wire import bodies_runtime, headers_client, headers_consume, headers_topics
from orbitmq.wire.batch import BatchMessage, encode_batch
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import FLAG_RESPONSE, Command, encode_command
from orbitmq.wire.fields import Header
from tests.wire_client import WireClient

Names = Callable[[str], str]
"""Gives the value of a name, by the field that it is in."""

TOPIC, GROUP, CLIENT = "SaneTopic", "SaneGroup", "sane-client"
SANE = {
    "clientAddr": CLIENT,
    "clientID": CLIENT,
    "clientId": CLIENT,
    "attributes": "",
    "boundaryType": "LOWER",
    "brokerName": "broker-a",
    "bname": "broker-a",
    "defaultTopic": "TBW102",
    "expressionType": "TAG",
    "key": "a-key",
    "msgId": "7F00000100002A9F0000000000000000",
    "originMsgId": "7F00000100002A9F0000000000000000",
    "properties": "TAGS\x01TagA\x02KEYS\x01a-key\x02",
    "settingKey": "fileReservedTime",
    "settingValue": "72",
    "statsKey": TOPIC,
    "statsName": "TOPIC_PUT_NUMS",
    "subString": "*",
    "subscription": "*",
    "topicFilterType": "SINGLE_TAG",
}
_NUMBERS = {"readQueueNums": "4", "writeQueueNums": "4", "defaultTopicQueueNums": "4"}
_NUMBERS |= {"perm": "6", "maxMsgNums": "32", "maxNum": "32", "count": "32", "delayLevel": "1"}
_NUMBERS |= {"maxMsgBytes": "65536", "topicSysFlag": "0"}


def sane(field: str) -> str:
    """Return a good value of a name."""
    if field in SANE:
        return SANE[field]
    return TOPIC if "opic" in field else GROUP


# --- fields ---


def served_codes() -> list[int]:
    """Return every code that the broker has a handler for."""
    return sorted(int(row.code) for row in SERVED)


_MODULES = (headers_client, headers_consume, headers_topics, bodies_runtime)


def _headers(modules: Iterable[ModuleType]) -> list[type[Header]]:
    return [
        one
        for module in modules
        for one in vars(module).values()
        if inspect.isclass(one) and issubclass(one, Header) and one is not Header
        if not one.__name__.endswith("Answer")
    ]


def fields_of_type(wanted: type[types.Type], modules: Iterable[ModuleType] = _MODULES) -> set[str]:
    """Return the wire names of all header fields of one kind."""
    found = set()
    for header in _headers(modules):
        info = types.type_info(header)
        assert isinstance(info, types.StructType)
        for field in info.fields:
            union = isinstance(field.type, types.UnionType)
            members = field.type.types if union else (field.type,)  # type: ignore[attr-defined]  # mypy does not follow `union`
            if any(isinstance(member, wanted) for member in members):
                found.add(field.encode_name)
    return found


NAME_FIELDS = sorted(fields_of_type(types.StrType))
NUMBER_FIELDS = sorted(fields_of_type(types.IntType))
TRUTH_FIELDS = sorted(fields_of_type(types.BoolType))
_LETTERS: Mapping[str, str] = headers_client._LETTERS


def all_fields(names: Names) -> dict[str, str]:
    """Return all fields of all headers, and a send's letters."""
    fields = {field: names(field) for field in NAME_FIELDS}
    fields |= {field: _NUMBERS.get(field, "0") for field in NUMBER_FIELDS}
    fields |= dict.fromkeys(TRUTH_FIELDS, "false")
    return fields | {letter: fields[name] for letter, name in _LETTERS.items()}


# --- bodies ---


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _subscription(names: Names) -> dict[str, Any]:
    return {
        "topic": names("topic"),
        "subString": names("subString"),
        "expressionType": names("expressionType"),
        "tagsSet": [names("tag")],
        "codeSet": [],
        "subVersion": 1,
    }


def _heartbeat(names: Names) -> bytes:
    consumer = {
        "groupName": names("group"),
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [_subscription(names)],
    }
    producers = [{"groupName": names("producerGroup")}]
    return _json(
        {
            "clientID": names("clientID"),
            "consumerDataSet": [consumer],
            "producerDataSet": producers,
        }
    )


def _locks(names: Names) -> bytes:
    queue = {"topic": names("topic"), "brokerName": names("brokerName"), "queueId": 0}
    return _json({"clientId": names("clientId"), "consumerGroup": names("group"), "mqSet": [queue]})


def _topic(names: Names) -> dict[str, Any]:
    return {
        "topicName": names("topic"),
        "readQueueNums": 4,
        "writeQueueNums": 4,
        "perm": 6,
        "topicFilterType": names("topicFilterType"),
    }


def _group(names: Names) -> dict[str, Any]:
    return {"groupName": names("group"), "consumeEnable": True, "retryQueueNums": 1}


def _check(names: Names) -> bytes:
    body = {"clientId": names("clientId"), "group": names("group"), "namespace": names("group")}
    return _json(body | {"subscriptionData": _subscription(names)})


def _batch(names: Names) -> bytes:
    return encode_batch([BatchMessage(b"body", names("properties").encode()[:30_000], 0)] * 2)


def _setting(names: Names) -> bytes:
    return f"{names('settingKey')}={names('settingValue')}\n".encode()


def _message(names: Names) -> bytes:
    return names("body").encode()


BODIES: Mapping[int, Callable[[Names], bytes]] = {
    RequestCode.SEND_MESSAGE: _message,
    RequestCode.SEND_MESSAGE_V2: _message,
    RequestCode.SEND_BATCH_MESSAGE: _batch,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: lambda names: _json(
        {"topicConfigList": [_topic(names)]}
    ),
    RequestCode.UPDATE_BROKER_CONFIG: _setting,
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.LOCK_BATCH_MQ: _locks,
    RequestCode.UNLOCK_BATCH_MQ: _locks,
    RequestCode.CHECK_CLIENT_CONFIG: _check,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: lambda names: _json(_group(names)),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: lambda names: _json(
        {"groupConfigList": [_group(names)]}
    ),
}


def undescribed_bodies() -> list[str]:
    """Return the modules that read a body of which none is described in BODIES."""
    described = {row.serve.__module__ for row in SERVED if row.code in BODIES}
    reading = {row.serve.__module__ for row in SERVED if "body" in _names_used(row.serve)}
    return sorted(reading - described)


def _names_used(handler: Any) -> set[str]:
    """Return the words behind `request.` in the source of the handler's module."""
    module = inspect.getmodule(handler)
    assert module is not None
    words = inspect.getsource(module).split("request.")[1:]
    return {word[:4] for word in words}


def make_request(code: int, names: Names) -> Command:
    """Return a whole request of a code."""
    fields = all_fields(names)
    if code == RequestCode.SEND_BATCH_MESSAGE:
        fields["m"] = fields["batch"] = "true"
    body = BODIES.get(code)
    return Command(code, fields=fields, body=body(names) if body else b"")


# --- asking ---

AT_A_TIME = 64


class Asker:
    """Asks many things at a time, answers what the broker asks of it, and lets nothing pass.

    A request without an answer, or a connection that ends, is a failure.
    """

    def __init__(self, address: str) -> None:
        self.client = WireClient(address)
        self.asked = 0

    def ask_all(self, requests: list[Command]) -> list[Command]:
        """Send all; give their answers in the order of the requests."""
        found: list[Command] = []
        for start in range(0, len(requests), AT_A_TIME):
            found += self._ask_some(requests[start : start + AT_A_TIME])
        return found

    def _ask_some(self, requests: list[Command]) -> list[Command]:
        waiting = {self.client.send(request): request for request in requests}
        order, found = list(waiting), dict[int, Command]()
        while waiting:
            command = self._receive(waiting)
            if command.is_response:
                request = waiting.pop(command.opaque, None)
                assert request is not None, f"an answer that nobody waits for: {command}"
                found[command.opaque] = command
            elif not command.is_oneway:
                self._answer(command)
        self.asked += len(found)
        return [found[opaque] for opaque in order]

    def _receive(self, waiting: Mapping[int, Command]) -> Command:
        try:
            return self.client.receive()
        except (TimeoutError, ConnectionError) as error:
            codes = sorted({request.code for request in waiting.values()})
            raise AssertionError(f"no answer to requests {codes}: {error!r}") from error

    def _answer(self, question: Command) -> None:
        """Answer as a hostile client would."""
        answer = Command(
            0,
            opaque=question.opaque,
            flag=FLAG_RESPONSE,
            remark="line\nline\r\x1b[31m",
            fields={"../..": "\x00"},
            body=b"\xff{[",
        )
        self.client.send_bytes(encode_command(answer))

    def close(self) -> None:
        self.client.close()
