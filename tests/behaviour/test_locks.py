"""Locks of queues for ordered consumption, as clients see them."""

import json
from typing import Any

from orbitmq.wire.command import FLAG_ONEWAY, Command
from tests.behaviour.consumers import BROKER_NAME, Fresh, join
from tests.foreign.asking import await_claim
from tests.foreign.judged import System, judged_original
from tests.wire_client import WireClient


def batch(group: str, client_id: str, *queue_ids: int) -> bytes:
    queues = [{"topic": "T", "brokerName": BROKER_NAME, "queueId": one} for one in queue_ids]
    return json.dumps({"clientId": client_id, "consumerGroup": group, "mqSet": queues}).encode()


def lock(client: WireClient, group: str, client_id: str, *queue_ids: int) -> list[int]:
    """Lock queues; give those that the client holds now."""
    answer = client.ask(41, batch(group, client_id, *queue_ids))
    assert answer.code == 0, answer.remark
    held: list[dict[str, Any]] = json.loads(answer.body)["lockOKMQSet"]
    assert all((one["topic"], one["brokerName"]) == ("T", BROKER_NAME) for one in held)
    return sorted(one["queueId"] for one in held)


def test_a_queue_is_locked_for_one_client_of_a_group_who_may_renew(
    system: System, fresh_name: Fresh
) -> None:
    group = fresh_name("G")
    with WireClient(system.broker) as client:
        assert lock(client, group, "c@1", 0, 1) == [0, 1]
        assert lock(client, group, "c@2", 1, 2) == [2]
        assert lock(client, group, "c@1", 0, 1, 2) == [0, 1]
        assert lock(client, fresh_name("G"), "c@2", 0) == [0]


def test_an_unlocked_queue_is_free_and_only_its_holder_can_unlock_it(
    system: System, fresh_name: Fresh
) -> None:
    group = fresh_name("G")
    with WireClient(system.broker) as client:
        lock(client, group, "c@1", 0, 1)
        assert client.ask(42, batch(group, "c@2", 0, 1)).code == 0
        assert lock(client, group, "c@2", 0, 1) == []
        answer = client.ask(42, batch(group, "c@1", 0))
        assert (answer.code, answer.body) == (0, b"")
        assert lock(client, group, "c@2", 0, 1) == [0]


def test_a_queue_can_be_unlocked_one_way(system: System, fresh_name: Fresh) -> None:
    group = fresh_name("G")
    with WireClient(system.broker) as client:
        lock(client, group, "c@1", 0)
        client.send(Command(42, flag=FLAG_ONEWAY, body=batch(group, "c@1", 0)))
        await_claim(lambda: lock(client, group, "c@2", 0) == [0], "queue 0 is free", 5)


def test_a_lock_outlives_the_connection_and_the_membership_of_its_client(
    system: System, fresh_name: Fresh
) -> None:
    group = fresh_name("G")
    with WireClient(system.broker) as other:
        with WireClient(system.broker) as client:
            join(client, "c@1", group, "TBW102")
            assert lock(client, group, "c@1", 0) == [0]
            client.ask(35, clientID="c@1", consumerGroup=group)
        assert lock(other, group, "c@2", 0) == []


def test_nothing_to_lock_is_fine_and_no_body_is_not(system: System, fresh_name: Fresh) -> None:
    with WireClient(system.broker) as client:
        assert lock(client, fresh_name("G"), "c@1") == []
        assert client.ask(41).code == 1
        assert client.ask(42).code == 1


def test_more_than_2000_queues_in_one_request_are_refused(
    system: System, fresh_name: Fresh
) -> None:
    """Kept difference: 4.9.7 takes any number."""
    group, is_ours = fresh_name("G"), judged_original() is None
    with WireClient(system.broker) as client:
        answers = [client.ask(code, batch(group, "c@1", *range(2_001))) for code in (41, 42)]
        assert lock(client, group, "c@1", *range(2_000)) == [*range(2_000)]
    assert [answer.code for answer in answers] == ([1, 1] if is_ours else [0, 0])
    assert not is_ours or "2001 queues, limit 2000 a request" in (answers[0].remark or "")
