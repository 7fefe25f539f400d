"""Groups and offsets through Admin: made, shown, moved, deleted; on ours and on the originals."""

import asyncio
import time

import pytest

from orbitmq.client.admin import Admin
from orbitmq.errors import LocalProtocolError, NotFound, RequestFailed, RouteNotFound
from orbitmq.wire.bodies_client import MessageQueue
from tests.behaviour.consumers import (
    Fresh,
    commit,
    fill_queues,
    join,
    next_request,
    queues,
    stored,
)
from tests.client.administering import BROKER, administer, eventually
from tests.foreign.judged import System, judged_original
from tests.wire_client import WireClient

IS_5 = judged_original() == "5.5.0"
IS_4 = judged_original() == "4.9.7"


async def filled(admin: Admin, system: System, topic: str, group: str, offsets: list[int]) -> None:
    """Have a topic with 3 and 1 messages in its queues, and a group that stands at offsets."""
    await admin.create_topic(topic, queue_count=2)
    await admin.create_group(group)
    with WireClient(system.broker) as client:
        fill_queues(client, topic, [3, 1])
        commit(client, group, topic, offsets)


# --- groups ---


def test_a_group_is_made_changed_shown_and_deleted(system: System, fresh_name: Fresh) -> None:
    group = fresh_name("Group")

    async def act(admin: Admin) -> None:
        (made,) = await admin.create_group(group, retry_max_times=3)
        assert (made.group, made.broker, made.retry_max_times) == (group, BROKER, 3)
        assert made.consume_enable
        (changed,) = await admin.create_group(group, consume_enable=False, broker=BROKER)
        assert (changed.retry_max_times, changed.consume_enable) == (3, False)
        assert await admin.group_config(group) == [changed]
        assert group in await admin.groups()
        assert await admin.delete_group(group) is True
        assert group not in await admin.groups()
        assert await admin.delete_group(group) is False
        with pytest.raises(NotFound, match=f"orbitmq group create {group}"):
            await admin.group_config(group)

    administer(system, act)


def test_the_systems_groups_are_listed_only_when_asked_for(system: System) -> None:
    async def act(admin: Admin) -> None:
        assert "TOOLS_CONSUMER" in await admin.groups(with_system=True)
        assert "TOOLS_CONSUMER" not in await admin.groups()

    administer(system, act)


def test_a_deleted_group_has_no_offsets_and_no_retry_topic(
    system: System, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("Group")

    async def act(admin: Admin) -> None:
        await filled(admin, system, topic, group, [2, 1])
        with WireClient(system.broker) as member:
            join(member, "c@1", group, topic)
        retry = f"%RETRY%{group}"
        await eventually(lambda: admin.topic_route(retry))
        await admin.delete_group(group)
        with pytest.raises(RouteNotFound):
            await admin.topic_route(retry)
        await admin.create_group(group)
        assert (await admin.progress(group)).queues == ()

    administer(system, act)


def test_progress_tells_the_lag_of_each_queue_and_in_sum(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("Topic"), fresh_name("Group")

    async def act(admin: Admin) -> None:
        await filled(admin, system, topic, group, [1, 1])
        progress = await admin.progress(group)
        rows = [
            (row.topic, row.broker, row.queue_id, row.end_offset, row.offset, row.lag)
            for row in progress.queues
        ]
        assert rows == [(topic, BROKER, 0, 3, 1, 2), (topic, BROKER, 1, 1, 1, 0)]
        assert progress.lag == 2
        assert progress.queues[0].consumed_ms > 1_700_000_000_000
        assert await admin.progress(group, topic=topic) == progress
        assert await admin.group_topics(group) == [topic]
        everybody = await admin.broker_progress(BROKER)
        assert {one.group: one.lag for one in everybody}[group] == 2
        summary = await admin.group_summary(group)
        assert (summary.client_count, summary.lag, summary.message_model) == (0, 2, "")

    administer(system, act)


def test_a_group_that_nobody_knows_is_not_found(system: System, fresh_name: Fresh) -> None:
    group, idle = fresh_name("Group"), fresh_name("Group")

    async def act(admin: Admin) -> None:
        with pytest.raises(NotFound, match="start a consumer of it"):
            await admin.progress(group)
        with pytest.raises(RouteNotFound):
            await admin.progress(group, topic=fresh_name("Topic"))
        await admin.create_group(idle)
        assert (await admin.progress(idle)).lag == 0
        assert (await admin.group_summary(idle)).lag is None

    administer(system, act)


def test_delays_tell_how_late_a_group_is(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("Topic"), fresh_name("Group")

    async def act(admin: Admin) -> None:
        await filled(admin, system, topic, group, [1, 1])
        rows = await admin.delays(group, topic)
        assert [row.queue_id for row in rows] == [0, 1]
        assert 0 < rows[0].first_ms <= rows[0].last_ms
        assert rows[0].consumed_ms >= rows[0].first_ms
        assert 0 <= rows[0].delay_ms < 60_000

    administer(system, act)


@pytest.mark.skipif(IS_4, reason="4.9 cannot forbid a topic to a group")
def test_a_topic_can_be_forbidden_to_a_group(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("Topic"), fresh_name("Group")

    async def act(admin: Admin) -> None:
        await filled(admin, system, topic, group, [0, 0])
        assert await admin.is_readable(group, topic)
        await admin.set_readable(group, topic, is_readable=False)
        assert not await admin.is_readable(group, topic)
        await admin.set_readable(group, topic, is_readable=True)
        assert await admin.is_readable(group, topic)

    administer(system, act)


# --- offsets ---


def test_offsets_of_a_queue(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("Topic"), fresh_name("Group")

    async def act(admin: Admin) -> None:
        await filled(admin, system, topic, group, [2, 0])
        queue = MessageQueue(topic, BROKER, 0)
        assert await admin.min_offset(queue) == 0
        assert await admin.max_offset(queue) == 3
        assert await admin.offset_by_time(queue, 0) == 0
        earliest_ms = await admin.earliest_store_time(queue)
        assert earliest_ms is not None
        assert abs(time.time() * 1000 - earliest_ms) < 60_000
        assert await admin.offset_by_time(queue, earliest_ms) <= 2  # all in one millisecond
        assert await admin.group_offset(group, queue) == 2
        await admin.set_group_offset(group, queue, 1)
        assert await admin.group_offset(group, queue) == 1
        assert await admin.correction_offsets(group, topic) == {
            queue: 1,
            MessageQueue(topic, BROKER, 1): 0,
        }

    administer(system, act)


def test_an_empty_queue_has_no_first_message(system: System, fresh_name: Fresh) -> None:
    topic = fresh_name("Topic")

    async def act(admin: Admin) -> None:
        await admin.create_topic(topic, queue_count=1)
        queue = MessageQueue(topic, BROKER, 0)
        assert await admin.earliest_store_time(queue) is None
        assert await admin.max_offset(queue) == 0

    administer(system, act)


def test_offsets_are_cloned(system: System, fresh_name: Fresh) -> None:
    topic, group, other = fresh_name("Topic"), fresh_name("Group"), fresh_name("Group")

    async def act(admin: Admin) -> None:
        await filled(admin, system, topic, group, [2, 1])
        await admin.create_group(other)
        await admin.clone_offsets(group, other, topic=topic)
        assert [row.offset for row in (await admin.progress(other)).queues] == [2, 1]

    administer(system, act)


# --- resets ---


def test_a_group_that_is_offline_is_reset(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("Topic"), fresh_name("Group")

    async def act(admin: Admin) -> None:
        await filled(admin, system, topic, group, [1, 1])

        async def offsets() -> list[int]:
            return [row.offset for row in (await admin.progress(group, topic=topic)).queues]

        done = await admin.reset_to_latest(group, topic)
        assert [(row.broker, row.queue_id, row.offset) for row in done.queues] == [
            (BROKER, 0, 3),
            (BROKER, 1, 1),
        ]
        assert not done.is_running
        assert await offsets() == [3, 1]
        await admin.reset_to_earliest(group, topic)
        assert await offsets() == [0, 0]
        queue = MessageQueue(topic, BROKER, 0)
        second_ms = (await admin.peek(queue, 1, 1)).messages[0].store_ms
        expected = await admin.offset_by_time(queue, second_ms)
        done = await admin.reset_to_time(group, topic, second_ms)
        assert (await offsets())[0] == done.queues[0].offset == expected
        await admin.reset_to_offset(group, topic, 2)
        assert await offsets() == [2, 1]
        await admin.reset_to_offset(group, topic, {queue: 1})
        assert await offsets() == [1, 1]
        if IS_5:
            with pytest.raises(RequestFailed, match="reset it once more"):
                await admin.set_group_offset(group, queue, 3)

    administer(system, act)


def test_a_group_without_offsets_is_reset_as_well(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("Topic"), fresh_name("Group")

    async def act(admin: Admin) -> None:
        await admin.create_topic(topic, queue_count=2)
        await admin.create_group(group)
        with WireClient(system.broker) as client:
            fill_queues(client, topic, [3, 1])
        await admin.reset_to_latest(group, topic)
        assert (await admin.progress(group)).lag == 0
        assert len((await admin.progress(group)).queues) == 2

    administer(system, act)


@pytest.mark.skipif(IS_5, reason="5.5.0 goes forward all the same")
def test_a_reset_that_only_goes_back_does_not_go_forward(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("Topic"), fresh_name("Group")

    async def act(admin: Admin) -> None:
        await filled(admin, system, topic, group, [1, 1])
        done = await admin.reset_to_time(group, topic, int(time.time() * 1000), only_back=True)
        assert [row.offset for row in done.queues] == [1, 0] or [
            row.offset for row in done.queues
        ] == [1, 1]
        assert (await admin.progress(group, topic=topic)).queues[0].offset == 1

    administer(system, act)


def test_running_consumers_are_told_of_a_reset(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("Topic"), fresh_name("Group")

    async def act(admin: Admin) -> None:
        await filled(admin, system, topic, group, [1, 1])
        with WireClient(system.broker) as member:
            join(member, "c@1", group, topic)
            done = await admin.reset_to_latest(group, topic)
            assert done.is_running
            assert [row.offset for row in done.queues] == [3, 1]
            if IS_5:  # it writes the offsets by itself
                assert [stored(member, group, topic, number) for number in (0, 1)] == [3, 1]
                return
            told = await asyncio.to_thread(next_request, member, 220)
            assert queues(told.body, "offsetTable") == {0: 3, 1: 1}

    administer(system, act)


@pytest.mark.skipif(IS_4, reason="4.9 cannot move running consumers to an offset")
def test_running_consumers_are_moved_to_an_offset(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("Topic"), fresh_name("Group")

    async def act(admin: Admin) -> None:
        await filled(admin, system, topic, group, [3, 1])
        with WireClient(system.broker) as member:
            join(member, "c@1", group, topic)
            done = await admin.reset_to_offset(group, topic, {MessageQueue(topic, BROKER, 0): 2})
            assert done.is_running
            if IS_5:
                assert stored(member, group, topic, 0) == 2
                return
            told = await asyncio.to_thread(next_request, member, 220)
            assert queues(told.body, "offsetTable") == {0: 2}

    administer(system, act)


@pytest.mark.skipif(not IS_4, reason="the others can")
def test_a_4_9_broker_is_not_asked_to_move_running_consumers_to_an_offset(
    system: System, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("Group")

    async def act(admin: Admin) -> None:
        await filled(admin, system, topic, group, [3, 1])
        with WireClient(system.broker) as member:
            join(member, "c@1", group, topic)
            with pytest.raises(RequestFailed, match=f"stop those of group {group} first"):
                await admin.reset_to_offset(group, topic, 2)
            assert stored(member, group, topic, 0) == 3

    administer(system, act)


def test_resets_to_where_nothing_is_are_refused(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("Topic"), fresh_name("Group")

    async def act(admin: Admin) -> None:
        await filled(admin, system, topic, group, [0, 0])
        with pytest.raises(LocalProtocolError, match="has 0 to 3; a group cannot go on at 4"):
            await admin.reset_to_offset(group, topic, {MessageQueue(topic, BROKER, 0): 4})
        with pytest.raises(LocalProtocolError, match=r"queue 7 .* does not exist"):
            await admin.reset_to_offset(group, topic, {MessageQueue(topic, BROKER, 7): 0})
        with pytest.raises(RouteNotFound):
            await admin.reset_to_latest(group, fresh_name("Topic"))

    administer(system, act)


@pytest.mark.skipif(IS_4, reason="4.9 keeps offsets of any group")
def test_a_reset_of_an_unknown_group_says_so(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("Topic"), fresh_name("Group")

    async def act(admin: Admin) -> None:
        await admin.create_topic(topic, queue_count=1)
        await admin.update_broker_settings({"autoCreateSubscriptionGroup": "false"}, broker=BROKER)
        try:
            with pytest.raises(NotFound, match=f"there is no group {group}"):
                await admin.reset_to_latest(group, topic)
        finally:
            await admin.update_broker_settings(
                {"autoCreateSubscriptionGroup": "true"}, broker=BROKER
            )

    administer(system, act)


# --- who is there ---


def test_members_and_their_subscriptions_are_shown(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("Topic"), fresh_name("Group")

    async def act(admin: Admin) -> None:
        await admin.create_topic(topic, queue_count=1)
        with WireClient(system.broker) as member:
            join(member, "c@1", group, topic)
            members = await admin.consumers(group)
            assert [client.client_id for client in members.clients] == ["c@1"]
            assert members.clients[0].address.startswith("127.0.0.1:")
            assert [(one.topic, one.expression) for one in members.subscriptions] == [(topic, "*")]
            assert members.message_model == "CLUSTERING"
            assert members.consume_type == "CONSUME_PASSIVELY"
            summary = await admin.group_summary(group)
            assert (summary.client_count, summary.message_model) == (1, "CLUSTERING")

        async def is_gone() -> bool:
            return (await admin.consumers(group)).clients == ()

        assert await eventually(is_gone)
        with pytest.raises(NotFound):
            await admin.consumers(fresh_name("Group"))

    administer(system, act)


def test_a_group_that_broadcasts_has_no_lag(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("Topic"), fresh_name("Group")

    async def act(admin: Admin) -> None:
        await filled(admin, system, topic, group, [1, 1])
        with WireClient(system.broker) as member:
            join(member, "c@1", group, topic, messageModel="BROADCASTING")
            summary = await admin.group_summary(group)
        assert (summary.message_model, summary.lag) == ("BROADCASTING", None)

    administer(system, act)


def test_producers_are_shown(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("Topic"), fresh_name("Producers")
    beat = b'{"clientID":"p@1","producerDataSet":[{"groupName":"%s"}]}' % group.encode()

    async def act(admin: Admin) -> None:
        await admin.create_topic(topic, queue_count=1)
        assert await admin.producers(group, topic) == []
        with WireClient(system.broker) as client:
            assert client.ask(34, beat).code == 0
            assert [one.client_id for one in await admin.producers(group, topic)] == ["p@1"]
            (mine,) = (await admin.all_producers())[group]
            assert (mine.client_id, mine.language) == ("p@1", "JAVA")
            assert mine.address.startswith("127.0.0.1:")
            assert abs(time.time() * 1000 - mine.seen_ms) < 60_000

    administer(system, act)
