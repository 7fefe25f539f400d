"""Programs with the unmodified Go client 2.1.2: sending, consuming, filters, retries, rebalance.

The scenarios are `go/compat/*.go`; all were played on OrbitMQ and on an original 4.9.7, and each
test here holds for both: what it says is what a client sees. Beyond that all facts of the run on
ours must be those of the run on the original, but for the rows of DIFFERENCES.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.foreign.compat import DELAY_S, ORIGINAL, OURS, Key, Played, differences
from tests.foreign.compat_clients import Runs, committed_count, play_go, with_record
from tests.foreign.judged import System

pytestmark = [pytest.mark.nightly("clients"), pytest.mark.foreign]

SCENARIOS = (
    *("sync", "async", "oneway", "batch", "compressed", "sharded", "delayed", "refused"),
    *("newtopic", "admin", "concurrent", "orderly", "broadcast", "where", "tags", "sql"),
    *("wrongsql", "missing", "pull", "poll", "retry", "dead", "deadnow", "rebalance"),
    "spare",
)
DIFFERENCES: dict[Key, str] = {}
"""Facts that we keep different from the original, each with its reason."""

LATE_MS_MAX = 1_500
"""How late a delayed message may be while several programs keep both cores busy."""
NOTICE_MS_MAX = 8_000
"""Sooner than the client's own round of 20 s."""
ORDER = {"CLUSTER": "DefaultCluster", "KEYS": "key-1 key-2", "TAGS": "TagA", "UNIQ_KEY": "an id"}


def play(system: System, prefix: str) -> Played:
    played = play_go(system, prefix, SCENARIOS)
    played.facts["concurrent", "committed"] = committed_count(system, prefix, "concurrent")
    return played


@pytest.fixture(scope="session")
def go_runs(compat_ours: System) -> Runs:
    """What the program stated on both systems."""
    return with_record("go", play, compat_ours)


@pytest.fixture(params=[OURS, ORIGINAL])
def go_run(request: pytest.FixtureRequest, go_runs: Runs) -> Played:
    """What the run on one system stated."""
    return go_runs[request.param]


def test_every_fact_is_the_originals(go_runs: Runs) -> None:
    assert go_runs[OURS].errors == {}
    assert {scenario for scenario, _ in go_runs[OURS].facts} == {*SCENARIOS}
    found = differences(go_runs[OURS], go_runs[ORIGINAL])
    assert {key: pair for key, pair in found.items() if key not in DIFFERENCES} == {}
    assert DIFFERENCES.keys() <= found.keys()


# ---- sending -------------------------------------------------------------------------------------


def test_a_synchronous_send_is_answered_with_its_place_and_stored_whole(go_run: Played) -> None:
    facts = go_run.of("sync")
    assert facts["places"] == [
        f"0 broker-a {queue} {offset}" for offset in (0, 1) for queue in (0, 1)
    ]
    assert facts["msgId is the client's"]
    assert [message["body"] for message in facts["stored"]] == ["bödy-1", "bödy-3"]
    first: dict[str, Any] = facts["stored"][0]
    assert (first["flag"], first["bornAt"], first["storedAt"]) == (7, "127.0.0.1", True)
    assert first["properties"] == {**ORDER, "KEYS": "key-1 shared", "color": "blue-1"}


def test_asynchronous_sends_are_each_answered_by_a_callback_and_stored(go_run: Played) -> None:
    facts = go_run.of("async")
    assert facts == {"statuses": {"0 <nil>": 50}, "stored": [f"m-{i:02}" for i in range(50)]}


def test_one_way_sends_are_all_stored_though_nobody_waits(go_run: Played) -> None:
    assert go_run.of("oneway") == {"stored": [f"m-{i:02}" for i in range(20)]}


def test_a_batch_is_stored_as_messages_of_their_own_with_keys_and_tags(go_run: Played) -> None:
    facts = go_run.of("batch")
    assert (facts["answer"], facts["offset ids"]) == ("0 0", 10)
    assert [message["body"] for message in facts["stored"]] == [f"batch-{i}" for i in range(10)]
    assert [message["properties"] for message in facts["stored"]] == [
        {"CLUSTER": "DefaultCluster", "KEYS": f"key-{i}", "TAGS": tag, "n": str(i)}
        for i, tag in enumerate(["Even", "Odd"] * 5)
    ]


def test_a_big_body_travels_and_is_stored_compressed_and_comes_back_whole(go_run: Played) -> None:
    assert go_run.of("compressed") == {"body comes back": True, "stored small": True}


def test_a_sharding_key_keeps_the_messages_of_an_order_in_one_queue_in_their_order(
    go_run: Played,
) -> None:
    queues: dict[str, list[str]] = go_run.of("sharded")["queues"]
    for order in range(6):
        wanted = [f"order-{order}-step-{step}" for step in range(5)]
        found = [[body for body in queue if body in wanted] for queue in queues.values()]
        assert [bodies for bodies in found if bodies] == [wanted]


@pytest.mark.parametrize("level", [1, 2, 5, 99])
def test_a_delayed_message_comes_after_the_time_of_its_level(go_run: Played, level: int) -> None:
    facts = go_run.of("delayed")
    assert facts["answers"] == ["0 P_delayed_t"] * 5
    message = facts["messages"][f"level-{level}"]
    level_kept = min(level, len(DELAY_S))
    assert message["properties"]["DELAY"] == str(level_kept)
    assert message["properties"]["REAL_TOPIC"] == message["topic"] == "P_delayed_t"
    late_ms = go_run.measure("delayed", f"level-{level}") - DELAY_S[level_kept - 1] * 1_000
    assert -20 <= late_ms <= LATE_MS_MAX


def test_what_is_too_big_or_for_a_strange_queue_is_refused_and_not_stored(go_run: Played) -> None:
    assert go_run.of("refused") == {
        "wide properties": "CODE: 13",
        "4 MiB": "ok",
        "more": "CODE: 13",
        "queue 99": "CODE: 1",
        "stored": 1,
    }


def test_the_first_send_makes_the_topic(go_run: Played) -> None:
    """This client sends its default of 4 queues, whatever the program asks for."""
    assert go_run.of("newtopic") == {"first send": 0, "queues": 4}


def test_the_admin_client_makes_lists_and_deletes_topics_and_reads_groups(go_run: Played) -> None:
    facts = go_run.of("admin")
    assert (facts["topic is listed"], facts["queues"]) == (True, 3)
    assert facts["deleted topic is listed"] is False
    assert facts["group"]["RetryMaxTimes"] == 16
    assert facts["group"]["ConsumeEnable"]


# ---- consuming -----------------------------------------------------------------------------------


def test_a_concurrent_consumer_gets_each_message_once_and_goes_on_where_it_stopped(
    go_run: Played,
) -> None:
    facts = go_run.of("concurrent")
    assert facts["account"] == {"distinct": 240, "again": 0}
    assert facts["after a restart"] == ["last-0", "last-1", "last-2", "last-3"]
    assert facts["committed"] == 244


def test_an_orderly_consumer_gets_each_queue_in_order_also_when_a_message_fails(
    go_run: Played,
) -> None:
    facts = go_run.of("orderly")
    assert facts["offsets by queue"] == {str(i): list(range(25)) for i in range(4)}
    assert facts["failed"] == ["m-42", "m-42"]


def test_every_broadcasting_consumer_gets_everything_and_failures_are_not_retried(
    go_run: Played,
) -> None:
    assert go_run.of("broadcast")["accounts"] == [{"distinct": 20, "again": 0}] * 2


def test_a_new_group_gets_all_of_a_young_topic_wherever_it_wants_to_begin(go_run: Played) -> None:
    everything = [f"m-{i}" for i in range(5)]
    assert go_run.of("where") == {"first": everything, "last": everything, "time": everything}


def test_tag_expressions_choose_by_the_tag_itself_not_by_its_hash(go_run: Played) -> None:
    assert go_run.of("tags") == {
        "A || B": ["tag-A", "tag-B"],
        "Aa": ["tag-Aa"],  # "BB" has the same hash
        "*": ["tag-", "tag-A", "tag-Aa", "tag-B", "tag-BB", "tag-C"],
    }


def test_sql_expressions_choose_by_properties(go_run: Played) -> None:
    assert go_run.of("sql") == {
        "NOT (n > 2)": ["n-0", "n-1", "n-2"],
        "TAGS = 'B' AND n > 6.5": ["n-7", "n-9"],
        "n BETWEEN 3 AND 5 AND color IN ('red', 'green')": ["n-3", "n-4"],
        "late IS NOT NULL OR n <> n": ["n-10"],
    }


def test_a_consumer_with_a_wrong_sql_expression_starts_but_gets_nothing(go_run: Played) -> None:
    """This client does not look at what its heart beat is answered with."""
    assert go_run.of("wrongsql") == {"start": "ok", "account": {"distinct": 0, "again": 0}}


def test_a_consumer_of_a_missing_topic_is_refused_at_its_start(go_run: Played) -> None:
    assert go_run.of("missing") == {"is refused": True, "names the topic": True}


def test_each_pull_says_what_it_found_and_where_to_go_on(go_run: Played) -> None:
    found, no_match, illegal = 0, 2, 3
    ends = {"min": 0, "max": 40}
    behind = [f"m-{i}" for i in range(30, 40)]
    assert go_run.of("pull") == {
        "first": {"status": found, "bodies": [f"m-0{i}" for i in range(10)], "next": 10, **ends},
        "last": {"status": found, "bodies": ["m-38", "m-39"], "next": 40, **ends},
        "behind it": {"status": illegal, "bodies": [], "next": 40, **ends},
        "first match": {"status": found, "bodies": behind, "next": 40, **ends},
        "no match": {"status": no_match, "bodies": [], "next": 40, **ends},
        "held": {"status": found, "bodies": ["waking-0"], "next": 41, "min": 0, "max": 41},
    }


def test_a_pull_consumer_polls_acknowledges_and_goes_on_after_a_restart(go_run: Played) -> None:
    assert go_run.of("poll") == {
        "got": sorted(f"m-{i}" for i in range(20)),
        "after a restart": [f"later-{i}" for i in range(4)],
    }


# ---- failed consumption and rebalance ------------------------------------------------------------


def test_a_retried_message_is_the_same_message_with_its_history(go_run: Played) -> None:
    facts = go_run.of("retry")
    assert facts["names the first"]
    first, second, third = facts["seen"]
    history = {
        **ORDER,
        "DELAY": "3",
        "ORIGIN_MESSAGE_ID": "an id",
        "REAL_QID": "0",
        "REAL_TOPIC": "%RETRY%P_retry_g",
        "RETRY_TOPIC": "P_retry_t",
        "WAIT": "false",
        "color": "blue",
    }
    assert first["properties"] == {**ORDER, "color": "blue"}
    assert second["properties"] == history
    assert third["properties"] == {**history, "DELAY": "4"}
    assert [message["reconsumeTimes"] for message in facts["seen"]] == [0, 1, 2]
    assert {message["flag"] for message in facts["seen"]} == {9}


@pytest.mark.parametrize(("retry", "level"), [("first retry", 3), ("second retry", 4)])
def test_each_retry_comes_after_the_time_of_the_next_level(
    go_run: Played, retry: str, level: int
) -> None:
    late_ms = go_run.measure("retry", retry) - DELAY_S[level - 1] * 1_000
    assert -20 <= late_ms <= LATE_MS_MAX


@pytest.mark.parametrize(("scenario", "times_seen"), [("dead", 3), ("deadnow", 1)])
def test_a_message_that_failed_too_often_is_in_the_dead_letter_topic(
    go_run: Played, scenario: str, times_seen: int
) -> None:
    facts = go_run.of(scenario)
    assert facts["times seen"] == times_seen
    (letter,) = facts["dead letters"]
    assert letter["topic"] == f"%DLQ%P_{scenario}_g"
    assert (letter["body"], letter["reconsumeTimes"]) == ("hopeless", times_seen)
    kept = {**ORDER, "RETRY_TOPIC": f"P_{scenario}_t", "color": "blue"}
    assert kept.items() <= letter["properties"].items()


def test_sixteen_queues_are_shared_by_one_three_and_two_consumers_and_nothing_is_lost(
    go_run: Played,
) -> None:
    """Some messages come again when a queue changes hands: at least once is what is promised."""
    assert go_run.of("rebalance") == {
        "of one": [16],
        "of three": [5, 5, 6],
        "of two": [8, 8],
        "lost": 0,
    }
    assert go_run.measure("rebalance", "sent") > 100


@pytest.mark.parametrize("change", ["of three", "of two"])
def test_members_learn_by_a_notice_that_others_came_or_left(go_run: Played, change: str) -> None:
    assert go_run.measure("rebalance", change) < NOTICE_MS_MAX


def test_a_member_beyond_the_number_of_queues_is_idle_until_another_leaves(go_run: Played) -> None:
    assert go_run.of("spare") == {
        "of three": [0, 1, 1],
        "account": {"distinct": 10, "again": 0},
        "of two": [1, 1],
    }
