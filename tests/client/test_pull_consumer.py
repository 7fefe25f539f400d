"""PullConsumer: polls, seeks, pauses, commits, shares, queue-level pulls, and a clean end."""

import asyncio
import logging
from collections.abc import Collection
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from orbitmq.client.message import ReceivedMessage
from orbitmq.client.offset_stores import Remembered
from orbitmq.client.pull_consumer import PullConsumer
from orbitmq.client.pull_settings import PullConsumerOptions, PullConsumerSettings
from orbitmq.client.pulling import PullStatus
from orbitmq.client.subscriptions import Selector
from orbitmq.errors import (
    ClientStateError,
    ConnectFailed,
    LocalProtocolError,
    RequestFailed,
    RouteNotFound,
    SettingError,
)
from orbitmq.wire.bodies_client import MessageModel, MessageQueue
from tests.client.polling import FIRST, bodies, collect
from tests.client.sites import Fresh, fill, make_topic, run, send
from tests.foreign.judged import System

# --- messages ---


def test_subscribed_messages_come_in_order_per_queue_and_once(
    system: System, fresh_name: Fresh
) -> None:
    queues = make_topic(system, fresh_name("Topic"), 3)
    for queue in queues:
        fill(system, queue, bodies(25))

    async def work() -> None:
        group = fresh_name("Group")
        async with PullConsumer(system.namesrv, group, from_where=FIRST) as consumer:
            await consumer.subscribe(queues[0].topic)
            assert consumer.assignment() == queues
            found = await collect(consumer, 75)
            for queue in queues:
                assert [each.body for each in found if each.queue == queue] == bodies(25)
            assert await consumer.poll(0.05) == []

    run(work())


def test_a_poll_gives_one_queues_messages_and_at_most_a_batch(
    system: System, fresh_name: Fresh
) -> None:
    queues = make_topic(system, fresh_name("Topic"), 2)
    for queue in queues:
        fill(system, queue, bodies(9))

    async def work() -> None:
        options: PullConsumerOptions = {"from_where": FIRST, "pull_batch_size": 4}
        async with PullConsumer(system.namesrv, fresh_name("Group"), **options) as consumer:
            await consumer.subscribe(queues[0].topic)
            left = 18
            while left:
                taken = await consumer.poll()
                assert 1 <= len(taken) <= 4
                assert len({message.queue for message in taken}) == 1
                left -= len(taken)

    run(work())


def test_messages_that_come_while_a_poll_waits_end_it(system: System, fresh_name: Fresh) -> None:
    queue = make_topic(system, fresh_name("Topic"), 1)[0]

    async def work() -> None:
        group = fresh_name("Group")
        async with PullConsumer(system.namesrv, group, from_where=FIRST) as consumer:
            await consumer.subscribe(queue.topic)
            polling = asyncio.ensure_future(consumer.poll(30))
            await send(consumer._running().instance, queue, b"late")
            assert [message.body for message in await polling] == [b"late"]

    run(work())


def test_selectors_choose_by_tag_and_can_be_changed(system: System, fresh_name: Fresh) -> None:
    queue = make_topic(system, fresh_name("Topic"), 1)[0]
    for tag in ("a", "b", "a", "c"):
        fill(system, queue, [tag.encode()], TAGS=tag)

    async def work() -> None:
        group = fresh_name("Group")
        async with PullConsumer(system.namesrv, group, from_where=FIRST) as consumer:
            await consumer.subscribe(queue.topic, "a || c")
            found = await collect(consumer, 3)
            assert [message.body for message in found] == [b"a", b"a", b"c"]
            await consumer.seek_to_begin(queue)
            await consumer.subscribe(queue.topic, "b")
            assert [message.body for message in await collect(consumer, 1)] == [b"b"]

    run(work())


def test_filtered_messages_count_as_consumed(system: System, fresh_name: Fresh) -> None:
    queue, group = make_topic(system, fresh_name("Topic"), 1)[0], fresh_name("Group")
    fill(system, queue, bodies(3), TAGS="a")
    fill(system, queue, bodies(4), TAGS="b")

    async def work() -> None:
        async with PullConsumer(system.namesrv, group, from_where=FIRST) as consumer:
            await consumer.subscribe(queue.topic, "a")
            await collect(consumer, 3)
            while consumer.position(queue) != 7:
                assert await consumer.poll(0.05) == []
            await consumer.commit()
            assert await consumer.committed(queue) == 7

    run(work())


def test_an_iteration_gives_message_after_message_until_the_close(
    system: System, fresh_name: Fresh
) -> None:
    queue = make_topic(system, fresh_name("Topic"), 1)[0]
    fill(system, queue, bodies(12))

    async def work() -> None:
        consumer = PullConsumer(system.namesrv, fresh_name("Group"), from_where=FIRST)
        await consumer.subscribe(queue.topic)
        async with consumer:
            found = []
            async for message in consumer:
                found.append(message.body)
                if len(found) == 12:
                    await consumer.close()
            assert found == bodies(12)

    run(work())


@pytest.mark.parametrize("by", ["poll", "loop"])
def test_a_pull_consumer_closed_in_finally_committed_a_message_whose_handling_raised(
    system: System, fresh_name: Fresh, by: str
) -> None:
    queue, group = make_topic(system, fresh_name("Topic"), 1)[0], fresh_name("Group")
    fill(system, queue, bodies(8))

    def handle(message: ReceivedMessage) -> None:
        if message.body == bodies(8)[5]:
            raise ValueError("message 5")

    async def consume(consumer: PullConsumer) -> None:
        while by == "poll":
            for message in await consumer.poll():
                handle(message)
        async for message in consumer:
            handle(message)

    async def closed_finally(consumer: PullConsumer) -> None:
        try:
            await consume(consumer)
        finally:
            await consumer.close()

    async def work() -> None:
        options: PullConsumerOptions = {"from_where": FIRST, "pull_batch_size": 1}
        consumer = PullConsumer(system.namesrv, group, **options)
        await consumer.start()
        await consumer.subscribe(queue.topic)
        with pytest.raises(ValueError, match="message 5"):
            await closed_finally(consumer)
        async with PullConsumer(system.namesrv, group, **options) as again:
            await again.subscribe(queue.topic)
            assert [message.body for message in await collect(again, 3)] == bodies(8)[5:]

    run(work())


def test_a_commit_before_the_close_says_that_the_last_message_was_consumed(
    system: System, fresh_name: Fresh
) -> None:
    queue, group = make_topic(system, fresh_name("Topic"), 1)[0], fresh_name("Group")
    fill(system, queue, bodies(2))

    async def work() -> None:
        consumer = PullConsumer(system.namesrv, group, from_where=FIRST)
        await consumer.start()
        await consumer.subscribe(queue.topic)
        await collect(consumer, 2)
        await consumer.commit()
        await consumer.close()
        async with PullConsumer(system.namesrv, group) as again:
            assert await again.committed(queue) == 2

    run(work())


def test_a_close_ends_a_poll_that_waits(system: System, fresh_name: Fresh) -> None:
    queue = make_topic(system, fresh_name("Topic"), 1)[0]

    async def work() -> None:
        consumer = PullConsumer(system.namesrv, fresh_name("Group"))
        await consumer.start()
        await consumer.subscribe(queue.topic)
        polling = asyncio.ensure_future(consumer.poll(30))
        await asyncio.sleep(0)
        with pytest.raises(ClientStateError, match="another poll"):
            await consumer.poll()
        await consumer.close()
        assert await polling == []

    run(work())


# --- seeks and pauses ---


def test_seeks_go_on_elsewhere_and_throw_away_what_was_pulled(
    system: System, fresh_name: Fresh
) -> None:
    queue = make_topic(system, fresh_name("Topic"), 1)[0]
    fill(system, queue, bodies(8))

    async def work() -> None:
        async with PullConsumer(system.namesrv, fresh_name("Group")) as consumer:
            await consumer.assign([queue])
            await consumer.seek(queue, 5)
            assert [each.body for each in await collect(consumer, 3)] == bodies(3, 5)
            await consumer.seek_to_begin(queue)
            assert [each.body for each in await collect(consumer, 8)] == bodies(8)
            await consumer.seek_to_time(queue, 1.0)
            assert [each.body for each in await collect(consumer, 8)] == bodies(8)
            await consumer.seek_to_end(queue)
            assert consumer.position(queue) == 8
            await send(consumer._running().instance, queue, b"new")
            assert [each.body for each in await collect(consumer, 1)] == [b"new"]

    run(work())


def test_offsets_and_queues_that_cannot_be_sought_are_refused(
    system: System, fresh_name: Fresh
) -> None:
    queues = make_topic(system, fresh_name("Topic"), 2)
    fill(system, queues[0], bodies(3))

    async def work() -> None:
        async with PullConsumer(system.namesrv, fresh_name("Group")) as consumer:
            await consumer.assign(queues[:1])
            with pytest.raises(LocalProtocolError, match="offsets 0 to 3, so 4 cannot be sought"):
                await consumer.seek(queues[0], 4)
            with pytest.raises(LocalProtocolError, match="so -1 cannot be sought"):
                await consumer.seek(queues[0], -1)
            with pytest.raises(ClientStateError, match="not one of this consumer's queues"):
                await consumer.seek(queues[1], 0)
            await consumer.seek(queues[0], 3)

    run(work())


def test_a_paused_queue_gives_nothing_until_it_is_resumed(
    system: System, fresh_name: Fresh
) -> None:
    queues = make_topic(system, fresh_name("Topic"), 2)
    for queue in queues:
        fill(system, queue, bodies(5))

    async def work() -> None:
        group = fresh_name("Group")
        async with PullConsumer(system.namesrv, group, from_where=FIRST) as consumer:
            await consumer.subscribe(queues[0].topic)
            consumer.pause(queues[:1])
            found = await collect(consumer, 5)
            assert {message.queue for message in found} == {queues[1]}
            assert await consumer.poll(0.2) == []
            consumer.resume(queues[:1])
            found = await collect(consumer, 5)
            assert {message.queue for message in found} == {queues[0]}

    run(work())


# --- limits ---


@pytest.mark.parametrize(
    "limit",
    [
        {"queue_messages_max": 8},
        {"messages_max": 8},
        {"queue_bytes_max": 24},
        {"queue_span_max": 8},
    ],
)
def test_no_more_is_pulled_than_the_limits_allow_and_nothing_is_lost(
    system: System, fresh_name: Fresh, limit: PullConsumerOptions
) -> None:
    queue = make_topic(system, fresh_name("Topic"), 1)[0]
    fill(system, queue, bodies(40))

    async def work() -> None:
        options: PullConsumerOptions = {"from_where": FIRST, "pull_batch_size": 3, **limit}
        async with PullConsumer(system.namesrv, fresh_name("Group"), **options) as consumer:
            await consumer.subscribe(queue.topic)
            pulled = consumer._pulled(queue)
            cache = consumer._running().queues.cache
            while cache.has_room(pulled):
                await asyncio.sleep(0.01)
            assert 9 <= pulled.count <= 12
            assert [each.body for each in await collect(consumer, 40)] == bodies(40)

    run(work())


# --- commits ---


def test_commit_stores_behind_what_was_handed_out(system: System, fresh_name: Fresh) -> None:
    queue, group = make_topic(system, fresh_name("Topic"), 1)[0], fresh_name("Group")
    fill(system, queue, bodies(10))

    async def work() -> None:
        options: PullConsumerOptions = {
            "from_where": FIRST,
            "pull_batch_size": 4,
            "auto_commit": False,
        }
        async with PullConsumer(system.namesrv, group, **options) as consumer:
            await consumer.subscribe(queue.topic)
            await consumer.poll()
            await consumer.commit()
            assert await consumer.committed(queue) == 4
            await consumer.poll()
        async with PullConsumer(system.namesrv, group, **options) as consumer:
            await consumer.subscribe(queue.topic)
            assert (await consumer.poll())[0].queue_offset == 4

    run(work())


def test_auto_commit_stores_what_the_program_came_back_from(
    system: System, fresh_name: Fresh
) -> None:
    queue, group = make_topic(system, fresh_name("Topic"), 1)[0], fresh_name("Group")
    fill(system, queue, bodies(10))

    async def work() -> None:
        options: PullConsumerOptions = {
            "from_where": FIRST,
            "pull_batch_size": 4,
            "commit_interval_s": 0.05,
        }
        async with PullConsumer(system.namesrv, group, **options) as consumer:
            await consumer.subscribe(queue.topic)
            await consumer.poll()
            await consumer.poll()
            while await consumer.committed(queue) != 4:
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.2)
            assert await consumer.committed(queue) == 4

    run(work())


@pytest.mark.parametrize(("fails", "expected"), [(False, 8), (True, 4)])
def test_a_close_consumes_the_last_messages_but_not_after_an_error(
    system: System, fresh_name: Fresh, *, fails: bool, expected: int
) -> None:
    queue, group = make_topic(system, fresh_name("Topic"), 1)[0], fresh_name("Group")
    fill(system, queue, bodies(10))

    async def consume() -> None:
        options: PullConsumerOptions = {"from_where": FIRST, "pull_batch_size": 4}
        async with PullConsumer(system.namesrv, group, **options) as consumer:
            await consumer.subscribe(queue.topic)
            await consumer.poll()
            await consumer.poll()
            if fails:
                raise KeyError("the handler's")

    async def work() -> None:
        try:
            await consume()
        except KeyError:
            assert fails
        async with PullConsumer(system.namesrv, group) as consumer:
            assert await consumer.committed(queue) == expected

    run(work())


def test_offsets_can_be_stored_for_any_queue(system: System, fresh_name: Fresh) -> None:
    queue, group = make_topic(system, fresh_name("Topic"), 1)[0], fresh_name("Group")
    fill(system, queue, bodies(10))

    async def work() -> None:
        async with PullConsumer(system.namesrv, group) as consumer:
            await consumer.pull(queue, 0)
            await consumer.commit({queue: 6})
            assert await consumer.committed(queue) == 6
        async with PullConsumer(system.namesrv, group) as consumer:
            await consumer.subscribe(queue.topic)
            assert (await collect(consumer, 4))[0].queue_offset == 6

    run(work())


def test_a_seek_is_committed_also_backwards(system: System, fresh_name: Fresh) -> None:
    queue, group = make_topic(system, fresh_name("Topic"), 1)[0], fresh_name("Group")
    fill(system, queue, bodies(10))

    async def work() -> None:
        async with PullConsumer(system.namesrv, group, from_where=FIRST) as consumer:
            await consumer.subscribe(queue.topic)
            await collect(consumer, 10)
            await consumer.commit()
            await consumer.seek(queue, 3)
            await consumer.commit()
            assert await consumer.committed(queue) == 3

    run(work())


def test_broadcasting_members_get_everything_and_keep_offsets_in_a_file(
    system: System, fresh_name: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    queues, group = make_topic(system, fresh_name("Topic"), 2), fresh_name("Group")
    for queue in queues:
        fill(system, queue, bodies(4))

    def consumer(name: str) -> PullConsumer:
        return PullConsumer(
            system.namesrv,
            group,
            from_where=FIRST,
            message_model=MessageModel.BROADCASTING,
            instance_name=name,
        )

    async def work() -> None:
        async with consumer("one") as one, consumer("two") as two:
            for each in (one, two):
                await each.subscribe(queues[0].topic)
                assert each.assignment() == queues
                await collect(each, 8)
        async with consumer("one") as one:
            await one.subscribe(queues[0].topic)
            assert await one.poll(0.2) == []
            assert [await one.committed(queue) for queue in queues] == [4, 4]

    run(work())
    assert len(list(tmp_path.glob(f".rocketmq_offsets/*@one/{group}/offsets.json"))) == 1


class Kept(Remembered):
    """A store of a program's own."""

    def __init__(self, kept: dict[MessageQueue, int]) -> None:
        super().__init__()
        self._kept = kept

    async def load(self) -> None:
        pass

    async def read(self, queue: MessageQueue) -> int | None:
        return self._kept.get(queue)

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        self._kept.update({queue: self._offsets[queue] for queue in queues})


def test_a_program_may_bring_its_own_store(system: System, fresh_name: Fresh) -> None:
    queue = make_topic(system, fresh_name("Topic"), 1)[0]
    fill(system, queue, bodies(6))
    kept = {queue: 2}

    async def work() -> None:
        group = fresh_name("Group")
        async with PullConsumer(system.namesrv, group, offset_store=Kept(kept)) as consumer:
            await consumer.subscribe(queue.topic)
            assert [message.body for message in await collect(consumer, 4)] == bodies(4, 2)

    run(work())
    assert kept == {queue: 6}


def test_a_new_broadcasting_group_begins_at_the_end_also_of_a_young_queue(
    system: System, fresh_name: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    queue = make_topic(system, fresh_name("Topic"), 1)[0]
    fill(system, queue, bodies(3))

    async def work() -> None:
        consumer = PullConsumer(
            system.namesrv, fresh_name("Group"), message_model=MessageModel.BROADCASTING
        )
        assert consumer.settings.instance_name == "DEFAULT"
        async with consumer:
            await consumer.subscribe(queue.topic)
            while consumer.position(queue) is None:
                assert await consumer.poll(0.05) == []
            assert consumer.position(queue) == 3

    run(work())


# --- one pull at a time ---


def test_a_program_can_pull_queue_by_queue(system: System, fresh_name: Fresh) -> None:
    queue = make_topic(system, fresh_name("Topic"), 1)[0]
    fill(system, queue, bodies(3), TAGS="a")
    fill(system, queue, bodies(3, 3), TAGS="b")

    async def work() -> None:
        async with PullConsumer(system.namesrv, fresh_name("Group")) as consumer:
            result = await consumer.pull(queue, 1, count_max=2)
            assert [message.body for message in result.messages] == bodies(2, 1)
            assert (result.next_offset, result.max_offset) == (3, 6)
            result = await consumer.pull(queue, 0, selector=Selector.tags("b"))
            assert [message.body for message in result.messages] == bodies(3, 3)
            result = await consumer.pull(queue, 6)
            assert (result.status, result.messages) == (PullStatus.NO_NEW_MSG, [])
            assert await consumer.min_offset(queue) == 0
            assert await consumer.max_offset(queue) == 6
            assert await consumer.offset_for_time(queue, 1.0) == 0

    run(work())


def test_a_pull_that_waits_is_answered_by_a_message(system: System, fresh_name: Fresh) -> None:
    queue = make_topic(system, fresh_name("Topic"), 1)[0]

    async def work() -> None:
        async with PullConsumer(system.namesrv, fresh_name("Group")) as consumer:
            await consumer.queues(queue.topic)
            pulling = asyncio.ensure_future(consumer.pull(queue, 0, wait=20))
            await send(consumer._running().instance, queue, b"late")
            assert [message.body for message in (await pulling).messages] == [b"late"]

    run(work())


def test_a_message_that_is_sent_back_comes_again_with_its_topic(
    system: System, fresh_name: Fresh
) -> None:
    queue, group = make_topic(system, fresh_name("Topic"), 1)[0], fresh_name("Group")
    fill(system, queue, [b"later"])

    async def work() -> None:
        options: PullConsumerOptions = {"from_where": FIRST, "rebalance_interval_s": 0.5}
        async with PullConsumer(system.namesrv, group, **options) as consumer:
            await consumer.subscribe(queue.topic)
            (message,) = await collect(consumer, 1)
            await consumer.send_back(message, delay_level=1)
            await consumer.subscribe(consumer.retry_topic)
            (again,) = await collect(consumer, 1)
            assert (again.body, again.topic, again.reconsume_times) == (b"later", queue.topic, 1)
            assert again.queue.topic == f"%RETRY%{group}"

    run(work())


# --- namespaces, mistakes, trouble ---


def test_a_namespace_is_put_on_and_taken_off(system: System, fresh_name: Fresh) -> None:
    topic = fresh_name("Topic")
    queue = make_topic(system, f"shop%{topic}", 1)[0]
    fill(system, queue, [b"inside"])

    async def work() -> None:
        options: PullConsumerOptions = {"namespace": "shop", "from_where": FIRST}
        async with PullConsumer(system.namesrv, fresh_name("Group"), **options) as consumer:
            await consumer.subscribe(topic)
            assert consumer.assignment() == [queue]
            (message,) = await collect(consumer, 1)
            assert (message.topic, message.queue) == (topic, queue)
            await consumer.commit()
            assert await consumer.committed(MessageQueue(topic, "broker-a", 0)) == 1

    run(work())


def test_subscribing_and_assigning_exclude_each_other(system: System, fresh_name: Fresh) -> None:
    queue = make_topic(system, fresh_name("Topic"), 1)[0]

    async def work() -> None:
        async with PullConsumer(system.namesrv, fresh_name("Group")) as consumer:
            await consumer.assign([queue])
            with pytest.raises(ClientStateError, match="this one has assigned"):
                await consumer.subscribe(queue.topic)
        async with PullConsumer(system.namesrv, fresh_name("Group")) as consumer:
            await consumer.subscribe(queue.topic)
            with pytest.raises(ClientStateError, match="this one has subscribed"):
                await consumer.assign([queue])
            with pytest.raises(RouteNotFound):
                await consumer.queues(fresh_name("Gone"))

    run(work())


def test_a_consumer_is_used_between_start_and_close_only(system: System) -> None:
    async def work() -> None:
        consumer = PullConsumer(system.namesrv, "group")
        with pytest.raises(ClientStateError, match="call its start"):
            await consumer.poll()
        await consumer.start()
        with pytest.raises(ClientStateError, match="was started before"):
            await consumer.start()
        assert consumer.is_running
        await consumer.close()
        await consumer.close()
        with pytest.raises(ClientStateError, match="is closed; make a new one"):
            consumer.assignment()

    run(work())


def test_a_refused_expression_is_an_error_of_subscribe(system: System, fresh_name: Fresh) -> None:
    queue = make_topic(system, fresh_name("Topic"), 1)[0]

    async def work() -> None:
        async with PullConsumer(system.namesrv, fresh_name("Group")) as consumer:
            with pytest.raises(RequestFailed):
                await consumer.subscribe(queue.topic, Selector.sql("price >>> 3"))

    run(work())


def test_defaults_are_those_of_the_originals_lite_pull_consumer() -> None:
    settings = PullConsumer("127.0.0.1:9876", "group").settings
    assert (settings.pull_batch_size, settings.pull_wait_s) == (10, 20.0)
    assert (settings.messages_max, settings.queue_messages_max) == (10_000, 1000)
    assert (settings.queue_bytes_max, settings.queue_span_max) == (100 * 2**20, 2000)
    assert (settings.auto_commit, settings.commit_interval_s) == (True, 5.0)
    assert (settings.poll_timeout_s, settings.rebalance_interval_s) == (5.0, 20.0)
    assert settings.strategy.name == "AVG"


def test_each_option_has_a_setting_of_its_name() -> None:
    options = set(get_type_hints(PullConsumerOptions))
    assert options | {"namesrv", "group"} == set(PullConsumerSettings.__struct_fields__)


@pytest.mark.parametrize(
    ("group", "options", "problem"),
    [
        ("", {}, "needs a group of its own"),
        ("DEFAULT_CONSUMER", {}, "needs a group of its own"),
        ("a b", {}, "has ' ' at position 1"),
        ("g", {"pull_batch_size": 0}, "pull_batch_size=0: it may be from 1 to 1024"),
        ("g", {"queue_span_max": 65_536}, "queue_span_max=65536: it may be from 1 to 65535"),
        ("g", {"pul_batch_size": 5}, "did you mean pull_batch_size"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    group: str, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(SettingError, match=problem):
        PullConsumer("127.0.0.1:9876", group, **options)


def test_without_a_name_server_a_subscription_says_so() -> None:
    async def work() -> None:
        consumer = PullConsumer("127.0.0.1:1", "group")
        await consumer.subscribe("orders")
        with pytest.raises(ConnectFailed, match="no name server says where topic orders is"):
            await consumer.start()
        assert not consumer.is_running

    run(work())


def test_a_hook_that_fails_is_logged_and_the_pull_is_made_again(
    system: System, fresh_name: Fresh, caplog: pytest.LogCaptureFixture
) -> None:
    queue = make_topic(system, fresh_name("Topic"), 1)[0]
    fill(system, queue, [b"x"])
    calls = []

    def hook(messages: list[ReceivedMessage], _queue: MessageQueue) -> list[ReceivedMessage]:
        calls.append(len(messages))
        if len(calls) == 1:
            raise KeyError("a mistake of the program")
        return messages

    async def work() -> None:
        consumer = PullConsumer(system.namesrv, fresh_name("Group"), from_where=FIRST)
        consumer.add_filter_hook(hook)
        await consumer.subscribe(queue.topic)
        async with consumer:
            assert [each.body for each in await collect(consumer, 1)] == [b"x"]

    with caplog.at_level(logging.ERROR):
        run(work())
    assert "it is made again" in caplog.text
