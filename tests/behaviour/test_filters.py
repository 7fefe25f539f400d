"""Filters by expression (SQL92), and the check of them before a consumer starts (46).

The same tests run against an original (ORBITMQ_JUDGE=original-4.9.7). Where OrbitMQ differs on
purpose, the test says so and asks only OrbitMQ.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from orbitmq.wire.command import Command
from orbitmq.wire.record import scan_records
from tests.behaviour.requests import fill, pull_request
from tests.foreign.asking import await_claim
from tests.foreign.judged import System, judged_original
from tests.wire_client import WireClient

Fresh = Callable[[str], str]

PULL, HEARTBEAT, UNREGISTER, CHECK, LITE_PULL, CHANGE = 11, 34, 35, 46, 361, 25
MAX_OFFSET = 30
WAITS = {"sysFlag": 2, "suspendTimeoutMillis": 15_000}
OFF = "The broker does not support consumer to filter message by SQL92"

only_here = pytest.mark.skipif(judged_original() is not None, reason="the original differs")


@contextmanager
def changed(system: System, **settings: str) -> Iterator[None]:
    """Change settings of the running broker."""
    text = "".join(f"{name}={value}\n" for name, value in settings.items())
    with WireClient(system.broker) as client:
        answer = client.ask(CHANGE, text.encode())
        assert answer.code == 0, answer.remark
    yield


@pytest.fixture
def sql(system: System) -> Iterator[System]:
    """The system with filters by expression allowed."""
    with changed(system, enablePropertyFilter="true"):
        yield system
    with changed(system, enablePropertyFilter="false"):
        pass


def subscription(topic: str, expression: str, version: int, kind: str) -> dict[str, object]:
    return {
        "topic": topic,
        "subString": expression,
        "subVersion": version,
        "expressionType": kind,
        "classFilterMode": False,
        "codeSet": [],
        "tagsSet": [],
    }


def join(client: WireClient, group: str, topic: str, expression: str, *, version: int = 1) -> None:
    """Send the heartbeat of a consumer that filters by an expression."""
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [subscription(topic, expression, version, "SQL92")],
        "unitMode": False,
    }
    body = {"clientID": f"{group}@1", "consumerDataSet": [consumer], "producerDataSet": []}
    assert client.ask(HEARTBEAT, json.dumps(body).encode()).code == 0


def properties(**values: object) -> str:
    return "\x02".join(f"{name}\x01{value}" for name, value in values.items())


def numbered(client: WireClient, topic: str, count: int) -> None:
    """Send messages with the property n = 0, 1, 2 …, and see them in the queue."""
    for number in range(count):
        fill(
            client,
            topic,
            [b"%d" % number],
            i=properties(n=number, TAGS="even odd"[number % 2 * 5 :][:4]),
        )
    # An original fills its queues a moment later.
    await_claim(
        lambda: client.ask(MAX_OFFSET, topic=topic, queueId=0).fields["offset"] == str(count),
        f"{topic} has its {count} messages",
        10,
    )


def pull_by_group(topic: str, group: str, offset: int, **changes: str | int) -> Command:
    """Return a pull that is filtered by what its group has subscribed to."""
    wanted = {"sysFlag": 0, "subVersion": 1, **changes}
    return pull_request(topic, group, offset, **wanted)


def bodies(answer: Command) -> list[bytes]:
    return [record.body for record in scan_records(answer.body)]


def check_body(expression: str, kind: str = "SQL92") -> bytes:
    body = {
        "clientId": "c@1",
        "group": "G",
        "subscriptionData": subscription("T", expression, 1, kind),
    }
    return json.dumps(body).encode()


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("n > 2", [3, 4, 5]),
        ("n BETWEEN 1 AND 3", [1, 2, 3]),
        ("n NOT BETWEEN 1 AND 3", [0, 4, 5]),
        ("n IN ('0', '5', '9')", [0, 5]),
        ("n = 2 OR n = '4'", [2, 4]),
        ("n <> 2 AND n IS NOT NULL", [0, 1, 3, 4, 5]),
        ("TAGS = 'even' AND n >= 2", [2, 4]),
        ("missing IS NULL AND n < 1.5", [0, 1]),
        ("NOT (n > 1)", [0, 1]),
        ("TRUE", [0, 1, 2, 3, 4, 5]),
    ],
)
def test_a_group_gets_the_messages_that_its_expression_is_true_for(
    sql: System, fresh_name: Fresh, expression: str, found: list[int]
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(sql.broker) as client:
        numbered(client, topic, 6)
        join(client, group, topic, expression)
        seen: list[bytes] = []
        offset, answers = 0, set()
        while offset < 6:  # one answer has them all, unless looking took our broker 2 ms
            answer = client.call(pull_by_group(topic, group, offset))
            answers.add((answer.code, answer.remark))
            seen += bodies(answer)
            offset = int(answer.fields["nextBeginOffset"])
    assert (0, "FOUND") in answers
    assert answers <= {(0, "FOUND"), (20, "NO_MATCHED_MESSAGE")}
    assert seen == [b"%d" % number for number in found]
    assert offset == 6, "also what lies behind the last match is done"


@pytest.mark.parametrize(
    "expression", ["missing > 3", "missing <> 3", "NOT (missing = 3)", "n > 9"]
)
def test_what_is_unknown_or_false_for_all_leaves_nothing_and_goes_on_behind_it(
    sql: System, fresh_name: Fresh, expression: str
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(sql.broker) as client:
        numbered(client, topic, 3)
        join(client, group, topic, expression)
        offset = 0
        while offset < 3:  # one answer has done with all, unless looking took our broker 2 ms
            answer = client.call(pull_by_group(topic, group, offset))
            assert (answer.code, answer.remark) == (20, "NO_MATCHED_MESSAGE")
            offset = int(answer.fields["nextBeginOffset"])
    assert offset == 3


def test_an_expression_that_cannot_be_evaluated_for_a_message_drops_that_message_only(
    sql: System, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(sql.broker) as client:
        fill(client, topic, [b"text"], i=properties(n="x"))
        fill(client, topic, [b"number"], i=properties(n="7"))
        join(client, group, topic, "n > 3 OR TRUE")
        answers = [client.call(pull_by_group(topic, group, 0, **WAITS), timeout_s=7)]
    assert bodies(answers[0]) == [b"number"]


@pytest.mark.parametrize("code", [PULL, LITE_PULL])
def test_a_pull_may_bring_its_own_expression(sql: System, fresh_name: Fresh, code: int) -> None:
    if code == LITE_PULL and judged_original() == "4.9.7":
        pytest.skip("361 came with 5.x")
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(sql.broker) as client:
        numbered(client, topic, 4)
        request = pull_request(topic, group, 0, subscription="n = 3", expressionType="SQL92")
        request.code = code
        answer = client.call(request)
    assert bodies(answer) == [b"3"]


def test_the_number_asked_for_counts_what_passes(sql: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(sql.broker) as client:
        numbered(client, topic, 9)
        join(client, group, topic, "TAGS = 'even'")
        answer = client.call(pull_by_group(topic, group, 1, maxMsgNums=2))
        assert bodies(answer) == [b"2", b"4"]
        rest = client.call(pull_by_group(topic, group, int(answer.fields["nextBeginOffset"])))
    assert bodies(rest) == [b"6", b"8"]


def test_a_waiting_pull_wakes_for_a_match_and_sleeps_through_the_others(
    sql: System, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(sql.broker) as waiting, WireClient(sql.broker) as sending:
        numbered(sending, topic, 1)
        join(waiting, group, topic, "n > 10")
        opaque = waiting.send(pull_by_group(topic, group, 1, **WAITS))
        with pytest.raises(TimeoutError):
            waiting.receive_answer(opaque, timeout_s=0.2)
        fill(sending, topic, [b"no"] * 3, i=properties(n=5))
        with pytest.raises(TimeoutError):
            waiting.receive_answer(opaque, timeout_s=0.3)
        fill(sending, topic, [b"yes"], i=properties(n=11))
        answer = waiting.receive_answer(opaque, timeout_s=7)
    assert bodies(answer) == [b"yes"]
    assert answer.fields["nextBeginOffset"] == "5"


def test_a_newer_version_of_the_subscription_brings_a_new_expression(
    sql: System, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(sql.broker) as client:
        numbered(client, topic, 4)
        join(client, group, topic, "n = 1", version=1)
        join(client, group, topic, "n = 2", version=1)
        same = client.call(pull_by_group(topic, group, 0))
        assert bodies(same) == [b"1"], "the version has not changed"
        join(client, group, topic, "n = 3", version=2)
        newer = client.call(pull_by_group(topic, group, 0, subVersion=2))
        assert bodies(newer) == [b"3"]
        newest = client.call(pull_by_group(topic, group, 0, subVersion=9))
    assert (newest.code, newest.remark) == (25, "the consumer's subscription not latest")


def test_an_expression_that_does_not_compile_leaves_the_group_without_a_filter(
    sql: System, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(sql.broker) as client:
        numbered(client, topic, 1)
        join(client, group, topic, "n >")
        answer = client.call(pull_by_group(topic, group, 0))
    assert answer.code == 27
    assert (answer.remark or "").startswith(
        "The broker's consumer filter data is not exist!Your expression may be wrong!"
    )


def test_a_filter_outlives_the_members_of_its_group_for_a_while(
    sql: System, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(sql.broker) as client:
        numbered(client, topic, 3)
        join(client, group, topic, "n = 1", version=5)
        client.ask(UNREGISTER, clientID=f"{group}@1", consumerGroup=group)
        gone = client.call(pull_by_group(topic, group, 0, subVersion=5))
        assert gone.code == 24
        join(client, group, topic, "n = 2", version=5)
        back = client.call(pull_by_group(topic, group, 0, subVersion=5))
    assert bodies(back) == [b"1"], "the same version brings the old filter back"


@only_here
def test_a_pull_with_a_wrong_expression_is_told_the_place(sql: System, fresh_name: Fresh) -> None:
    """The original takes such a pull as one without filter and gives all messages."""
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(sql.broker) as client:
        numbered(client, topic, 1)
        request = pull_request(topic, group, 0, subscription="n = 'x", expressionType="SQL92")
        answer = client.call(request)
    assert answer.code == 23
    assert "at character 5: this text has no closing quote" in (answer.remark or "")


@only_here
def test_filters_by_class_are_refused_by_name(system: System, fresh_name: Fresh) -> None:
    """The original ignores the bit and gives all messages, unfiltered."""
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        numbered(client, topic, 1)
        answer = client.call(pull_request(topic, group, 0, sysFlag=4 | 8))
    assert (answer.code, "by class" in (answer.remark or "")) == (1, True)


# --- switched off ---


def test_while_switched_off_pulls_by_expression_are_refused(
    system: System, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with changed(system, enablePropertyFilter="false"), WireClient(system.broker) as client:
        numbered(client, topic, 1)
        join(client, group, topic, "n = 1")
        by_group = client.call(pull_by_group(topic, group, 0))
        request = pull_request(topic, group, 0, subscription="n = 1", expressionType="SQL92")
        by_request = client.call(request)
    for answer in (by_group, by_request):
        assert (answer.code, (answer.remark or "")[: len(OFF)]) == (1, OFF)


# --- 46 ---


@pytest.mark.parametrize("expression", ["a > 3", "a IN ('x') AND b IS NULL", "TRUE"])
def test_a_good_expression_passes_the_check(sql: System, expression: str) -> None:
    with WireClient(sql.broker) as client:
        answer = client.ask(CHECK, check_body(expression))
    assert (answer.code, answer.remark) == (0, None)


@pytest.mark.parametrize(
    "expression", ["a >", "a > 'x'", "a IN (3)", "a BETWEEN 5 AND 1", "a = NULL", "a > 0.0", ""]
)
def test_a_wrong_expression_fails_the_check_with_a_reason(sql: System, expression: str) -> None:
    with WireClient(sql.broker) as client:
        answer = client.ask(CHECK, check_body(expression))
    assert answer.code == 23
    assert answer.remark


def test_while_switched_off_the_check_says_so(system: System) -> None:
    with changed(system, enablePropertyFilter="false"), WireClient(system.broker) as client:
        answer = client.ask(CHECK, check_body("a > 3"))
        wrong = client.ask(CHECK, check_body("a >"))
        tags = client.ask(CHECK, check_body("A || B", "TAG"))
    assert [answer.code, wrong.code, tags.code] == [1, 1, 0]
    assert (answer.remark or "").startswith(OFF)
