"""The tables of requests: complete, the only ones, and able to say what a request is about."""

import ast
import inspect
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from orbitmq.broker import handlers, overload
from orbitmq.broker import requests as broker
from orbitmq.core import plain
from orbitmq.errors import RemoteProtocolError
from orbitmq.metrics import Registry
from orbitmq.namesrv import on_admin, on_brokers, on_lookups
from orbitmq.namesrv import requests as namesrv
from orbitmq.net.dispatch import Dispatcher
from orbitmq.net.requests import Kind, Request, Resource, Right, handlers_of
from orbitmq.wire import bodies_runtime, headers_client, headers_consume, headers_topics
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from tests.reliability.every_request import make_request
from tools import requests_page

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/orbitmq"
ROWS: list[Request[Any]] = [*broker.SERVED, *namesrv.SERVED]
CODES_4_9_7 = """
    10 11 12 14 15 17 21 25 26 28 29 30 31 32 33 34 35 36 37 38 41 42 43 45 46 50 51 52 53 54
    200 201 202 203 204 207 208 215 222 223 300 303 305 306 307 308 309 310 314 315 316 317 320 321
    323 324 325 328 329
"""
"""What a running broker of 4.9.7 does not answer with 3, of 0 to 1099 and all of RequestCode."""
CODES_5 = {18, 225, 343, 345, 351, 352, 353, 361}
"""What 5.x adds and this broker serves."""
ADMIN_4_9_7 = {17, 25, 200, 207, 215}
"""What plain_acl.yml of 4.9 leaves to `admin: true`."""


# --- complete ---


def test_every_code_is_served_once_or_refused_with_a_reason() -> None:
    served = [row.code for row in ROWS]
    elsewhere = [code for code in requests_page.to_clients() if code not in served]
    refused = requests_page.refused()
    counts = Counter([*served, *elsewhere, *refused])
    assert [code for code, count in counts.items() if count > 1] == []
    assert set(counts) == set(RequestCode)
    assert all(refused.values())


def test_a_code_of_4_9_7_is_served_or_refused_with_the_feature_it_waits_for() -> None:
    known = {int(code) for code in CODES_4_9_7.split()}
    served = {int(row.code) for row in broker.SERVED}
    assert served - known == CODES_5
    assert known - served <= set(broker.REFUSED)
    assert known.isdisjoint(broker.UNUSED)


def test_a_refused_code_is_answered_with_its_name_and_the_reason() -> None:
    dispatch = Dispatcher({}, Registry(), broker.REFUSED)
    for code, words in (
        (37, " request type 37 not supported, END_TRANSACTION: transactions are not there yet"),
        (301, " request type 301 not supported"),
    ):
        answer: Any = dispatch(Command(code), None)  # type: ignore[arg-type]  # not looked at
        assert (answer.code, answer.remark) == (3, words)


def test_a_code_with_two_rows_is_a_bug() -> None:
    row: Request[Any] = broker.SERVED[0]
    twice = [row, row]
    with pytest.raises(AssertionError, match="code 10 has one row"):
        handlers_of(twice, None)


def test_the_guide_leads_to_the_features_that_are_not_served_yet() -> None:
    page = (ROOT / "docs" / "guides" / "compatibility.md").read_text()
    assert "(../reference/requests.md)" in page
    for feature in ("transaction", "access\ncontrol", "request-reply", "pop"):
        assert feature in page.partition("Not there yet:")[2].partition("\n\n")[0]


# --- the only ones ---


def _functions(module: ModuleType) -> Iterator[Any]:
    for function in vars(module).values():
        if inspect.isfunction(function) and function.__module__ == module.__name__:
            names = [name.lstrip("_") for name in inspect.signature(function).parameters]
            if names in (["context", "request", "connection"], ["state", "request", "connection"]):
                yield function


def test_every_handler_is_in_a_table() -> None:
    modules = [
        getattr(handlers, path.stem) for path in Path(handlers.__file__).parent.glob("[a-z]*.py")
    ]
    found = {
        function
        for module in (*modules, on_admin, on_brokers, on_lookups)
        for function in _functions(module)
        if not function.__name__.startswith("_")
    }
    assert found == {row.serve for row in ROWS}


def test_nothing_else_maps_codes_to_handlers() -> None:
    """No dict with request codes as keys, no branch on a code, but where a send is spelt."""
    allowed = {"broker/requests.py", "namesrv/requests.py", "broker/handlers/send.py"}
    found = set()
    for folder in ("broker", "namesrv", "net", "core", "store"):
        for path in (SOURCE / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                keys = node.keys if isinstance(node, ast.Dict) else []
                asked = [node.left, *node.comparators] if isinstance(node, ast.Compare) else keys
                if any(_is_code(each) for each in asked):
                    found.add(str(path.relative_to(SOURCE)))
    assert found <= allowed


def _is_code(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("RequestCode", "Code")


def test_what_is_answered_before_the_table_is_in_the_table() -> None:
    found = re.findall(r'\{"code":(\d+),', inspect.getsource(overload))
    for codes in (plain.CODES, {int(code) for code in found}):
        assert {10, 11, 310} <= codes <= {int(row.code) for row in broker.SERVED}


# --- rights and resources ---


def test_every_row_has_a_right_and_what_it_is_about() -> None:
    for row in ROWS:
        assert (row.right is Right.NONE) == (row.about == ()), row.code
        assert row.asked_by, row.code
        kinds = {about.kind for about in row.about}
        assert kinds <= {Kind.TOPIC, Kind.GROUP} or kinds == {Kind.CLUSTER}, row.code


def test_who_publishes_or_subscribes_is_no_administrator_and_the_other_way_round() -> None:
    rights = {int(row.code): row.right for row in ROWS}
    assert {code for code, right in rights.items() if right is Right.PUBLISH} == {10, 310, 320}
    subscribe = {11, 12, 14, 15, 34, 35, 36, 38, 41, 42, 46, 361} | {29, 30, 31, 32, 309}
    assert {code for code, right in rights.items() if right is Right.SUBSCRIBE} == subscribe
    assert all(rights[code] is Right.ADMIN for code in ADMIN_4_9_7)


def _name(field: str) -> str:
    """A name that tells which field it was in."""
    return {"expressionType": "TAG", "topicFilterType": "SINGLE_TAG"}.get(field, f"of-{field}")


def _fields_of(code: int) -> set[str]:
    """Return the fields of a request that name topics or groups, from its header's class."""
    found: set[str] = set()
    for module in (headers_client, headers_consume, headers_topics, bodies_runtime):
        for header in vars(module).values():
            about = (
                (inspect.getdoc(header) or "").partition("\n")[0] if inspect.isclass(header) else ""
            )
            if not _is_of(about, code):
                continue
            found |= set(header.__struct_encode_fields__)
    return {name for name in found if re.fullmatch(r"topic|(\w+G|g)roup|groupName", name)}


def _is_of(about: str, code: int) -> bool:
    return "answer to" not in about and str(code) in re.findall(r"\b\d+\b", about)


NOT_ASKED_FOR = {code: {"producerGroup"} for code in (10, 310, 320, 35)}
"""To be a producer takes no right: to publish to a topic does."""


@pytest.mark.parametrize("row", broker.SERVED, ids=lambda row: row.code.name)
def test_a_row_finds_every_topic_and_group_that_a_request_names(row: Request[Any]) -> None:
    request = make_request(row.code, _name)
    resources = row.resources(request)
    assert resources
    assert {resource.right for resource in resources} == {row.right}
    if row.about[0].kind is Kind.CLUSTER:
        assert resources == [Resource(Kind.CLUSTER, "", row.right)]
        return
    fields = _fields_of(row.code) - NOT_ASKED_FOR.get(row.code, set())
    expected = {_name(field) for field in fields}
    if request.body and not expected:
        expected = {"of-topic", "of-group"} & set(re.findall(r"of-\w+", request.body.decode()))
    found = {resource.name for resource in resources}
    assert expected
    assert expected <= found
    for resource in resources:
        word = "opic" if resource.kind is Kind.TOPIC else "roup"
        assert word in resource.name


@pytest.mark.parametrize("code", [10, 310, 320])
def test_to_send_to_a_retry_topic_takes_the_right_to_subscribe(code: int) -> None:
    field = "topic" if code == 10 else "b"
    row = next(row for row in broker.SERVED if row.code == code)
    request = Command(code, fields={field: "%RETRY%billing"})
    assert row.resources(request) == [Resource(Kind.GROUP, "billing", Right.SUBSCRIBE)]


def test_a_pull_from_a_retry_topic_is_about_the_group_alone() -> None:
    row = next(row for row in broker.SERVED if row.code == RequestCode.PULL_MESSAGE)
    fields = {"topic": "%RETRY%billing", "consumerGroup": "billing"}
    assert row.resources(Command(11, fields=fields)) == [
        Resource(Kind.GROUP, "billing", Right.SUBSCRIBE)
    ]


def test_several_topics_in_one_field_are_all_found() -> None:
    row = next(row for row in broker.SERVED if row.code == RequestCode.GET_CONSUME_STATS)
    fields = {"consumerGroup": "g", "topicList": "a;b;"}
    names = [resource.name for resource in row.resources(Command(208, fields=fields))]
    assert names == ["g", "a", "b"]


def test_a_heartbeat_is_about_the_groups_and_topics_of_its_consumers() -> None:
    row = next(row for row in broker.SERVED if row.code == RequestCode.HEART_BEAT)
    subscriptions = [{"topic": "orders"}, {"topic": "%RETRY%billing"}]
    consumers = [{"groupName": "billing", "subscriptionDataSet": subscriptions}]
    body = {"clientID": "c", "consumerDataSet": consumers, "producerDataSet": [{"groupName": "p"}]}
    assert row.resources(Command(34, body=json.dumps(body).encode())) == [
        Resource(Kind.GROUP, "billing", Right.SUBSCRIBE),
        Resource(Kind.TOPIC, "orders", Right.SUBSCRIBE),
    ]
    with pytest.raises(RemoteProtocolError):
        row.resources(Command(34, body=b"{"))


def test_what_a_request_leaves_out_is_no_resource() -> None:
    row = next(row for row in broker.SERVED if row.code == RequestCode.UNREGISTER_CLIENT)
    fields = {"clientID": "c", "producerGroup": "p", "consumerGroup": ""}
    assert row.resources(Command(35, fields=fields)) == []
