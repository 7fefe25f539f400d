"""The official mqadmin looks for messages that the original Java client sent.

By key, by unique key, by message id, by queue offset and by time. The judge is the tool: what it
prints and writes must be the message that the send was answered with. The same file proves what a
send can be besides a single message: a batch, and a message that is on the disk when it is
acknowledged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.behaviour.consumers import BROKER_NAME, commit, join
from tests.foreign.accounts import assert_accounted, assert_all_accepted, events
from tests.foreign.admin_steps import table
from tests.foreign.asking import await_topic
from tests.foreign.judged import System, system_under_test
from tests.foreign.peers import AdminOutput, Line, java_probe, mqadmin_script
from tests.foreign.test_clients import CONSUME_LIMIT_S, Names, assert_round_trip, round_trip
from tests.wire_client import WireClient

pytestmark = [pytest.mark.nightly("clients"), pytest.mark.foreign]

COUNT = 80
WANTED = 37
STEPS: Mapping[str, str] = {
    "by key": f"queryMsgByKey -t {{topic}} -k {{topic}}-{WANTED}",
    "by unknown key": "queryMsgByKey -t {topic} -k no-such-key",
    "by unique key": "queryMsgByUniqueKey -t {topic} -i {msgId}",
    "by id": "queryMsgById -i {offsetMsgId}",
    "by offset": "queryMsgByOffset -t {topic} -b {brokerName} -i {queueId} -o {queueOffset}",
    "from a time": "printMsg -t {topic} -b {stored} -d true",
    "until a time": "printMsg -t {topic} -e {stored} -d true",
}
"""What is run on the system under test alone; the names are those of the send's answer."""


@dataclass(frozen=True)
class Found:
    """A message that was sent and received, and what the tool said of it, by command."""

    sent: Line
    received: list[Line]
    said: dict[str, AdminOutput]
    body: str

    @property
    def message(self) -> Line:
        """The message as a consumer got it."""
        (line,) = [line for line in self.received if line["msgId"] == self.sent["msgId"]]
        return line


@pytest.fixture(scope="module")
def found(system: System, fresh_name: Names) -> Found:
    topic = fresh_name("lookup")
    options = ("tags=TagA,TagB,TagC", "async=false")
    lines = java_probe("4.9.7", *round_trip(system.namesrv, topic, COUNT, *options))
    assert_round_trip(lines, topic, COUNT)
    (sent,) = [x for x in events(lines, "sent") if x["body"] == f"{topic}-{WANTED}"]
    received = events(lines, "received")
    (stored,) = [x["storeTimestamp"] for x in received if x["msgId"] == sent["msgId"]]
    steps = [step.format(**sent, stored=stored) for step in STEPS.values()]
    commands = [[*step.split(), "-n", system.namesrv] for step in steps]
    with members(system, topic, f"{topic}_group", f"{topic}_idle"):
        said = dict(zip(STEPS, mqadmin_script("4.9.7", commands), strict=True))
    # The tool leaves the body in a folder that all users of the machine share.
    path = Path(details(said["by id"])["Message Body Path"])
    body = path.read_text()
    path.unlink()
    return Found(sent, received, said, body)


@contextmanager
def members(system: System, topic: str, busy: str, idle: str) -> Iterator[None]:
    """Have a member of both groups online: the tool tells only of those how far they are."""
    with WireClient(system.broker) as client:
        for group in (busy, idle):
            join(client, "member@1", group, topic)
            await_topic(system.namesrv, f"%RETRY%{group}", BROKER_NAME)
        commit(client, idle, topic, [0] * 4)
        yield


def details(output: AdminOutput) -> dict[str, str]:
    """The lines `Name: value` of a message that the tool printed."""
    pairs = re.findall(r"^([A-Z][A-Za-z ]+): +(.*)$", output.out, re.MULTILINE)
    return {name: value.strip() for name, value in pairs}


def test_message_is_found_by_its_key_and_no_other(found: Found) -> None:
    sent = found.sent
    rows = table(found.said["by key"])
    assert rows == [[sent["msgId"], str(sent["queueId"]), str(sent["queueOffset"])]]


def test_unknown_key_finds_no_message(found: Found) -> None:
    assert "no message" in found.said["by unknown key"].err


@pytest.mark.parametrize("step", ["by unique key", "by id", "by offset"])
def test_message_is_shown_as_it_was_sent(found: Found, step: str) -> None:
    shown, message = details(found.said[step]), found.message
    assert found.body == message["body"]
    expected = {
        "Topic": message["topic"],
        "Tags": f"[{message['tags']}]",
        "Keys": f"[{message['keys']}]",
        "Queue ID": str(message["queueId"]),
        "Queue Offset": str(message["queueOffset"]),
        "Reconsume Times": "0",
    }
    assert {name: shown[name] for name in expected} == expected
    assert message["storeHost"].endswith(shown["Store Host"])


@pytest.mark.parametrize("step", ["by unique key", "by id"])
def test_it_is_said_which_groups_have_consumed_a_message(found: Found, step: str) -> None:
    pattern = r"MessageTrack \[consumerGroup=(\S+), trackType=(\w+),"
    tracks = dict(re.findall(pattern, found.said[step].out))
    topic = found.sent["topic"]
    assert tracks == {f"{topic}_group": "CONSUMED", f"{topic}_idle": "NOT_CONSUME_YET"}


@pytest.mark.parametrize(("step", "end"), [("from a time", "min"), ("until a time", "max")])
def test_times_become_offsets_of_messages_stored_then(found: Found, step: str, end: str) -> None:
    message, times = found.message, store_times(found)
    pattern = rf"{end}Offset=(\d+),? .*queueId={message['queueId']}\]"
    (offset,) = re.findall(pattern, found.said[step].out)
    assert times[message["queueId"], int(offset)] == message["storeTimestamp"]


def store_times(found: Found) -> dict[tuple[int, int], int]:
    """When each message was stored, by queue and offset."""
    lines = found.received
    return {(x["queueId"], x["queueOffset"]): x["storeTimestamp"] for x in lines}


def test_java_client_gets_back_each_message_of_its_batches(
    system: System, fresh_name: Names
) -> None:
    topic = fresh_name("batch")
    send = ["send-batch", system.namesrv, topic, "60", "size=20", f"body={topic}", "tags=A,B"]
    consume = ["consume", system.namesrv, topic, f"{topic}_group", "60", CONSUME_LIMIT_S]
    lines = java_probe("4.9.7", *send, "--", *consume)
    assert events(lines, "error") == []
    sent, received = events(lines, "sent"), events(lines, "received")
    assert [(line["status"], line["messages"]) for line in sent] == [("SEND_OK", 20)] * 3
    assert sorted(line["body"] for line in received) == sorted(f"{topic}-{i}" for i in range(60))
    for batch in sent:
        offsets = [line["queueOffset"] for line in received if line["queueId"] == batch["queueId"]]
        assert sorted(offsets) == list(range(len(offsets)))
    ids = {unique for line in sent for unique in line["msgId"].split(",")}
    assert ids == {line["msgId"] for line in received}


def test_java_client_gets_back_what_a_broker_with_synchronous_flush_acknowledged(
    tmp_path: Path,
) -> None:
    with system_under_test(tmp_path, "-D", "flushDiskType=SYNC_FLUSH") as synced:
        lines = java_probe("4.9.7", *round_trip(synced.namesrv, "Synced", 300, "async=true"))
    assert_all_accepted(events(lines, "sent"), "Synced", 300)
    assert_accounted(events(lines, "sent"), events(lines, "received"))
