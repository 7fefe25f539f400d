"""Programs with the unmodified Node clients ali-ons 3.12.0, rocketmq 2.0.1, rocketmq-nodejs 1.1.2.

The last one is Apache's C++ client 2.x. The scenarios are `node/*.js`; all were played on OrbitMQ
and on an original 4.9.7, and each test here holds for both. Beyond that all facts of the run on
ours must be those of the run on the original, but for the rows of DIFFERENCES.

The first two do not read the broker's notice that a group has changed: they share queues anew by
their own clock. The last one does not say from which queue a message comes, and its consumers need
processes of their own: see `node/cpp.js`.
"""

from __future__ import annotations

import pytest

from tests.foreign.compat import DELAY_S, ORIGINAL, OURS, Key, Played, differences
from tests.foreign.compat_clients import (
    Runs,
    committed_count,
    dead_count,
    play_node,
    state_left,
    with_record,
)
from tests.foreign.judged import System, judged_original
from tests.foreign.test_compat_go import LATE_MS_MAX, NOTICE_MS_MAX

pytestmark = [pytest.mark.nightly("clients"), pytest.mark.foreign]

SCENARIOS = (
    *("ali-sync", "ali-untagged", "ali-compressed", "ali-sharded", "ali-delayed", "ali-tags"),
    *("ali-sql", "ali-retry", "ali-dead", "ali-broadcast", "ali-restart", "ali-rebalance"),
    *("ali-missing", "fork-sync", "fork-compressed", "fork-tags", "fork-broadcast"),
    *("fork-restart", "fork-rebalance", "cpp-sync", "cpp-compressed", "cpp-tags", "cpp-retry"),
    *("cpp-dead", "cpp-restart", "cpp-rebalance", "cpp-newtopic"),
)
DIFFERENCES: dict[Key, str] = {
    ("ali-missing", "outcome"): (
        "the second line of the remark: the original's leads to a page, ours says what to do"
    ),
}
"""Facts that we keep different from the original, each with its reason."""


def play(system: System, prefix: str) -> Played:
    played = play_node(system, prefix, SCENARIOS)
    for scenario in ("ali-restart", "fork-restart", "cpp-restart"):
        played.facts[scenario, "committed"] = committed_count(system, prefix, scenario)
    for scenario in ("ali-rebalance", "fork-rebalance", "cpp-rebalance"):
        state_left(system, prefix, scenario, played)
    for scenario in ("ali-dead", "cpp-dead"):
        played.facts[scenario, "dead letters"] = dead_count(system, prefix, scenario)
    return played


@pytest.fixture(scope="session")
def node_runs(compat_ours: System) -> Runs:
    """What the programs stated on both systems."""
    return with_record("node", play, compat_ours)


@pytest.fixture(params=[OURS, ORIGINAL])
def node_run(request: pytest.FixtureRequest, node_runs: Runs) -> Played:
    """What the run on one system stated."""
    return node_runs[request.param]


def test_every_fact_is_the_originals(node_runs: Runs) -> None:
    assert node_runs[OURS].errors == {}
    assert {scenario for scenario, _ in node_runs[OURS].facts} == {*SCENARIOS}
    found = differences(node_runs[OURS], node_runs[ORIGINAL])
    assert {key: pair for key, pair in found.items() if key not in DIFFERENCES} == {}
    if judged_original() is None:
        assert DIFFERENCES.keys() <= found.keys()


# ---- ali-ons and its fork: headers with numbers, versions 121 and 78 -----------------------------


def test_ali_ons_gets_back_what_it_sent_by_the_brokers_id(node_run: Played) -> None:
    facts = node_run.of("ali-sync")
    assert facts["statuses"] == ["SEND_OK"] * 8
    assert facts["ids"]
    assert facts["queues"] == [0, 1, 2, 3]
    for i, message in enumerate(facts["messages"]):
        assert (message["body"], message["flag"]) == (f"bödy-{i}", 7)
        assert message["properties"] == {
            "CLUSTER": "DefaultCluster",
            "KEYS": f"key-{i} shared",
            "TAGS": "TagA",
            "color": f"blue-{i}",
        }


def test_ali_ons_without_a_tag_sends_the_word_null_which_is_kept(node_run: Played) -> None:
    (message,) = node_run.of("ali-untagged")["messages"]
    assert message["properties"] == {"CLUSTER": "DefaultCluster", "TAGS": "null"}


@pytest.mark.parametrize("client", ["ali", "fork", "cpp"])
def test_a_big_body_is_sent_compressed_and_comes_back_whole(node_run: Played, client: str) -> None:
    assert node_run.of(f"{client}-compressed")["body comes back"]


def test_a_sharding_key_keeps_its_messages_in_one_queue_in_their_order(node_run: Played) -> None:
    orders: dict[str, list[str]] = node_run.of("ali-sharded")["orders"]
    assert len(orders) == 5
    for key, messages in orders.items():
        queue_id = messages[0].split(" ")[1]
        assert messages == [f"{key}-{step} {queue_id}" for step in range(5)]


@pytest.mark.parametrize("level", [1, 2, 99])
def test_a_delayed_message_comes_after_the_time_of_its_level(node_run: Played, level: int) -> None:
    message = node_run.of("ali-delayed")["messages"][f"level-{level}"]
    level_kept = min(level, len(DELAY_S))
    assert message["properties"]["DELAY"] == str(level_kept)
    assert message["properties"]["REAL_TOPIC"] == message["topic"] == "P_ali-delayed_t"
    late_ms = node_run.measure("ali-delayed", f"level-{level}") - DELAY_S[level_kept - 1] * 1_000
    assert -20 <= late_ms <= LATE_MS_MAX


@pytest.mark.parametrize("client", ["ali", "fork", "cpp"])
def test_a_consumer_with_tags_gets_only_messages_with_these_tags(
    node_run: Played, client: str
) -> None:
    assert node_run.of(f"{client}-tags") == {"got": ["tag-A", "tag-A", "tag-B"]}


def test_ali_ons_filters_by_sql(node_run: Played) -> None:
    assert node_run.of("ali-sql") == {"got": ["n-3", "n-5"]}


def test_a_retried_message_comes_to_ali_ons_with_its_history(node_run: Played) -> None:
    first, second = node_run.of("ali-retry")["seen"]
    assert (first["reconsumeTimes"], second["reconsumeTimes"]) == (0, 1)
    assert second["properties"] == {
        **first["properties"],
        "DELAY": "3",
        "ORIGIN_MESSAGE_ID": "an id",
        "REAL_QID": "0",
        "REAL_TOPIC": "%RETRY%P_ali-retry_g",
        "RETRY_TOPIC": "P_ali-retry_t",
        "WAIT": "false",
    }
    late_ms = node_run.measure("ali-retry", "first retry") - DELAY_S[2] * 1_000
    assert -20 <= late_ms <= LATE_MS_MAX


@pytest.mark.parametrize(("client", "times_seen"), [("ali", 1), ("cpp", 2)])
def test_a_message_that_failed_too_often_is_a_dead_letter(
    node_run: Played, client: str, times_seen: int
) -> None:
    assert node_run.of(f"{client}-dead") == {"times seen": times_seen, "dead letters": 1}


@pytest.mark.parametrize("client", ["ali", "fork"])
def test_every_broadcasting_consumer_gets_everything(node_run: Played, client: str) -> None:
    everything = sorted(f"m-{i}" for i in range(12))
    assert node_run.of(f"{client}-broadcast") == {"got": [everything, everything]}


@pytest.mark.parametrize(("client", "count"), [("ali", 48), ("fork", 28), ("cpp", 28)])
def test_a_consumer_goes_on_where_its_group_stopped(
    node_run: Played, client: str, count: int
) -> None:
    facts = node_run.of(f"{client}-restart")
    assert facts["after a restart"] == [f"later-{i}" for i in range(8)]
    assert facts["committed"] == count


@pytest.mark.parametrize("client", ["ali", "fork", "cpp"])
def test_sixteen_queues_are_shared_by_one_three_and_two_consumers_and_nothing_is_lost(
    node_run: Played, client: str
) -> None:
    """Some messages come again when a queue changes hands: at least once is what is promised."""
    assert node_run.of(f"{client}-rebalance") == {
        "of one": [16],
        "of three": [5, 5, 6],
        "of two": [8, 8],
        "lost": 0,
        "left to consume": 0,
    }
    assert node_run.measure(f"{client}-rebalance", "sent") > 100


def test_ali_ons_learns_from_the_remark_that_a_topic_is_missing(node_run: Played) -> None:
    first_line = node_run.of("ali-missing")["outcome"][0]
    assert first_line.endswith(
        "No topic route info in name server for the topic: P_ali-missing_t_missing"
    )


def test_the_fork_gets_back_what_it_sent(node_run: Played) -> None:
    facts = node_run.of("fork-sync")
    assert facts["statuses"] == ["SEND_OK"] * 4
    assert [message["properties"] for message in facts["messages"]] == [
        {"CLUSTER": "DefaultCluster", "KEYS": f"key-{i} shared", "TAGS": "TagA"} for i in range(4)
    ]


# ---- the C++ client 2.x: enums as ordinals, extFields null, commits one way ----------------------


def test_the_cpp_2_client_gets_back_what_it_sent(node_run: Played) -> None:
    facts = node_run.of("cpp-sync")
    assert facts["statuses"] == ["OK"] * 8
    assert facts["messages"] == [
        {"topic": "P_cpp-sync_t", "tags": "TagA", "keys": f"key-{i}", "body": f"bödy-{i}"}
        for i in range(8)
    ]


def test_a_message_that_the_cpp_2_client_refuses_is_retried(node_run: Played) -> None:
    assert node_run.of("cpp-retry") == {"seen": ["stubborn TagA key-1"] * 3}
    late_ms = node_run.measure("cpp-retry", "first retry") - DELAY_S[2] * 1_000
    assert -20 <= late_ms <= LATE_MS_MAX


@pytest.mark.parametrize("change", ["of three", "of two"])
def test_members_with_the_cpp_2_client_learn_by_a_notice_that_others_came_or_left(
    node_run: Played, change: str
) -> None:
    assert node_run.measure("cpp-rebalance", change) < NOTICE_MS_MAX


def test_the_first_send_of_the_cpp_2_client_makes_the_topic(node_run: Played) -> None:
    assert node_run.of("cpp-newtopic") == {"first send": "OK"}
