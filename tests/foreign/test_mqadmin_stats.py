"""The official mqadmin asks a broker how it is: brokerStatus, clusterList, statsAll.

The judge is the tool: what it prints must be what was sent and pulled. 5.5.0's tool reads some
figures under other names than 4.9.7's, so both are asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

from orbitmq.wire.command import Command
from tests.behaviour.requests import fill, heartbeat_body, pull_request
from tests.foreign.asking import await_claim, await_topic
from tests.foreign.judged import System, judged_original
from tests.foreign.peers import AdminOutput, mqadmin_script
from tests.wire_client import WireClient

pytestmark = [pytest.mark.nightly("clients"), pytest.mark.foreign]

PUT_COUNT, GOT_COUNT = 30, 20
VIEW_STATS = 315
SAMPLE_LIMIT_S = 30.0
VERSIONS = ("4.9.7", "5.5.0")
STEPS: Mapping[str, str] = {
    "status": "brokerStatus -b {broker}",
    "status by cluster": "brokerStatus -c DefaultCluster",
    "clusters": "clusterList",
    "totals": "clusterList -m",
    "stats": "statsAll -t {topic}",
}
"""What is run on the system under test alone."""


@dataclass(frozen=True)
class Told:
    """What the tool of a version printed, by command."""

    version: str
    topic: str
    group: str
    broker: str
    said: dict[str, AdminOutput]


@pytest.fixture(scope="module", params=VERSIONS)
def told(request: pytest.FixtureRequest, system: System, fresh_name: Callable[[str], str]) -> Told:
    topic, group = fresh_name("stats"), fresh_name("reader")
    with WireClient(system.broker) as client:
        fill(client, topic, [b"x" * 100] * PUT_COUNT)
        # Tools find the brokers of a group by the route of its retry topic: a member makes it.
        client.call(Command(34, body=heartbeat_body("stats-reader", group, topic)))
        await_topic(system.namesrv, f"%RETRY%{group}", "broker-a")
        pull = pull_request(topic, group, 0, maxMsgNums=GOT_COUNT)
        assert client.call(pull).code == 0
        assert (
            client.ask(15, consumerGroup=group, topic=topic, queueId=0, commitOffset=GOT_COUNT).code
            == 0
        )
        # The figures are sampled every 10 s, and shown from the next sample on.
        await_claim(
            lambda: b'"sum":0' not in _minute(client, topic, group),
            "the figures of the last minute show",
            SAMPLE_LIMIT_S,
        )
        steps = [step.format(broker=system.broker, topic=topic) for step in STEPS.values()]
        commands = [[*step.split(), "-n", system.namesrv] for step in steps]
        printed = mqadmin_script(request.param, commands)
    return Told(request.param, topic, group, system.broker, dict(zip(STEPS, printed, strict=True)))


def _minute(client: WireClient, topic: str, group: str) -> bytes:
    key = f"{topic}@{group}"
    body = client.ask(VIEW_STATS, statsName="GROUP_GET_NUMS", statsKey=key).body
    return body.partition(b'"statsMinute"')[2]


def status_of(told: Told) -> dict[str, str]:
    lines = told.said["status"].out.splitlines()
    rows = (line.partition(":") for line in lines if ":" in line)
    return {key.strip(): value.strip() for key, _, value in rows}


def test_broker_status_prints_the_whole_table(told: Told) -> None:
    status = status_of(told)
    assert told.said["status"].err == ""
    assert int(status["msgPutTotalTodayNow"]) >= PUT_COUNT
    assert int(status["msgGetTotalTodayNow"]) >= GOT_COUNT
    assert re.match(r"\[ 0 days, 0 hours, \d+ minutes, \d+ seconds \]", status["runtime"])
    assert status["commitLogMinOffset"] == "0"
    assert list(status) == sorted(status)


def test_broker_status_by_cluster_finds_the_broker(told: Told) -> None:
    lines = told.said["status by cluster"].out.splitlines()
    rows = [line for line in lines if "putMessageTimesTotal" in line]
    assert len(rows) == 1
    assert rows[0].startswith(told.broker)


def test_cluster_list_reads_rates_ages_and_space(told: Told) -> None:
    said = told.said["clusters"]
    assert said.err == ""
    row = said.out.splitlines()[-1].split()
    assert row[0] == "DefaultCluster"
    assert row[3] == told.broker
    assert row[4].startswith("V")
    assert re.match(r"\d+\.\d\d\(0,0ms", row[5])
    assert re.search(r" [01]\.\d{4}", said.out.splitlines()[-1])


def test_cluster_totals_count_what_was_put_and_got_today(told: Told) -> None:
    said = told.said["totals"]
    assert said.err == ""
    yesterday_in, yesterday_out, today_in, today_out = map(
        int, said.out.splitlines()[-1].split()[-4:]
    )
    assert (yesterday_in, yesterday_out) == (0, 0)
    assert today_in >= PUT_COUNT
    assert today_out >= GOT_COUNT


def test_stats_all_shows_accumulation_rates_and_counts(told: Told) -> None:
    said = told.said["stats"]
    rows = [line.split() for line in said.out.splitlines() if line.startswith(told.topic)]
    assert rows, said
    topic, group, accumulation, in_tps, out_tps, in_count, out_count = rows[0]
    assert (topic, group) == (told.topic[:64], told.group[:64])
    # 5.5.0's tool asks whether the topic is a static one (351), which a broker of 4.9.7 refuses.
    is_refused = told.version == "5.5.0" and judged_original() == "4.9.7"
    assert int(accumulation) == (0 if is_refused else PUT_COUNT - GOT_COUNT)
    assert (int(in_count), int(out_count)) == (PUT_COUNT, GOT_COUNT)
    assert 0 < float(in_tps) <= PUT_COUNT / 10
    assert 0 < float(out_tps) <= GOT_COUNT / 10
