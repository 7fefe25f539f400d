"""Routes, cluster and lists over a real socket, as clients ask for them."""

import json
from pathlib import Path
from typing import Any

import pytest

from orbitmq.namesrv.requests import SERVED
from orbitmq.wire.bodies_namesrv import TopicRoute
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.fastjson import read_json
from orbitmq.wire.frame import BINARY
from tests.namesrv.conftest import Run
from tests.namesrv.registering import body, header, topic, version
from tests.namesrv.serving import LOCAL, ask, connected, name_server, register

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
PLAN: dict[str, Any] = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T1", "value": "broker-a:4"}
CLUSTER = RequestCode.GET_BROKER_CLUSTER_INFO
ALL_TOPICS = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER

QUOTED = b'"brokerAddrs":{"0":"127.0.0.1:10911"}'
BARE = b'"brokerAddrs":{0:"127.0.0.1:10911"}'


@pytest.mark.parametrize(
    ("client_version", "fields", "keys"),
    [
        (400, {}, BARE),
        (401, {}, QUOTED),
        (407, {}, QUOTED),
        (317, {}, BARE),
        (317, {"acceptStandardJsonOnly": "true"}, QUOTED),
        (0, {}, BARE),
    ],
)
def test_the_form_of_a_route_follows_the_client_s_version(
    run: Run, tmp_path: Path, client_version: int, fields: dict[str, Any], keys: bytes
) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            await register(client)
            answer = await ask(client, ROUTE, version=client_version, topic="T1", **fields)
            assert answer.code == 0
            assert keys in answer.body
            assert read_json(answer.body, TopicRoute).broker_datas[0].broker_addrs == {0: LOCAL}

    run(scenario())


def test_a_route_has_exactly_the_original_s_fields(run: Run, tmp_path: Path) -> None:
    """Field by field what 4.9.7 answered to the same registration."""

    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            await register(client)
            answer = await ask(client, ROUTE, topic="T1")
            assert answer.remark is None
            assert json.loads(answer.body) == {
                "brokerDatas": [
                    {"brokerAddrs": {"0": LOCAL}, "brokerName": "broker-a", "cluster": "C1"}
                ],
                "filterServerTable": {},
                "queueDatas": [
                    {
                        "brokerName": "broker-a",
                        "perm": 6,
                        "readQueueNums": 4,
                        "topicSysFlag": 0,
                        "writeQueueNums": 4,
                    }
                ],
            }

    run(scenario())


def test_a_request_in_binary_is_answered_in_binary(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            await register(client)
            request = Command(int(ROUTE), fields={"topic": "T1"}, serialization=BINARY)
            client.ask(request)
            assert (await client.answer()).serialization == BINARY

    run(scenario())


def test_no_route_begins_with_the_original_s_words_and_says_why(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            empty = await ask(client, ROUTE, topic="T9")
            assert empty.code == 17
            assert empty.remark is not None
            first, why = empty.remark.split("\n")
            assert first == "No topic route info in name server for the topic: T9"
            assert "No broker is registered here" in why
            await register(client)
            other = await ask(client, ROUTE, topic="T9")
            assert "No registered broker (broker-a) has this topic" in str(other.remark)

    run(scenario())


def test_a_hostile_topic_name_does_not_fill_or_break_the_answer(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            answer = await ask(client, ROUTE, topic="\n\x1b" + "x" * 100_000)
            assert answer.code == 17
            assert len(str(answer.remark)) < 400
            assert "\x1b" not in str(answer.remark)

    run(scenario())


def test_a_missing_field_is_named(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            answer = await ask(client, ROUTE)
            assert answer.code == 1
            assert "topic" in str(answer.remark)
            assert (await ask(client, ALL_TOPICS)).code == 0

    run(scenario())


def test_an_unknown_request_is_answered_with_3(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            answer = await ask(client, 999)
            assert (answer.code, answer.remark) == (3, " request type 999 not supported")

    run(scenario())


def test_every_request_of_a_name_server_has_a_handler() -> None:
    """The codes that protocol and tools of 4.9 and 5.x send to a name server."""
    classic = {100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 219, 224, 304}
    classic |= {311, 312, 313, 318, 319, 322, 327}
    assert {int(row.code) for row in SERVED} == classic | {217, 901, 904}


def test_cluster_info_in_both_forms(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            await register(client)
            assert BARE in (await ask(client, CLUSTER, version=317)).body
            answer = await ask(client, CLUSTER)
            broker = {"brokerAddrs": {"0": LOCAL}, "brokerName": "broker-a", "cluster": "C1"}
            assert json.loads(answer.body) == {
                "brokerAddrTable": {"broker-a": broker},
                "clusterAddrTable": {"C1": ["broker-a"]},
            }

    run(scenario())


def test_lists_of_topics(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            topics = (topic("U", flag=1), topic("S", flag=2), topic("US", flag=3), topic("N"))
            await register(client, data=body(*topics))
            by_code = {
                RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: ["U", "S", "US", "N"],
                RequestCode.GET_UNIT_TOPIC_LIST: ["U", "US"],
                RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: ["S", "US"],
                RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: ["S"],
            }
            for code, expected in by_code.items():
                answer = await ask(client, code)
                assert json.loads(answer.body) == {"topicList": expected}, code
            answer = await ask(client, RequestCode.GET_TOPICS_BY_CLUSTER, cluster="C1")
            assert sorted(json.loads(answer.body)["topicList"]) == ["N", "S", "U", "US"]
            answer = await ask(client, RequestCode.GET_TOPICS_BY_CLUSTER, cluster="C9")
            assert json.loads(answer.body) == {"topicList": []}
            answer = await ask(client, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
            assert json.loads(answer.body) == {
                "brokerAddr": LOCAL,
                "topicList": ["C1", "broker-a"],
            }

    run(scenario())


def test_lists_can_be_switched_off_and_on_again_over_the_network(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            name_server(tmp_path, enableAllTopicList="false") as site,
            connected(site.port) as client,
        ):
            refused = await ask(client, ALL_TOPICS)
            assert refused.code == 1
            assert "enableAllTopicList" in str(refused.remark)
            update = RequestCode.UPDATE_NAMESRV_CONFIG
            await ask(client, update, b"enableAllTopicList=true\nenableTopicList=false")
            assert (await ask(client, ALL_TOPICS)).code == 0
            units = await ask(client, RequestCode.GET_UNIT_TOPIC_LIST)
            assert "enableTopicList" in str(units.remark)

    run(scenario())


def test_routes_wait_for_brokers_where_that_is_set(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            name_server(tmp_path, needWaitForService="true") as site,
            connected(site.port) as client,
        ):
            await register(client)
            early = await ask(client, ROUTE, topic="T1")
            assert early.code == 1
            assert str(early.remark).startswith("name server not ready")
            site.clock.now_s += 45.0
            assert (await ask(client, ROUTE, topic="T1")).code == 0

    run(scenario())


def test_the_queue_plan_of_an_ordered_topic_is_in_its_route_when_enabled(
    run: Run, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            await register(client)
            plan: dict[str, Any] = {
                "namespace": "ORDER_TOPIC_CONFIG",
                "key": "T1",
                "value": "broker-a:4",
            }
            await ask(client, RequestCode.PUT_KV_CONFIG, **plan)
            assert b"orderTopicConf" not in (await ask(client, ROUTE, topic="T1")).body
            await ask(client, RequestCode.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true")
            answer = await ask(client, ROUTE, topic="T1")
            assert json.loads(answer.body)["orderTopicConf"] == "broker-a:4"
            assert b"orderTopicConf" not in (await ask(client, ROUTE, topic="T2")).body

    run(scenario())


def test_two_name_servers_know_nothing_of_each_other(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            name_server(tmp_path / "1") as one,
            name_server(tmp_path / "2") as two,
            connected(one.port) as to_one,
            connected(two.port) as to_two,
        ):
            await register(to_one)
            await register(to_two)
            changed = body(topic("T1", 9), topic("T2"), data_version=version(2))
            await register(to_one, data=changed)
            answers = [await ask(client, ROUTE, topic="T1") for client in (to_one, to_two)]
            counts = [
                json.loads(answer.body)["queueDatas"][0]["readQueueNums"] for answer in answers
            ]
            assert counts == [9, 4]
            await one.server.stop()
            assert (await ask(to_two, ROUTE, topic="T1")).code == 0

    run(scenario())


def test_a_program_starts_a_name_server_on_a_port_of_its_choice(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path / "any") as site:
            port = site.port  # free again when this one has stopped
        async with (
            name_server(tmp_path / "chosen", listenPort=str(port)) as site,
            connected(port) as client,
        ):
            assert site.port == port
            assert (await ask(client, ALL_TOPICS)).code == 0

    run(scenario())


def test_routes_are_not_pushed(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            name_server(tmp_path) as site,
            connected(site.port) as broker,
            connected(site.port) as client,
        ):
            await register(broker)
            assert (await ask(client, ROUTE, topic="T1")).code == 0
            changed = body(topic("T1", 9), topic("T2"), data_version=version(2))
            await register(broker, header(address=LOCAL), changed)
            answer = await ask(client, ROUTE, topic="T1")  # the next frame is this answer
            assert json.loads(answer.body)["queueDatas"][0]["readQueueNums"] == 9

    run(scenario())
