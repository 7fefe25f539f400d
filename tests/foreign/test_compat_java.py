"""Programs with the unmodified Java clients 4.9.7 and 5.5.0: sending, consuming, filters, queries.

The scenarios are `java/Compat*.java`; each was played on OrbitMQ and on an original, and each test
here holds for both: what it says is what a RocketMQ client sees. Beyond that all facts of a run on
ours must be those of the run on the original, but for the rows of DIFFERENCES.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.foreign.compat import DELAY_S, ORIGINAL, OURS, Key, Played, differences
from tests.foreign.compat_java import CLASSIC, CLIENTS, NEWER, JavaPlays

pytestmark = [pytest.mark.nightly("clients"), pytest.mark.foreign]

DIFFERENCES: dict[Key, str] = {}
"""Facts that we keep different from the original 4.9.7 (5.5.0 for 361), each with its reason."""

LATE_MS_MAX = 3_000
"""How late anything may be while two JVMs and two brokers keep both cores busy. How precise delays
are without that is measured elsewhere; never too early is what counts here.
"""


@pytest.mark.parametrize("client", CLIENTS)
def test_every_fact_is_the_originals(java_plays: JavaPlays, client: str) -> None:
    runs = java_plays.of(client)
    assert runs[OURS].errors == {}
    assert {scenario for scenario, _ in runs[OURS].facts} == {*CLASSIC, *NEWER}
    found = differences(runs[OURS], runs[ORIGINAL])
    assert {key: pair for key, pair in found.items() if key not in DIFFERENCES} == {}
    assert DIFFERENCES.keys() <= found.keys()


# ---- sending -------------------------------------------------------------------------------------


def test_a_synchronous_send_is_answered_with_its_place_and_stored_whole(java_run: Played) -> None:
    facts = java_run.of("sync")
    assert facts["places"] == ["SEND_OK 0 0", "SEND_OK 1 0", "SEND_OK 0 1", "SEND_OK 1 1"]
    assert facts["msgId is the client's"]
    first, second = facts["stored"]
    assert first["body"] == "bödy-1"
    assert first["flag"] == 7
    assert first["bornAt"] == "127.0.0.1"
    assert first["storedAt"]
    assert first["properties"] == {
        "BUYER_ID": "buyer",
        "CLUSTER": "DefaultCluster",
        "KEYS": "key-1 shared",
        "MIN_OFFSET": "0",
        "TAGS": "TagA",
        "UNIQ_KEY": "an id",
        "color": "blue-1",
    }
    assert second["body"] == "bödy-3"
    assert facts["round robin"] == {"0": 2, "1": 2, "2": 2, "3": 2}


def test_asynchronous_sends_are_each_answered_by_a_callback_and_stored(java_run: Played) -> None:
    assert java_run.of("async") == {"answered": True, "statuses": ["SEND_OK"], "stored": 30}


def test_one_way_sends_are_all_stored_though_nobody_waits(java_run: Played) -> None:
    kinds = ("chosen", "free", "queue")
    assert java_run.of("oneway")["stored"] == [f"{kind}-{i}" for kind in kinds for i in range(6)]


def test_a_batch_is_stored_as_messages_of_their_own_each_with_its_id_keys_and_tag(
    java_run: Played,
) -> None:
    facts = java_run.of("batch")
    assert facts["answer"] == "SEND_OK 0"
    assert facts["ids"] == facts["offset ids"] == 10
    assert [message["body"] for message in facts["stored"]] == [f"batch-{i}" for i in range(10)]
    assert [message["properties"]["KEYS"] for message in facts["stored"]] == [
        f"key-{i}" for i in range(10)
    ]
    assert facts["last by id"] == "batch-9"
    assert facts["odd ones"] == [f"batch-{i}" for i in range(1, 10, 2)]


def test_a_big_body_travels_and_is_stored_compressed_and_comes_back_whole(java_run: Played) -> None:
    facts = java_run.of("compressed")
    assert facts["ways"] in (["default"], ["default", "LZ4", "ZSTD", "ZLIB"])
    assert facts["stored"] == ["true small=true"] * len(facts["ways"])


def test_the_client_5_compresses_in_three_ways(java_plays: JavaPlays) -> None:
    ways = java_plays.of("5.5.0")[OURS].of("compressed")["ways"]
    assert ways == ["default", "LZ4", "ZSTD", "ZLIB"]


def test_a_selector_keeps_the_messages_of_an_order_in_one_queue_in_their_order(
    java_run: Played,
) -> None:
    queues: dict[str, list[str]] = java_run.of("selector")["queues"]
    for queue_id, orders in {"0": (0, 4), "1": (1, 5), "2": (2,), "3": (3,)}.items():
        wanted = [f"order-{order}-step-{step}" for step in range(5) for order in orders]
        assert queues[queue_id] == wanted


@pytest.mark.parametrize("level", [1, 2, 5, 99])
def test_a_delayed_message_comes_after_the_time_of_its_level(java_run: Played, level: int) -> None:
    message = java_run.of("delayed")["messages"][f"level-{level}"]
    level_kept = min(level, len(DELAY_S))
    properties: dict[str, Any] = message["properties"]
    assert properties["DELAY"] == str(level_kept)
    assert properties["REAL_TOPIC"] == message["topic"] == "P_delayed_t"
    assert properties["REAL_QID"] == str(message["queueId"]) == "1"
    late_ms = java_run.measure("delayed", f"level-{level}") - DELAY_S[level_kept - 1] * 1_000
    assert -20 <= late_ms <= LATE_MS_MAX


def test_level_0_is_no_delay_and_a_delayed_send_is_answered_with_its_own_topic(
    java_run: Played,
) -> None:
    facts = java_run.of("delayed")
    assert "REAL_TOPIC" not in facts["messages"]["level-0"]["properties"]
    assert facts["answers"] == ["SEND_OK P_delayed_t"] * 5


def test_what_is_too_big_or_for_a_strange_queue_is_refused_and_not_stored(java_run: Played) -> None:
    assert java_run.of("refused") == {
        "wide properties": "code 13",
        "4 MiB": "ok",
        "more": "code 13",
        "big batch": "code 13",
        "queue 99": "code 1",
        "stored": 1,
    }


def test_the_first_send_makes_the_topic_with_as_many_queues_as_the_producer_asks_for(
    java_run: Played,
) -> None:
    assert java_run.of("newtopic") == {"first send": "SEND_OK", "queues": 3}


# ---- push consumers ------------------------------------------------------------------------------


def test_a_concurrent_consumer_gets_each_message_once_and_goes_on_where_it_stopped(
    java_run: Played,
) -> None:
    facts = java_run.of("concurrent")
    assert facts["account"] == {"distinct": 240, "again": 0}
    assert facts["committed"] == [60, 60, 60, 60]
    assert facts["after a restart"] == ["last-0", "last-1", "last-2", "last-3"]


def test_of_a_batch_only_what_is_behind_the_acknowledged_index_comes_again(
    java_run: Played,
) -> None:
    assert java_run.of("together") == {"account": {"distinct": 30, "again": 3}, "tens": True}


def test_an_orderly_consumer_gets_each_queue_in_order_also_when_a_message_fails(
    java_run: Played,
) -> None:
    facts = java_run.of("orderly")
    assert facts["offsets by queue"] == {str(i): list(range(25)) for i in range(4)}
    assert facts["failed"] == ["m-42 0", "m-42 1"]


def test_every_broadcasting_consumer_gets_everything_and_failures_are_not_retried(
    java_run: Played,
) -> None:
    facts = java_run.of("broadcast")
    assert facts["model"] == "BROADCASTING"
    assert facts["accounts"] == [{"distinct": 20, "again": 0}] * 2
    assert facts["retries stored"] == 0


def test_a_new_group_gets_all_of_a_young_topic_wherever_it_wants_to_begin(java_run: Played) -> None:
    got = java_run.of("where")["got"]
    assert len(got) == 3
    assert all(bodies == [f"m-{i}" for i in range(5)] for bodies in got.values())


def test_tag_expressions_choose_by_the_tag_itself_not_by_its_hash(java_run: Played) -> None:
    got = java_run.of("tags")["got"]
    assert got["A || B"] == ["tag-A", "tag-B"]
    assert got["Aa"] == ["tag-Aa"]  # "BB" has the same hash
    assert got["*"] == ["tag-", "tag-A", "tag-Aa", "tag-B", "tag-BB", "tag-C"]


def test_sql_expressions_choose_by_properties(java_run: Played) -> None:
    assert java_run.of("sql")["got"] == {
        "NOT (n > 2)": ["n-0", "n-1", "n-2"],
        "TAGS = 'B' AND n > 6.5": ["n-7", "n-9"],
        "n BETWEEN 3 AND 5 AND color IN ('red', 'green')": ["n-3", "n-4"],
        "late IS NOT NULL OR n <> n": ["bare"],
    }


def test_a_consumer_with_a_wrong_sql_expression_is_refused_at_its_start(java_run: Played) -> None:
    assert java_run.of("wrongsql") == {"start": "code 23"}


def test_a_suspended_consumer_gets_nothing_and_all_of_it_when_it_resumes(java_run: Played) -> None:
    assert java_run.of("suspend") == {
        "came while suspended": 0,
        "account": {"distinct": 16, "again": 0},
    }


# ---- pull and lite pull --------------------------------------------------------------------------


def test_each_pull_says_what_it_found_and_where_to_go_on(java_run: Played) -> None:
    assert java_run.of("pull") == {
        "from 0": "FOUND next=4 min=0 max=6 [m-0, m-1, m-2, m-3]",
        "from 4": "FOUND next=6 min=0 max=6 [m-4, m-5]",
        "at the end": "NO_NEW_MSG next=6 min=0 max=6 []",
        "beyond": "OFFSET_ILLEGAL next=6 min=0 max=6 []",
        "odd": "FOUND next=6 min=0 max=6 [m-1, m-3, m-5]",
        "no such tag": "NO_MATCHED_MSG next=6 min=0 max=6 []",
        "empty": "NO_NEW_MSG next=0 min=0 max=0 []",
        "empty beyond": "OFFSET_ILLEGAL next=0 min=0 max=0 []",
        "queue 9": "code 1",
        "no such topic": "code 17",
        "by sql": "next=6 [m-4, m-5]",
        "asynchronous": "FOUND next=4 min=0 max=6 [m-2, m-3]",
        "queues": 2,
    }


def test_a_blocking_pull_waits_for_its_tag_and_wakes_at_once(java_run: Played) -> None:
    facts = java_run.of("blocking")
    assert facts["waits"]
    assert facts["got"] == "FOUND next=2 min=0 max=2 [wanted]"
    assert java_run.measure("blocking", "woken after") < LATE_MS_MAX  # it may be held for 20 s


def test_a_lite_pull_consumer_polls_commits_and_goes_on_after_a_restart(java_run: Played) -> None:
    assert java_run.of("litesubscribe") == {
        "got": [f"m-{i}" for i in range(10)],
        "committed": {"0": 5, "1": 5},
        "after a restart": [f"later-{i}" for i in range(4)],
    }


def test_a_lite_pull_consumer_seeks_pauses_and_resumes_queues_it_assigned_itself(
    java_run: Played,
) -> None:
    assert java_run.of("liteassign") == {
        "queues": 2,
        "from what was committed": ["m-11", "m-9"],
        "from 5": ["m-11"],
        "from the beginning": ["m-1", "m-11", "m-3", "m-5", "m-7", "m-9"],
        "by time": [0],
        "of the other queue": ["while-0", "while-2"],
        "nothing while paused": 0,
        "resumed": ["while-1", "while-3"],
    }


def test_a_lite_pull_consumer_filters_by_tag_and_by_sql(java_run: Played) -> None:
    assert java_run.of("litefilter") == {
        "by tag": ["m-0", "m-2", "m-4"],
        "by sql": ["m-2", "m-3", "m-4"],
    }


# ---- offsets and queries -------------------------------------------------------------------------


def test_offsets_are_told_by_place_and_time_and_kept_as_set(java_run: Played) -> None:
    assert java_run.of("offsets") == {
        "min max": [0, 3],
        "by time": [0, 1, 2],
        "earliest is the first's": True,
        "empty": [0, 0, 0, -1],
        "before any commit": 0,
        "after a commit": 2,
        "set back": 1,
    }


def test_messages_are_found_by_key_unique_key_and_id_in_their_own_topic(java_run: Played) -> None:
    facts = java_run.of("query")
    assert facts["one"] == ["m-3"]
    assert facts["shared"] == ["m-0", "m-2", "m-4"]
    assert facts["at most two"] == 2
    assert facts["no such key"] == facts["before its time"] == facts["no such id"] == "code 208"
    assert facts["by unique key"] == facts["by id"]["body"] == "m-4"
    assert facts["place"] == [0, 2]
