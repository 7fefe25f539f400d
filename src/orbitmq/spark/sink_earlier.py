"""What an idempotent task leaves out: it finds out what earlier attempts of it have stored.

In: the task, the topics of its rows. Out: "everything is stored", or which rows are not yet.
Why this holds, on originals too, is in docs/internals/spark-sink.md. A task that begins asks:

1. The index, for the keys of its first and last row (BEGIN, END). END is there: everything is
   stored. An index may lack keys, never invent them; that look-up ends most repeated tasks.
2. Neither is there, this process has seen an earlier batch of the run, and it is a first attempt:
   nothing is stored (sink_keys rules 2 and 3). That look-up begins all new tasks.
3. Else the queues, from where the batch began (`sink_ledger`): they are exact. Rows are compared
   one by one only where some are stored.
4. What a dead attempt still has on its way is waited for: a task that finds rows of its own, or is
   not the first attempt, looks again after `fenceMs` until nothing is new.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from orbitmq.client.remote import request
from orbitmq.spark.cluster import Cluster
from orbitmq.spark.sink_keys import BEGIN, END, MOVED, TaskKey
from orbitmq.spark.sink_ledger import (
    LOOK_RETRIES,
    BatchStarts,
    Ledger,
    Place,
    StoredRow,
    contents_hashes,
)
from orbitmq.spark.sink_messages import Messages
from orbitmq.spark.sink_options import SinkOptions
from orbitmq.spark.sink_patience import patiently, readable_queues
from orbitmq.spark.sink_requests import ANY_QUEUE, AskedQueue, asked_queues
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.headers_client import QueryMessage
from orbitmq.wire.properties import UNIQ_KEY, stored_property
from orbitmq.wire.record import scan_records

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
INDEX_COUNT = 32
TIME_MS_MAX = 2**63 - 1

_ledgers: dict[tuple[int, str, str], Ledger] = {}
"""The ledgers of the batch that this process works on (sink_ledger rule 1)."""


_NOTHING = np.empty(0, np.int64), np.empty(0, np.uint64)


class Left:
    """The stored rows of a task that no row has been found to be yet."""

    def __init__(self, rows: Mapping[int, StoredRow]) -> None:
        self.rows = dict(rows)
        self._counts: dict[int, Counter[Place]] = {}
        for stored in rows.values():
            self._counts.setdefault(stored.contents, Counter())[stored.place] += 1

    def take(self, number: int, contents: int, asked: AskedQueue) -> bool:
        """Whether a row is one of them: it has its contents and lies where it asks to lie."""
        queue_id, broker_name = asked
        counts = self._counts.get(contents, Counter())
        own = self.rows.get(number)
        places = [own.place, *counts] if own is not None else list(counts)
        for place in places:
            is_asked = queue_id == place[1] and broker_name in (None, place[0])
            if counts[place] and (queue_id is None or is_asked):
                counts[place] -= 1
                return True
        return False

    def free_number(self, number: int) -> int:
        """Return a number that no stored row has: the row's own one, if it is free."""
        while number in self.rows:
            number += MOVED
        return number


class Earlier:
    """What is stored of one task. Used by one thread, but for `stored`."""

    def __init__(
        self, cluster: Cluster, options: SinkOptions, task: TaskKey, starts: BatchStarts
    ) -> None:
        self.skipped = 0
        """Rows that were left out."""
        self._cluster = cluster
        self._options = options
        self._task = task
        self._starts = starts
        self._ledgers: dict[str, Ledger] = {}
        self._complete: set[str] = set()
        self._left: dict[str, Left] = {}

    def is_complete(self, topic: str) -> bool:
        """Find out what is stored in a topic; give whether that is the whole task."""
        task = self._task
        has_one_topic = bool(self._options.topic)
        indexed = self._look_up(topic) if has_one_topic else set()
        if END in indexed:
            return True
        if has_one_topic and not indexed and not task.may_be_repeated:
            queues = self._starts.queues(topic)
            ends = self._cluster.max_offsets(queues, LOOK_RETRIES)
            self._ledgers[topic] = self._new_ledger(topic, ends)
            return False
        self._ledgers[topic] = ledger = self._shared_ledger(topic)
        self._cluster.wait(self._settle(ledger))
        found = ledger.of_task(task.partition)
        self._left[topic] = Left(found.rows)
        if found.is_complete:
            self._complete.add(topic)
        return found.is_complete

    def is_known(self, topic: str) -> bool:
        """Whether `is_complete` was asked of a topic."""
        return topic in self._ledgers

    def unsent(self, topic: str, messages: Messages) -> Any:
        """Return the positions of messages that are not stored yet, and the numbers they get.

        None: all of them, as they are.
        """
        if topic in self._complete:
            self.skipped += len(messages)
            return _NOTHING
        left = self._left.get(topic)
        if left is None or not left.rows:
            return None
        positions, numbers = [], []
        hashes = contents_hashes(messages.bodies, messages.flags, messages.properties)
        asked = asked_queues(messages, self._options) or [ANY_QUEUE] * len(messages)
        each = zip(messages.numbers.tolist(), hashes, asked, strict=True)
        for position, (number, contents, queue) in enumerate(each):
            if left.take(number, contents, queue):
                self.skipped += 1
                continue
            positions.append(position)
            numbers.append(left.free_number(number))
        return np.array(positions, np.int64), np.array(numbers, np.uint64)

    async def stored(self, topic: str) -> frozenset[int]:
        """Return the rows of this task that are stored by now (what the outbox asks)."""
        ledger = self._ledgers[topic]
        await ledger.catch_up()
        found = ledger.of_task(self._task.partition)
        return frozenset((*found.rows, END) if found.is_complete else found.rows)

    # --- looking ---

    async def _settle(self, ledger: Ledger) -> None:
        """Look until nothing of this task is on its way any more."""
        found = ledger.of_task(self._task.partition)
        await ledger.catch_up()
        must_wait = self._task.attempt > 0 or bool(found.rows)
        while must_wait and not found.is_complete:
            count = len(found.rows)
            await asyncio.sleep(self._options.fence_ms / 1000)
            await ledger.catch_up()
            must_wait = len(found.rows) != count

    def _shared_ledger(self, topic: str) -> Ledger:
        prefix = self._task.batch_prefix
        key = id(self._cluster), topic, prefix
        if key not in _ledgers:
            for old in [each for each in _ledgers if each[2] != prefix]:
                del _ledgers[old]
            starts = self._starts.starts(topic)
            _ledgers[key] = self._new_ledger(topic, starts)
        return _ledgers[key]

    def _new_ledger(self, topic: str, starts: dict[Any, int]) -> Ledger:
        return Ledger(self._cluster, topic, self._task.batch_prefix, starts)

    def _look_up(self, topic: str) -> set[int]:
        return self._cluster.wait(patiently(lambda: self._indexed(topic), LOOK_RETRIES.count))

    async def _indexed(self, topic: str) -> set[int]:
        """Return which of BEGIN and END the index of some broker has; none where it cannot tell."""
        instance = await self._cluster.instance()
        queues = await readable_queues(self._cluster, topic)
        brokers = {queue.broker_name: queue for queue in queues}
        addresses = [await instance.routes.master_address(each) for each in brokers.values()]
        asked = [
            self._is_indexed(topic, address, number)
            for address in addresses
            for number in (BEGIN, END)
        ]
        return {number for number in await asyncio.gather(*asked) if number is not None}

    async def _is_indexed(self, topic: str, address: str, number: int) -> int | None:
        instance = await self._cluster.instance()
        unique_id = self._task.id_of(number)
        header = QueryMessage(
            topic=topic,
            key=unique_id,
            count_max=INDEX_COUNT,
            begin_ms=max(0, instance.clock.wall_ms() - self._options.look_back_ms),
            end_ms=TIME_MS_MAX,
        )
        asked = request(RequestCode.QUERY_MESSAGE, header)
        asked.fields[UNIQUE_KEY_QUERY] = "true"
        answer = await instance.remote.ask(
            address, asked, expected=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        )
        if answer.code != ResponseCode.SUCCESS:
            return None
        is_there = any(
            record.topic == topic
            and stored_property(record.properties, UNIQ_KEY.encode()) == unique_id
            for record in scan_records(answer.body)
        )
        return number if is_there else None
