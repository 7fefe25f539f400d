"""Brokers over a real socket: register, stay, leave; and strangers who try it for them."""

import asyncio
import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from orbitmq.namesrv.namesrv import Timer
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import FLAG_ONEWAY
from orbitmq.wire.fields import write_header
from orbitmq.wire.headers_namesrv import RegisterBroker
from tests.namesrv.conftest import Run
from tests.namesrv.registering import SLAVE, TWO, body, header, topic, version
from tests.namesrv.serving import (
    LOCAL,
    Client,
    Site,
    ask,
    connected,
    name_server,
    register,
    register_request,
)
from tests.net.running import until

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
PLAN: dict[str, Any] = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T1", "value": "broker-a:4"}
NAMES: dict[str, Any] = {
    "brokerName": "broker-a",
    "brokerAddr": LOCAL,
    "clusterName": "C1",
    "brokerId": "0",
}


def local(**changes: Any) -> RegisterBroker:
    return header(address=LOCAL, **changes)


def departures(site: Site, reason: str) -> int:
    counters = site.registry.counters("orbitmq_namesrv_departures_total", "", "reason")
    return counters.value(reason)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_registration_is_taken_in_both_forms(run: Run, tmp_path: Path, compressed: bool) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            answer = await register(client, compressed=compressed)
            assert (answer.code, answer.fields, answer.body) == (0, {}, b"")
            assert set(site.state.routes.topics().topic_list) == {"T1", "T2"}

    run(scenario())


def test_registrations_are_applied_one_at_a_time_and_no_look_up_sees_half_of_one(
    run: Run, tmp_path: Path
) -> None:
    """Two brokers change all their topics again and again; each look-up sees one state of each."""
    names = [f"T{number}" for number in range(100)]

    async def change(client: Client, name: str, address: str, rounds: int) -> None:
        for number in range(1, rounds + 1):
            topics = [topic(f"{name}-{number}-{each}") for each in names]
            head = header(name, address)
            answer = await register(client, head, body(*topics, data_version=version(number)))
            assert answer.code == 0

    async def scenario() -> None:
        async with (
            name_server(tmp_path) as site,
            connected(site.port) as one,
            connected(site.port) as other,
            connected(site.port) as reader,
        ):
            changing = asyncio.gather(
                change(one, "a", LOCAL, 20), change(other, "b", "127.0.0.1:10921", 20)
            )
            looks = 0
            while not changing.done() or not looks:
                listed = await ask(reader, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
                found = json.loads(listed.body)["topicList"]
                states = Counter(each.rpartition("-")[0] for each in found)
                assert set(states.values()) <= {len(names)}
                looks += 1
            await changing
            assert looks > 10
            assert len(site.state.routes.topics().topic_list) == 2 * 20 * len(names)

    run(scenario())


def test_a_body_that_was_damaged_on_the_way_is_refused(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            answer = await register(client, bodyCrc32="5")
            assert (answer.code, answer.remark) == (1, "crc32 not match")
            assert site.state.routes.broker_count == 0
            assert (await register(client, bodyCrc32="0")).code == 0

    run(scenario())


def test_a_slave_is_answered_with_its_master_s_addresses(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            await register(client, local(ha="127.0.0.1:10912"))
            answer = await register(client, header(address=SLAVE, broker_id=1))
            assert answer.fields == {"haServerAddr": "127.0.0.1:10912", "masterAddr": LOCAL}

    run(scenario())


def test_a_registration_is_answered_with_the_plans_of_ordered_topics(
    run: Run, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            plan: dict[str, Any] = {
                "namespace": "ORDER_TOPIC_CONFIG",
                "key": "T1",
                "value": "broker-a:4",
            }
            await ask(client, RequestCode.PUT_KV_CONFIG, **plan)
            answer = await register(client)
            assert json.loads(answer.body) == {"table": {"T1": "broker-a:4"}}
            update = RequestCode.UPDATE_NAMESRV_CONFIG
            await ask(client, update, b"returnOrderTopicConfigToBroker=false")
            assert (await register(client)).body == b""

    run(scenario())


def test_refused_topics_are_named_to_the_broker(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            wrong = [topic(f"B{number}", queues=-1) for number in range(5)]
            answer = await register(client, data=body(topic("Good"), *wrong))
            assert answer.code == 0
            assert "allowed 0 to 65536" in str(answer.remark)
            assert "and 2 more topics" in str(answer.remark)
            refused = await ask(client, ROUTE, topic="B0")
            assert "broker broker-a cannot have topic B0" in str(refused.remark)

    run(scenario())


@pytest.mark.parametrize("field", ["brokerName", "brokerAddr", "clusterName", "brokerId"])
@pytest.mark.parametrize(
    "code",
    [
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.QUERY_DATA_VERSION,
    ],
)
def test_a_missing_field_of_a_broker_s_request_is_named(
    run: Run, tmp_path: Path, code: RequestCode, field: str
) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            fields: dict[str, Any] = {**NAMES, "haServerAddr": "h:1"}
            del fields[field]
            answer = await ask(client, code, **fields)
            assert answer.code == 1
            assert field in str(answer.remark)
            assert site.state.routes.broker_count == 0

    run(scenario())


def test_a_one_way_registration_counts_and_gets_no_answer(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            oneway = register_request(data=body(topic("New"), topic("T1")))
            oneway.flag = FLAG_ONEWAY
            client.ask(oneway)
            answer = await ask(client, ROUTE, topic="New")
            assert answer.code == 0
            broken = register_request(bodyCrc32="5")
            broken.flag = FLAG_ONEWAY
            client.ask(broken)
            assert (await ask(client, 999)).code == 3

    run(scenario())


def test_a_closed_connection_removes_its_broker_at_once(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            async with connected(site.port) as broker:
                await register(broker)
                assert (await ask(client, ROUTE, topic="T1")).code == 0
            await until(lambda: site.state.routes.broker_count == 0)
            assert (await ask(client, ROUTE, topic="T1")).code == 17
            assert departures(site, "connection closed") == 1

    run(scenario())


def test_a_silent_broker_is_removed_by_the_scan_and_its_connection_closed(
    run: Run, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with (
            name_server(tmp_path, scanNotActiveBrokerInterval="100") as site,
            connected(site.port) as broker,
            connected(site.port) as client,
        ):
            await register(broker)
            site.clock.now_s += 120.0
            site.state.expire()
            assert site.state.routes.broker_count == 1
            site.clock.now_s += 0.1
            assert await broker.ended() == b""  # closed by the scan itself
            assert departures(site, "silent") == 1
            assert (await ask(client, ROUTE, topic="T1")).code == 17

    run(scenario())


def test_a_connection_with_another_live_broker_is_not_closed_by_the_scan(
    run: Run, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as broker:
            await register(broker)
            await register(broker, header("broker-b", SLAVE))
            site.clock.now_s += 100.0
            await register(broker)
            site.clock.now_s += 50.0
            site.state.expire()
            assert departures(site, "silent") == 1
            assert (await ask(broker, ROUTE, topic="T1")).code == 0

    run(scenario())


def test_the_data_version_is_compared_and_an_equal_one_is_a_sign_of_life(
    run: Run, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            code = RequestCode.QUERY_DATA_VERSION
            unknown = await ask(client, code, b'{"counter":1,"timestamp":1}', **NAMES)
            assert (unknown.fields, unknown.body) == ({"changed": "true"}, b"")
            await register(client)
            site.clock.now_s += 100.0
            same = await ask(client, code, b'{"counter":1,"timestamp":1}', **NAMES)
            assert same.fields == {"changed": "false"}
            assert json.loads(same.body) == {"counter": 1, "timestamp": 1}
            site.clock.now_s += 100.0
            site.state.expire()
            changed = await ask(client, code, b'{"counter":2,"timestamp":1}', **NAMES)
            assert changed.fields == {"changed": "true"}
            site.clock.now_s += 21.0
            site.state.expire()
            assert site.state.routes.broker_count == 0

    run(scenario())


def test_a_heartbeat_of_5x_is_a_sign_of_life(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            await register(client, local(heartbeat_timeout_ms=10_000))
            site.clock.now_s += 9.0
            assert (await ask(client, RequestCode.BROKER_HEARTBEAT, **NAMES)).code == 0
            site.clock.now_s += 9.0
            site.state.expire()
            assert site.state.routes.broker_count == 1
            site.clock.now_s += 9.0
            site.state.expire()
            assert site.state.routes.broker_count == 0

    run(scenario())


def test_the_member_group_of_5x(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            await register(client)
            fields: dict[str, Any] = {"clusterName": "C1", "brokerName": "broker-a"}
            answer = await ask(client, RequestCode.GET_BROKER_MEMBER_GROUP, **fields)
            group = {"brokerAddrs": {"0": LOCAL}, "brokerName": "broker-a", "cluster": "C1"}
            assert json.loads(answer.body) == {"brokerMemberGroup": group}

    run(scenario())


def test_a_5x_broker_registers_one_topic(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            name_server(tmp_path) as site,
            connected(site.port) as broker,
            connected(site.port) as stranger,
        ):
            await register(broker)
            queues = {"brokerName": "broker-a", "perm": 6, "readQueueNums": 3, "writeQueueNums": 3}
            data = json.dumps({"queueDatas": [queues], "brokerDatas": []}).encode()
            code = RequestCode.REGISTER_TOPIC_IN_NAMESRV
            assert (await ask(stranger, code, data, topic="New")).code == 16
            assert (await ask(broker, code, data, topic="New")).code == 0
            assert (await ask(stranger, ROUTE, topic="New")).code == 0

    run(scenario())


def test_a_stranger_neither_takes_over_nor_unregisters_a_live_broker(
    run: Run, tmp_path: Path
) -> None:
    """Seen on 4.9.7 and 5.5.0: both let anyone register under a broker's name, or remove it."""

    async def scenario() -> None:
        async with (
            name_server(tmp_path) as site,
            connected(site.port) as broker,
            connected(site.port) as stranger,
        ):
            await register(broker)
            taken = await register(stranger, header(address="10.6.6.6:1"))
            assert taken.code == 16
            assert LOCAL in str(taken.remark)
            removed = await ask(stranger, RequestCode.UNREGISTER_BROKER, **NAMES)
            assert removed.code == 16
            answer = await ask(stranger, ROUTE, topic="T1")
            assert json.loads(answer.body)["brokerDatas"][0]["brokerAddrs"] == {"0": LOCAL}

    run(scenario())


def test_a_broker_unregisters_over_its_own_connection(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as broker:
            await register(broker)
            assert (await ask(broker, RequestCode.UNREGISTER_BROKER, **NAMES)).code == 0
            assert site.state.routes.broker_count == 0
            assert departures(site, "unregistered") == 1
            again = await ask(broker, RequestCode.UNREGISTER_BROKER, **NAMES)
            assert again.code == 0
            assert "nothing was removed" in str(again.remark)

    run(scenario())


def test_a_restarted_broker_comes_back_at_once_over_a_new_connection(
    run: Run, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with (
            name_server(tmp_path) as site,
            connected(site.port) as old,
            connected(site.port) as new,
        ):
            await register(old)
            assert (await register(new, data=body(*TWO, data_version=version(2)))).code == 0
            await old.close()
            await until(lambda: len(site.state._watched) == 1)
            assert (await ask(new, ROUTE, topic="T1")).code == 0

    run(scenario())


def test_topics_that_vanish_from_a_registration_leave_only_where_that_is_set(
    run: Run, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            await register(client, data=body(topic("T1"), topic("T2"), topic("T3")))
            less = body(topic("T1"), topic("T2"), data_version=version(2))
            await register(client, data=less)
            assert (await ask(client, ROUTE, topic="T3")).code == 0
            update = RequestCode.UPDATE_NAMESRV_CONFIG
            await ask(client, update, b"deleteTopicWithBrokerRegistration=true")
            even_less = body(topic("T1"), topic("T2"), data_version=version(3))
            await register(client, data=even_less)
            assert (await ask(client, ROUTE, topic="T3")).code == 17

    run(scenario())


def test_the_zone_of_a_5x_broker_is_shown(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            head = local(enable_acting_master=False)
            await register(client, head, __ZONE_NAME="zone-1")
            assert "enableActingMaster" in write_header(head)
            (data,) = json.loads((await ask(client, ROUTE, topic="T1")).body)["brokerDatas"]
            assert (data["zoneName"], data["enableActingMaster"]) == ("zone-1", False)

    run(scenario())


def test_brokers_and_topics_are_counted_in_the_metrics(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            await register(client)
            text = site.registry.render()
            assert "orbitmq_namesrv_brokers 1\n" in text
            assert "orbitmq_namesrv_topics 2\n" in text
            assert 'orbitmq_net_requests_total{server="namesrv",code="103"} 1\n' in text

    run(scenario())


def test_new_brokers_and_topics_are_logged_and_a_silent_broker_with_a_warning(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "orbitmq.namesrv")

    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            await register(client, local(ha="127.0.0.1:10912"))
            await register(client)
            site.clock.now_s += 121.0
            site.state.expire()

    run(scenario())
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    new_broker = "new broker registered, broker-a id 0 at 127.0.0.1:10911 HAServer: 127.0.0.1:10912"
    assert [text.startswith(new_broker) for _, text in said] == [True, False, False]
    assert said[1] == ("INFO", "new topic registered by broker-a, T1 4/4 perm 6, T2 8/8 perm 6")
    assert said[2] == ("WARNING", "broker broker-a id 0 at 127.0.0.1:10911 left: silent")


def test_a_registration_that_fails_inside_is_answered_and_harms_nobody(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            with monkeypatch.context() as broken:
                broken.setattr(site.state.routes, "register", lambda *_: 1 / 0)
                answer = await register(client)
            assert answer.code == 1
            assert "ZeroDivisionError" in str(answer.remark)
            assert (await register(client)).code == 0
            assert (await ask(client, ROUTE, topic="T1")).code == 0

    run(scenario())


def test_periodic_work_that_fails_goes_on(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        calls: list[int] = []

        def fail() -> None:
            calls.append(1)
            raise ZeroDivisionError

        loop = asyncio.get_running_loop()
        timer = Timer(loop, fail, first_s=0.0, period_s=0.001)
        await until(lambda: len(calls) >= 3)
        timer.cancel()

    run(scenario())


def test_a_removal_that_fails_leaves_the_table_free_for_the_next_request(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        calls: list[float] = []

        def fail(now_s: float) -> None:
            calls.append(now_s)
            raise ZeroDivisionError

        async with (
            name_server(tmp_path, scanNotActiveBrokerInterval="100") as site,
            connected(site.port) as client,
        ):
            await register(client)
            with monkeypatch.context() as broken:
                broken.setattr(site.state.routes, "expire", fail)
                await until(lambda: calls)
            assert (await ask(client, ROUTE, topic="T1")).code == 0
            site.clock.now_s += 121.0
            assert await client.ended() == b""  # the next scan removes it

    run(scenario())


def test_silent_brokers_are_looked_for_every_10_s_and_keys_reported_every_10_min(
    run: Run, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site:
            scan, report = site.server._timers
            assert (scan._call, scan._period_s) == (site.state.expire, 10.0)
            assert (report._call, report._period_s) == (site.server._report_kv, 600.0)
            begin_s = asyncio.get_running_loop().time()
            firsts_s = [timer._handle.when() - begin_s for timer in (scan, report)]
            assert [round(first_s) for first_s in firsts_s] == [5, 60]

    run(scenario())


def test_the_name_server_reports_its_key_value_settings(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "orbitmq.namesrv")

    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            site.server._report_kv()
            assert caplog.records == []
            await ask(client, RequestCode.PUT_KV_CONFIG, **PLAN)
            site.server._report_kv()

    run(scenario())
    assert caplog.records[-1].getMessage() == "key-value settings: ORDER_TOPIC_CONFIG 1"
