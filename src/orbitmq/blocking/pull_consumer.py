"""`PullConsumer` for programs without an event loop.

In: the calls of `orbitmq.aio.PullConsumer`. Out: the same answers, waited for.
Rule: made by tools/blocking_source.py; change the asynchronous class and run that.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Unpack

from orbitmq import aio
from orbitmq.blocking.facade import Facade
from orbitmq.client.message import ReceivedMessage
from orbitmq.client.pull_member import QueuesChanged
from orbitmq.client.pull_settings import PullConsumerOptions, PullConsumerSettings
from orbitmq.client.pulling import PULL_COUNT_MAX, FilterHook, PullResult
from orbitmq.client.subscriptions import Selector
from orbitmq.wire.bodies_client import MessageQueue


class PullConsumer(Facade[aio.PullConsumer]):
    """Gives messages when the program asks for them.

    >>> with PullConsumer("localhost:9876", group="billing") as consumer:
    ...     consumer.subscribe("orders", "paid || shipped")
    ...     for message in consumer:
    ...         print(message.body)

    Messages are pulled in the background into a memory with limits (see PullConsumerSettings), so
    that a poll seldom waits. By itself it stores every five seconds how far the program has come;
    with `auto_commit=False` only `commit` does. A message counts as consumed with the next `poll`
    or the next step of a loop, with `commit`, and at the end of `with` without an error;
    with `close` alone it comes again.

    Several programs with one group share the queues of the topics they subscribe to. A program that
    wants to choose its queues uses `assign`; one that wants to keep its own offsets uses `pull`.
    """

    def __init__(
        self, namesrv: str | None = None, group: str = "", **options: Unpack[PullConsumerOptions]
    ) -> None:
        """Make a consumer; nothing is connected before `start`.

        `namesrv` are name servers, `host:port` separated by `;`; None: the environment's
        NAMESRV_ADDR. The options are those of PullConsumerSettings. Raises SettingError.
        """
        super().__init__(lambda: aio.PullConsumer(namesrv, group, **options))

    @property
    def is_running(self) -> bool:
        """Whether it was started and not closed."""
        return self._there(lambda: self._twin.is_running)

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._there(lambda: self._twin.group)

    @property
    def settings(self) -> PullConsumerSettings:
        """What it was told, defaults included."""
        return self._there(lambda: self._twin.settings)

    @property
    def retry_topic(self) -> str:
        """Where messages come again that were sent back; push consumers subscribe to it."""
        return self._there(lambda: self._twin.retry_topic)

    def subscribe(self, topic: str, selector: Selector | str = "*") -> None:
        """Share a topic's queues with the group; again with another selector to change it.

        Before `start` it is only noted. A topic that does not exist yet is looked for until it
        does. Raises ClientStateError after `assign`, LocalProtocolError for a name or an expression
        that cannot be, RequestFailed for SQL that a broker refuses; what was before then stays.
        """
        self._wait(self._twin.subscribe(topic, selector))

    def unsubscribe(self, topic: str) -> None:
        """Want no more of a topic; its queues go to the rest of the group."""
        self._wait(self._twin.unsubscribe(topic))

    def assign(self, queues: Iterable[MessageQueue], selector: Selector | str = "*") -> None:
        """Have exactly these queues, whatever other members of the group have.

        Raises ClientStateError after `subscribe`, RouteNotFound for a topic that does not exist.
        """
        self._wait(self._twin.assign(queues, selector))

    def assignment(self) -> list[MessageQueue]:
        """Return the queues that it has now."""
        return self._there(self._twin.assignment)

    def add_filter_hook(self, hook: FilterHook) -> None:
        """Let a function see what each pull brings; it gives the messages that stay."""
        self._there(lambda: self._twin.add_filter_hook(hook))

    def poll(self, timeout: float | None = None) -> list[ReceivedMessage]:
        """Return the next messages of one queue, at most `pull_batch_size`.

        Waits up to `timeout` seconds, `poll_timeout_s` if not given; then it gives none. What the
        polls before gave counts as consumed. One poll at a time: ClientStateError otherwise.
        """
        return self._wait(self._twin.poll(timeout))

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Iterate over messages, without end; each counts as consumed with the next step."""
        return self._each(self._twin.__aiter__)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset; what is in memory of the queue is thrown away.

        Raises ClientStateError for a queue that it does not have, LocalProtocolError for an offset
        that the queue does not have.
        """
        self._wait(self._twin.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the oldest message that the queue has."""
        self._wait(self._twin.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with messages that come from now on."""
        self._wait(self._twin.seek_to_end(queue))

    def seek_to_time(self, queue: MessageQueue, time_s: float) -> None:
        """Go on about where messages were stored at a time, in seconds since 1970."""
        self._wait(self._twin.seek_to_time(queue, time_s))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Deliver no messages of these queues until `resume`."""
        self._there(lambda: self._twin.pause(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on with paused queues."""
        self._there(lambda: self._twin.resume(queues))

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store how far the program has come; returns when brokers (or the file) have it.

        Without `offsets`: behind all messages that were handed out. With `offsets`: these, also of
        queues that it does not have. Raises MQError when some could not be stored.
        """
        self._wait(self._twin.commit(offsets))

    def committed(self, queue: MessageQueue) -> int | None:
        """Return what is stored for the group in a queue; None when there is nothing."""
        return self._wait(self._twin.committed(queue))

    def position(self, queue: MessageQueue) -> int | None:
        """Return the offset behind what was handed out; None while it is not known."""
        return self._there(lambda: self._twin.position(queue))

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return all queues of a topic; raises RouteNotFound when it does not exist."""
        return self._wait(self._twin.queues(topic))

    def on_queues_changed(self, topic: str, listener: QueuesChanged) -> None:
        """Call `listener(topic, queues)` whenever the topic has other queues than before."""
        self._wait(self._twin.on_queues_changed(topic, listener))

    def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest message that a queue has."""
        return self._wait(self._twin.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that a queue's next message will get."""
        return self._wait(self._twin.max_offset(queue))

    def offset_for_time(self, queue: MessageQueue, time_s: float) -> int:
        """Return the offset about which messages were stored at a time, in seconds since 1970."""
        return self._wait(self._twin.offset_for_time(queue, time_s))

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        count_max: int = PULL_COUNT_MAX,
        selector: Selector | str = "*",
        wait: float = 0.0,
        timeout: float | None = None,
    ) -> PullResult:
        """Pull a queue once; for programs that keep their own offsets.

        With `wait` the broker holds the request up to so many seconds while there is nothing. The
        result's `next_offset` is where to go on. Needs neither `subscribe` nor `assign`. Raises
        RequestFailed when the broker refuses, RequestTimeout when it does not answer.
        """
        return self._wait(
            self._twin.pull(
                queue, offset, count_max=count_max, selector=selector, wait=wait, timeout=timeout
            )
        )

    def send_back(
        self, message: ReceivedMessage, delay_level: int = 0, *, reason: str = ""
    ) -> None:
        """Have a message come again, later, in the group's `retry_topic`.

        `delay_level` 0 lets the broker choose by how often it was sent back (10 s, 30 s, 1 min …),
        1 to 18 are levels as in Message, -1 makes it a dead letter at once, which keeps the
        `reason`. Raises RequestFailed when the broker refuses.
        """
        self._wait(self._twin.send_back(message, delay_level, reason=reason))
