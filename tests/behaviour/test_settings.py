"""Settings over the network: 26 shows them all, 25 changes some of them.

The same tests run against an original (ORBITMQ_JUDGE=original-4.9.7). Where OrbitMQ differs on
purpose, the test says so and asks only OrbitMQ.
"""

import json

import pytest

from orbitmq.config import parse_properties
from tests.behaviour.requests import send_request
from tests.foreign.judged import System, judged_original
from tests.wire_client import WireClient

UPDATE, GET = 25, 26

only_here = pytest.mark.skipif(
    judged_original() is not None, reason="the original takes everything with 0"
)


@pytest.fixture
def client(system: System) -> WireClient:
    return WireClient(system.broker)


def shown(client: WireClient) -> dict[str, str]:
    answer = client.ask(GET)
    assert answer.code == 0
    return parse_properties(answer.body)


def test_all_settings_are_shown_with_their_version(client: WireClient, system: System) -> None:
    with client:
        answer = client.ask(GET)
        table = shown(client)
    assert answer.remark is None
    assert set(answer.fields) == {"version"}
    assert set(json.loads(answer.fields["version"])) == {"counter", "timestamp"}
    assert table["brokerName"] == "broker-a"
    assert table["listenPort"] == system.broker.rpartition(":")[2]
    assert table["haListenPort"] == str(int(table["listenPort"]) + 1)
    assert table["brokerIP1"] == "127.0.0.1"
    assert table["storePathCommitLog"] == table["storePathRootDir"] + "/commitlog"
    assert table["namesrvAddr"] == system.namesrv
    assert len(table) > 170


def test_a_change_is_in_force_at_once_and_counted(client: WireClient) -> None:
    with client:
        before = json.loads(client.ask(GET).fields["version"])["counter"]
        changed = client.ask(UPDATE, b"maxMessageSize=2048\nbrokerPermission=6\n")
        try:
            assert (changed.code, changed.remark, changed.body) == (0, None, b"")
            assert shown(client)["maxMessageSize"] == "2048"
            assert json.loads(client.ask(GET).fields["version"])["counter"] == before + 1
            assert client.call(send_request("SettingsTopic", bytes(2049))).code == 13
            assert client.call(send_request("SettingsTopic", bytes(2000))).code == 0
        finally:
            assert client.ask(UPDATE, b"maxMessageSize=4194304\n").code == 0
        assert client.call(send_request("SettingsTopic", bytes(4096))).code == 0


def test_an_empty_change_succeeds_and_is_not_counted(client: WireClient) -> None:
    with client:
        before = client.ask(GET).fields["version"]
        assert client.ask(UPDATE, b"").code == 0
        assert client.ask(GET).fields["version"] == before


def test_a_text_that_is_no_properties_is_refused(client: WireClient) -> None:
    with client:
        answer = client.ask(UPDATE, b"\xff\xfe bad \\u12")
    assert answer.code == 1
    assert answer.remark


@only_here
@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        (b"listenPort=99\n", 16, "listenPort"),
        (b"storePathRootDir=/etc\n", 16, "storePathRootDir"),
        (b"namesrvAddr=192.0.2.1:9876\n", 16, "namesrvAddr"),
        (b"flushDiskType=SYNC_FLUSH\n", 16, "flushDiskType"),
        (b"nosuchkey=1\n", 16, "nosuchkey"),
        (b"maxMessageSiz=2048\n", 16, "maxMessageSize"),
        (b"sendMessageThreadPoolNums=9\n", 16, "there is no pool of threads"),
        (b"maxMessageSize=abc\n", 1, "maxMessageSize=abc"),
        (b"maxMessageSize=1\n", 1, "from 1024 to"),
        (b"deleteWhen=25\n", 1, "deleteWhen"),
        (b"traceOn=maybe\n", 1, "true or false"),
    ],
)
def test_what_may_not_be_changed_is_refused_by_name(
    client: WireClient, text: bytes, code: int, named: str
) -> None:
    """Difference: the original answers 0 to all of these, and obeys the first four at once."""
    with client:
        before = client.ask(GET)
        answer = client.ask(UPDATE, text + b"fileReservedTime=71\n")
        after = client.ask(GET)
    assert answer.code == code
    assert named in str(answer.remark)
    assert (after.body, after.fields) == (before.body, before.fields)  # all or nothing


@only_here
def test_no_command_can_be_set_over_the_network(client: WireClient, system: System) -> None:
    """The request of CVE-2023-33246: a filter server's start command through rocketmqHome.

    Difference: 4.9.7 keeps such values (it no longer has filter servers); here they are refused.
    """
    text = b"filterServerNums=1\nrocketmqHome=-c $@|sh . echo touch /tmp/orbitmq-pwned;\n"
    with client:
        answer = client.ask(UPDATE, text)
        table = shown(client)
    assert answer.code == 16
    assert "filterServerNums" in str(answer.remark)
    assert "rocketmqHome" in str(answer.remark)
    assert (table["filterServerNums"], table["rocketmqHome"]) == ("0", "")
