"""Administration over a real socket: key-value settings, permissions, deletion, settings."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from orbitmq.config import parse_properties
from orbitmq.errors import DiskFull
from orbitmq.net import saving
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import FLAG_ONEWAY, Command
from orbitmq.world.files import SystemFiles
from tests.namesrv.conftest import Run
from tests.namesrv.registering import body, topic
from tests.namesrv.serving import ask, connected, name_server, register
from tests.net.running import until

PUT, GET = RequestCode.PUT_KV_CONFIG, RequestCode.GET_KV_CONFIG
DELETE, LIST = RequestCode.DELETE_KV_CONFIG, RequestCode.GET_KVLIST_BY_NAMESPACE
UPDATE, SHOW = RequestCode.UPDATE_NAMESRV_CONFIG, RequestCode.GET_NAMESRV_CONFIG
ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC


def test_a_key_is_put_read_listed_deleted_and_kept_in_the_original_s_file(
    run: Run, tmp_path: Path
) -> None:
    async def scenario() -> None:
        file = tmp_path / "kvConfig.json"
        async with name_server(tmp_path) as site, connected(site.port) as client:
            assert (await ask(client, PUT, namespace="n", key="k", value="v")).code == 0
            assert json.loads(file.read_bytes()) == {"configTable": {"n": {"k": "v"}}}
            assert (await ask(client, GET, namespace="n", key="k")).fields == {"value": "v"}
            listed = await ask(client, LIST, namespace="n")
            assert json.loads(listed.body) == {"table": {"k": "v"}}
            assert (await ask(client, DELETE, namespace="n", key="k")).code == 0
            missing = await ask(client, GET, namespace="n", key="k")
            assert missing.code == 22
            assert missing.remark == "No config item, Namespace: n Key: k"
            assert json.loads((await ask(client, LIST, namespace="n")).body) == {"table": {}}
            nothing = await ask(client, LIST, namespace="x")
            assert (nothing.code, nothing.remark) == (22, "No config item, Namespace: x")
            assert (await ask(client, DELETE, namespace="x", key="k")).code == 0
            assert json.loads(file.read_bytes()) == {"configTable": {"n": {}}}

    run(scenario())


def test_keys_survive_a_restart_and_routes_do_not(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            await register(client)
            await ask(client, PUT, namespace="n", key="ключ", value="line\nbreak")
        async with name_server(tmp_path) as site, connected(site.port) as client:
            answer = await ask(client, GET, namespace="n", key="ключ")
            assert answer.fields == {"value": "line\nbreak"}
            assert site.state.routes.broker_count == 0
            assert (await ask(client, ROUTE, topic="T1")).code == 17

    run(scenario())


def test_the_file_may_be_somewhere_else(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "elsewhere.json"
        path.write_bytes(b'{"configTable":{"n":{"k":"old"}}}')
        async with (
            name_server(tmp_path / "data", kvConfigPath=str(path)) as site,
            connected(site.port) as client,
        ):
            assert (await ask(client, GET, namespace="n", key="k")).fields == {"value": "old"}
            await ask(client, PUT, namespace="n", key="k", value="new")
            assert b"new" in path.read_bytes()

    run(scenario())


@pytest.mark.parametrize("field", ["namespace", "key", "value"])
def test_a_missing_field_is_named_and_nothing_is_stored(
    run: Run, tmp_path: Path, field: str
) -> None:
    """Both originals answer 0 and store a null."""

    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            fields: dict[str, Any] = {"namespace": "n", "key": "k", "value": "v"}
            del fields[field]
            answer = await ask(client, PUT, **fields)
            assert answer.code == 1
            assert field in str(answer.remark)
            assert not (tmp_path / "kvConfig.json").exists()

    run(scenario())


def test_a_one_way_change_is_made_without_an_answer(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            fields = {"namespace": "n", "key": "k", "value": "v"}
            client.ask(Command(int(PUT), flag=FLAG_ONEWAY, fields=fields))
            assert (await ask(client, PUT, namespace="n", key="k2", value="v2")).code == 0
            assert (await ask(client, GET, namespace="n", key="k")).fields == {"value": "v"}

    run(scenario())


class FullDisk(SystemFiles):
    """A disk that takes no more of one file."""

    def replace(self, path: Path, data: bytes, *, keep_backup: bool = False) -> None:
        raise DiskFull(f"cannot replace {path}: no space left; free space on that disk")


def test_a_change_that_cannot_be_written_is_refused_and_not_shown(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            name_server(tmp_path, FullDisk()) as site,
            connected(site.port) as client,
        ):
            answer = await ask(client, PUT, namespace="n", key="k", value="v")
            assert answer.code == 14
            assert "no space left" in str(answer.remark)
            assert (await ask(client, GET, namespace="n", key="k")).code == 22
            changed = await ask(client, UPDATE, b"orderMessageEnable=true")
            assert changed.code == 14
            assert not site.state.settings.now.order_message_enable

    run(scenario())


class SlowDisk(SystemFiles):
    """A disk that writes only when it is let."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.begun = threading.Event()

    def replace(self, path: Path, data: bytes, *, keep_backup: bool = False) -> None:
        self.begun.set()
        assert self.let_go.wait(10)
        super().replace(path, data, keep_backup=keep_backup)


def test_a_slow_disk_holds_up_nobody_else_and_the_changes_keep_their_order(
    run: Run, tmp_path: Path
) -> None:
    async def scenario() -> None:
        disk = SlowDisk()
        async with (
            name_server(tmp_path, disk) as site,
            connected(site.port) as writer,
            connected(site.port) as reader,
        ):
            for number in range(3):
                fields = {"namespace": "n", "key": "k", "value": str(number)}
                writer.ask(Command(int(PUT), opaque=number, fields=fields))
            await until(disk.begun.is_set)
            assert (await ask(reader, GET, namespace="n", key="k")).code == 22
            disk.let_go.set()
            assert [(await writer.answer()).opaque for _ in range(3)] == [0, 1, 2]
            assert (await ask(reader, GET, namespace="n", key="k")).fields == {"value": "2"}

    run(scenario())


def test_the_number_of_waiting_changes_is_bounded(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "WAITING_MAX", 2)

    async def scenario() -> None:
        disk = SlowDisk()
        async with name_server(tmp_path, disk) as site, connected(site.port) as client:
            fields = {"namespace": "n", "key": "k", "value": "v"}
            client.ask(Command(int(PUT), opaque=0, fields=fields))
            await until(disk.begun.is_set)
            for number in range(1, 4):
                client.ask(Command(int(PUT), opaque=number, fields=fields))
            busy = await client.answer()
            assert (busy.opaque, busy.code) == (3, 2)
            assert str(busy.remark).startswith("[OVERLOAD]system busy")
            disk.let_go.set()
            assert [(await client.answer()).code for _ in range(3)] == [0, 0, 0]

    run(scenario())


def test_a_stop_waits_for_changes_under_way_and_answers_them(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = SlowDisk()
        async with name_server(tmp_path, disk) as site, connected(site.port) as client:
            fields = {"namespace": "n", "key": "k", "value": "v"}
            client.ask(Command(int(PUT), opaque=5, fields=fields))
            await until(disk.begun.is_set)
            stopping = asyncio.create_task(site.server.stop())
            await asyncio.sleep(0)
            assert not stopping.done()
            disk.let_go.set()
            assert (await client.answer()).code == 0
            await stopping
        assert b'"k":"v"' in (tmp_path / "kvConfig.json").read_bytes()

    run(scenario())


def test_a_disk_that_takes_too_long_is_said_and_the_outcome_left_open(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "TIMEOUT_S", 0.01)

    async def scenario() -> None:
        disk = SlowDisk()
        async with name_server(tmp_path, disk) as site, connected(site.port) as client:
            answer = await ask(client, PUT, namespace="n", key="k", value="v")
            assert answer.code == 1
            assert "it may still be" in str(answer.remark)
            disk.let_go.set()
            await site.state.savers.finish()
            assert (await ask(client, GET, namespace="n", key="k")).code == 0

    run(scenario())


# --- permissions and deletion ---


def test_write_permission_is_wiped_and_added_with_counts(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            await register(client, data=body(topic("T1", perm=7), topic("T2")))
            wiped = await ask(client, RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")
            assert (wiped.code, wiped.fields) == (0, {"wipeTopicCount": "2"})
            route = json.loads((await ask(client, ROUTE, topic="T1")).body)
            assert route["queueDatas"][0]["perm"] == 5
            added = await ask(client, RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="broker-a")
            assert (added.code, added.fields) == (0, {"addTopicCount": "2"})
            unknown = await ask(client, RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="zz")
            assert (unknown.code, unknown.fields) == (0, {"wipeTopicCount": "0"})
            assert "no broker zz is registered" in str(unknown.remark)

    run(scenario())


def test_a_deleted_topic_has_no_route(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            await register(client)
            code = RequestCode.DELETE_TOPIC_IN_NAMESRV
            assert (await ask(client, code, topic="T1", clusterName="C9")).code == 0
            assert (await ask(client, ROUTE, topic="T1")).code == 0
            assert (await ask(client, code, topic="T1", clusterName="C1")).code == 0
            gone = await ask(client, ROUTE, topic="T1")
            assert gone.code == 17
            assert "It was deleted here" in str(gone.remark)
            assert (await ask(client, code, topic="never")).code == 0

    run(scenario())


# --- settings (S2) ---


def test_a_changed_setting_shows_at_once_and_survives_a_restart(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            shown = parse_properties((await ask(client, SHOW)).body)
            assert shown["orderMessageEnable"] == "false"
            assert (await ask(client, UPDATE, b"orderMessageEnable=true")).code == 0
            shown = parse_properties((await ask(client, SHOW)).body)
            assert shown["orderMessageEnable"] == "true"
        assert (tmp_path / "namesrv.properties").read_text() == "orderMessageEnable=true\n"

    run(scenario())


def test_all_settings_are_shown_those_without_effect_and_unknown_ones_too(
    run: Run, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with (
            name_server(tmp_path, serverWorkerThreads="12", myOwnKey="kept") as site,
            connected(site.port) as client,
        ):
            shown = parse_properties((await ask(client, SHOW)).body)
            assert shown["serverWorkerThreads"] == "12"
            assert shown["myOwnKey"] == "kept"
            assert shown["kvConfigPath"] == str(tmp_path / "kvConfig.json")
            assert shown["listenPort"] == str(site.port)

    run(scenario())


FORBIDDEN = [
    "kvConfigPath=/etc/cron.d/evil",
    "configStorePath=/etc/cron.d/evil",
    "configStorePathName=/etc/cron.d/evil",
    "rocketmqHome=/tmp/evil",
    "rocketmqHome=-c $@|sh . echo curl evil",
    "listenPort=1",
    "bindAddress=0.0.0.0",
    "tls.server.keyPath=/etc/shadow",
    "tls.server.mode=disabled",
    "configBlackList=x",
    "brokersMax=1",
    "noSuchKey=1",
    "orderMessageEnable=true\nlistenPort=1",
]


@pytest.mark.parametrize("text", FORBIDDEN)
def test_settings_that_are_not_changeable_are_refused_with_the_key_named(
    run: Run, tmp_path: Path, text: str
) -> None:
    """The attacks of CVE-2023-37582 and CVE-2023-33246, and their neighbours."""

    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            before = (await ask(client, SHOW)).body
            answer = await ask(client, UPDATE, text.encode())
            assert answer.code == 16
            assert text.split("\n")[-1].split("=")[0] in str(answer.remark)
            assert (await ask(client, SHOW)).body == before
            assert sorted(path.name for path in tmp_path.iterdir()) == ["lock"]

    run(scenario())


def test_a_changeable_setting_with_a_wrong_value_is_refused(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            answer = await ask(client, UPDATE, b"orderMessageEnable=perhaps")
            assert answer.code == 1
            assert "expected true or false" in str(answer.remark)
            latin = await ask(client, UPDATE, b"orderMessageEnable=\xff")
            assert latin.code == 1
            assert "UTF-8" in str(latin.remark)
            assert (await ask(client, UPDATE, b"")).code == 0

    run(scenario())


def test_a_flood_of_unknown_keys_costs_little(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as client:
            keys = "".join(f"someLongUnknownKey{number}=1\n" for number in range(1_999))
            answer = await ask(client, UPDATE, keys.encode())
            assert answer.code == 16
            assert "1979 more unknown settings" in str(answer.remark)
            more = "".join(f"k{number}=1\n" for number in range(2_001))
            assert "more than 2000 keys" in str((await ask(client, UPDATE, more.encode())).remark)

    run(scenario())
