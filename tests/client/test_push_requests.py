"""What a push consumer asks of brokers, seen as it goes out, and what it does on its own."""

import asyncio
import itertools
import json
from collections.abc import Collection
from typing import Any

import pytest

from orbitmq.client.committing import SETTLE_S
from orbitmq.client.message import ReceivedMessage
from orbitmq.client.offset_stores import Remembered
from orbitmq.client.outcomes import Retry
from orbitmq.client.push import PushConsumer
from orbitmq.client.push_settings import PushConsumerSettings
from orbitmq.client.queue_locks import VALID_S
from orbitmq.client.remote import Remote
from orbitmq.client.subscriptions import Selector
from orbitmq.errors import ConnectFailed
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.command import Command
from tests.behaviour.test_filters import changed
from tests.client.pushing import (
    FreshName,
    Inbox,
    becomes,
    consumer_of,
    inner,
    make_topic,
    numbered,
    queue_of,
    run,
    send,
)
from tests.foreign.judged import System

PULL, OFFSET, COMMIT, HEARTBEAT, SEND_BACK = 11, 14, 15, 34, 36
MEMBERS, LOCK, UNLOCK, CHECK = 38, 41, 42, 46
COMMITS, SUSPENDS, HAS_EXPRESSION = 1, 2, 4


def seen_by(consumer: PushConsumer) -> list[Command]:
    """Return the requests of a consumer that has just started, as they go out."""
    seen: list[Command] = []
    inner(consumer).instance.remote.before_request.append(
        lambda _address, request: seen.append(request)
    )
    return seen


def pulls_of(seen: list[Command], topic: str) -> list[dict[str, str]]:
    return [each.fields for each in seen if each.code == PULL and each.fields["topic"] == topic]


def test_a_pull_asks_for_32_messages_may_be_held_15_seconds_and_takes_the_offset_along(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        inbox = Inbox()
        async with await consumer_of(system, group, topic, inbox, selector="a") as consumer:
            seen = seen_by(consumer)
            await becomes(lambda: len(pulls_of(seen, topic)) == 1, "it pulls")
            first = pulls_of(seen, topic)[0]
            assert (first["maxMsgNums"], first["suspendTimeoutMillis"]) == ("32", "15000")
            assert (first["sysFlag"], first["commitOffset"]) == (str(SUSPENDS), "0")
            assert "subscription" not in first
            await send(system, topic, numbered(3), tag="a", queue_id=0)
            await inbox.holds(3)
            await asyncio.sleep(SETTLE_S)
            await consumer.commit()
            await send(system, topic, [b"one more"], tag="a", queue_id=0)
            await inbox.holds(4)
            await becomes(lambda: pulls_of(seen, topic)[-1]["queueOffset"] == "4", "it pulls on")
            last = pulls_of(seen, topic)[-1]
            assert last["sysFlag"] == str(SUSPENDS | COMMITS)
            assert int(last["commitOffset"]) in (3, 4)

    run(main())


def test_an_expression_goes_along_with_every_pull_if_that_is_wanted(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        inbox = Inbox()
        options = {"selector": "a || b", "sends_expression": True, "pull_batch_size": 7}
        async with await consumer_of(system, group, topic, inbox, **options) as consumer:
            seen = seen_by(consumer)
            await becomes(lambda: len(pulls_of(seen, topic)) == 1, "it pulls")
            (pull,) = pulls_of(seen, topic)
            assert pull["sysFlag"] == str(SUSPENDS | HAS_EXPRESSION)
            assert (pull["subscription"], pull["maxMsgNums"]) == ("a || b", "7")
            await send(system, topic, [b"b1"], tag="b")
            await inbox.holds(1)

    run(main())


def test_pulls_that_bring_something_keep_the_interval(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        inbox = Inbox()
        await send(system, topic, numbered(6), queue_id=0)
        options = {"pull_batch_size": 2, "pull_interval_s": 0.3}
        async with await consumer_of(system, group, topic, inbox, **options):
            await inbox.holds(6)
        assert inbox.bodies == numbered(6)
        assert inbox.times_s[2] - inbox.times_s[1] >= 0.25
        assert inbox.times_s[4] - inbox.times_s[3] >= 0.25

    run(main())


def test_offsets_are_stored_by_time_and_only_when_they_changed(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        inbox = Inbox()
        await send(system, topic, numbered(3), queue_id=0)
        async with await consumer_of(
            system, group, topic, inbox, commit_interval_s=0.1
        ) as consumer:
            seen = seen_by(consumer)

            def commits() -> list[str]:
                return [
                    each.fields["commitOffset"]
                    for each in seen
                    if each.code == COMMIT and each.fields["topic"] == topic
                ]

            await becomes(lambda: commits() == ["3"], "the offset is stored")
            await asyncio.sleep(0.5)
            assert commits() == ["3"]
            await send(system, topic, [b"one more"], queue_id=0)
            await becomes(lambda: commits() == ["3", "4"], "the next one is stored")

    run(main())


def test_a_change_of_queues_is_told_to_brokers_by_a_heartbeat_with_a_newer_version(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 2)

    async def main() -> None:
        async with await consumer_of(system, group, topic, Inbox()) as first:
            await becomes(lambda: len(first.queues()) == 3, "it has its queues")
            subscription = inner(first).subscriptions[topic]
            version, seen = subscription.version, seen_by(first)
            async with await consumer_of(system, group, topic, Inbox()):
                await becomes(lambda: len(first.queues()) < 3, "they share")
                await becomes(
                    lambda: any(
                        each.code == HEARTBEAT and str(subscription.version).encode() in each.body
                        for each in seen
                    ),
                    "brokers hear the new version",
                )
                assert subscription.version > version

    run(main())


def test_a_returned_message_names_its_place_its_topic_and_the_limit_of_retries(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        def fail(message: ReceivedMessage) -> None:
            if not message.reconsume_times:
                raise Retry(delay_level=2)

        inbox = Inbox(fail)
        async with await consumer_of(system, group, topic, inbox) as consumer:
            seen = seen_by(consumer)
            await send(system, topic, [b"back"], queue_id=0)
            await becomes(lambda: any(each.code == SEND_BACK for each in seen), "it is returned")
            (fields,) = (each.fields for each in seen if each.code == SEND_BACK)
        message = inbox.messages[0]
        assert fields["offset"] == str(message.log_offset)
        assert (fields["group"], fields["originTopic"]) == (group, topic)
        assert fields["originMsgId"] == message.offset_id
        assert (fields["delayLevel"], fields["maxReconsumeTimes"]) == ("2", "16")

    run(main())


def test_the_defaults_are_those_of_the_original() -> None:
    settings = PushConsumerSettings(group="g")
    assert settings.message_model.name == "CLUSTERING"
    assert settings.from_where.name == "CONSUME_FROM_LAST_OFFSET"
    assert settings.strategy.name == "AVG"
    assert (settings.consume_threads, settings.consume_batch_size) == (20, 1)
    assert (settings.queue_messages_max, settings.queue_bytes_max) == (1000, 100 * 1024 * 1024)
    assert (settings.queue_span_max, settings.topic_messages_max) == (2000, None)
    assert (settings.pull_batch_size, settings.pull_interval_s) == (32, 0)
    assert (settings.consume_timeout_s, settings.suspend_queue_s) == (900, 1)
    assert (settings.commit_interval_s, settings.rebalance_interval_s) == (5, 20)
    assert settings.reconsume_times_max == 16
    assert PushConsumerSettings(group="g", is_orderly=True).reconsume_times_max == 2**31 - 1
    assert not settings.sends_expression
    assert not settings.unit_mode


def test_who_has_which_queue_is_looked_at_again_and_again(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        options = {"rebalance_interval_s": 0.1}
        async with await consumer_of(system, group, topic, Inbox(), **options) as consumer:
            await becomes(lambda: len(consumer.queues()) == 2, "it has its queues")
            seen = seen_by(consumer)
            # Nobody says that something has changed; two topics are looked at each time.
            await becomes(lambda: sum(each.code == MEMBERS for each in seen) >= 6, "it looks", 10)

    run(main())


def test_locks_are_renewed_again_and_again_with_one_request_for_a_broker(
    system: System, fresh_name: FreshName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.client.push_running.RENEW_S", 0.1)
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 3)

    async def main() -> None:
        async with await consumer_of(system, group, topic, Inbox(), is_orderly=True) as consumer:
            await becomes(lambda: len(consumer.queues()) == 4, "it has its queues")
            table, seen = inner(consumer).rebalancing.table, seen_by(consumer)
            until_s = [each.locked_until_s or 0.0 for each in table.values()]
            await becomes(lambda: sum(each.code == LOCK for each in seen) >= 3, "it renews", 10)
            renewals = [each for each in seen if each.code == LOCK]
            assert all(each.body.count(b"queueId") == 4 for each in renewals)
            renewed_s = [each.locked_until_s or 0.0 for each in table.values()]
            assert all(now_s > before_s for before_s, now_s in zip(until_s, renewed_s, strict=True))

    run(main())


def test_a_start_asks_for_the_filter_then_says_hello_then_shares_then_pulls(
    system: System, fresh_name: FreshName, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)
    asked: list[int] = []
    real = Remote.ask

    async def ask(self: Remote, address: str, request: Command, **options: Any) -> Command:
        asked.append(request.code)
        return await real(self, address, request, **options)

    monkeypatch.setattr(Remote, "ask", ask)

    async def main() -> None:
        selector = Selector.sql("price > 3")
        async with await consumer_of(system, group, topic, Inbox(), selector=selector):
            await becomes(lambda: PULL in asked, "it pulls")
        order = [asked.index(code) for code in (CHECK, HEARTBEAT, MEMBERS, OFFSET, PULL)]
        assert order == sorted(order)

    with changed(system, enablePropertyFilter="true"):
        run(main())


class Hesitant(Remembered):
    """A store that cannot be asked at first."""

    def __init__(self) -> None:
        super().__init__()
        self.refused_count = 0

    async def load(self) -> None:
        """Do nothing."""

    async def read(self, _queue: MessageQueue) -> int | None:
        if self.refused_count < 3:
            self.refused_count += 1
            raise ConnectFailed("not yet")
        return 2

    async def persist(self, _queues: Collection[MessageQueue]) -> None:
        """Do nothing."""


def test_a_queue_whose_offset_is_not_known_is_taken_in_a_later_round(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        inbox, store = Inbox(), Hesitant()
        await send(system, topic, numbered(4), queue_id=0)
        async with await consumer_of(system, group, topic, inbox, offset_store=store):
            await inbox.holds(2)
        assert inbox.bodies == numbered(4)[2:]
        assert store.refused_count == 3

    run(main())


def test_a_queue_that_nobody_pulls_any_more_is_begun_again(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        inbox = Inbox()
        async with await consumer_of(system, group, topic, inbox) as consumer:
            await becomes(lambda: len(consumer.queues()) == 2, "it has its queues")
            before = inner(consumer).rebalancing.table[queue_of(topic, 0)]
            before.stop_pulling()
            await becomes(lambda: before.puller is not None and before.puller.done(), "it ended")
            inner(consumer).rebalance_soon()
            await send(system, topic, [b"still"], queue_id=0)
            await inbox.holds(1)
            assert inner(consumer).rebalancing.table[queue_of(topic, 0)] is not before
            assert before.is_dropped

    run(main())


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_lock_that_is_lost_or_ran_out_stops_its_queue_until_it_is_ours_again(
    system: System, fresh_name: FreshName, is_lost: bool
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        inbox = Inbox()
        async with await consumer_of(system, group, topic, inbox, is_orderly=True) as consumer:
            await send(system, topic, [b"first"], queue_id=0)
            await inbox.holds(1)
            # What is not stored when a lock is lost comes again.
            await asyncio.sleep(SETTLE_S)
            await consumer.commit()
            rebalancing = inner(consumer).rebalancing
            before = rebalancing.table[queue_of(topic, 0)]
            locks = rebalancing.locks
            assert locks is not None
            real = locks.lock

            async def refuse(queues: list[object]) -> dict[object, bool]:
                return dict.fromkeys(queues, not is_lost)

            before.locked_until_s = 1.0 if not is_lost else before.locked_until_s
            locks.lock = refuse  # type: ignore[method-assign, assignment]  # a broker that says so
            await rebalancing.renew_locks()
            assert before.is_dropped
            await send(system, topic, [b"second"], queue_id=0)
            if is_lost:
                await asyncio.sleep(0.5)
                assert inbox.bodies == [b"first"]
            locks.lock = real  # type: ignore[method-assign]  # as it was
            rebalancing.soon()
            await inbox.holds(2)
            after = rebalancing.table[queue_of(topic, 0)]
            assert after.locked_until_s is not None
            assert 0 < after.locked_until_s - after.locked_s <= VALID_S
        assert inbox.bodies == [b"first", b"second"]

    run(main())


def test_a_queue_locked_anew_begins_at_the_stored_offset_and_a_warning_says_what_comes_again(
    system: System, fresh_name: FreshName, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        inbox = Inbox()
        options = {"is_orderly": True, "commit_interval_s": 3600}
        async with await consumer_of(system, group, topic, inbox, **options) as consumer:
            await send(system, topic, numbered(3), queue_id=0)
            await inbox.holds(3)
            rebalancing = inner(consumer).rebalancing
            before = rebalancing.table[queue_of(topic, 0)]
            await becomes(lambda: before.progress == 3, "all is done")
            before.locked_until_s = 1.0  # it ran out: somebody else may have had the queue
            await rebalancing.renew_locks()
            await inbox.holds(6)
        assert inbox.bodies == numbered(3) * 2
        assert "begins again at 0, the stored offset, behind 3" in caplog.text

    run(main())


def test_locks_are_asked_for_and_given_back_at_the_master_within_a_second(
    system: System, fresh_name: FreshName, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 2)
    asked: list[tuple[int, str, float | None, dict[str, Any]]] = []
    real = Remote.ask

    async def ask(self: Remote, address: str, request: Command, **options: Any) -> Command:
        if request.code in (LOCK, UNLOCK):
            body = json.loads(request.body)
            asked.append((request.code, address, options.get("timeout_s"), body))
        return await real(self, address, request, **options)

    monkeypatch.setattr(Remote, "ask", ask)

    client_ids: list[str] = []

    async def main() -> None:
        async with await consumer_of(system, group, topic, Inbox(), is_orderly=True) as consumer:
            await becomes(lambda: len(consumer.queues()) == 3, "it has its queues")
            client_ids.append(consumer.client_id)

    run(main())
    assert {code for code, *_ in asked} == {LOCK, UNLOCK}
    for _, address, timeout_s, body in asked:
        assert (address, timeout_s) == (system.broker, 1.0)
        assert (body["consumerGroup"], body["clientId"]) == (group, client_ids[0])
        assert set(body["mqSet"][0]) == {"topic", "brokerName", "queueId"}
    locked = {(each["topic"], each["queueId"]) for *_, body in asked for each in body["mqSet"]}
    assert {(topic, 0), (topic, 1)} <= locked


def test_a_long_queue_lets_others_have_a_turn(
    system: System, fresh_name: FreshName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.client.orderly.RUN_S", 0.05)
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 2)

    async def main() -> None:
        order: list[int] = []

        async def handle(message: ReceivedMessage) -> None:
            await asyncio.sleep(0.01)
            order.append(message.queue.queue_id)

        for queue_id in range(2):
            await send(system, topic, numbered(30), queue_id=queue_id)
        options = {"is_orderly": True, "consume_threads": 1}
        async with await consumer_of(system, group, topic, handle, **options):
            await becomes(lambda: len(order) == 60, "all were consumed")
        changes = sum(one != two for one, two in itertools.pairwise(order))
        assert changes >= 4

    run(main())
