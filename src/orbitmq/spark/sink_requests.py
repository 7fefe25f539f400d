"""Messages become requests: which queue each goes to, which go together, and the bytes of both.

In: Messages of one topic, its queues, the options. Out: Requests, in the order to send them in.

Rules:
1. Messages that go to one queue, in a row, are one batch request as far as batchSize and batchBytes
   allow. A delayed, compressed or oversize message is a request of its own: batches hold none.
2. A message with a sharding key, or a queue of its own, goes there and nowhere else; requests to
   such a queue are in the order of the rows. All others go to any queue, chosen when they are sent.
3. A sharding key's queue is that of the original's SelectMessageQueueByHash.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.arrow.encode import encode_messages, sizes_of
from orbitmq.arrow.segments import bytes_of
from orbitmq.client.batches import RECORD_OVERHEAD
from orbitmq.client.outgoing import compressed
from orbitmq.client.queue_choice import queue_of_key
from orbitmq.errors import LocalProtocolError
from orbitmq.spark.sink_messages import Messages
from orbitmq.spark.sink_options import SinkOptions
from orbitmq.wire.batch import MESSAGE_SIZE_MIN, decode_batch, encode_batch
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.properties import ENTRY_END, NAME_END, WAIT
from orbitmq.wire.sysflag import Compression

ANY = -1
BATCH_PROPERTIES = f"{WAIT}{NAME_END}true"


class Request(msgspec.Struct):
    """One request: a batch, or a single message."""

    topic: str
    queue: MessageQueue | None
    """None: any queue of the topic."""
    numbers: tuple[int, ...]
    """The rows in it."""
    body: bytes
    properties: str = BATCH_PROPERTIES
    flag: int = 0
    sys_flag: int = 0
    is_batch: bool = True
    is_timed: bool = False
    """Whether it waits elsewhere first, so that its answer names no place in its topic."""

    def without(self, stored: frozenset[int]) -> "Request":
        """Return the same request for the rows that are not stored yet; there is one at least."""
        if not self.is_batch:
            return self
        left = [number not in stored for number in self.numbers]
        each = zip(decode_batch(self.body).messages(), left, strict=True)
        body = encode_batch(message for message, is_left in each if is_left)
        numbers = tuple(number for number in self.numbers if number not in stored)
        return msgspec.structs.replace(self, numbers=numbers, body=body)


AskedQueue = tuple[int | None, str | None]
"""What a row's columns say of its queue: its number, None for any, and its broker's name."""

ANY_QUEUE: AskedQueue = (None, None)


def asked_queues(messages: Messages, options: SinkOptions) -> list[AskedQueue] | None:
    """Return which queues rows ask for by their columns; None where columns do not choose."""
    if messages.queue_ids is None or options.queue_selector not in ("auto", "column"):
        return None
    names = messages.broker_names
    if names is None:
        names = pa.nulls(len(messages), pa.string())
    return list(zip(messages.queue_ids.to_pylist(), names.to_pylist(), strict=True))


class Requests:
    """Makes the requests of one topic."""

    def __init__(self, topic: str, queues: Sequence[MessageQueue], options: SinkOptions) -> None:
        self._topic = topic
        self._queues = queues
        self._options = options

    def of(self, messages: Messages) -> Iterator[Request]:
        """The requests of messages; raises LocalProtocolError for a queue there is none of."""
        chosen = self._chosen(messages)
        order = np.argsort(chosen, kind="stable")
        if chosen.any() and not (order[:-1] < order[1:]).all():
            messages, chosen = messages.take(order), chosen[order]
        sizes = sizes_of(messages.properties)
        alone = self._alone(messages, sizes)
        data, ends = _encoded(messages)
        weights = np.cumsum(RECORD_OVERHEAD + len(self._topic) + np.diff(ends))
        borders = np.flatnonzero(chosen[1:] != chosen[:-1]) + 1
        for start, end in pairwise([0, *borders.tolist(), len(messages)]):
            index = int(chosen[start])
            queue = None if index == ANY else self._queues[index]
            for first, last, is_alone in self._runs(start, end, (weights, alone)):
                if is_alone:
                    yield self._single(messages, first, queue)
                    continue
                numbers = tuple(messages.numbers[first:last].tolist())
                body = bytes(data[ends[first] : ends[last]])
                yield Request(self._topic, queue, numbers, body)

    # --- which queue ---

    def _chosen(self, messages: Messages) -> Any:
        """Return the index of each message's queue, or ANY."""
        selector = self._options.queue_selector
        if (asked := asked_queues(messages, self._options)) is not None:
            return self._by_column(asked)
        if messages.sharding_keys is not None and selector in ("auto", "hash"):
            return self._by_key(messages.sharding_keys)
        return np.full(len(messages), ANY)

    def _by_key(self, keys: Any) -> Any:
        coded = pc.dictionary_encode(keys.cast(pa.string()))
        index_of = {queue: index for index, queue in enumerate(self._queues)}
        of_key = [
            index_of[queue_of_key(self._queues, key)] if key else ANY
            for key in coded.dictionary.to_pylist()
        ]
        return _looked_up([*of_key, ANY], coded.indices)

    def _by_column(self, asked: list[AskedQueue]) -> Any:
        known: dict[AskedQueue, int] = {}
        found = np.empty(len(asked), np.int64)
        for position, pair in enumerate(asked):
            if pair not in known:
                known[pair] = self._index_of(*pair)
            found[position] = known[pair]
        return found

    def _index_of(self, queue_id: int | None, broker_name: str | None) -> int:
        if queue_id is None:
            return ANY
        found = [
            index
            for index, queue in enumerate(self._queues)
            if queue.queue_id == queue_id and broker_name in (None, queue.broker_name)
        ]
        if len(found) == 1:
            return found[0]
        there = ", ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in self._queues)
        asked = f"{broker_name}:{queue_id}" if broker_name else f"queueId {queue_id}"
        if found:
            raise LocalProtocolError(
                f"column queueId: several brokers have {asked} of topic {self._topic} ({there});"
                " add a column brokerName"
            )
        raise LocalProtocolError(
            f"column queueId: topic {self._topic} has no queue {asked} to write to; it has {there}"
        )

    # --- which go together ---

    def _alone(self, messages: Messages, sizes: Any) -> Any:
        """Which messages are requests of their own (rule 1); None: none is."""
        options = self._options
        alone = messages.body_sizes + sizes + MESSAGE_SIZE_MIN > options.batch_bytes
        if options.compress_over is not None:
            alone |= messages.body_sizes >= options.compress_over
        if messages.is_timed is not None:
            alone |= messages.is_timed
        return alone if alone.any() else None

    def _runs(
        self, start: int, end: int, of_all: tuple[Any, Any]
    ) -> Iterator[tuple[int, int, bool]]:
        """Cut messages for one queue into requests: first, end, whether it is a single one."""
        weights, alone = of_all
        while start < end:
            if alone is not None and alone[start]:
                yield start, start + 1, True
                start += 1
                continue
            before = int(weights[start - 1]) if start else 0
            last = int(np.searchsorted(weights, before + self._options.batch_bytes, "right"))
            last = min(max(last, start + 1), end, start + self._options.batch_size)
            if alone is not None and alone[start:last].any():
                last = start + int(np.argmax(alone[start:last]))
            yield start, last, False
            start = last

    def _single(self, messages: Messages, index: int, queue: MessageQueue | None) -> Request:
        body, sys_flag = messages.bodies[index].as_py(), 0
        options = self._options
        if options.compress_over is not None and len(body) >= options.compress_over:
            body, sys_flag = compressed(body, Compression[options.compression.upper()])
        own = messages.properties[index].as_py().decode()
        return Request(
            self._topic,
            queue,
            (int(messages.numbers[index]),),
            body,
            f"{own}{ENTRY_END}{BATCH_PROPERTIES}",
            int(messages.flags[index]),
            sys_flag,
            is_batch=False,
            is_timed=messages.is_timed is not None and bool(messages.is_timed[index]),
        )


def _looked_up(table: list[int], indices: Any) -> Any:
    """Return the table's value at each index; its last one where there is none."""
    return np.array(table)[pc.fill_null(indices, len(table) - 1).to_numpy(zero_copy_only=False)]


def _encoded(messages: Messages) -> tuple[memoryview, Any]:
    """All messages in the layout of a batch, back to back, and where each begins and ends."""
    encoded = encode_messages(messages.bodies, messages.properties, messages.flags)
    _, ends = bytes_of(encoded)
    return memoryview(encoded.buffers()[2]), ends
