"""S2, settings cannot become commands or paths: every key over the network, every kind of value.

Method: a broker of its own is sent changes (25) of every key that it shows, with values at the ends
of their ranges, of wrong types and from published attacks. It answers everything and keeps serving;
its own file then holds nothing but known keys with values that a start accepts.
"""

import re
from pathlib import Path
from typing import get_args

import pytest

from orbitmq.config import BrokerSettings, parse_properties
from orbitmq.config.settings import Fact, facts_of
from orbitmq.wire.command import Command
from tests.behaviour.requests import pull_request, send_request
from tests.reliability.processes import BrokerProcess, broker_process
from tests.wire_client import WireClient

CHANGE, SHOW = 25, 26
CHANGEABLE = [one for one in facts_of(BrokerSettings) if one.changeable]
DANGEROUS = re.compile(
    "[Pp]ath|Dir|[Aa]ddr|[Hh]ost|IP|Port|Home|Class|Command|[Tt]ls|Cert|PlugIn|Url"
)
ATTACKS = [
    "-c $@|sh . echo touch {evil};",
    "`touch {evil}`",
    "$(touch {evil})",
    "; touch {evil} #",
    "{evil}",
    "../../../../evil",
    "file://{evil}",
    "${{jndi:ldap://127.0.0.1:1/a}}",
    "#{{T(java.lang.Runtime).getRuntime().exec('touch {evil}')}}",
    "a\\nlistenPort=1",
    "\\u000alistenPort=1",
    "\\u0000",
    "%s%n",
    "9" * 5_000,
]
COMMANDS = ["rocketmqHome", "filterServerNums", "storePathRootDir", "storePathCommitLog"]
COMMANDS += ["kvConfigPath", "configStorePath", "configStorePathName", "namesrvAddr", "brokerIP1"]
COMMANDS += ["haMasterAddress", "messageStorePlugIn", "aclEnable", "listenPort", "bindAddress"]


def test_nothing_that_names_a_file_an_address_or_a_program_is_changeable() -> None:
    assert [one.key for one in CHANGEABLE if DANGEROUS.search(one.key)] == []
    others = {one.key for one in facts_of(BrokerSettings)} - {one.key for one in CHANGEABLE}
    assert len([key for key in others if DANGEROUS.search(key)]) > 10, "the pattern finds such keys"
    texts = [one.key for one in CHANGEABLE if one.kind is str]
    assert texts == ["deleteWhen"], "a text is checked by hand: see check_settings"
    assert len(CHANGEABLE) > 30


def good_values(one: Fact) -> list[str]:
    if one.kind is bool:
        return ["true", "false", "TRUE"]
    if one.kind is int:
        return [str(one.least), str(one.most)]
    return list(get_args(one.kind)) or ["00", "00;23", ""]


def bad_values(one: Fact) -> list[str]:
    wrong = ["x", "1.5", "0x10", "1e3", "٣", "[]", "null", "true;false", "9" * 40]
    if one.kind is bool:
        return [*wrong, "1", "yes", ""]
    if one.kind is int:
        return [*wrong, "", str((one.least or 0) - 1), str((one.most or 0) + 1), "-"]
    return ["24", "4;x", "-1", "04\\n05", "/etc", "x" * 5_000]


def change(client: WireClient, key: str, value: str) -> Command:
    return client.ask(CHANGE, f"{key}={value}\n".encode())


def shown(client: WireClient) -> dict[str, str]:
    return parse_properties(client.ask(SHOW).body)


def is_serving(client: WireClient) -> bool:
    """Whether sends and pulls are answered, by whatever code."""
    return (
        client.call(send_request("S2")).code >= 0
        and client.call(pull_request("S2", "G", 0)).code >= 0
    )


@pytest.mark.timeout(120)
def test_every_changeable_key_is_typed_and_every_allowed_value_harmless(tmp_path: Path) -> None:
    with broker_process(tmp_path / "data") as broker, WireClient(broker.address) as client:
        start = shown(client)
        for one in CHANGEABLE:
            for value in bad_values(one):
                refused = change(client, one.key, value)
                assert refused.code == 1, (one.key, value)
                assert one.key in str(refused.remark)
            assert shown(client) == start
            for value in good_values(one):
                assert change(client, one.key, value).code == 0, (one.key, value)
                assert is_serving(client), (one.key, value)
            assert change(client, one.key, start[one.key]).code == 0
        assert shown(client) == start
        assert client.call(send_request("S2")).code == 0
        check_unharmed(broker)
        kept = parse_properties((tmp_path / "data/store/config/broker.properties").read_bytes())
        assert kept == {one.key: start[one.key] for one in CHANGEABLE}
    with broker_process(tmp_path / "data") as broker, WireClient(broker.address) as client:
        assert client.call(send_request("S2")).code == 0


def check_unharmed(broker: BrokerProcess) -> None:
    assert broker.metric("orbitmq_handler_errors_total") == 0
    assert broker.odd_log_lines() == []


@pytest.mark.timeout(120)
def test_published_attacks_change_nothing(tmp_path: Path) -> None:
    """CVE-2023-33246 and CVE-2023-37582 with every key there is, and with keys that are none."""
    evil = tmp_path / "evil"
    with broker_process(tmp_path / "data") as broker, WireClient(broker.address) as client:
        start = shown(client)
        changeable = {one.key for one in CHANGEABLE}
        for key in [*start, *COMMANDS, "a/b", "..", "key with blanks", "ключ"]:
            for attack in ATTACKS:
                answer = change(client, key, attack.format(evil=evil))
                assert answer.code == (1 if key in changeable else 16), (key, attack)
                assert "\n" not in str(answer.remark)
        assert shown(client) == start
        check_unharmed(broker)
        assert not (tmp_path / "data/store/config/broker.properties").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
