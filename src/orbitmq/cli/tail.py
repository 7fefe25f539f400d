"""`orbitmq tail TOPIC`: show messages as they come, without consuming them.

In: a topic, a time to begin at, a filter. Out: a line a message, until Ctrl-C or a limit.

Rules:
1. Nothing is committed: it looks as TOOLS_CONSUMER, a group that every broker lets read.
2. What was there before the start comes in the order of storing over all queues; what comes later
   as it arrives.
3. A broker that does not answer is reported once on standard error, and asked again.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable
from heapq import heapify, heappop, heappush

from orbitmq.cli.process import complain
from orbitmq.cli.screen import Screen
from orbitmq.cli.shell import (
    add_reaching,
    client_options,
    namesrv_of,
    positive,
    run_client,
    until_stopped,
)
from orbitmq.cli.shown_messages import show_message
from orbitmq.cli.times import HELP, place
from orbitmq.client.message import ReceivedMessage
from orbitmq.client.pull_consumer import PullConsumer
from orbitmq.client.subscriptions import Selector
from orbitmq.errors import MQError, RequestFailed
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.names import TOOLS_GROUP

HOLD_S = 15.0
"""How long a broker holds a pull from an empty queue."""
AGAIN_S = 1.0
QUEUES_S = 30.0
"""How often new queues of the topic are looked for."""
WAITING_MAX = 1_000
"""Messages that have arrived and are not shown yet."""
_MISTAKES = frozenset({ResponseCode.SUBSCRIPTION_PARSE_FAILED})
"""Answers that a retry does not change."""

EXAMPLES = """\
examples:
  orbitmq tail orders                              messages that arrive from now on
  orbitmq tail orders --from -10m --tag paid       and those of the last ten minutes, with this tag
  orbitmq tail orders --from earliest --no-follow --json > orders.jsonl
  orbitmq tail orders --sql "price > 3"            brokers need enablePropertyFilter=true
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add this command to the command line."""
    parser = subparsers.add_parser(
        "tail",
        help="show messages as they arrive, without consuming them",
        description="Show messages as they arrive, without consuming them.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "--from",
        dest="begin",
        type=place,
        default="latest",
        metavar="WHEN",
        help=f"begin there (latest): earliest, latest, or {HELP}",
    )
    add_selecting(parser)
    parser.add_argument(
        "--no-follow", action="store_true", help="stop at the present end of the topic"
    )
    add_reaching(parser)
    parser.set_defaults(run=run)


def add_selecting(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say which messages are wanted, and how many."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--tag", metavar="TAG", help='only with this tag; several: "a || b"')
    which.add_argument("--sql", metavar="EXPR", help="only messages that match this SQL92 filter")
    parser.add_argument("-n", "--limit", type=positive, metavar="N", help="stop after N messages")


def selector_of(arguments: argparse.Namespace) -> Selector:
    """Return what the flags select; raises LocalProtocolError for what cannot be."""
    if arguments.sql:
        return Selector.sql(arguments.sql)
    return Selector.tags(arguments.tag or "")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    return run_client("orbitmq tail", until_stopped(_main(arguments)))


async def _main(arguments: argparse.Namespace) -> None:
    screen = Screen(is_json=arguments.json)
    selector = selector_of(arguments)
    options = client_options(arguments)
    shown = 0

    def show(message: ReceivedMessage) -> bool:
        nonlocal shown
        show_message(screen, message)
        shown += 1
        return bool(shown == arguments.limit)

    async with PullConsumer(namesrv_of(arguments), TOOLS_GROUP, **options) as consumer:
        tail = _Tail(consumer, arguments.topic, selector, show)
        begin_ms = {"earliest": 0, "latest": None}.get(arguments.begin, arguments.begin)
        await tail.run(begin_ms, follows=not arguments.no_follow)


class _Tail:
    """Messages of a topic from a time on, handed to `show` until that returns True."""

    def __init__(
        self,
        consumer: PullConsumer,
        topic: str,
        selector: Selector,
        show: Callable[[ReceivedMessage], bool],
    ) -> None:
        self._consumer = consumer
        self._topic = topic
        self._selector = selector
        self._show = show
        self._next: dict[MessageQueue, int] = {}
        """Where each queue goes on."""
        self._silent: set[str] = set()
        self._arrived: asyncio.Queue[ReceivedMessage] = asyncio.Queue(WAITING_MAX)

    async def run(self, begin_ms: int | None, *, follows: bool) -> None:
        """Show what is there from a time on, then what comes."""
        queues = await self._consumer.queues(self._topic)
        ends = dict(zip(queues, await self._ends(queues), strict=True))
        begins = ends if begin_ms is None else await self._begins(queues, begin_ms)
        self._next = dict(begins)
        is_enough = await self._show_stored(ends)
        if is_enough or not follows:
            return
        try:
            await self._show_coming(queues)
        except BaseExceptionGroup as group:  # what the group's first member failed with says it all
            raise group.exceptions[0] from None

    async def _show_coming(self, queues: list[MessageQueue]) -> None:
        async with asyncio.TaskGroup() as tasks:
            following = [tasks.create_task(self._follow(queue)) for queue in queues]
            following.append(tasks.create_task(self._watch_queues(tasks, following)))
            while not self._show(await self._arrived.get()):
                pass
            for task in following:
                task.cancel()

    async def _ends(self, queues: list[MessageQueue]) -> list[int]:
        return await asyncio.gather(*map(self._consumer.max_offset, queues))

    async def _begins(self, queues: list[MessageQueue], begin_ms: int) -> dict[MessageQueue, int]:
        found = [self._consumer.offset_for_time(queue, begin_ms / 1000) for queue in queues]
        return dict(zip(queues, await asyncio.gather(*found), strict=True))

    # --- what was there ---

    async def _show_stored(self, ends: dict[MessageQueue, int]) -> bool:
        """Show the messages up to the ends in the order of storing; True: the limit is reached."""
        streams = {queue: self._until(queue, end) for queue, end in ends.items()}
        firsts = await asyncio.gather(*(anext(one, None) for one in streams.values()))
        waiting = [_ranked(message) for message in firsts if message is not None]
        heapify(waiting)
        while waiting:
            *_, message = heappop(waiting)
            if self._show(message):
                return True
            following = await anext(streams[message.queue], None)
            if following is not None:
                heappush(waiting, _ranked(following))
        return False

    async def _until(self, queue: MessageQueue, end: int) -> AsyncIterator[ReceivedMessage]:
        while self._next[queue] < end:
            for message in await self._pull(queue, wait_s=0.0):
                if message.queue_offset >= end:
                    self._next[queue] = message.queue_offset  # it comes with those that follow
                    return
                yield message

    # --- what comes ---

    async def _follow(self, queue: MessageQueue) -> None:
        while True:
            try:
                found = await self._pull(queue, wait_s=HOLD_S)
            except MQError as error:
                if isinstance(error, RequestFailed) and error.code in _MISTAKES:
                    raise
                self._tell_once(queue.broker_name, error)
                await asyncio.sleep(AGAIN_S)
                continue
            self._silent.discard(queue.broker_name)
            for message in found:
                await self._arrived.put(message)

    async def _watch_queues(
        self, tasks: asyncio.TaskGroup, following: "list[asyncio.Task[None]]"
    ) -> None:
        """Follow queues that the topic gets later, from their first message on."""
        while True:
            await asyncio.sleep(QUEUES_S)
            for queue in await self._known_queues():
                if queue not in self._next:
                    self._next[queue] = 0
                    following.append(tasks.create_task(self._follow(queue)))

    async def _known_queues(self) -> list[MessageQueue]:
        try:
            return await self._consumer.queues(self._topic)
        except MQError:  # the next look may find them
            return []

    async def _pull(self, queue: MessageQueue, *, wait_s: float) -> list[ReceivedMessage]:
        result = await self._consumer.pull(
            queue, self._next[queue], selector=self._selector, wait=wait_s
        )
        self._next[queue] = result.next_offset
        return result.messages

    def _tell_once(self, broker_name: str, error: MQError) -> None:
        if broker_name not in self._silent:
            self._silent.add(broker_name)
            complain("orbitmq tail", f"{broker_name} does not answer, retrying: {error}")


def _ranked(message: ReceivedMessage) -> tuple[int, str, int, ReceivedMessage]:
    """Return a message behind what it is ordered by."""
    return message.store_ms, message.queue.broker_name, message.log_offset, message
