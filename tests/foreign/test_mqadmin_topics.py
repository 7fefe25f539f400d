"""The official mqadmin manages topics and groups, at ours and at an original side by side.

Each command is run at the system under test and at an original of the tool's version, in one JVM.
What the tool prints must be the same, up to addresses, times and the order of tables. 4.9.7's tool
is judged by 4.9.7, 5.5.0's by 5.5.0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.behaviour.consumers import commit
from tests.behaviour.requests import await_readable, fill, send_request
from tests.foreign.admin_steps import Transcript, error_codes, run_side_by_side
from tests.foreign.asking import await_topic
from tests.foreign.judged import System
from tests.foreign.peers import AdminOutput, original_broker
from tests.wire_client import WireClient

pytestmark = [pytest.mark.nightly("clients"), pytest.mark.foreign]

STEPS_4: Mapping[str, str] = {
    "make": "updateTopic -b {broker} -t {topic} -r 3 -w 5 -p 6",
    "route": "topicRoute -t {topic}",
    "route as table": "topicRoute -t {topic} -l",
    "make in cluster": "updateTopic -c DefaultCluster -t {doomed} -r 2 -w 2",
    "make ordered": "updateTopic -c DefaultCluster -t {ordered} -r 4 -w 4 -o true",
    "order of ordered": "updateOrderConf -m get -t {ordered}",
    "list": "topicList",
    "list by cluster": "topicList -c",
    "make a bad name": "updateTopic -b {broker} -t a/b",
    "make a system topic": "updateTopic -b {broker} -t TBW102",
    "clusters of a topic": "topicClusterList -t {topic}",
    "allocation": "allocateMQ -t {topic} -i 10.0.0.1,10.0.0.2",
    "status when empty": "topicStatus -t {topic}",
    "status": "topicStatus -t {filled}",
    "entries": "queryCq -t {filled} -q 1 -i 0 -c 5 -b {broker}",
    "entries of none": "queryCq -t {filled} -q 9 -i 0 -c 5 -b {broker}",
    "by key": "queryMsgByKey -t {keyed} -k order-17",
    "by unknown key": "queryMsgByKey -t {keyed} -k no-such-key",
    "by id": "queryMsgById -i {id}",
    "by offset": "queryMsgByOffset -t {keyed} -b broker-a -i 1 -o 1",
    "by offset of none": "queryMsgByOffset -t {keyed} -b broker-a -i 1 -o 7",
    "messages": "printMsg -t {keyed} -d true",
    "messages of a queue": "printMsgByQueue -t {keyed} -a broker-a -i 1 -p true -d true -f true",
    "change a setting": "updateBrokerConfig -b {broker} -k fileReservedTime -v 71",
    "change it back": "updateBrokerConfig -b {broker} -k fileReservedTime -v 72",
    "clean files": "deleteExpiredCommitLog -b {broker}",
    "change permission": "updateTopicPerm -t {topic} -b {broker} -p 4",
    "route after permission": "topicRoute -t {topic}",
    "change it again": "updateTopicPerm -t {topic} -c DefaultCluster -p 6",
    "shrink": "updateTopic -b {broker} -t {filled} -r 1 -w 1",
    "status after shrink": "topicStatus -t {filled}",
    "clean topics": "cleanUnusedTopic -b {broker}",
    "clean queues": "cleanExpiredCQ -c DefaultCluster",
    "make a group": "updateSubGroup -b {broker} -g {group} -q 2 -r 3",
    "make a group in cluster": "updateSubGroup -c DefaultCluster -g {group} -s false -d false",
    "delete a group": "deleteSubGroup -b {broker} -g {group} -r true",
    "delete topic": "deleteTopic -c DefaultCluster -t {doomed}",
    "route of deleted": "topicRoute -t {doomed}",
    "list after deleting": "topicList",
    "status of deleted": "topicStatus -t {doomed}",
    "delete again": "deleteTopic -c DefaultCluster -t {doomed}",
    "make again": "updateTopic -b {broker} -t {doomed} -r 2 -w 2",
    "status of made again": "topicStatus -t {doomed}",
}
STEPS_5: Mapping[str, str] = {
    "make": "updateTopic -b {broker} -t {topic} -r 3 -w 5 -p 6 -a +message.type=FIFO",
    "route": "topicRoute -t {topic}",
    "make in cluster": "updateTopic -c DefaultCluster -t {doomed} -r 2 -w 2",
    "change permission": "updateTopicPerm -t {topic} -b {broker} -p 4",
    "list": "topicList",
    "list by cluster": "topicList -c",
    "status when empty": "topicStatus -t {topic}",
    "make a group": "updateSubGroup -b {broker} -g {group} -q 2 -r 3",
    "delete a group": "deleteSubGroup -b {broker} -g {group} -r true",
    "delete topic": "deleteTopic -c DefaultCluster -t {doomed}",
    "route of deleted": "topicRoute -t {doomed}",
}
TOPICS = ("topic", "filled", "keyed", "doomed", "ordered")
"""What the test has made of its own; lists have others beside them."""
KEYED = "KEYS\x01order-17\x02TAGS\x01TagB\x02"


@dataclass(frozen=True)
class Comparison:
    """What the tool printed at both sides."""

    ours: Transcript
    original: Transcript
    sides: tuple[Mapping[str, str], Mapping[str, str]]


@contextmanager
def compared(
    version: str, steps: Mapping[str, str], system: System, fresh_name: Callable[[str], str]
) -> Iterator[Comparison]:
    with original_broker(version) as original:
        names = {key: fresh_name(key) for key in (*TOPICS, "group", "reader")}
        ours = {**names, "namesrv": system.namesrv, "broker": system.broker}
        theirs = {**names, "namesrv": original.namesrv, "broker": original.broker}
        for side in (ours, theirs):
            _prepare(side)
        said = run_side_by_side(version, steps, (ours, theirs))
        _remove_bodies(said)
        yield Comparison(said[0], said[1], (ours, theirs))


def _prepare(side: dict[str, str]) -> None:
    """Store messages; a side has the id of one of them then."""
    with WireClient(side["broker"]) as client:
        fill(client, side["filled"], [b"one", b"two"], e=1)
        commit(client, side["reader"], side["filled"], [0, 1])
        fill(client, side["keyed"], [b"one"], e=1)
        side["id"] = client.call(send_request(side["keyed"], b"two", e=1, i=KEYED)).fields["msgId"]
        await_readable(client, side["keyed"], 1, 2)
    for topic in ("filled", "keyed"):
        await_topic(side["namesrv"], side[topic], "broker-a")


def _remove_bodies(said: list[Transcript]) -> None:
    """Take away what the tool leaves in a folder that all users of the machine share."""
    for output in (output for transcript in said for output in transcript.values()):
        for path in re.findall(r"^Message Body Path: +(\S+)$", output.out, re.MULTILINE):
            Path(path).unlink(missing_ok=True)


@pytest.fixture(scope="module")
def tool4(system: System, fresh_name: Callable[[str], str]) -> Iterator[Comparison]:
    with compared("4.9.7", STEPS_4, system, fresh_name) as comparison:
        yield comparison


@pytest.fixture(scope="module")
def tool5(system: System, fresh_name: Callable[[str], str]) -> Iterator[Comparison]:
    with compared("5.5.0", STEPS_5, system, fresh_name) as comparison:
        yield comparison


def normal(output: AdminOutput, side: Mapping[str, str], command: str) -> object:
    """Return what both sides must agree on."""
    text = output.out
    for key in ("broker", "namesrv"):
        text = text.replace(side[key], key.upper())
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}", "TIME", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", text)
    text = re.sub(r"[0-9A-F]{32,}", "ID", text)
    text = re.sub(r"\d{13}", "MILLIS", text)
    text = re.sub(r"(commitLogOffset=|CommitLog Offset: +)\d+", r"\1", text)
    text = re.sub(r"(physicOffset|physicSize)\D+\d+", r"\1", text)
    text = re.sub(r"(\d+) ms", "ms", text)
    lines = sorted(line.rstrip() for line in text.splitlines() if line.strip())
    if command.startswith("topicList"):
        own = [side[key] for key in TOPICS]
        lines = [line for line in lines if any(name in line for name in own)]
        assert lines, output
    return error_codes(output), lines


@pytest.mark.parametrize("step", STEPS_4)
def test_mqadmin_4_prints_what_the_original_makes_it_print(tool4: Comparison, step: str) -> None:
    ours, theirs = (
        normal(transcript[step], side, STEPS_4[step])
        for transcript, side in zip((tool4.ours, tool4.original), tool4.sides, strict=True)
    )
    assert ours == theirs


@pytest.mark.parametrize("step", STEPS_5)
def test_mqadmin_5_prints_what_the_original_makes_it_print(tool5: Comparison, step: str) -> None:
    """Up to the codes of refusals, which are 4.9.7's here."""
    ours, theirs = (
        normal(transcript[step], side, STEPS_5[step])
        for transcript, side in zip((tool5.ours, tool5.original), tool5.sides, strict=True)
    )
    assert ours == theirs
