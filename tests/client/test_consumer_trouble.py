"""Consumers in trouble: what is refused changes nothing, what fails is done again, no hangs."""

import asyncio
from collections.abc import Callable, Collection

import pytest

from orbitmq.client.message import ReceivedMessage
from orbitmq.client.offset_stores import Remembered
from orbitmq.client.process_queue import ProcessQueue
from orbitmq.client.pull_consumer import PullConsumer
from orbitmq.client.push import PushConsumer
from orbitmq.client.subscriptions import Selector
from orbitmq.errors import ClientStateError, ConnectFailed, RequestFailed
from orbitmq.wire.bodies_client import MessageModel, MessageQueue
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from tests.behaviour.test_filters import changed
from tests.client.pushing import (
    FIRST,
    Inbox,
    becomes,
    committed,
    consumer_of,
    inner,
    make_topic,
    numbered,
    queue_of,
    run,
    send,
)
from tests.foreign.judged import System

FreshName = Callable[[str], str]


@pytest.mark.parametrize("kind", [PushConsumer, PullConsumer])
def test_a_refused_selector_leaves_the_one_before_in_use(
    system: System, fresh_name: FreshName, kind: type[PushConsumer] | type[PullConsumer]
) -> None:
    topic, other, group = fresh_name("Topic"), fresh_name("Other"), fresh_name("group")
    make_topic(system, topic, 1)
    make_topic(system, other, 1)

    async def main() -> None:
        bodies: list[bytes] = []
        async with kind(system.namesrv, group, from_where=FIRST) as consumer:
            await consumer.subscribe(topic, "paid")
            for refused in (topic, other):
                with pytest.raises(RequestFailed):
                    await consumer.subscribe(refused, Selector.sql("price >>> 3"))
            assert list(consumer._subscriptions).count(other) == 0
            await send(system, topic, numbered(3), tag="paid", queue_id=0)
            await send(system, topic, numbered(3, "x"), tag="other", queue_id=0)
            await send(system, topic, [b"last"], tag="paid", queue_id=0)
            async for message in consumer:
                bodies.append(message.body)
                if message.body == b"last":
                    break
        assert bodies == [*numbered(3), b"last"]

    with changed(system, enablePropertyFilter="true"):
        run(main())


def test_a_loop_gets_no_messages_of_queues_that_another_member_has_by_now(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 2)

    async def main() -> None:
        for queue_id in range(2):
            await send(system, topic, numbered(20, f"q{queue_id}"), queue_id=queue_id)
        inbox = Inbox()
        async with await consumer_of(system, group, topic) as slow:
            running = inner(slow)
            await becomes(
                lambda: sum(each.count for each in running.rebalancing.table.values()) == 40,
                "all is in hand",
            )
            async with await consumer_of(system, group, topic, inbox):
                await inbox.holds(20)
                mine = [queue for queue in slow.queues() if queue.topic == topic]
                assert len(mine) == 1
                got: list[ReceivedMessage] = []
                loop = aiter(slow)
                while len(got) < 20:
                    got.append(await anext(loop))
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(loop), 0.3)
        assert {message.queue for message in got} == set(mine)
        assert len({message.body for message in got} | set(inbox.bodies)) == 40

    run(main())


class Moody(Remembered):
    """A program's own store, which fails in its own ways."""

    def __init__(self) -> None:
        super().__init__()
        self.reads_to_fail = 1
        self.writes_to_fail = 0
        self.written: list[MessageQueue] = []

    async def load(self) -> None:
        """Do nothing."""

    async def read(self, _queue: MessageQueue) -> int | None:
        if self.reads_to_fail:
            self.reads_to_fail -= 1
            raise OSError("the database is away")
        return 0

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        if self.writes_to_fail:
            self.writes_to_fail -= 1
            raise OSError("the database is away")
        self.written += queues


def test_a_pull_consumer_goes_on_when_its_own_store_fails(
    system: System, fresh_name: FreshName
) -> None:
    topic, other, group = fresh_name("Topic"), fresh_name("Other"), fresh_name("group")
    make_topic(system, topic, 1)
    make_topic(system, other, 1)

    async def main() -> None:
        store = Moody()
        options = {"from_where": FIRST, "rebalance_interval_s": 0.2}
        async with PullConsumer(system.namesrv, group, offset_store=store, **options) as consumer:  # type: ignore[arg-type]  # options in a dict
            await consumer.subscribe(topic)
            await consumer.subscribe(other)
            await send(system, topic, numbered(3), queue_id=0)
            bodies: list[bytes] = []
            while len(bodies) < 3:
                bodies += [message.body for message in await consumer.poll(0.2)]
            assert bodies == numbered(3)
            await consumer.poll(0.01)
            store.writes_to_fail = 1
            await consumer.unsubscribe(topic)
            assert not store.writes_to_fail
            await consumer.subscribe(topic)
            await becomes(lambda: len(consumer.assignment()) == 2, "queues are shared again", 5)

    run(main())


class Failing:
    """A hook that raises at requests of some codes while it is told to."""

    def __init__(self, *codes: int) -> None:
        self.codes = codes
        self.count = 0

    def before(self, _address: str, request: Command) -> None:
        if request.code in self.codes:
            self.count += 1
            raise ValueError("no signature now")

    def after(self, _address: str, _request: Command, _answer: Command) -> None:
        """Do nothing."""


@pytest.mark.parametrize("is_orderly", [True, False])
def test_a_message_that_a_hook_keeps_from_being_sent_back_comes_again_here(
    system: System,
    fresh_name: FreshName,
    monkeypatch: pytest.MonkeyPatch,
    is_orderly: bool,
) -> None:
    monkeypatch.setattr("orbitmq.client.concurrent.RETRY_HERE_S", 0.1)
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)
    hook = Failing(RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2)

    def refuse(message: ReceivedMessage) -> None:
        if message.body == b"bad" and hook.codes:
            hook.codes = () if hook.count else hook.codes
            raise RuntimeError("no")

    async def main() -> None:
        inbox = Inbox(refuse)
        options = {"is_orderly": is_orderly, "rpc_hooks": [hook], "suspend_queue_s": 0.05}
        options |= {"max_reconsume_times": 0} if is_orderly else {}
        await send(system, topic, [b"bad", b"good"], queue_id=0)
        async with await consumer_of(system, group, topic, inbox, **options):
            await becomes(lambda: hook.count > 0, "the hook has failed", 10)
            await inbox.holds(3, 10)
            assert b"good" in inbox.bodies
            assert inbox.bodies.count(b"bad") >= 2

    run(main())


def test_locks_are_renewed_again_after_a_hook_has_failed_once(
    system: System, fresh_name: FreshName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.client.push_running.RENEW_S", 0.05)
    monkeypatch.setattr("orbitmq.client.push_running.RENEW_AGAIN_S", 0.05)
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)
    hook = Failing()

    async def main() -> None:
        options = {"is_orderly": True, "rpc_hooks": [hook]}
        async with await consumer_of(system, group, topic, Inbox(), **options) as consumer:
            await becomes(lambda: queue_of(topic, 0) in consumer.queues(), "the queue is ours")
            held = inner(consumer).rebalancing.table[queue_of(topic, 0)]
            hook.codes = (RequestCode.LOCK_BATCH_MQ,)
            await becomes(lambda: hook.count > 0, "a renewal has failed", 5)
            hook.codes = ()
            since_s = held.locked_s
            await becomes(lambda: held.locked_s > since_s, "it is renewed", 5)

    run(main())


def test_a_lock_that_is_being_given_back_is_not_taken_again(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        async with await consumer_of(system, group, topic, Inbox(), is_orderly=True) as consumer:
            await becomes(lambda: queue_of(topic, 0) in consumer.queues(), "the queue is ours")
            rebalancing = inner(consumer).rebalancing
            locks = rebalancing.locks
            assert locks is not None
            real_lock, real_unlock = locks.lock, locks.unlock
            unlocking, may_end = asyncio.Event(), asyncio.Event()
            asked: list[MessageQueue] = []

            async def unlock(queues: Collection[MessageQueue]) -> None:
                unlocking.set()
                await may_end.wait()
                await real_unlock(queues)

            async def lock(queues: Collection[MessageQueue]) -> dict[MessageQueue, bool]:
                asked.extend(queues)
                return await real_lock(queues)

            locks.unlock, locks.lock = unlock, lock  # type: ignore[method-assign]  # seen from inside
            await consumer.unsubscribe(topic)
            await unlocking.wait()
            asked.clear()
            await rebalancing.renew_locks()
            may_end.set()
            assert queue_of(topic, 0) not in asked

    run(main())


def test_a_message_that_fails_during_a_close_leaves_no_timer(
    system: System, fresh_name: FreshName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.client.concurrent.RETRY_HERE_S", 0.2)
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        begun, may_fail = asyncio.Event(), asyncio.Event()

        async def handler(_message: ReceivedMessage) -> None:
            begun.set()
            await may_fail.wait()
            raise RuntimeError("no")

        consumer = await consumer_of(system, group, topic, handler)
        await consumer.start()
        running = inner(consumer)

        async def refuse(_message: ReceivedMessage, *_: object) -> bool:
            return False

        running.sending_back.send_back = refuse  # type: ignore[method-assign, assignment]  # seen from inside
        await send(system, topic, [b"x"], queue_id=0)
        await begun.wait()
        closing = asyncio.create_task(consumer.close())
        await becomes(lambda: bool(running.rebalancing._is_closed), "it closes")
        await asyncio.sleep(0)
        may_fail.set()
        await closing
        await asyncio.sleep(0.3)

    run(main())


def test_a_consumer_that_is_closed_while_its_start_fails_stays_closed() -> None:
    async def main() -> None:
        consumer = PushConsumer("127.0.0.1:1", "group", Inbox())
        await consumer.subscribe("Topic")
        starting = asyncio.create_task(consumer.start())
        await asyncio.sleep(0)
        await consumer.close()
        with pytest.raises(ConnectFailed):
            await starting
        with pytest.raises(ClientStateError, match="this consumer is closed"):
            await consumer.start()

    run(main())


def test_a_subscribe_during_the_start_of_a_pull_consumer_does_it_no_harm(
    system: System, fresh_name: FreshName
) -> None:
    topics = [fresh_name("Topic") for _ in range(3)]
    for topic in topics:
        make_topic(system, topic, 1)

    async def main() -> None:
        consumer = PullConsumer(system.namesrv, fresh_name("group"))
        await consumer.subscribe(topics[0])
        await consumer.subscribe(topics[1])
        starting = asyncio.create_task(consumer.start())
        while not consumer.is_running:
            await asyncio.sleep(0)
        await consumer.subscribe(topics[2])
        await starting
        await becomes(lambda: len(consumer.assignment()) == 3, "all are shared", 10)
        await consumer.close()

    run(main())


def test_a_close_stores_offsets_of_queues_that_were_just_being_given_away(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        inbox = Inbox()
        consumer = await consumer_of(system, group, topic, inbox)
        await consumer.start()
        await send(system, topic, numbered(5), queue_id=0)
        await inbox.holds(5)
        running = inner(consumer)
        real, begun, may_go_on = running.commits.commit, asyncio.Event(), asyncio.Event()

        async def slow(queues: Collection[ProcessQueue], *, is_last: bool = False) -> None:
            begun.set()
            await may_go_on.wait()
            await real(queues, is_last=is_last)

        running.commits.commit = slow  # type: ignore[method-assign, assignment]  # seen from inside
        await consumer.unsubscribe(topic)
        await begun.wait()
        closing = asyncio.create_task(consumer.close())
        await becomes(lambda: bool(running.rebalancing._is_closed), "it closes")
        may_go_on.set()
        await closing
        assert await asyncio.to_thread(committed, system, group, topic) == 5

    run(main())


@pytest.mark.parametrize("kind", [PushConsumer, PullConsumer])
def test_a_consumer_without_a_place_for_its_offsets_leaves_nothing_behind(
    system: System,
    fresh_name: FreshName,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[PushConsumer] | type[PullConsumer],
) -> None:
    def homeless() -> None:
        raise RuntimeError("no home folder")

    monkeypatch.setattr("orbitmq.client.offset_stores.home_folder", homeless)

    async def main() -> None:
        model = MessageModel.BROADCASTING
        consumer = kind(system.namesrv, fresh_name("group"), message_model=model)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="no home folder"):
                await consumer.start()

    run(main())
