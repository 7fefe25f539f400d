"""The official mqadmin looks at consumers and moves them, on OrbitMQ and on an original 4.9.7.

The same groups, members and messages are made on both; then the 4.9.7 tool runs the same commands
on both and must print the same, up to addresses, times and order. The 5.5.0 tool asks for things
that a 4.9.7 broker does not know (351), so it runs on OrbitMQ alone and is judged by what it says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from tests.behaviour.consumers import BROKER_NAME, commit, fill_queues, join, queues, stored
from tests.foreign.admin_steps import error_codes, table
from tests.foreign.asking import await_topic
from tests.foreign.judged import System, judged_original
from tests.foreign.members import Member, members
from tests.foreign.peers import AdminOutput, mqadmin_script, original_broker
from tests.wire_client import WireClient

pytestmark = [pytest.mark.nightly("clients"), pytest.mark.foreign]

Names = Callable[[str], str]
CLIENT_IDS = ("10.0.0.1@1", "10.0.0.2@2")

STEPS: Mapping[str, str] = {
    "connections": "consumerConnection -g {online}",
    "connections of a stopped group": "consumerConnection -g {stopped}",
    "connections of nobody": "consumerConnection -g no_such_group",
    "producers": "producerConnection -g {producers} -t {topic}",
    "unknown producers": "producerConnection -g no_such_group -t {topic}",
    "all producers": "producer -b {broker}",
    "progress": "consumerProgress -g {online}",
    "progress by client": "consumerProgress -g {online} -s true",
    "progress of a stopped group": "consumerProgress -g {stopped}",
    "all progress": "consumerProgress",
    "status": "consumerStatus -g {online}",
    "status of one": "consumerStatus -g {online} -i 10.0.0.1@1",
    "clone": "cloneGroupOffset -s {stopped} -d {clone} -t {topic}",
    "reset running": "resetOffsetByTime -g {online} -t {topic} -s now",
    "reset back only": "resetOffsetByTime -g {online} -t {topic} -s now -f false",
    "reset to a time": "resetOffsetByTime -g {online} -t {topic} -s 1000",
    "reset stopped": "resetOffsetByTime -g {stopped} -t {topic} -s now",
    "reset unknown": "resetOffsetByTime -g no_such_group -t {topic} -s now",
    "skip": "skipAccumulatedMessage -g {clone} -t {topic}",
    "progress after all": "consumerProgress -g {stopped}",
}
STATISTICS = "broker statistics"
STATISTICS_STEP = "brokerConsumeStats -b {broker}"
"""The tool runs it only once in a JVM."""

RESETS_OF_MEMBERS = 3


@dataclass(frozen=True)
class Side:
    """One broker with the consumers on it, and what the tool said of them."""

    names: dict[str, str]
    online: list[Member]
    said: dict[str, AdminOutput]
    offsets: dict[str, list[int | None]]
    """The stored offsets of the stopped group and of its clone at the end."""


@contextmanager
def _prepared(system: System, names: Mapping[str, str]) -> Iterator[list[Member]]:
    """Make topic, groups, members and a producer."""
    topic, online, stopped = names["topic"], names["online"], names["stopped"]
    beat = b'{"clientID":"p@1","producerDataSet":[{"groupName":"%s"}]}'
    with WireClient(system.broker) as client:
        fill_queues(client, topic, [5, 3])
        join(client, "gone@1", stopped, topic)
        for group in (online, stopped):
            commit(client, group, topic, [2, 3, 0, 0])
        assert client.ask(35, clientID="gone@1", consumerGroup=stopped).code == 0
        assert client.ask(34, beat % names["producers"].encode()).code == 0
        with members(system.broker, online, topic, *CLIENT_IDS) as connected:
            for name in (topic, f"%RETRY%{online}", f"%RETRY%{stopped}"):
                await_topic(system.namesrv, name, BROKER_NAME)
            yield connected


def _compare(version: str, systems: list[System], names: dict[str, str]) -> list[Side]:
    """Run all steps on each system, all in one JVM; the systems must not be the same."""
    with ExitStack() as stack:
        online = [stack.enter_context(_prepared(system, names)) for system in systems]
        commands = [
            [*step.format(**names, broker=system.broker).split(), "-n", system.namesrv]
            for step in STEPS.values()
            for system in systems
        ]
        statistics = [_statistics(version, system) for system in systems]
        said = mqadmin_script(version, commands, limit_s=300)
        count = len(systems)
        return [
            Side(
                names,
                online[number],
                {
                    STATISTICS: statistics[number],
                    **dict(zip(STEPS, said[number::count], strict=True)),
                },
                {name: _offsets(system, names, name) for name in ("stopped", "clone")},
            )
            for number, system in enumerate(systems)
        ]


def _statistics(version: str, system: System) -> AdminOutput:
    command = STATISTICS_STEP.format(broker=system.broker).split()
    (output,) = mqadmin_script(version, [[*command, "-n", system.namesrv]])
    return output


def _offsets(system: System, names: Mapping[str, str], name: str) -> list[int | None]:
    with WireClient(system.broker) as client:
        return [stored(client, names[name], names["topic"], queue_id) for queue_id in range(4)]


def _fresh(fresh_name: Names) -> dict[str, str]:
    words = ("topic", "online", "stopped", "clone", "producers")
    return {word: fresh_name(word) for word in words}


@pytest.fixture(scope="module")
def sides(system: System, fresh_name: Names) -> list[Side]:
    with original_broker("4.9.7") as original:
        both = [system, System(original.namesrv, original.broker)]
        return _compare("4.9.7", both, _fresh(fresh_name))


@pytest.fixture(scope="module")
def newer(system: System, fresh_name: Names) -> Side:
    if judged_original() == "4.9.7":
        pytest.skip("the 5.5.0 tool asks for what a 4.9.7 broker does not know")
    (side,) = _compare("5.5.0", [system], _fresh(fresh_name))
    return side


def normal_form(step: str, side: Side) -> object:
    """What both sides must agree on: error codes, and lines without addresses, times and order."""
    output = side.said[step]
    text = re.sub(r"127\.0\.0\.1:\d+ *", "ADDRESS ", output.out)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d+)?", "TIME", text)
    text = re.sub(r"\d{13}", "MILLIS", text)
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if step in ("all producers", "all progress", STATISTICS):  # of everybody there is
        own = tuple(side.names.values())
        lines = [line for line in lines if line.startswith("#") or _names_any(line, own)]
    if step == "status":  # the tool numbers the members as they come
        lines = [re.sub(r"^\d+ +", "", line) for line in lines]
    return error_codes(output), sorted(lines)


def _names_any(line: str, names: tuple[str, ...]) -> bool:
    return any(name[:40] in line for name in names)


@pytest.mark.parametrize("step", [STATISTICS, *STEPS])
def test_the_tool_prints_what_it_prints_of_an_original(sides: list[Side], step: str) -> None:
    ours, original = sides
    assert normal_form(step, ours) == normal_form(step, original)


def test_a_reset_of_a_running_group_reaches_every_member(sides: list[Side]) -> None:
    for side in sides:
        for member in side.online:
            told = [queues(one.body, "offsetTable") for one in member.told]
            assert len(told) == RESETS_OF_MEMBERS
            assert told[0] == {0: 5, 1: 3, 2: 0, 3: 0}
            assert told[1] == {0: 2, 1: 3, 2: 0, 3: 0}
            assert told[2] == {0: 0, 1: 0, 2: 0, 3: 0}


def test_resets_and_clones_of_stopped_groups_are_stored(sides: list[Side]) -> None:
    for side in sides:
        assert side.offsets == {"stopped": [5, 3, 0, 0], "clone": [5, 3, 0, 0]}


# --- the 5.5.0 tool ---


def rows_of(side: Side, step: str) -> list[list[str]]:
    """The rows of the topic, by queue: all columns behind its name and the broker's."""
    rows = [row for row in table(side.said[step]) if row[0] == side.names["topic"]]
    return [row[2:] for row in sorted(rows, key=lambda row: int(row[2]))]


def test_the_newer_tool_shows_progress_without_anything_under_way(newer: Side) -> None:
    rows = rows_of(newer, "progress")
    assert [row[:5] for row in rows] == [
        ["0", "5", "2", "3", "0"],
        ["1", "3", "3", "0", "0"],
        ["2", "0", "0", "0", "0"],
        ["3", "0", "0", "0", "0"],
    ]
    assert "Consume Diff Total: 3" in newer.said["progress"].out
    assert "Consume Inflight Total: 0" in newer.said["progress"].out


def test_the_newer_tool_shows_who_is_connected(newer: Side) -> None:
    printed = newer.said["connections"].out
    assert [client_id in printed for client_id in CLIENT_IDS] == [True, True]
    assert "ConsumeType: CONSUME_PASSIVELY" in printed
    assert "p@1" in newer.said["producers"].out
    assert newer.names["producers"] in newer.said["all producers"].out
    assert error_codes(newer.said["connections of a stopped group"]) == [206]


def test_the_newer_tool_shows_what_members_say_of_themselves(newer: Side) -> None:
    assert "PROP_CLIENT_VERSION" in newer.said["status of one"].out
    assert all(client_id in newer.said["status"].out for client_id in CLIENT_IDS)


def test_the_newer_tool_resets_running_and_stopped_groups(newer: Side) -> None:
    """Its `now` is a time: the last message of a queue, as for every time after all messages.

    Only a 5.x broker goes behind that. skipAccumulatedMessage goes behind it everywhere.
    """
    for member in newer.online:
        assert queues(member.told[0].body, "offsetTable") == {0: 4, 1: 2, 2: 0, 3: 0}
    assert newer.offsets == {"stopped": [4, 2, 0, 0], "clone": [5, 3, 0, 0]}


def test_the_newer_tool_shows_all_groups_of_the_broker(newer: Side) -> None:
    printed = newer.said[STATISTICS].out
    assert newer.names["online"][:20] in printed
    assert "Diff Total" in printed
