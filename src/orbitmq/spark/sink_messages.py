"""Rows become messages: bodies, properties, flags and the queues they ask for, many at a time.

In: an Arrow batch of rows of one topic, and the rows' numbers in their task. Out: Messages.

Rules:
1. The unique id is the first property, as every client's; system properties in the rows' own map
   are left out, and so are entries without a value: readers drop those.
2. What would read back as something else is an error that names column and row: a body that is
   null or empty, a separator inside a text, properties that are too long.
3. Everything here is done for whole columns; no loop of Python's touches a row.
4. Rows of the usual columns are written without pandas: see arrow.segments rule 5.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.arrow.encode import sizes_of
from orbitmq.arrow.segments import text_scalar
from orbitmq.errors import LocalProtocolError
from orbitmq.spark.sink_keys import TaskKey
from orbitmq.wire import properties as names
from orbitmq.wire.properties import ENTRY_END, NAME_END, PROPERTIES_SIZE_MAX, is_reserved

_NOTHING = text_scalar("")
_NO_TEXT = pa.nulls(1, pa.string())[0]
_MS = 1_000
"""Spark's timestamps have so many units in a millisecond."""


class Messages(msgspec.Struct):
    """Messages of one topic, as columns; `numbers` are the rows' numbers in their task."""

    numbers: Any
    bodies: Any
    properties: Any
    flags: Any
    body_sizes: Any
    is_timed: Any = None
    """Which ones have a delay, and cannot be in a batch; None: none has."""
    queue_ids: Any = None
    broker_names: Any = None
    sharding_keys: Any = None

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, order: Any) -> "Messages":
        """Return some of them, in this order."""
        columns = {
            name: _taken(column, order)
            for name in self.__struct_fields__
            if (column := getattr(self, name)) is not None
        }
        return Messages(**columns)


def _taken(column: Any, order: Any) -> Any:
    return column[order] if isinstance(column, np.ndarray) else column.take(pa.array(order))


def messages_of(
    task: TaskKey, columns: dict[str, Any], numbers: Any, namespace: str = ""
) -> Messages:
    """Return the messages of rows; raises LocalProtocolError (rule 2)."""
    bodies = columns["body"].cast(pa.binary())
    sizes = _lengths(bodies)
    if not sizes.all():
        _refuse("body", numbers, sizes == 0, "is null or empty, and brokers refuse that")
    delays = _delays(columns)
    ids = task.ids_of(numbers)
    if "msgId" in columns:
        own = _text(columns["msgId"], "msgId", numbers)
        ids = pc.if_else(pc.is_valid(own), own, ids)
    properties = _joined(ids, columns, (numbers, delays, namespace))
    return Messages(
        numbers=numbers,
        bodies=bodies,
        properties=properties,
        flags=_flags(columns.get("flag"), numbers),
        body_sizes=sizes,
        is_timed=_mask(delays),
        queue_ids=columns.get("queueId"),
        broker_names=columns.get("brokerName"),
        sharding_keys=columns.get("shardingKey"),
    )


def _lengths(column: Any) -> Any:
    if not column.null_count:
        return sizes_of(column)
    return pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)


def _flags(column: Any, numbers: Any) -> Any:
    if column is None:
        return np.zeros(len(numbers), np.int32)
    found = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    narrow = found.astype(np.int32)
    if (narrow != found).any():
        _refuse("flag", numbers, narrow != found, "is no number of 32 bits")
    return narrow


# --- properties ---


def _joined(ids: Any, columns: dict[str, Any], more: tuple[Any, Any, str]) -> Any:
    """Return the properties string of each row, as binary."""
    numbers, delays, namespace = more
    parts = [text_scalar(f"{names.UNIQ_KEY}{NAME_END}"), ids, *_entries(columns, numbers)]
    if delays is not None:
        name = names.DELAY if "delayTimeLevel" in columns else names.TIMER_DELIVER_MS
        parts.append(_entry(name, delays.cast(pa.string())))
    if namespace:
        parts.append(text_scalar(f"{ENTRY_END}{names.INSTANCE_ID}{NAME_END}{namespace}"))
    joined = pc.binary_join_element_wise(
        *parts, _NOTHING, null_handling="replace", null_replacement=""
    ).cast(pa.binary())
    sizes = _lengths(joined)
    if len(sizes) and sizes.max() > PROPERTIES_SIZE_MAX:
        fault = f"make more than {PROPERTIES_SIZE_MAX} bytes of properties; move some to the body"
        _refuse("tags, keys and properties", numbers, sizes > PROPERTIES_SIZE_MAX, fault)
    return joined


def _entries(columns: dict[str, Any], numbers: Any) -> Iterator[Any]:
    if "properties" in columns:
        yield _map_entries(columns["properties"], numbers)
    if "keys" in columns:
        yield _entry(names.KEYS, _text(_one_text(columns["keys"]), "keys", numbers))
    if "tags" in columns:
        yield _entry(names.TAGS, _text(columns["tags"], "tags", numbers))
    if "shardingKey" in columns:
        keys = _text(columns["shardingKey"], "shardingKey", numbers)
        yield _entry(names.SHARDING_KEY, keys)


def _entry(name: str, values: Any) -> Any:
    return pc.binary_join_element_wise(
        text_scalar(f"{ENTRY_END}{name}{NAME_END}"), values, _NOTHING
    )


def _one_text(keys: Any) -> Any:
    """Return lists of keys as text, words between single spaces; null ones are left out."""
    if not pa.types.is_list(keys.type):
        return keys
    if keys.flatten().null_count:
        rows = keys.to_pylist()
        keys = pa.array([row and [key for key in row if key is not None] for row in rows])
    return pc.binary_join(keys.cast(pa.list_(pa.string())), names.KEY_SEPARATOR)


def _text(column: Any, name: str, numbers: Any) -> Any:
    """Return a column with null for what is empty; raises for one that holds a separator."""
    column = column.cast(pa.string())
    if pc.any(pc.match_substring(column, ENTRY_END)).as_py():
        wrong = pc.fill_null(pc.match_substring(column, ENTRY_END), fill_value=False)
        _refuse(name, numbers, wrong.to_numpy(zero_copy_only=False), "holds the character 0x02")
    return pc.if_else(pc.equal(column, _NOTHING), _NO_TEXT, column)


def _map_entries(column: Any, numbers: Any) -> Any:
    """Return each row's own properties as text that begins with a separator, or is empty."""
    parents = pc.list_parent_indices(column.cast(pa.list_(_PAIR))).to_numpy()
    start, end = column.offsets[0].as_py(), column.offsets[len(column)].as_py()
    keys = column.keys[start:end].cast(pa.string())
    values = column.items[start:end].cast(pa.string())
    keeps = _kept(keys, values)
    keys, values, parents = keys.filter(keeps), values.filter(keeps), parents[keeps]
    _check_map(keys, values, numbers[parents])
    texts = pc.binary_join_element_wise(
        text_scalar(ENTRY_END), keys, text_scalar(NAME_END), values, _NOTHING
    )
    ends = np.zeros(len(column) + 1, np.int32)
    np.cumsum(np.bincount(parents, minlength=len(column)), out=ends[1:])
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(ends), texts), "")


_PAIR = pa.struct([("key", pa.string()), ("value", pa.string())])


def _kept(keys: Any, values: Any) -> Any:
    """Which entries have a value and are the user's own (rule 1)."""
    has_value = pc.fill_null(pc.not_equal(values, ""), fill_value=False).to_numpy(
        zero_copy_only=False
    )
    coded = pc.dictionary_encode(keys)
    is_own = np.array([not is_reserved(name) for name in coded.dictionary.to_pylist()], bool)
    if not len(is_own):
        return has_value
    return has_value & is_own[coded.indices.to_numpy()]


def _check_map(keys: Any, values: Any, numbers: Any) -> None:
    wrong = pc.or_(
        pc.or_(pc.match_substring(keys, ENTRY_END), pc.match_substring(keys, NAME_END)),
        pc.or_(pc.match_substring(values, ENTRY_END), pc.equal(keys, "")),
    )
    if pc.any(wrong).as_py():
        fault = "has an empty name, a name with the character 0x01 or 0x02, or a value with 0x02"
        _refuse("properties", numbers, wrong.to_numpy(zero_copy_only=False), fault)


# --- delays ---


def _delays(columns: dict[str, Any]) -> Any:
    """Return delay levels or delivery times as whole numbers, null where there is none."""
    if "delayTimeLevel" in columns:
        return _above_zero(columns["delayTimeLevel"].cast(pa.int64()))
    if "deliverTimestamp" not in columns:
        return None
    times = columns["deliverTimestamp"]
    if pa.types.is_timestamp(times.type):
        times = pc.divide(times.cast(pa.timestamp("us")).cast(pa.int64()), _MS)
    return _above_zero(times)


def _above_zero(column: Any) -> Any:
    return pc.if_else(pc.greater(column, 0), column, pa.scalar(None, pa.int64()))


def _mask(delays: Any) -> Any:
    return None if delays is None else pc.is_valid(delays).to_numpy(zero_copy_only=False)


def _refuse(column: str, numbers: Any, wrong: Any, fault: str) -> None:
    first = int(numbers[np.argmax(wrong)])
    count = int(np.count_nonzero(wrong))
    more = f" (and {count - 1} more)" if count > 1 else ""
    raise LocalProtocolError(f"column {column} of row {first} of this task{more}: {fault}")


def named_columns(names_of: Sequence[str], batch: Any) -> dict[str, Any]:
    """Return the columns of a batch by the sink's names."""
    return dict(zip(names_of, batch.columns, strict=True))


def rows_by_topic(
    columns: dict[str, Any], numbers: Any, topic: str
) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Part rows by topic, in their order: topic, columns, numbers. `topic` wins over the column."""
    others = {name: column for name, column in columns.items() if name != "topic"}
    if topic:
        yield topic, others, numbers
        return
    coded = pc.dictionary_encode(columns["topic"].cast(pa.string()), null_encoding="encode")
    indices = coded.indices.to_numpy()
    for index, name in enumerate(coded.dictionary.to_pylist()):
        mine = np.flatnonzero(indices == index)
        if not name:
            _refuse("topic", numbers, indices == index, "is null or empty")
        if len(mine) == len(numbers):
            yield name, others, numbers
        else:
            part = {key: column.take(pa.array(mine)) for key, column in others.items()}
            yield name, part, numbers[mine]
