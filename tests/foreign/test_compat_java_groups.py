"""Programs with the unmodified Java clients: failed consumption, resets, rebalance, names, members.

The other half of `test_compat_java.py`; every test holds on OrbitMQ and on an original.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.foreign.compat import DELAY_S, OURS, Played
from tests.foreign.compat_java import JavaPlays
from tests.foreign.test_compat_java import LATE_MS_MAX

pytestmark = [pytest.mark.nightly("clients"), pytest.mark.foreign]

OWNERLESS_MS_MAX = 22_000
"""A client's own round is 20 s, if the broker's notice is lost; the rest is the notice's way."""


# ---- failed consumption --------------------------------------------------------------------------


def test_a_retried_message_is_the_same_message_with_its_history(java_run: Played) -> None:
    facts = java_run.of("retry")
    assert [message["reconsumeTimes"] for message in facts["seen"]] == [0, 1, 2]
    assert facts["same msgId"]
    assert facts["same birth"]
    assert facts["origin is the first offset id"]
    _first, second, third = facts["seen"]
    history: dict[str, Any] = {
        "CLUSTER": "DefaultCluster",
        "DELAY": "3",
        "KEYS": "key-1 key-2",
        "MIN_OFFSET": "0",
        "ORIGIN_MESSAGE_ID": "an id",
        "REAL_QID": "0",
        "REAL_TOPIC": "%RETRY%P_retry_g",
        "RETRY_TOPIC": "P_retry_t",
        "TAGS": "TagA",
        "UNIQ_KEY": "an id",
        "WAIT": "false",
        "color": "blue",
    }
    assert second["properties"] == history
    assert third["properties"] == {**history, "DELAY": "4"}
    assert {message["topic"] for message in facts["seen"]} == {"P_retry_t"}
    assert {message["body"] for message in facts["seen"]} == {"stubborn"}
    assert {message["flag"] for message in facts["seen"]} == {9}


@pytest.mark.parametrize(("retry", "level"), [("first retry", 3), ("second retry", 4)])
def test_each_retry_comes_after_the_time_of_the_next_level(
    java_run: Played, retry: str, level: int
) -> None:
    late_ms = java_run.measure("retry", retry) - DELAY_S[level - 1] * 1_000
    assert -20 <= late_ms <= LATE_MS_MAX


def test_an_exception_null_and_a_chosen_level_are_all_retried(java_run: Played) -> None:
    facts = java_run.of("ways")
    assert facts["times"] == {"level 2": [0, 1], "null": [0, 1], "raises": [0, 1]}
    assert facts["levels"] == {"level 2": "2", "null": "3", "raises": "3"}


def test_a_message_that_failed_too_often_is_in_the_dead_letter_topic(java_run: Played) -> None:
    facts = java_run.of("dead")
    assert facts["times"] == [0, 1, 2]
    letter = facts["dead letter"]
    assert letter["topic"] == "%DLQ%P_dead_g"
    assert letter["reconsumeTimes"] == 3
    assert letter["body"] == "hopeless"
    kept = {"RETRY_TOPIC": "P_dead_t", "TAGS": "TagA", "KEYS": "key-1 key-2", "color": "blue"}
    assert kept.items() <= letter["properties"].items()
    assert facts["its topic"] == [1, 1, 6]


def test_level_minus_1_sends_a_message_to_the_dead_letters_at_once(java_run: Played) -> None:
    facts = java_run.of("deadnow")
    assert facts["times"] == 1
    assert facts["dead letter"]["topic"] == "%DLQ%P_deadnow_g"
    assert facts["dead letter"]["reconsumeTimes"] == 1


def test_an_orderly_consumer_that_gives_up_goes_on_behind_the_dead_letter(java_run: Played) -> None:
    facts = java_run.of("orderlydead")
    assert facts["seen"] == ["hopeless 0", "hopeless 1", "next 0"]
    assert facts["dead letter"]["topic"] == "%DLQ%P_orderlydead_g"
    assert facts["dead letter"]["body"] == "hopeless"


# ---- resets and rebalance ------------------------------------------------------------------------


def test_a_running_group_is_set_back_to_a_time_and_consumes_again(java_run: Played) -> None:
    facts = java_run.of("resetrunning")
    assert facts["answered"] == [5]
    assert facts["came again"] == [f"n-{i}" for i in range(5)]
    assert facts["unknown group"] == "code 1"


def test_a_stopped_group_is_set_back_by_the_tool_queue_by_queue(java_run: Played) -> None:
    facts = java_run.of("resetstopped")
    assert facts["by the broker"] == "code 206"
    assert facts["by the tool"] == {"0": 0, "1": 0}
    assert facts["came again"] == [f"m-{i}" for i in range(8)]


def test_sixteen_queues_are_shared_by_one_three_and_two_consumers_and_nothing_is_lost(
    java_run: Played,
) -> None:
    """Whether an offset goes back for a moment is the clients' doing: an old owner's last commit,
    one way, may come after the new owner has begun (seen on the original, 3 of 16 queues).
    """
    assert java_run.of("rebalance") == {
        "of one": [16],
        "of three": [5, 5, 6],
        "of two": [8, 8],
        "lost": 0,
        "left to consume": 0,
    }
    assert java_run.measure("rebalance", "sent") > 100
    assert java_run.measure("rebalance", "longest without an owner") < OWNERLESS_MS_MAX


# ---- names, heart beats, members -----------------------------------------------------------------


def test_a_namespace_is_around_topics_groups_and_retries_and_unseen_by_the_listener(
    java_run: Played,
) -> None:
    facts = java_run.of("namespace")
    assert facts["answered topic"] == "P_namespace_t"
    assert facts["topics seen"] == {"0": "P_namespace_t", "1": "P_namespace_t"}
    assert facts["stored"] == [1, 1]
    assert facts["members"] == 1


def test_clients_in_unit_mode_mark_the_topics_that_they_make(java_run: Played) -> None:
    assert java_run.of("unit") == {"flags": [1, 2], "got": ["first"]}


def test_a_producer_writes_its_traces_to_the_topic_it_names(java_run: Played) -> None:
    assert java_run.of("trace") == {"kind": "Pub", "names the message": True, "keys": True}


def test_a_changed_expression_comes_with_the_next_heart_beat_and_holds(java_run: Played) -> None:
    facts = java_run.of("heartbeat")
    assert facts["members"] == 1
    assert facts["got"] == ["tag-B"]


def test_the_client_5_learns_that_its_heart_beats_may_be_short(java_plays: JavaPlays) -> None:
    assert java_plays.of("5.5.0")[OURS].of("heartbeat")["short ones"]


def test_the_admin_client_sees_the_members_of_a_group_until_they_leave(java_run: Played) -> None:
    assert java_run.of("members") == {
        "group": ["CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET"],
        "member": ["JAVA", "127.0.0.1"],
        "runs": "CONSUME_PASSIVELY",
        "after it left": "code 206",
    }
