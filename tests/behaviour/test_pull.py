"""Pulling, waiting and offsets, as a broker's clients see them."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from orbitmq.wire.command import Command
from orbitmq.wire.record import scan_records
from tests.behaviour.consumers import join
from tests.behaviour.requests import fill, heartbeat_body, pull_request, send_request
from tests.foreign.judged import System, judged_original
from tests.wire_client import WireClient

Fresh = Callable[[str], str]
WAITS = {"sysFlag": 6, "suspendTimeoutMillis": 15_000}
WAKES = 10
WAKE_S_MAX = 0.05
"""On average; one that looks every 200 ms needs twice as long."""


@pytest.mark.parametrize(
    ("queue_offset", "code", "remark", "next_offset"),
    [
        (0, 0, "FOUND", 3),
        (2, 0, "FOUND", 3),
        (3, 19, "OFFSET_OVERFLOW_ONE", 3),
        (9, 21, "OFFSET_OVERFLOW_BADLY", 3),
    ],
)
def test_a_pull_says_what_it_found_and_where_to_go_on(
    system: System, fresh_name: Fresh, queue_offset: int, code: int, remark: str, next_offset: int
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill(client, topic, [b"0", b"1", b"2"])
        answer = client.call(pull_request(topic, group, queue_offset))
    assert (answer.code, answer.remark) == (code, remark)
    assert answer.fields["nextBeginOffset"] == str(next_offset)
    assert (answer.fields["minOffset"], answer.fields["maxOffset"]) == ("0", "3")
    bodies = [record.body for record in scan_records(answer.body)]
    assert bodies == [b"%d" % number for number in range(queue_offset, 3)]


def test_an_empty_queue_is_not_found_at_0_and_moved_beyond(
    system: System, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill(client, topic, [b"x"])
        at_start = client.call(pull_request(topic, group, 0, queueId=1))
        beyond = client.call(pull_request(topic, group, 7, queueId=1))
    assert (at_start.code, at_start.fields["nextBeginOffset"]) == (19, "0")
    assert (beyond.code, beyond.fields["nextBeginOffset"]) == (21, "0")


@pytest.mark.parametrize(("asked", "first", "count"), [(2, 5, 2), (100, 0, 32), (32, 38, 2)])
def test_a_pull_reads_the_asked_number_from_its_queue_and_offset(
    system: System, fresh_name: Fresh, asked: int, first: int, count: int
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill(client, topic, [b"x"] * 40, e=1)
        fill(client, topic, [b"other"], e=0)
        answer = client.call(pull_request(topic, group, first, queueId=1, maxMsgNums=asked))
    places = [(record.queue_id, record.queue_offset) for record in scan_records(answer.body)]
    assert places == [(1, first + number) for number in range(count)]


def test_a_pull_that_may_not_wait_is_answered_at_once_whatever_time_it_names(
    system: System, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill(client, topic, [b"old"])
        pull = pull_request(topic, group, 1, sysFlag=4, suspendTimeoutMillis=15_000)
        answer = client.call(pull, timeout_s=3)
    assert (answer.code, answer.remark) == (19, "OFFSET_OVERFLOW_ONE")
    assert answer.fields["suggestWhichBrokerId"] == "0"


def test_tags_are_filtered_by_the_expression_of_the_request(
    system: System, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        for tag in ("A", "B", "C", "A"):
            fill(client, topic, [tag.encode()], i=f"TAGS\x01{tag}\x02")
        answer = client.call(pull_request(topic, group, 0, subscription="A || C"))
        assert [record.body for record in scan_records(answer.body)] == [b"A", b"C", b"A"]
        none = client.call(pull_request(topic, group, 0, subscription="Z"))
    assert (none.code, none.remark) == (20, "NO_MATCHED_MESSAGE")
    assert none.fields["nextBeginOffset"] == "4"


def test_a_tag_with_the_hash_of_a_wanted_one_slips_through(
    system: System, fresh_name: Fresh
) -> None:
    """Only hashes are compared here; clients look at the tags themselves."""
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        for tag in ("Aa", "BB", "CC"):
            fill(client, topic, [tag.encode()], i=f"TAGS\x01{tag}\x02")
        answer = client.call(pull_request(topic, group, 0, subscription="BB"))
    assert [record.body for record in scan_records(answer.body)] == [b"Aa", b"BB"]


def test_a_waiting_pull_is_answered_when_a_message_comes(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as waiting, WireClient(system.broker) as sending:
        fill(sending, topic, [b"old"])
        opaque = waiting.send(pull_request(topic, group, 1, **WAITS))
        with pytest.raises(TimeoutError):
            waiting.receive(timeout_s=0.2)
        fill(sending, topic, [b"new"])
        answer = waiting.receive_answer(opaque, timeout_s=7)
    assert [record.body for record in scan_records(answer.body)] == [b"new"]
    assert answer.fields["nextBeginOffset"] == "2"


def test_a_waiting_pull_wakes_the_moment_its_message_is_stored(
    system: System, fresh_name: Fresh
) -> None:
    """No timer is waited for. A busy machine may be slow once, but not at each of three tries."""
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as waiting, WireClient(system.broker) as sending:
        fill(sending, topic, [b"old"])
        tries_s = [
            sum(waking_s(waiting, sending, pull_request(topic, group, offset, **WAITS)))
            for offset in (1, 1 + WAKES, 1 + 2 * WAKES)
        ]
    assert min(tries_s) < WAKES * WAKE_S_MAX, tries_s


def waking_s(waiting: WireClient, sending: WireClient, pull: Command) -> Iterator[float]:
    """Return how long after the answer to its send each of some messages comes, one by one."""
    topic, first = pull.fields["topic"], int(pull.fields["queueOffset"])
    for offset in range(first, first + WAKES):
        pull.fields["queueOffset"] = str(offset)
        opaque = waiting.send(pull)
        with pytest.raises(TimeoutError):
            waiting.receive(timeout_s=0.05)
        fill(sending, topic, [b"new"])
        sent_s = time.monotonic()
        answer = waiting.receive_answer(opaque)
        yield time.monotonic() - sent_s
        assert [record.queue_offset for record in scan_records(answer.body)] == [offset]


def test_a_waiting_pull_sleeps_through_tags_it_did_not_ask_for(
    system: System, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as waiting, WireClient(system.broker) as sending:
        fill(sending, topic, [b"old"])
        opaque = waiting.send(pull_request(topic, group, 1, subscription="Wanted", **WAITS))
        with pytest.raises(TimeoutError):
            waiting.receive(timeout_s=0.2)
        fill(sending, topic, [b"no"] * 3, i="TAGS\x01Other\x02")
        with pytest.raises(TimeoutError):
            waiting.receive(timeout_s=0.2)
        fill(sending, topic, [b"yes"], i="TAGS\x01Wanted\x02")
        answer = waiting.receive_answer(opaque, timeout_s=7)
    assert [record.body for record in scan_records(answer.body)] == [b"yes"]
    assert answer.fields["nextBeginOffset"] == "5"


def test_a_waiting_pull_is_answered_at_its_end(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill(client, topic, [b"old"])
        waits = {**WAITS, "suspendTimeoutMillis": 300}
        answer = client.call(pull_request(topic, group, 1, **waits), timeout_s=10)
    assert (answer.code, answer.fields["nextBeginOffset"]) == (19, "1")


def test_a_waiting_pull_gets_nothing_by_an_expression_that_its_group_has_left(
    system: System, fresh_name: Fresh
) -> None:
    """Ours ends it at once (19), so that the client asks anew; the original looks by the new
    expression when a message of the old one comes (20), and drops what the client filters by both.
    """
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as waiting, WireClient(system.broker) as sending:
        fill(sending, topic, [b"old"])
        join(waiting, "c@1", group, subscriptionDataSet=[_subscription(topic, "A", 1)])
        waits = {**WAITS, "sysFlag": 2, "subVersion": 1}
        opaque = waiting.send(pull_request(topic, group, 1, **waits))
        waiting.ask(105)  # its answer proves that the pull before it was taken in
        join(sending, "c@2", group, subscriptionDataSet=[_subscription(topic, "B", 2)])
        fill(sending, topic, [b"a"], i="TAGS\x01A\x02")
        answer = waiting.receive_answer(opaque, timeout_s=7)
    assert answer.code == (19 if judged_original() is None else 20)
    assert answer.body == b""


def _subscription(topic: str, expression: str, version: int) -> dict[str, str | int]:
    return {"topic": topic, "subString": expression, "subVersion": version}


def test_many_waiting_pulls_get_the_same_message(system: System, fresh_name: Fresh) -> None:
    topic = fresh_name("T")
    clients = [WireClient(system.broker) for _ in range(20)]
    with WireClient(system.broker) as sending:
        fill(sending, topic, [b"old"])
        asked = [
            (client, client.send(pull_request(topic, fresh_name("G"), 1, **WAITS)))
            for client in clients
        ]
        for client in clients:
            client.ask(105)  # its answer proves that the pull before it was taken in
        fill(sending, topic, [b"new"])
        for client, opaque in asked:
            (record,) = scan_records(client.receive_answer(opaque, timeout_s=7).body)
            assert record.body == b"new"
    for client in clients:
        client.close()


@pytest.mark.parametrize(
    ("topic", "queue_id", "code"), [("NoSuchTopic", 0, 17), ("TBW102", 99, 1), ("TBW102", -1, 1)]
)
def test_refused_pulls_carry_the_originals_code(
    system: System, fresh_name: Fresh, topic: str, queue_id: int, code: int
) -> None:
    with WireClient(system.broker) as client:
        answer = client.call(pull_request(topic, fresh_name("G"), 0, queueId=queue_id))
    assert answer.code == code, answer.remark


def test_without_a_heartbeat_a_pull_is_told_that_nothing_is_subscribed(
    system: System, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill(client, topic, [b"x"])
        assert client.call(pull_request(topic, group, 0, sysFlag=0)).code == 24
        client.ask(34, heartbeat_body("c@1", group, "Another"))
        assert client.call(pull_request(topic, group, 0, sysFlag=0)).code == 24
        client.ask(34, heartbeat_body("c@1", group, topic))
        assert client.call(pull_request(topic, group, 0, sysFlag=0, subVersion=9)).code == 25
        assert client.call(pull_request(topic, group, 0, sysFlag=0, subVersion=1)).code == 0


def test_a_heartbeats_expression_filters_pulls_without_one(
    system: System, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        for tag in ("A", "B"):
            fill(client, topic, [tag.encode()], i=f"TAGS\x01{tag}\x02")
        client.ask(34, heartbeat_body("c@1", group, topic, "B"))
        answer = client.call(pull_request(topic, group, 0, sysFlag=0, subVersion=1))
        assert [record.body for record in scan_records(answer.body)] == [b"B"]


def test_offsets_are_stored_and_given_back(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    place: dict[str, str | int] = {"consumerGroup": group, "topic": topic, "queueId": 0}
    with WireClient(system.broker) as client:
        fill(client, topic, [b"x"] * 5)
        client.ask(34, heartbeat_body("c@1", group, topic))
        assert client.ask(14, **place).fields["offset"] == "0"
        assert client.ask(15, commitOffset=3, **place).code == 0
        assert client.ask(14, **place).fields["offset"] == "3"
        client.call(pull_request(topic, group, 0, sysFlag=5, commitOffset=4))
        assert client.ask(14, **place).fields["offset"] == "4"


def test_offsets_are_kept_apart_by_group_topic_and_queue_and_outlive_the_members(
    system: System, fresh_name: Fresh
) -> None:
    topics, groups = [fresh_name("T"), fresh_name("T")], [fresh_name("G"), fresh_name("G")]
    places: list[dict[str, str | int]] = [
        {"consumerGroup": group, "topic": topic, "queueId": queue_id}
        for group, topic, queue_id in itertools.product(groups, topics, (0, 1))
    ]
    with WireClient(system.broker) as client:
        for topic, group in zip(topics, groups, strict=True):
            fill(client, topic, [b"x"] * 10)
            client.ask(34, heartbeat_body("c@1", group, topic))
        for number, place in enumerate(places):
            assert client.ask(15, commitOffset=number, **place).code == 0
        for group in groups:
            client.ask(35, clientID="c@1", consumerGroup=group, producerGroup="")
    with WireClient(system.broker) as client:
        offsets = [client.ask(14, **place).fields["offset"] for place in places]
    assert offsets == [str(number) for number in range(8)]


def test_no_progress_is_not_stored_as_an_offset(system: System, fresh_name: Fresh) -> None:
    """Kept difference: the originals store it, and the group begins anew."""
    topic, group = fresh_name("T"), fresh_name("G")
    place: dict[str, str | int] = {"consumerGroup": group, "topic": topic, "queueId": 0}
    with WireClient(system.broker) as client:
        fill(client, topic, [b"x"])
        client.ask(34, heartbeat_body("c@1", group, topic))
        assert client.ask(15, commitOffset=3, **place).code == 0
        assert client.ask(15, commitOffset=-1, **place).code == 0
        answer = client.ask(14, **place)
    assert (answer.code, answer.fields["offset"]) == (0, "3" if judged_original() is None else "0")


def test_members_of_a_group_see_each_other_come_and_go(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as first:
        fill(first, topic, [b"x"])
        assert first.ask(38, consumerGroup=group).code == 1
        first.ask(34, heartbeat_body("c@1", group, topic))
        with WireClient(system.broker) as second:
            second.ask(34, heartbeat_body("c@2", group, topic))
            notice = _next_notice(first, group)
            assert notice.is_oneway
            members = second.ask(38, consumerGroup=group).body
            assert b"c@1" in members
            assert b"c@2" in members
            second.ask(35, clientID="c@2", consumerGroup=group, producerGroup="")
            assert b"c@2" not in second.ask(38, consumerGroup=group).body
            second.ask(34, heartbeat_body("c@2", group, topic))
        _wait_until_gone(first, group, b"c@2")


def _next_notice(client: WireClient, group: str) -> Command:
    while True:
        command = client.receive()
        if command.code == 40 and command.fields == {"consumerGroup": group}:
            return command


def _wait_until_gone(client: WireClient, group: str, member: bytes) -> None:
    """A closed connection leaves its groups; the notice says when."""
    while member in client.ask(38, consumerGroup=group).body:
        _next_notice(client, group)


def test_a_retry_topic_comes_with_its_group(system: System, fresh_name: Fresh) -> None:
    group = fresh_name("G")
    with WireClient(system.broker) as broker, WireClient(system.namesrv) as namesrv:
        broker.ask(34, heartbeat_body("c@1", group, "TBW102"))
        for _ in range(200):
            answer = namesrv.ask(105, topic=f"%RETRY%{group}")
            if answer.code == 0:
                break
        assert answer.code == 0


def test_pipelined_sends_from_many_connections_all_get_their_own_place(
    system: System, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill(client, topic, [b"first"])
    failures: list[Exception] = []

    def send_many(number: int) -> None:
        try:
            with WireClient(system.broker) as one:
                opaques = [
                    one.send(send_request(topic, b"%d-%d" % (number, i))) for i in range(200)
                ]
                answers = [one.receive() for _ in opaques]
                assert [answer.code for answer in answers] == [0] * 200
                assert sorted(answer.opaque for answer in answers) == opaques
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=send_many, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    with WireClient(system.broker) as client:
        bodies = _read_all(client, topic, group, 801)
    for number in range(4):
        mine = [body for body in bodies if body.startswith(b"%d-" % number)]
        assert sorted(mine) == sorted(b"%d-%d" % (number, i) for i in range(200))
        if judged_original() is None:  # an original's threads overtake each other
            assert mine == [b"%d-%d" % (number, i) for i in range(200)]


def _read_all(client: WireClient, topic: str, group: str, count: int) -> list[bytes]:
    bodies: list[bytes] = []
    while len(bodies) < count:
        answer = client.call(pull_request(topic, group, len(bodies)))
        assert answer.code == 0, answer.remark
        bodies += [record.body for record in scan_records(answer.body)]
    return bodies
