"""Why a pull is refused, what it is told to do next, and what goes with it.

One test for each row of the original's checks and of its outcomes. The same tests run against an
original (ORBITMQ_JUDGE=original-4.9.7). Where OrbitMQ differs on purpose, the test says so.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from orbitmq.wire.command import Command
from orbitmq.wire.record import scan_records
from tests.behaviour.requests import fill, heartbeat_body, pull_request
from tests.foreign.asking import await_claim
from tests.foreign.judged import System, judged_original
from tests.wire_client import WireClient

Fresh = Callable[[str], str]

QUERY_OFFSET, COMMIT, TOPIC, CHANGE, MAX_OFFSET = 14, 15, 17, 25, 30
HEARTBEAT, GROUP, LITE_PULL = 34, 200, 361
READ, WRITE = 4, 2

only_here = pytest.mark.skipif(judged_original() is not None, reason="the original differs")


@contextmanager
def changed(client: WireClient, before: str, after: str) -> Iterator[None]:
    """Change a setting of the running broker, and change it back."""
    assert client.ask(CHANGE, before.encode()).code == 0
    try:
        yield
    finally:
        assert client.ask(CHANGE, after.encode()).code == 0


@pytest.fixture
def client(system: System) -> Iterator[WireClient]:
    with WireClient(system.broker) as made:
        yield made


@pytest.fixture
def topic(client: WireClient, fresh_name: Fresh) -> str:
    """A topic with three messages in queue 0."""
    name = fresh_name("T")
    fill(client, name, [b"0", b"1", b"2"])
    await_count(client, name, 3)
    return name


def await_count(client: WireClient, topic: str, count: int) -> None:
    # An original fills its queues a moment later.
    await_claim(
        lambda: int(client.ask(MAX_OFFSET, topic=topic, queueId=0).fields["offset"]) >= count,
        f"{topic} has its {count} messages",
        10,
    )


def stored_offset(client: WireClient, group: str, topic: str) -> str | None:
    answer = client.ask(QUERY_OFFSET, consumerGroup=group, topic=topic, queueId=0)
    return answer.fields.get("offset")


def by_group(topic: str, group: str, **changes: str | int) -> Command:
    """Return a pull that is filtered by what its group has subscribed to."""
    return pull_request(topic, group, 0, **{"sysFlag": 0, "subVersion": 1, **changes})


def bodies(answer: Command) -> list[bytes]:
    return [record.body for record in scan_records(answer.body)]


def refusal(answer: Command) -> tuple[int, str]:
    assert not answer.fields, "refused pulls carry no fields"
    return answer.code, answer.remark or ""


def make_group(client: WireClient, group: str, **changes: object) -> None:
    config = {
        "groupName": group,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeBroadcastEnable": True,
        "retryQueueNums": 1,
        "retryMaxTimes": 16,
        "brokerId": 0,
        "whichBrokerWhenConsumeSlowly": 1,
        "notifyConsumerIdsChangedEnable": True,
        **changes,
    }
    answer = client.ask(GROUP, json.dumps(config).encode())
    assert answer.code == 0, answer.remark


# --- the checks, in their order ---


def test_a_broker_that_may_not_be_read_refuses_first_of_all(
    client: WireClient, fresh_name: Fresh
) -> None:
    with changed(client, f"brokerPermission={WRITE}\n", "brokerPermission=6\n"):
        answer = client.call(pull_request(fresh_name("NoTopic"), fresh_name("G"), 0))
    code, remark = refusal(answer)
    assert code == 16
    assert remark.startswith("the broker[127.0.0.1] pulling message is forbidden")


def test_while_a_broker_may_not_be_read_ordinary_pulls_are_refused_too(
    client: WireClient, topic: str, fresh_name: Fresh
) -> None:
    group = fresh_name("G")
    assert bodies(client.call(pull_request(topic, group, 0))) == [b"0", b"1", b"2"]
    with changed(client, f"brokerPermission={WRITE}\n", "brokerPermission=6\n"):
        assert client.call(pull_request(topic, group, 0)).code == 16
    assert client.call(pull_request(topic, group, 0)).code == 0


def test_a_group_that_may_not_consume_is_refused_before_its_topic_is_looked_at(
    client: WireClient, fresh_name: Fresh
) -> None:
    group = fresh_name("G")
    make_group(client, group, consumeEnable=False)
    answer = client.call(pull_request(fresh_name("NoTopic"), group, 0))
    assert refusal(answer) == (16, f"subscription group no permission, {group}")


def test_a_topic_that_is_not_there_is_17(client: WireClient, fresh_name: Fresh) -> None:
    topic = fresh_name("NoTopic")
    code, remark = refusal(client.call(pull_request(topic, fresh_name("G"), 0)))
    assert code == 17
    assert remark.startswith(f"topic[{topic}] not exist, apply first please!")


def test_a_topic_that_may_not_be_read_is_refused_before_its_queue_is_looked_at(
    client: WireClient, topic: str, fresh_name: Fresh
) -> None:
    fields: dict[str, str | int] = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": 4,
        "writeQueueNums": 4,
        "perm": WRITE,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
    }
    assert client.ask(TOPIC, **fields).code == 0
    answer = client.call(pull_request(topic, fresh_name("G"), 0, queueId=99))
    assert refusal(answer) == (16, f"the topic[{topic}] pulling message is forbidden")


@pytest.mark.parametrize("queue_id", [-1, 4])
def test_a_queue_that_the_topic_does_not_have_is_refused_before_the_filter_is_looked_at(
    client: WireClient, topic: str, fresh_name: Fresh, queue_id: int
) -> None:
    request = pull_request(topic, fresh_name("G"), 0, queueId=queue_id, subscription="||")
    code, remark = refusal(client.call(request))
    assert code == 1
    assert remark.startswith(
        f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[4] consumer:["
    )


def test_an_expression_without_a_tag_is_23(
    client: WireClient, topic: str, fresh_name: Fresh
) -> None:
    code, remark = refusal(client.call(pull_request(topic, fresh_name("G"), 0, subscription="||")))
    assert code == 23
    assert remark.startswith("parse the consumer's subscription failed")


def test_a_group_without_a_heartbeat_is_24(
    client: WireClient, topic: str, fresh_name: Fresh
) -> None:
    code, remark = refusal(client.call(by_group(topic, fresh_name("G"))))
    assert code == 24
    assert remark.startswith("the consumer's group info not exist")


def test_a_group_that_may_not_broadcast_is_16_before_its_subscription_is_looked_at(
    client: WireClient, topic: str, fresh_name: Fresh
) -> None:
    group = fresh_name("G")
    make_group(client, group, consumeBroadcastEnable=False)
    body = heartbeat_body("c@1", group, "Other").replace(b"CLUSTERING", b"BROADCASTING")
    assert client.ask(HEARTBEAT, body).code == 0
    answer = client.call(by_group(topic, group))
    remark = f"the consumer group[{group}] can not consume by broadcast way"
    assert refusal(answer) == (16, remark)


def test_a_topic_that_the_group_has_not_subscribed_to_is_24(
    client: WireClient, topic: str, fresh_name: Fresh
) -> None:
    group = fresh_name("G")
    assert client.ask(HEARTBEAT, heartbeat_body("c@1", group, "Other")).code == 0
    code, remark = refusal(client.call(by_group(topic, group)))
    assert code == 24
    assert remark.startswith("the consumer's subscription not exist")


def test_a_subscription_newer_than_the_heartbeats_is_25(
    client: WireClient, topic: str, fresh_name: Fresh
) -> None:
    group = fresh_name("G")
    assert client.ask(HEARTBEAT, heartbeat_body("c@1", group, topic)).code == 0
    assert client.call(by_group(topic, group)).code == 0
    answer = client.call(by_group(topic, group, subVersion=2))
    assert refusal(answer) == (25, "the consumer's subscription not latest")


# --- outcomes ---


def test_an_offset_before_the_first_is_21_with_the_first(
    client: WireClient, topic: str, fresh_name: Fresh
) -> None:
    answer = client.call(pull_request(topic, fresh_name("G"), -5))
    assert (answer.code, answer.remark) == (21, "OFFSET_TOO_SMALL")
    assert answer.fields["nextBeginOffset"] == "0"


def test_who_asks_for_no_message_gets_one(
    client: WireClient, topic: str, fresh_name: Fresh
) -> None:
    """Kept difference: 4.9.7 answers 1 to who asks for fewer than none."""
    answer = client.call(pull_request(topic, fresh_name("G"), 0, maxMsgNums=0))
    assert (answer.code, bodies(answer)) == (0, [b"0"])
    fewer = client.call(pull_request(topic, fresh_name("G"), 0, maxMsgNums=-3))
    assert fewer.code == (0 if judged_original() is None else 1)
    assert bodies(fewer) == ([b"0"] if judged_original() is None else [])


def test_a_pull_of_a_group_whose_name_cannot_be_one_is_26(client: WireClient, topic: str) -> None:
    """Kept difference: 4.9.7 takes it."""
    expected = 26 if judged_original() is None else 0
    assert client.call(pull_request(topic, "no group!", 0)).code == expected


def test_an_offset_that_was_moved_is_told_in_a_topic_of_its_own(
    client: WireClient, topic: str, fresh_name: Fresh
) -> None:
    if judged_original() == "5.5.0":
        pytest.skip("5.x tells nobody")
    group, events = fresh_name("G"), "OFFSET_MOVED_EVENT"
    before = int(client.ask(MAX_OFFSET, topic=events, queueId=0).fields["offset"])
    assert client.call(pull_request(topic, group, 9)).code == 21
    await_count(client, events, before + 1)
    answer = client.call(pull_request(events, fresh_name("G"), before, subscription=group))
    (body,) = bodies(answer)
    assert json.loads(body) == {
        "consumerGroup": group,
        "messageQueue": {"brokerName": "broker-a", "queueId": 0, "topic": topic},
        "offsetNew": 3,
        "offsetRequest": 9,
    }


@pytest.mark.parametrize(("offset", "code"), [(0, 0), (3, 19), (9, 21)])
def test_the_offset_that_comes_with_a_pull_is_stored_whatever_its_outcome(
    client: WireClient, topic: str, fresh_name: Fresh, offset: int, code: int
) -> None:
    group = fresh_name("G")
    answer = client.call(pull_request(topic, group, offset, sysFlag=5, commitOffset=2))
    assert answer.code == code
    assert stored_offset(client, group, topic) == "2"


def test_the_offset_of_a_refused_pull_is_not_stored(
    client: WireClient, topic: str, fresh_name: Fresh
) -> None:
    group = fresh_name("G")
    request = pull_request(topic, group, 0, sysFlag=5, commitOffset=2, subscription="||")
    assert client.call(request).code == 23
    assert stored_offset(client, group, topic) in ("0", None)


def test_the_offset_that_comes_with_a_pull_is_stored_while_it_waits(
    system: System, client: WireClient, topic: str, fresh_name: Fresh
) -> None:
    group = fresh_name("G")
    waits = {"sysFlag": 7, "suspendTimeoutMillis": 15_000, "commitOffset": 2}
    client.send(pull_request(topic, group, 3, **waits))
    with WireClient(system.broker) as other:
        await_claim(lambda: stored_offset(other, group, topic) == "2", "the offset is stored", 5)
    with pytest.raises(TimeoutError):
        client.receive(timeout_s=0.1)


def test_a_pull_that_wakes_does_not_store_its_offset_again(
    system: System, client: WireClient, topic: str, fresh_name: Fresh
) -> None:
    group = fresh_name("G")
    waits = {"sysFlag": 7, "suspendTimeoutMillis": 15_000, "commitOffset": 1}
    opaque = client.send(pull_request(topic, group, 3, **waits))
    with WireClient(system.broker) as other:
        await_claim(lambda: stored_offset(other, group, topic) == "1", "the offset is stored", 5)
        place: dict[str, str | int] = {"consumerGroup": group, "topic": topic, "queueId": 0}
        assert other.ask(COMMIT, **place, commitOffset=2).code == 0
        fill(other, topic, [b"3"])
        assert bodies(client.receive_answer(opaque, timeout_s=7)) == [b"3"]
        assert stored_offset(other, group, topic) == "2"


def test_without_long_polling_a_pull_is_answered_after_a_short_while(
    client: WireClient, topic: str, fresh_name: Fresh
) -> None:
    """An original that was started with long polling needs up to 5 s more for the first one."""
    waits = {"sysFlag": 6, "suspendTimeoutMillis": 15_000}
    short = "longPollingEnable=false\nshortPollingTimeMills=300\n"
    with changed(client, short, "longPollingEnable=true\nshortPollingTimeMills=1000\n"):
        start_s = time.monotonic()
        answer = client.call(pull_request(topic, fresh_name("G"), 3, **waits))
        took_s = time.monotonic() - start_s
    assert (answer.code, answer.fields["nextBeginOffset"]) == (19, "3")
    assert 0.25 < took_s < 10


@pytest.mark.parametrize("slave_read", ["true", "false"])
def test_the_suggested_broker_is_the_groups_where_slaves_may_be_read(
    client: WireClient, topic: str, fresh_name: Fresh, slave_read: str
) -> None:
    group = fresh_name("G")
    make_group(client, group, brokerId=3)
    with changed(client, f"slaveReadEnable={slave_read}\n", "slaveReadEnable=false\n"):
        answers = [client.call(pull_request(topic, group, offset)) for offset in (0, 3)]
    suggested = [answer.fields["suggestWhichBrokerId"] for answer in answers]
    assert suggested == (["3", "3"] if slave_read == "true" else ["0", "0"])


# --- what 5.x adds ---


def test_361_is_served_like_11(client: WireClient, topic: str, fresh_name: Fresh) -> None:
    if judged_original() == "4.9.7":
        pytest.skip("361 came with 5.x")
    extra: dict[str, str | int] = {
        "requestSource": -1,
        "proxyFrowardClientId": "c",
        "maxMsgBytes": 262_144,
    }
    request = pull_request(topic, fresh_name("G"), 1, sysFlag=4 | 16, **extra)
    request.code = LITE_PULL
    answer = client.call(request)
    assert (answer.code, answer.remark, bodies(answer)) == (0, "FOUND", [b"1", b"2"])


@only_here
def test_a_pull_may_ask_for_fewer_bytes(client: WireClient, topic: str, fresh_name: Fresh) -> None:
    """Asked for 200 bytes, 4.9.7 and 5.5.0 gave all three messages."""
    group = fresh_name("G")
    whole = client.call(pull_request(topic, group, 0))
    size = len(whole.body) // 3
    answer = client.call(pull_request(topic, group, 0, maxMsgBytes=2 * size))
    assert (bodies(answer), answer.fields["nextBeginOffset"]) == ([b"0", b"1"], "2")
    least = client.call(pull_request(topic, group, 0, maxMsgBytes=1))
    assert bodies(least) == [b"0"], "one message always fits"
