"""The light queues of one broker: which there are, how many there may be, who waits for new ones.

In: names, from messages and pulls. Out: queues, or RequestFailed with the cause.

Rules:
1. At most maxLmqConsumeQueueNum of them: what would make one more is refused, those that are there
   go on. 4.9.7 means to refuse messages, compares the wrong value, and then reads no light queue.
2. A pull makes no light queue, else pulls could use up their number. Its wait is kept apart: when
   the queue is made, it is the one that the pull waits for.
3. Without enableLmq such names mean nothing; without enableMultiDispatch no message goes there.
"""

from collections.abc import Collection, Sequence

from orbitmq.config import BrokerSettings
from orbitmq.core import Admitted, Queue, with_entries
from orbitmq.errors import RequestFailed
from orbitmq.store.store import Store
from orbitmq.wire import properties as properties_names
from orbitmq.wire.bodies_namesrv import PERM_READ_WRITE, SubscriptionGroupConfig, TopicConfig
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.light_queues import (
    is_light,
    light_fault,
    names_fault,
    numbers_text,
    split_names,
)

QUEUE_ID = 0
"""Of every light queue."""


class LightQueues:
    """All light queues of one broker."""

    def __init__(self, store: Store, settings: BrokerSettings) -> None:
        self._store = store
        self.is_on = settings.enable_lmq
        self.is_dispatched = settings.enable_lmq and settings.enable_multi_dispatch
        self.count_max = settings.max_lmq_consume_queue_num
        self._names = {topic for topic in store.queue_counts() if is_light(topic)}
        self._awaited: dict[str, Queue] = {}

    def __len__(self) -> int:
        """How many there are."""
        return len(self._names)

    def has(self, name: str) -> bool:
        """Whether a topic or group of this name is a light one here."""
        return self.is_on and is_light(name) and light_fault(name) is None

    def numbered(self, topic: str, message: Admitted) -> Admitted:
        """Return a message for `topic` with its numbers in light queues, if it goes to any.

        Raises RequestFailed when it names some that cannot be.
        """
        if not message.light_names:
            return message
        names = split_names(message.light_names)
        self._check(topic, names)
        found = [self._store.find_queue(name, QUEUE_ID) for name in names]
        numbers = numbers_text([0 if queue is None else queue.next_offset for queue in found])
        entry = {properties_names.INNER_MULTI_QUEUE_OFFSET: numbers}
        return message._replace(own=with_entries(message.own, entry))

    def queues_of(self, message: Admitted) -> list[Queue]:
        """Return the light queues that a message goes to, made where they are not there."""
        return self.to_write(split_names(message.light_names)) if message.light_names else []

    def _check(self, topic: str, names: Sequence[str]) -> None:
        fault = names_fault(names)
        if topic in names:
            fault = "it names the topic that the message is sent to"
        if fault is not None:
            raise RequestFailed(
                ResponseCode.MESSAGE_ILLEGAL,
                f"property {properties_names.INNER_MULTI_DISPATCH} cannot be used: {fault}",
            )
        self._check_room(names)

    def to_write(self, names: Sequence[str]) -> list[Queue]:
        """Return light queues, made where they are not there; raises RequestFailed."""
        self._check_room(names)
        self._names.update(names)
        awaited = self._awaited
        return [self._store.queue(name, QUEUE_ID, awaited.pop(name, None)) for name in names]

    def to_read(self, name: str) -> Queue:
        """Return a light queue; one that is not there is empty, and becomes it when it is made."""
        queue = self._store.find_queue(name, QUEUE_ID) or self._awaited.get(name)
        if queue is None:
            if len(self._awaited) >= self.count_max:  # the oldest one's pulls end without it
                del self._awaited[next(iter(self._awaited))]
            queue = self._awaited[name] = Queue(name, QUEUE_ID, 0)
        return queue

    def forget(self, names: Collection[str]) -> None:
        """Take in that light queues are gone."""
        self._names.difference_update(names)

    def _check_room(self, names: Sequence[str]) -> None:
        new_count = sum(name not in self._names for name in names)
        if new_count and len(self._names) + new_count > self.count_max:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and enableMultiDispatch,"
                " lmq consumeQueue num exceed maxLmqConsumeQueueNum config num: there are"
                f" {len(self._names)}, limit {self.count_max}; delete some (deleteTopic), or raise"
                " the limit",
            )


def light_topic(name: str) -> TopicConfig:
    """Return the settings that a light queue has."""
    return TopicConfig(
        topic_name=name, read_queue_count=1, write_queue_count=1, perm=PERM_READ_WRITE
    )


def light_group(name: str) -> SubscriptionGroupConfig:
    """Return the settings that a light group has."""
    return SubscriptionGroupConfig(group_name=name)
