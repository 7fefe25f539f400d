"""Offsets as text: the JSON forms that users write and that Spark keeps in checkpoints.

In: JSON or the dicts of Spark's offsets. Out: offsets by queue, and back.

Rules:
1. The form is topic -> broker -> queue -> offset, with the queue as text and all keys sorted: Spark
   compares offsets as text, and another order would look like news.
2. A micro-batch's end says where queues begin that begin with it, under STARTS: they are no part of
   its start. So a batch that is run again reads the same, whatever the cluster says then.
3. It also says when the last messages before it were stored, under STORED: see `topic_looks`.
   Where tasks are sized by bytes, how large messages were taken to be is under SIZE: a batch that
   is run again has the same tasks, by which an idempotent sink knows its rows.
4. Topics are the user's names, without the namespace.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from orbitmq.errors import SettingError
from orbitmq.wire.bodies_client import MessageQueue

STARTS, STORED, SIZE = "@starts", "@stored", "@size"
"""No topic has such a name: `@` is not allowed in one."""

_Form = dict[str, dict[str, dict[str, int]]]
_AssignForm = dict[str, dict[str, list[int]]]

Offsets = dict[MessageQueue, int]


def read_offsets(option: str, text: str) -> Offsets:
    """Return the offsets that an option's JSON lists; raises SettingError that names the option."""
    example = '{"topic": {"broker": {"0": 17}}}'
    form: _Form = _read(option, text, _Form, example)
    return _flat(option, form)


def read_assign(option: str, text: str) -> list[MessageQueue]:
    """Return the queues that `assign` lists, in their order."""
    form: _AssignForm = _read(option, text, _AssignForm, '{"topic": {"broker": [0, 1]}}')
    queues = {
        MessageQueue(topic, broker, queue_id)
        for topic, brokers in form.items()
        for broker, queue_ids in brokers.items()
        for queue_id in queue_ids
    }
    if not queues:
        raise SettingError(f"option {option!r} lists no queue")
    return sorted(queues)


def _read(option: str, text: str, form: Any, example: str) -> Any:
    try:
        return msgspec.json.decode(text, type=form)
    except (msgspec.DecodeError, ValueError) as error:
        raise SettingError(
            f"option {option!r}: {text!r} is not of the form {example}: {error}"
        ) from None


def _flat(what: str, form: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Offsets:
    found: Offsets = {}
    rows = (
        (topic, broker, queue_id, offset)
        for topic, brokers in form.items()
        for broker, queues in brokers.items()
        for queue_id, offset in queues.items()
    )
    for topic, broker, queue_id, offset in rows:
        if not (queue_id.isascii() and queue_id.isdigit()):
            raise SettingError(f"{what}: {queue_id!r} of topic {topic} is no queue's number")
        found[MessageQueue(topic, broker, int(queue_id))] = offset
    return found


def nested(offsets: Mapping[MessageQueue, int]) -> dict[str, Any]:
    """Return offsets as Spark keeps them (rule 1)."""
    form: dict[str, Any] = {}
    for queue in sorted(offsets, key=_text_order):
        brokers = form.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return form


def _text_order(queue: MessageQueue) -> tuple[str, str, str]:
    return queue.topic, queue.broker_name, str(queue.queue_id)


def batch_end(
    ends: Mapping[MessageQueue, int],
    starts: Mapping[MessageQueue, int],
    marks: Mapping[MessageQueue, int] | None = None,
    record_bytes: int | None = None,
) -> dict[str, Any]:
    """A micro-batch's end, with the starts of the queues that begin in it (rules 2 and 3)."""
    others = {STARTS: nested(starts), STORED: nested(marks or {}), SIZE: record_bytes}
    form = nested(ends) | {name: each for name, each in others.items() if each}
    return dict(sorted(form.items()))


def offsets_in(form: Mapping[str, Any]) -> Offsets:
    """Return the offsets of one of Spark's dicts, without what else is in it."""
    offsets = {name: each for name, each in form.items() if name not in (STARTS, STORED, SIZE)}
    return _flat("the checkpoint's offsets", offsets)


def starts_in(form: Mapping[str, Any]) -> Offsets:
    """Return the starts in one of Spark's dicts."""
    return _flat("the checkpoint's offsets", form.get(STARTS, {}))


def record_bytes_in(form: Mapping[str, Any]) -> int | None:
    """Return how large messages were taken to be when the batch was planned, if that matters."""
    found = form.get(SIZE)
    return found if isinstance(found, int) else None


def marks_in(form: Mapping[str, Any]) -> Offsets:
    """Return when the messages before the offsets of one of Spark's dicts were stored."""
    return _flat("the checkpoint's offsets", form.get(STORED, {}))
