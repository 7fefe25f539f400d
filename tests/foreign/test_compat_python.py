"""Programs with PyPI's unmodified rocketmq 0.4.4, which is Apache's C++ client 1.x.

The scenarios are `python/compat.py`; all were played on OrbitMQ and on an original 4.9.7, and each
test here holds for both. Beyond that all facts of the run on ours must be those of the run on the
original, but for the rows of DIFFERENCES.
"""

from __future__ import annotations

import pytest

from tests.foreign.compat import DELAY_S, ORIGINAL, OURS, Key, Played, differences
from tests.foreign.compat_clients import (
    Runs,
    allow_retries,
    committed_count,
    dead_count,
    group_of,
    play_python,
    state_left,
    with_record,
)
from tests.foreign.judged import System
from tests.foreign.test_compat_go import LATE_MS_MAX, NOTICE_MS_MAX

pytestmark = [pytest.mark.nightly("clients"), pytest.mark.foreign]

# Those that take longest come first, but for rebalance: its flow of messages makes others late.
SCENARIOS = (
    *("dead", "retry", "delayed", "broadcast", "restart", "batch", "tags", "sync", "async"),
    *("oneway", "compressed", "newtopic", "orderly", "pull", "rebalance"),
)
DIFFERENCES: dict[Key, str] = {}
"""Facts that we keep different from the original, each with its reason."""


def play(system: System, prefix: str) -> Played:
    # This client does not say how often it wants a message again: the group's settings do.
    allow_retries(system, group_of(prefix, "dead"), 1)
    played = play_python(system, prefix, SCENARIOS)
    played.facts["restart", "committed"] = committed_count(system, prefix, "restart")
    state_left(system, prefix, "rebalance", played)
    played.facts["dead", "dead letters"] = dead_count(system, prefix, "dead")
    return played


@pytest.fixture(scope="session")
def python_runs(compat_ours: System) -> Runs:
    """What the program stated on both systems."""
    return with_record("python", play, compat_ours)


@pytest.fixture(params=[OURS, ORIGINAL])
def python_run(request: pytest.FixtureRequest, python_runs: Runs) -> Played:
    """What the run on one system stated."""
    return python_runs[request.param]


def test_every_fact_is_the_originals(python_runs: Runs) -> None:
    assert python_runs[OURS].errors == {}
    assert {scenario for scenario, _ in python_runs[OURS].facts} == {*SCENARIOS}
    found = differences(python_runs[OURS], python_runs[ORIGINAL])
    assert {key: pair for key, pair in found.items() if key not in DIFFERENCES} == {}
    assert DIFFERENCES.keys() <= found.keys()


# ---- sending -------------------------------------------------------------------------------------


def test_a_synchronous_send_comes_back_whole_by_its_id(python_run: Played) -> None:
    facts = python_run.of("sync")
    assert facts["ids"]
    assert facts["messages"] == [
        {
            "topic": "P_sync_t",
            "body": f"bödy-{i}",
            "tags": "TagA",
            "keys": f"key-{i} shared",
            "reconsumeTimes": 0,
            "properties": {"color": f"blue-{i}", "CLUSTER": "DefaultCluster"},
        }
        for i in range(8)
    ]


def test_asynchronous_sends_are_each_answered_by_a_callback_and_stored(python_run: Played) -> None:
    facts = python_run.of("async")
    assert facts == {"statuses": {"OK": 30}, "messages": [f"m-{i:02}" for i in range(30)]}


def test_one_way_sends_are_all_stored_though_nobody_waits(python_run: Played) -> None:
    assert python_run.of("oneway") == {"messages": [f"m-{i:02}" for i in range(20)]}


def test_a_batch_is_stored_as_one_message_since_its_mark_is_not_read(python_run: Played) -> None:
    """The client sends code 10 with batch "1", which is not "true": a fault of this client."""
    assert python_run.of("batch") == {"answer": "OK 0", "messages": 1}


def test_a_big_body_is_sent_compressed_and_comes_back_whole(python_run: Played) -> None:
    assert python_run.of("compressed") == {"body comes back": True}


@pytest.mark.parametrize("level", [1, 2, 99])
def test_a_delayed_message_comes_after_the_time_of_its_level(
    python_run: Played, level: int
) -> None:
    message = python_run.of("delayed")["messages"][f"level-{level}"]
    level_kept = min(level, len(DELAY_S))
    assert message["properties"]["DELAY"] == str(level_kept)
    assert message["properties"]["REAL_TOPIC"] == message["topic"] == "P_delayed_t"
    late_ms = python_run.measure("delayed", f"level-{level}") - DELAY_S[level_kept - 1] * 1_000
    assert -20 <= late_ms <= LATE_MS_MAX


def test_the_first_send_makes_the_topic(python_run: Played) -> None:
    assert python_run.of("newtopic") == {"first send": "OK"}


# ---- consuming -----------------------------------------------------------------------------------


def test_messages_sent_to_chosen_queues_are_consumed_in_their_order(python_run: Played) -> None:
    assert python_run.of("orderly") == {
        "queues": [[f"order-{order}-step-{step}" for step in range(5)] for order in range(4)]
    }


def test_a_consumer_goes_on_where_its_group_stopped(python_run: Played) -> None:
    facts = python_run.of("restart")
    assert facts["first"] == [f"m-{i:02}" for i in range(40)]
    assert facts["after a restart"] == [f"later-{i}" for i in range(8)]
    assert facts["committed"] == 48


def test_every_broadcasting_consumer_gets_everything(python_run: Played) -> None:
    everything = [f"m-{i:02}" for i in range(12)]
    assert python_run.of("broadcast") == {"got": [everything, everything]}


def test_a_consumer_with_tags_gets_only_messages_with_these_tags(python_run: Played) -> None:
    assert python_run.of("tags") == {"got": ["tag-A", "tag-A", "tag-B"]}


def test_a_pull_consumer_reads_all_queues(python_run: Played) -> None:
    assert python_run.of("pull") == {"all": [f"m-{i:02}" for i in range(40)]}


def test_sixteen_queues_are_shared_by_one_three_and_two_consumers_and_nothing_is_lost(
    python_run: Played,
) -> None:
    """Some messages come again when a queue changes hands: at least once is what is promised."""
    assert python_run.of("rebalance") == {
        "of one": [16],
        "of three": [5, 5, 6],
        "of two": [8, 8],
        "lost": 0,
        "left to consume": 0,
    }
    assert python_run.measure("rebalance", "sent") > 100


@pytest.mark.parametrize("change", ["of three", "of two"])
def test_members_learn_by_a_notice_that_others_came_or_left(
    python_run: Played, change: str
) -> None:
    assert python_run.measure("rebalance", change) < NOTICE_MS_MAX


# ---- failed consumption --------------------------------------------------------------------------


def test_a_retried_message_is_the_same_message_with_its_history(python_run: Played) -> None:
    seen = python_run.of("retry")["seen"]
    assert [message["reconsumeTimes"] for message in seen] == [0, 1, 2]
    assert {message["topic"] for message in seen} == {"P_retry_t"}
    assert {(message["body"], message["keys"]) for message in seen} == {("stubborn", "key-1")}
    assert [message["properties"].get("DELAY") for message in seen] == [None, "3", "4"]
    assert {message["properties"]["color"] for message in seen} == {"blue"}


@pytest.mark.parametrize(("retry", "level"), [("first retry", 3), ("second retry", 4)])
def test_each_retry_comes_after_the_time_of_the_next_level(
    python_run: Played, retry: str, level: int
) -> None:
    late_ms = python_run.measure("retry", retry) - DELAY_S[level - 1] * 1_000
    assert -20 <= late_ms <= LATE_MS_MAX


def test_a_message_that_failed_as_often_as_its_group_allows_is_a_dead_letter(
    python_run: Played,
) -> None:
    assert python_run.of("dead") == {"times seen": 2, "dead letters": 1}
