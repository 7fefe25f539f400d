"""`orbitmq topic, group, message, broker show, cluster show` as a person or a script runs them."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.behaviour.consumers import Fresh, answer, join, next_request
from tests.cli.shell_runs import NOBODY, on_terminal, shell
from tests.foreign.judged import System
from tests.wire_client import WireClient

pytestmark = pytest.mark.timeout(180)

ESCAPE = "\x1b["


# --- topics ---


def test_a_topic_is_created_listed_shown_and_deleted(
    system: System, fresh_name: Fresh, tmp_path: Path
) -> None:
    topic, namesrv = fresh_name("Topic"), ("--namesrv", system.namesrv)
    made = shell(tmp_path, "topic", "create", topic, "--queues", "3", *namesrv)
    assert (made.code, made.err) == (0, "")
    head, row = made.out.splitlines()
    assert head == "BROKER    READ QUEUES  WRITE QUEUES  PERM  ORDER  ATTRIBUTES"
    assert row.split() == ["broker-a", "3", "3", "rw", "no", "-"]
    listed = shell(tmp_path, "topic", "list", NAMESRV_ADDR=system.namesrv)
    assert topic in listed.out.splitlines()
    assert "TBW102" not in listed.out.splitlines()
    shown = shell(tmp_path, "topic", "show", topic, *namesrv)
    assert shown.out.startswith(f"{topic}: 0 messages\n")
    assert "groups  none" in shown.out
    assert ESCAPE not in made.out + listed.out + shown.out
    gone = shell(tmp_path, "topic", "delete", topic, *namesrv)
    assert (gone.code, gone.out) == (0, f"deleted topic {topic}\n")
    again = shell(tmp_path, "topic", "delete", topic, *namesrv)
    assert (again.code, again.out) == (1, "")
    assert again.err == (
        f"orbitmq topic delete: there is no topic {topic}; see orbitmq topic list\n"
    )


def test_json_of_topics_can_be_read_by_programs(
    system: System, fresh_name: Fresh, tmp_path: Path
) -> None:
    topic, flags = fresh_name("Topic"), ("--json", "--namesrv", system.namesrv)
    made = json.loads(shell(tmp_path, "topic", "create", topic, "--perm", "r", *flags).out)
    assert made[0]["topic"] == topic
    assert made[0]["perm"] == 4
    assert topic in json.loads(shell(tmp_path, "topic", "list", *flags).out)
    everything = json.loads(shell(tmp_path, "topic", "list", "--all", *flags).out)
    assert "TBW102" in everything
    shown = json.loads(shell(tmp_path, "topic", "show", topic, *flags).out)
    assert shown["settings"] == made
    assert [row["queue_id"] for row in shown["queues"]] == list(range(8))
    assert shown["brokers"][0]["addresses"] == {"0": system.broker}
    assert shown["groups"] == []
    gone = json.loads(shell(tmp_path, "topic", "delete", topic, *flags).out)
    assert gone == {"topic": topic, "deleted": True}


def test_a_terminal_gets_colours_unless_they_are_unwanted(
    system: System, fresh_name: Fresh, tmp_path: Path
) -> None:
    words = ("cluster", "show", "--namesrv", system.namesrv)
    coloured = on_terminal(tmp_path, *words)
    assert coloured.code == 0
    assert coloured.out.startswith(f"{ESCAPE}1mCLUSTER")
    plain = on_terminal(tmp_path, *words, NO_COLOR="1")
    assert ESCAPE not in plain.out
    assert plain.out.startswith("CLUSTER")
    dumb = on_terminal(tmp_path, *words, TERM="dumb")
    assert ESCAPE not in dumb.out


def test_a_terminal_is_asked_before_a_topic_is_deleted(
    system: System, fresh_name: Fresh, tmp_path: Path
) -> None:
    topic, namesrv = fresh_name("Topic"), ("--namesrv", system.namesrv)
    assert shell(tmp_path, "topic", "create", topic, *namesrv).code == 0
    kept = on_terminal(tmp_path, "topic", "delete", topic, *namesrv, typed=b"n\n")
    assert kept.code == 1
    assert f"Delete topic {topic} with all its messages? [y/N]" in kept.out
    assert "nothing was changed" in kept.out
    gone = on_terminal(tmp_path, "topic", "delete", topic, *namesrv, typed=b"y\n")
    assert gone.code == 0
    assert gone.out.endswith(f"deleted topic {topic}\n")


# --- groups ---


def test_a_group_is_created_shown_reset_and_deleted(
    system: System, fresh_name: Fresh, tmp_path: Path
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("Group")
    flags = ("--json", "--namesrv", system.namesrv)
    shell(tmp_path, "topic", "create", topic, "--queues", "2", *flags)
    made = json.loads(shell(tmp_path, "group", "create", group, "--retries", "3", *flags).out)
    assert made[0]["retry_max_times"] == 3
    assert shell(tmp_path, "send", topic, "-f", "-", *flags, stdin=b"one\ntwo\n").code == 0
    moved = json.loads(
        shell(tmp_path, "group", "reset", group, topic, "--to", "earliest", *flags).out
    )
    assert [row["offset"] for row in moved["queues"]] == [0, 0]
    assert moved["is_running"] is False
    shown = json.loads(shell(tmp_path, "group", "show", group, *flags).out)
    assert (shown["lag"], shown["clients"]) == (2, [])
    shell(tmp_path, "group", "reset", group, topic, "--to", "latest", *flags)
    summaries = json.loads(shell(tmp_path, "group", "list", *flags).out)
    (mine,) = [one for one in summaries if one["group"] == group]
    assert (mine["lag"], mine["client_count"]) == (0, 0)
    back = shell(tmp_path, "group", "reset", group, topic, "--to", "-10m", *flags)
    assert [row["offset"] for row in json.loads(back.out)["queues"]] == [0, 0]
    one = ("--offset", "1", "--broker", "broker-a", "--queue", "1")
    done = json.loads(shell(tmp_path, "group", "reset", group, topic, *one, *flags).out)
    assert [(row["queue_id"], row["offset"]) for row in done["queues"]] == [(1, 1)]
    assert shell(tmp_path, "group", "delete", group, "--yes", *flags).code == 0
    again = shell(tmp_path, "group", "delete", group, *flags)
    assert again.code == 1
    assert again.err.endswith("see orbitmq group list\n")


def test_members_of_a_group_are_shown(system: System, fresh_name: Fresh, tmp_path: Path) -> None:
    topic, group = fresh_name("Topic"), fresh_name("Group")
    namesrv = ("--namesrv", system.namesrv)
    shell(tmp_path, "topic", "create", topic, *namesrv)
    with WireClient(system.broker) as member:
        join(member, "c@1", group, topic)
        shown = shell(tmp_path, "group", "show", group, *namesrv)
        listed = shell(tmp_path, "group", "list", *namesrv)
    assert shown.out.startswith(f"{group}: 1 members\n")
    assert re.search(r"^c@1 +127\.0\.0\.1:\d+ +JAVA ", shown.out, re.MULTILINE)
    assert re.search(rf"^{topic} +\* +TAG$", shown.out, re.MULTILINE)
    assert re.search(rf"^{group} +1 +clustering ", listed.out, re.MULTILINE)


def test_a_group_that_broadcasts_is_shown_without_a_lag(
    system: System, fresh_name: Fresh, tmp_path: Path
) -> None:
    """Symptom: what brokers had of it from other days was shown as its lag."""
    topic, group = fresh_name("Topic"), fresh_name("Group")
    flags = ("--namesrv", system.namesrv)
    shell(tmp_path, "topic", "create", topic, *flags)
    shell(tmp_path, "send", topic, "-f", "-", *flags, stdin=b"one\ntwo\n")
    shell(tmp_path, "group", "create", group, *flags)
    shell(tmp_path, "group", "reset", group, topic, "--to", "earliest", *flags)
    before = json.loads(shell(tmp_path, "group", "show", group, "--json", *flags).out)
    assert before["lag"] == 2
    with WireClient(system.broker) as member:
        join(member, "c@1", group, topic, messageModel="BROADCASTING")
        told = json.loads(shell(tmp_path, "group", "show", group, "--json", *flags).out)
        shown = shell(tmp_path, "group", "show", group, *flags)
        listed = json.loads(shell(tmp_path, "group", "list", "--json", *flags).out)
    assert (told["message_model"], told["lag"], told["queues"]) == ("BROADCASTING", None, [])
    assert "it broadcasts" in shown.out
    assert "LAG" not in shown.out
    assert [one["lag"] for one in listed if one["group"] == group] == [None]


def test_members_that_subscribe_to_something_else_are_named(
    system: System, fresh_name: Fresh, tmp_path: Path
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("Group")
    flags = ("--json", "--namesrv", system.namesrv)
    shell(tmp_path, "topic", "create", topic, *flags)

    def say(member: WireClient, expression: str) -> None:
        data = [{"topic": topic, "subString": expression, "expressionType": "TAG"}]
        body = json.dumps({"subscriptionSet": data}).encode()
        answer(member, next_request(member, 307), body=body)

    expressions = {"c@1": "*", "c@2": "*", "c@3": "paid"}
    with ThreadPoolExecutor(3) as threads, ExitStack() as members:
        saying = []
        for client_id, expression in expressions.items():
            member = members.enter_context(WireClient(system.broker))
            join(member, client_id, group, topic)
            saying.append(threads.submit(say, member, expression))
        shown = json.loads(shell(tmp_path, "group", "show", group, *flags).out)
        for one in saying:
            one.result()
    assert shown["differing_clients"] == ["c@3"]


# --- messages ---


def test_a_message_is_shown_searched_and_its_body_written(
    system: System, fresh_name: Fresh, tmp_path: Path
) -> None:
    topic, flags = fresh_name("Topic"), ("--json", "--namesrv", system.namesrv)
    shell(tmp_path, "topic", "create", topic, "--queues", "1", *flags)
    sent = json.loads(
        shell(
            tmp_path, "send", topic, "grüße\n\x1b[31m", "--key", "k1", "--tag", "paid", *flags
        ).out
    )
    found = json.loads(shell(tmp_path, "message", "search", topic, "--key", "k1", *flags).out)
    assert [one["message_id"] for one in found] == [sent["message_id"]]
    shown = json.loads(shell(tmp_path, "message", "show", sent["offset_id"], *flags).out)
    assert (shown["body"], shown["tag"]) == ("grüße\n\x1b[31m", "paid")
    assert shown["groups"] == []
    words = ("message", "show", sent["message_id"], "--topic", topic, *flags[1:])
    for_people = shell(tmp_path, *words)
    assert "body               grüße\\n\\x1b[31m\n" in for_people.out
    assert "no group consumes its topic" in for_people.out
    body = shell(tmp_path, *words, "--body")
    assert body.out == "grüße\n\x1b[31m"
    ago = shell(tmp_path, "message", "search", topic, "--key", "k1", "--to", "-2d", *flags[1:])
    assert ago.code == 1
    assert "has no message with key k1 in that time" in ago.err
    missing = shell(tmp_path, "message", "show", sent["message_id"], *flags)
    assert missing.code == 2
    assert missing.err.endswith("name its topic (topic=, --topic)\n")


# --- servers ---


def test_brokers_and_clusters_are_shown(system: System, tmp_path: Path) -> None:
    flags = ("--json", "--namesrv", system.namesrv)
    (row,) = json.loads(shell(tmp_path, "cluster", "show", *flags).out)
    assert (row["cluster"], row["broker"]) == ("DefaultCluster", "broker-a")
    assert (row["address"], row["answers"]) == (system.broker, True)
    table = shell(tmp_path, "cluster", "show", *flags[1:]).out.splitlines()
    assert table[0].split()[:4] == ["CLUSTER", "BROKER", "ID", "ADDRESS"]
    assert table[1].split()[:4] == ["DefaultCluster", "broker-a", "0", system.broker]
    shown = shell(tmp_path, "broker", "show", "broker-a", *flags[1:])
    assert shown.out.startswith(f"broker-a at {system.broker}\n")
    assert "role                master" in shown.out
    value = json.loads(shell(tmp_path, "broker", "show", system.broker, "--settings", *flags).out)
    assert value["runtime"]["name"] == "broker-a"
    assert value["settings"]["brokerName"] == "broker-a"


def test_broker_still_runs_a_broker_beside_show(tmp_path: Path) -> None:
    printed = shell(tmp_path, "broker", "--namesrv", NOBODY, "-m")
    assert printed.code == 0
    assert f"namesrvAddr={NOBODY}" in printed.out.replace("\\:", ":")
    told = shell(tmp_path, "broker", "--help")
    assert "--brokers" in told.out
    assert "show" in told.out


# --- what goes wrong ---


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("topic", "show", "Nowhere"), 1, "make it (orbitmq topic create Nowhere)"),
        (("topic", "create", "a b"), 2, "allowed are letters"),
        (("topic", "create", "T", "--cluster", "Z"), 1, "known are DefaultCluster"),
        (("topic", "create", "T", "--queues", "no"), 2, "'no' is not a positive integer"),
        (("group", "show", "Nobody"), 1, "make it (orbitmq group create Nobody)"),
        (("group", "reset", "G", "T", "--to", "soon"), 2, "'soon' is not valid"),
        (("group", "reset", "G", "T", "--offset", "1", "--queue", "0"), 2, "--queue needs"),
        (("broker", "show", "broker-z"), 1, "known are broker-a"),
        (("message", "show", "xyz"), 2, "name its topic (topic=, --topic)"),
        (("tail", "Nowhere"), 1, "make it (orbitmq topic create Nowhere)"),
        (("consume", "Nowhere", "--group", "G"), 1, "make it (orbitmq topic create Nowhere)"),
        (("tail", "TBW102", "--tag", "||"), 2, "names no tag"),
        (("send", "T"), 2, "give a BODY, or -f FILE"),
        (("send", "T", "-f", "missing.txt"), 2, "there is no file missing.txt"),
        (("send", "T", "x", "--property", "DELAY=3"), 2, "belongs to the system"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_one_sentence_with_the_next_step(
    system: System, tmp_path: Path, words: tuple[str, ...], code: int, sentence: str
) -> None:
    done = shell(tmp_path, *words, "--namesrv", system.namesrv)
    assert (done.code, done.out) == (code, "")
    last = done.err.splitlines()[-1]
    assert last.startswith(f"orbitmq {words[0]}")
    assert sentence in last
    assert "Traceback" not in done.err


@pytest.mark.parametrize("words", [("topic", "list"), ("send", "T", "x"), ("tail", "T")])
def test_without_a_name_server_it_says_how_to_get_one(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = shell(tmp_path, *words, NAMESRV_ADDR=NOBODY)
    assert (done.code, done.out) == (1, "")
    (line,) = done.err.splitlines()
    assert NOBODY in line
    assert "(orbitmq up starts one, --namesrv names another)" in line


def test_an_address_that_is_none_is_a_wrong_command_line(tmp_path: Path) -> None:
    done = shell(tmp_path, "topic", "list", "--namesrv", "nonsense")
    assert (done.code, done.out) == (2, "")
    assert "write it as host:port" in done.err
