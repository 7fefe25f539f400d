"""Questions that a broker passes on to a client: its offsets (223), state (307), a message (309).

Differences that are kept: for a group that nobody is of, 223 is answered with a remark that says so
(the originals: with the name of an exception); 309 of a message that is not there likewise.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from orbitmq.wire.command import Command
from orbitmq.wire.record import scan_records
from tests.behaviour.consumers import (
    BROKER_NAME,
    Fresh,
    answer,
    heartbeat,
    join,
    next_request,
)
from tests.behaviour.requests import send_request
from tests.foreign.judged import System, judged_original
from tests.wire_client import WireClient

OFFSETS = (
    b'{"messageQueueTable":{{"brokerName":"broker-a","queueId":2,"topic":"T"}:7,'
    b'{"brokerName":"broker-a","queueId":3,"topic":"T"}:9}}'
)


def answer_next(member: WireClient) -> Command:
    """Answer the next question for offsets, and return it."""
    answer(member, asked := next_request(member, 221), body=OFFSETS)
    return asked


def test_each_member_is_asked_for_its_offsets(system: System, fresh_name: Fresh) -> None:
    group = fresh_name("G")
    with (
        WireClient(system.broker) as tool,
        WireClient(system.broker) as one,
        WireClient(system.broker) as two,
    ):
        join(one, "c@1", group, "TBW102")
        join(two, "c@2", group, "TBW102")
        opaque = tool.send(Command(223, fields={"topic": "T", "group": group, "clientAddr": ""}))
        with ThreadPoolExecutor(2) as members:  # an original asks one after the other
            asked = [members.submit(answer_next, member) for member in (one, two)]
        status = tool.receive_answer(opaque)
    for request in asked:
        assert request.result().fields == {"topic": "T", "group": group}
    assert status.code == 0
    table = status.body.split(b'"consumerTable":', 1)[1]
    assert table.count(OFFSETS.split(b":", 1)[1].split(b":7")[0][1:]) == 2
    for client_id in (b'"c@1":', b'"c@2":'):
        assert client_id in table


def test_one_member_can_be_asked_alone_and_one_that_fails_is_left_out(
    system: System, fresh_name: Fresh
) -> None:
    group = fresh_name("G")
    with WireClient(system.broker) as tool, WireClient(system.broker) as member:
        join(member, "c@1", group, "TBW102")
        fields = {"topic": "T", "group": group, "clientAddr": "c@1"}
        opaque = tool.send(Command(223, fields=fields))
        answer(member, next_request(member, 221), 0, OFFSETS)
        assert b'"c@1":' in tool.receive_answer(opaque).body
        opaque = tool.send(Command(223, fields=fields))
        answer(member, next_request(member, 221), 5)
        status = tool.receive_answer(opaque)
    assert (status.code, b"c@1" in status.body) == (0, False)


def test_offsets_of_a_group_without_members_are_1(system: System, fresh_name: Fresh) -> None:
    with WireClient(system.broker) as client:
        answer = client.ask(223, topic="T", group=fresh_name("G"))
    assert answer.code == 1
    assert judged_original() is not None or "No Any Consumer online" in (answer.remark or "")


@pytest.mark.parametrize(("code", "body"), [(0, b'{"jstack":"x"}'), (5, b"")])
def test_the_state_of_a_client_is_what_it_says(
    system: System, fresh_name: Fresh, code: int, body: bytes
) -> None:
    group = fresh_name("G")
    fields = {"consumerGroup": group, "clientId": "c@1", "jstackEnable": "true"}
    with WireClient(system.broker) as tool, WireClient(system.broker) as member:
        join(member, "c@1", group, "TBW102")
        opaque = tool.send(Command(307, fields=fields))
        asked = next_request(member, 307)
        answer(member, asked, code, body)
        said = tool.receive_answer(opaque)
    assert asked.fields == fields
    assert not asked.is_oneway
    assert (said.code, said.remark, said.body) == (code, "as the client says", body)


def test_a_client_consumes_a_stored_message_directly(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as tool, WireClient(system.broker) as member:
        join(member, "c@1", group, topic)
        message_id = tool.call(send_request(topic, b"direct")).fields["msgId"]
        fields = {"consumerGroup": group, "clientId": "c@1", "msgId": message_id}
        opaque = tool.send(Command(309, fields=fields))
        asked = next_request(member, 309)
        answer(member, asked, body=b'{"consumeResult":"CR_SUCCESS"}')
        said = tool.receive_answer(opaque)
    assert asked.fields["brokerName"] == BROKER_NAME
    assert (asked.fields["msgId"], asked.fields["consumerGroup"]) == (message_id, group)
    (record,) = scan_records(asked.body)
    assert (record.topic, record.body) == (topic, b"direct")
    assert (said.code, said.body) == (0, b'{"consumeResult":"CR_SUCCESS"}')


def test_a_client_that_is_not_there_is_not_online(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        message_id = client.call(send_request(topic)).fields["msgId"]
        state = client.ask(307, consumerGroup=group, clientId="c@9", jstackEnable="false")
        direct = client.ask(309, consumerGroup=group, clientId="c@9", msgId=message_id)
    expected = (1, f"The Consumer <{group}> <c@9> not online")
    assert (state.code, state.remark) == (direct.code, direct.remark) == expected


def test_a_message_that_is_not_there_and_an_id_that_is_none_are_1(
    system: System, fresh_name: Fresh
) -> None:
    group = fresh_name("G")
    with WireClient(system.broker) as client:
        join(client, "c@1", group, "TBW102")
        missing = "7F00000100002A9F" + "00000FFFFFFFFFFF"
        answer = client.ask(309, consumerGroup=group, clientId="c@1", msgId=missing)
        assert answer.code == 1
        assert judged_original() is not None or "can not find message" in (answer.remark or "")
        assert client.ask(309, consumerGroup=group, clientId="c@1", msgId="zz").code == 1


def test_a_client_that_is_too_old_is_not_asked(system: System, fresh_name: Fresh) -> None:
    group = fresh_name("G")
    with WireClient(system.broker) as client:
        client.call(Command(34, body=heartbeat("c@1", group, "TBW102"), version=10))
        offsets = client.ask(223, topic="T", group=group)
        state = client.ask(307, consumerGroup=group, clientId="c@1", jstackEnable="false")
    assert (offsets.code, state.code) == (1, 1)
    assert "does not support this feature" in (offsets.remark or "")
    assert "please upgrade it to V3_1_8_SNAPSHOT" in (state.remark or "")
