"""Unmodified original clients send to the system under test and consume from it.

The judge is the client: what it reports as sent must come back to a push consumer, each message
once, at the queue and offset that the send was answered with.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.foreign.accounts import assert_accounted, assert_all_accepted, events
from tests.foreign.judged import System, system_with
from tests.foreign.peers import Line, go_probe, java_probe

pytestmark = pytest.mark.foreign

CONSUME_LIMIT_S = "60"
Names = Callable[[str], str]


def round_trip(namesrv: str, topic: str, count: int, *options: str) -> list[str]:
    """Commands of a probe: send `count` messages, then consume as many with a new group."""
    send = ["send", namesrv, topic, str(count), f"body={topic}", f"keys={topic}", *options]
    return [*send, "--", "consume", namesrv, topic, f"{topic}_group", str(count), CONSUME_LIMIT_S]


def assert_round_trip(lines: list[Line], topic: str, count: int) -> None:
    assert events(lines, "error") == []
    sent, received = events(lines, "sent"), events(lines, "received")
    assert_all_accepted(sent, topic, count)
    assert_accounted(sent, received)
    assert {line["topic"] for line in received} == {topic}
    assert {line["keys"] for line in received} == {f"{topic}-{i}" for i in range(count)}
    assert {line["reconsumeTimes"] for line in received} == {0}


def test_java_4_client_gets_back_each_of_1000_messages(system: System, fresh_name: Names) -> None:
    topic = fresh_name("java4")
    lines = java_probe("4.9.7", *round_trip(system.namesrv, topic, 1000))
    assert_round_trip(lines, topic, 1000)


@pytest.mark.nightly("clients")
def test_java_4_client_with_binary_headers_gets_back_each_message(
    system: System, fresh_name: Names
) -> None:
    topic = fresh_name("java4binary")
    lines = java_probe("4.9.7", *round_trip(system.namesrv, topic, 200), binary=True)
    assert_round_trip(lines, topic, 200)


@pytest.mark.nightly("clients")
def test_java_client_gets_back_messages_of_10_mb(tmp_path: Path, fresh_name: Names) -> None:
    topic = fresh_name("large")
    with system_with(tmp_path, {"maxMessageSize": str(12 << 20)}) as system:
        send = ["send", system.namesrv, topic, "3", "bytes=10000000"]
        consume = ["consume", system.namesrv, topic, f"{topic}_group", "3", CONSUME_LIMIT_S]
        lines = java_probe("4.9.7", *send, "--", *consume)
    assert events(lines, "error") == []
    sent, received = events(lines, "sent"), events(lines, "received")
    assert_accounted(sent, received)
    bodies = {line["body"] for line in received}
    assert bodies == {line["body"] for line in sent}
    assert len(bodies) == 3
    assert all(body.startswith("10000000 bytes") for body in bodies)


def test_java_5_client_gets_back_each_message_of_pipelined_sends(
    system: System, fresh_name: Names
) -> None:
    topic = fresh_name("java5")
    lines = java_probe("5.5.0", *round_trip(system.namesrv, topic, 200, "async=true"))
    assert_round_trip(lines, topic, 200)


def test_go_client_gets_back_each_of_1000_messages(system: System, fresh_name: Names) -> None:
    topic = fresh_name("go")
    lines = go_probe(*round_trip(system.namesrv, topic, 1000))
    assert_round_trip(lines, topic, 1000)


@pytest.mark.parametrize("client", ["java", "go"])
@pytest.mark.nightly("clients")
def test_consumer_with_tags_gets_only_messages_with_these_tags(
    system: System, fresh_name: Names, client: str
) -> None:
    topic = fresh_name(f"tags_{client}")
    send = ["send", system.namesrv, topic, "60", f"body={topic}", "tags=TagA,TagB,TagC"]
    consume = ["consume", system.namesrv, topic, f"{topic}_group", "40", CONSUME_LIMIT_S]
    commands = [*send, "--", *consume, "expression=TagA || TagB", "linger_ms=1000"]
    lines = java_probe("4.9.7", *commands) if client == "java" else go_probe(*commands)
    assert events(lines, "error") == []
    sent, received = events(lines, "sent"), events(lines, "received")
    assert_all_accepted(sent, topic, 60)
    wanted = {f"{topic}-{i}" for i in range(60) if i % 3 != 2}
    assert_accounted([line for line in sent if line["body"] in wanted], received)
    assert {line["tags"] for line in received} == {"TagA", "TagB"}


@pytest.mark.nightly("clients")
def test_waiting_consumer_gets_a_later_message_within_a_second(
    system: System, fresh_name: Names
) -> None:
    topic = fresh_name("late")
    lines = java_probe("4.9.7", "late", system.namesrv, topic, f"{topic}_group", "60", "rounds=3")
    assert events(lines, "error") == []
    latencies_ms = [line["latencyMs"] for line in events(lines, "late")]
    assert len(latencies_ms) == 3
    assert max(latencies_ms) < 1000, latencies_ms
