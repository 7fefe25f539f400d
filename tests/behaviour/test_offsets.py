"""Consumer offsets as tools and slaves see them: compare, clone, and the whole tables."""

from typing import Any

import pytest

from orbitmq.wire.fastjson import read_json
from tests.behaviour.consumers import Fresh, commit, fill_queues, join, stored
from tests.foreign.judged import System, judged_original
from tests.wire_client import WireClient


def correction(client: WireClient, topic: str, group: str, **more: str) -> dict[str, int]:
    answer = client.ask(308, topic=topic, compareGroup=group, **more)
    assert answer.code == 0, answer.remark
    found: dict[str, int] = read_json(answer.body, dict[str, Any])["correctionOffsets"]
    return found


def test_a_lower_offset_is_stored(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill_queues(client, topic, [3])
        commit(client, group, topic, [3])
        commit(client, group, topic, [1])
        assert stored(client, group, topic, 0) == 1


def test_the_table_of_all_offsets_is_what_the_file_holds(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill_queues(client, topic, [2, 1])
        commit(client, group, topic, [2, 0])
        body = client.ask(43).body
    assert f'"{topic}@{group}":{{0:2,1:0}}'.encode() in body
    assert body.startswith(b'{"')
    assert read_json(body, dict[str, Any])["offsetTable"][f"{topic}@{group}"] == {"0": 2, "1": 0}


def test_the_table_of_delay_levels_can_be_asked_for(system: System) -> None:
    with WireClient(system.broker) as client:
        answer = client.ask(45)
    assert answer.code == 0
    assert isinstance(read_json(answer.body, dict[str, Any])["offsetTable"], dict)


def test_the_correction_is_the_least_offset_of_all_groups(
    system: System, fresh_name: Fresh
) -> None:
    topic, one, two = fresh_name("T"), fresh_name("G"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill_queues(client, topic, [5, 5])
        assert correction(client, topic, one) == {}
        commit(client, one, topic, [4, 2])
        commit(client, two, topic, [3, 5])
        assert correction(client, topic, one) == {"0": 3, "1": 2}
        assert correction(client, topic, "nobody") == {"0": 3, "1": 2}


def test_groups_can_be_left_out_of_the_correction(system: System, fresh_name: Fresh) -> None:
    """The original forgets the offsets of the groups that are left out; ours keeps them."""
    topic, one, two = fresh_name("T"), fresh_name("G"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill_queues(client, topic, [5])
        commit(client, one, topic, [4])
        commit(client, two, topic, [3])
        assert correction(client, topic, one, filterGroups=f"x,{two}") == {"0": 4}
        left = stored(client, two, topic, 0)
    assert left == (3 if judged_original() is None else 0), "0 is where a group without one begins"


def test_cloned_offsets_are_those_of_the_topic_and_group_named(
    system: System, fresh_name: Fresh
) -> None:
    topic, other, source, to = (fresh_name(word) for word in ("T", "T", "G", "G"))
    with WireClient(system.broker) as client:
        for name in (topic, other):
            fill_queues(client, name, [3])
            commit(client, source, name, [2])
        cloned = client.ask(314, srcGroup=source, destGroup=to, topic=topic, offline="true")
        assert (cloned.code, cloned.body) == (0, b"")
        table = read_json(client.ask(43).body, dict[str, Any])["offsetTable"]
    assert table[f"{topic}@{to}"] == {"0": 2}
    assert f"{other}@{to}" not in table


def test_a_topic_that_the_live_group_does_not_subscribe_to_is_cloned_only_when_told(
    system: System, fresh_name: Fresh
) -> None:
    topic, other, source, to = (fresh_name(word) for word in ("T", "T", "G", "G"))
    names = {"srcGroup": source, "destGroup": to}
    with WireClient(system.broker) as client:
        for name in (topic, other):
            fill_queues(client, name, [3])
            commit(client, source, name, [2])
        join(client, "c@1", source, topic)
        for name in (topic, other):
            assert client.ask(314, topic=name, offline="false", **names).code == 0
        table = read_json(client.ask(43).body, dict[str, Any])["offsetTable"]
        assert (f"{topic}@{to}" in table, f"{other}@{to}" in table) == (True, False)
        assert client.ask(314, topic=other, offline="true", **names).code == 0
        table = read_json(client.ask(43).body, dict[str, Any])["offsetTable"]
    assert table[f"{other}@{to}"] == {"0": 2}


@pytest.mark.skipif(judged_original() is not None, reason="originals clone nothing then")
def test_a_clone_without_a_topic_takes_all_of_them(system: System, fresh_name: Fresh) -> None:
    """The originals go over all topics, too, but clone the one that was not named each time."""
    topic, other, source, to = (fresh_name(word) for word in ("T", "T", "G", "G"))
    with WireClient(system.broker) as client:
        for name in (topic, other):
            fill_queues(client, name, [3])
            commit(client, source, name, [2])
        assert client.ask(314, srcGroup=source, destGroup=to, offline="true").code == 0
        assert stored(client, to, topic, 0) == stored(client, to, other, 0) == 2


@pytest.mark.skipif(judged_original() == "4.9.7", reason="4.9.7 stores it, and answers 0")
def test_an_offset_of_a_topic_that_is_not_there_is_17(system: System, fresh_name: Fresh) -> None:
    """As in 5.x. A client of 4.x sends its offsets one-way and never hears of it."""
    with WireClient(system.broker) as client:
        join(client, "c@1", group := fresh_name("G"), "TBW102")
        answer = client.ask(15, consumerGroup=group, topic="none", queueId=0, commitOffset=3)
    assert answer.code == 17


def test_an_offset_of_a_group_or_a_queue_that_cannot_be_is_refused(
    system: System, fresh_name: Fresh
) -> None:
    """Kept difference: 4.9.7 stores both, and answers 0. So it does for a group that may not be
    made since autoCreateSubscriptionGroup is off.
    """
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill_queues(client, topic, [1])
        commit(client, group, topic, [1])
        place: dict[str, str | int] = {"topic": topic, "commitOffset": 1}
        no_group = client.ask(15, consumerGroup="no group!", queueId=0, **place)
        no_queue = client.ask(15, consumerGroup=group, queueId=9, **place)
    is_ours = judged_original() is None
    assert (no_group.code, no_queue.code) == ((26, 1) if is_ours else (0, 0))
