"""S5, names are data: the same hostile values in every request that the name server serves.

Method: a name server of its own; each request is answered, refused or served. Afterwards the same
holds as for a broker (test_s5_names): nothing outside the data folder or under a strange name, no
broken log line, nothing unforeseen, bounded memory, and a start on the same folder succeeds.
"""

import inspect
import json
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import inspect as types

from orbitmq.namesrv import on_admin, on_brokers, on_lookups
from orbitmq.namesrv.requests import SERVED
from orbitmq.wire import advertised, headers_namesrv
from orbitmq.wire.bodies_namesrv import body_crc32
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command, encode_command
from orbitmq.wire.frame import BINARY
from tests.reliability.every_request import Asker, Names, fields_of_type
from tests.reliability.processes import BrokerProcess, namesrv_process
from tests.reliability.test_s5_names import (
    HOSTILE,
    MEMORY_GROWTH_MIB_MAX,
    WRONG_NUMBERS,
    assert_nothing_outside,
    bodies_of_any_kind,
    names_of,
)
from tests.wire_client import WireClient

pytestmark = pytest.mark.timeout(180)

CODES = sorted(int(row.code) for row in SERVED)
ONLY = (headers_namesrv,)
NAME_FIELDS = sorted(fields_of_type(types.StrType, ONLY))
NUMBER_FIELDS = sorted(fields_of_type(types.IntType, ONLY))
TRUTH_FIELDS = sorted(fields_of_type(types.BoolType, ONLY))
ADVERTISED = advertised.FIELD
"""No header's: it comes beside those of a registration."""
LETTERS = "aZ0./\\%\n\x00ж"
SANE = {
    "brokerAddr": "127.0.0.1:10911",
    "haServerAddr": "127.0.0.1:10912",
    "brokerName": "sane-broker",
    "clusterName": "SaneCluster",
    "cluster": "SaneCluster",
    "settingKey": "orderMessageEnable",
    "settingValue": "true",
    ADVERTISED: "",
}


def sane(field: str) -> str:
    """Return a good value of a name."""
    return SANE.get(field, "Sane")


# --- one request of every code ---


def _registration(names: Names) -> bytes:
    topic = {"topicName": names("topic"), "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
    version = {"timestamp": 1, "counter": 1}
    topics = {"topicConfigTable": {names("topic"): topic}, "dataVersion": version}
    return _json({"topicConfigSerializeWrapper": topics, "filterServerList": [names("filter")]})


def _route(names: Names) -> bytes:
    queues = {"brokerName": names("brokerName"), "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
    broker = {
        "cluster": names("cluster"),
        "brokerName": names("brokerName"),
        "brokerAddrs": {"0": names("brokerAddr")},
    }
    return _json({"queueDatas": [queues], "brokerDatas": [broker]})


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


BODIES: Mapping[int, Callable[[Names], bytes]] = {
    RequestCode.REGISTER_BROKER: _registration,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: _route,
    RequestCode.QUERY_DATA_VERSION: lambda names: _json({"timestamp": 1, "counter": 1}),
    RequestCode.UPDATE_NAMESRV_CONFIG: lambda names: (
        f"{names('settingKey')}={names('settingValue')}\n".encode()
    ),
}


def make_request(code: int, names: Names) -> Command:
    """Return a whole request of a code, with the fields of all headers."""
    body = BODIES[code](names) if code in BODIES else b""
    fields = {field: names(field) for field in (*NAME_FIELDS, ADVERTISED)}
    fields |= dict.fromkeys(NUMBER_FIELDS, "0") | dict.fromkeys(TRUTH_FIELDS, "false")
    return Command(code, fields=fields | {"bodyCrc32": str(body_crc32(body))}, body=body)


def test_every_code_that_reads_a_body_is_described() -> None:
    reading = [row.code for row in SERVED if "request.body" in inspect.getsource(row.serve)]
    assert sorted(reading) == sorted(BODIES)
    assert {row.serve.__module__ for row in SERVED} == {
        module.__name__ for module in (on_admin, on_brokers, on_lookups)
    }
    assert {"topic", "brokerName", "clusterName", "namespace", "key"} <= set(NAME_FIELDS)


# --- the attacks ---


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the data folder that must stay empty."""
    folder = tmp_path / "outside"
    folder.mkdir()
    return folder


@contextmanager
def attacked(tmp_path: Path) -> Iterator[tuple[BrokerProcess, Asker]]:
    """A name server to be attacked; what must hold afterwards is checked at the end."""
    folder = tmp_path / "data"
    with namesrv_process(folder) as namesrv:
        before_mib = namesrv.own_mib()
        asker = Asker(namesrv.address)
        with closing(asker):
            yield namesrv, asker
        assert_serves(namesrv.address)
        assert namesrv.odd_log_lines() == []
        assert namesrv.metric("orbitmq_handler_errors_total") == 0, namesrv.log()[-3_000:]
        assert namesrv.metric("orbitmq_net_closes_total", reason="internal-error") == 0
        assert namesrv.own_mib() - before_mib < MEMORY_GROWTH_MIB_MAX
    with namesrv_process(folder) as again:
        with WireClient(again.address) as client:
            kept = client.ask(RequestCode.GET_KV_CONFIG, namespace="After", key="a")
            assert kept.fields["value"] == "b"
        assert_serves(again.address)
    assert_nothing_outside(tmp_path)


def assert_serves(address: str) -> None:
    """A broker can register, clients find its topic, and a key is kept."""
    after = {"topic": "After", "brokerName": "after", "brokerAddr": "127.0.0.1:1"}
    with WireClient(address) as client:
        request = make_request(RequestCode.REGISTER_BROKER, lambda one: after.get(one) or sane(one))
        registered = client.call(request)
        assert registered.code == 0, registered.remark
        route = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="After")
        assert b"after" in route.body, route.remark
        put = client.ask(RequestCode.PUT_KV_CONFIG, namespace="After", key="a", value="b")
        assert put.code == 0, put.remark


def test_hostile_names_in_all_fields_at_once_are_data(tmp_path: Path, outside: Path) -> None:
    with attacked(tmp_path) as (namesrv, asker):
        for template in HOSTILE:
            names = names_of(template.replace("{outside}", str(outside)))
            asker.ask_all([make_request(code, names) for code in CODES])
        assert asker.asked == len(HOSTILE) * len(CODES)
        print(f"S5 names: {asker.asked} requests, {namesrv.own_mib()} MiB")


def test_a_hostile_name_in_one_field_of_an_otherwise_good_request_is_data(
    tmp_path: Path, outside: Path
) -> None:
    chosen = ["", "../../outside/a", f"{outside}/evil", "a\r\nb\x1b[31m", "ж" * 20_000, "%s{0}'\""]
    fields = [*NAME_FIELDS, ADVERTISED, "filter", "settingKey", "settingValue"]
    with attacked(tmp_path) as (_namesrv, asker):
        good = asker.ask_all([make_request(code, sane) for code in CODES])
        assert sum(answer.code == 0 for answer in good) > len(good) // 2, "most of it is served"
        for field in fields:
            for serialization in (0, BINARY):
                requests = [
                    make_request(code, sane_but(field, name)) for code in CODES for name in chosen
                ]
                for request in requests:
                    request.serialization = serialization
                asker.ask_all(requests)


def sane_but(field: str, value: str) -> Names:
    """Return a chooser that is hostile in one field only."""
    return lambda one: value if one == field else sane(one)


def test_every_code_answers_without_fields_and_whatever_the_body_is(
    tmp_path: Path, outside: Path
) -> None:
    with attacked(tmp_path) as (_namesrv, asker):
        for body in bodies_of_any_kind().values():
            for code in CODES:
                fields = make_request(code, sane).fields | {"bodyCrc32": "0"}
                asker.ask_all([Command(code, body=body), Command(code, fields=fields, body=body)])
                packed = fields | {"compressed": "true"}
                asker.ask_all([Command(code, fields=packed, body=body)])


def test_every_code_answers_when_its_numbers_are_none(tmp_path: Path, outside: Path) -> None:
    with attacked(tmp_path) as (_namesrv, asker):
        for code in CODES:
            good = make_request(code, sane)
            asker.ask_all(
                [
                    Command(code, fields={**good.fields, field: value}, body=good.body)
                    for field in (*NUMBER_FIELDS, *TRUTH_FIELDS)
                    for value in WRONG_NUMBERS
                ]
            )


def test_every_code_lives_through_one_way_requests_of_any_kind(
    tmp_path: Path, outside: Path
) -> None:
    """A one-way request never gets an answer; the next ordinary one does."""
    noise = random.Random(7)
    with attacked(tmp_path) as (_namesrv, asker):
        for code in CODES:
            requests = [
                make_request(code, lambda _field: "".join(noise.choices(LETTERS, k=8)))
                for _ in range(3)
            ]
            for request in requests:
                request.flag = 2
            asker.client.send_bytes(b"".join(map(encode_command, requests)))
            (answer,) = asker.ask_all([Command(RequestCode.GET_BROKER_CLUSTER_INFO)])
            assert answer.code == 0
