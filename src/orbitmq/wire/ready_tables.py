"""Tables of a broker whose rows are written already: a table of 30,000 topics is made by joining.

In: rows (`write_row`), each made once when its topic or group changes, and a table's version. Out:
the bodies of 21, 103 and 201 and the files of the same form, byte for byte as `write_json` and
`write_register_body` write the whole table.
Rule: what is taken in is never changed here or by its giver, so that a thread may write it.
"""

from functools import cache
from typing import NamedTuple

import msgspec

from orbitmq.wire.bodies_namesrv import DataVersion, TopicConfig
from orbitmq.wire.fastjson import write_json


class TopicRows(NamedTuple):
    """All topics of a broker at one moment."""

    data_version: DataVersion
    configs: dict[str, TopicConfig]
    rows: list[bytes]
    """`write_row` of each of `configs`, in the same order."""


class _Topics(msgspec.Struct, rename="camel", frozen=True):
    data_version: DataVersion
    topic_config_table: msgspec.Raw


class _Registered(msgspec.Struct, rename="camel", frozen=True):
    filter_server_list: list[str]
    topic_config_serialize_wrapper: _Topics


class _Groups(msgspec.Struct, rename="camel", frozen=True):
    data_version: DataVersion
    subscription_group_table: msgspec.Raw
    forbidden_table: dict[str, dict[str, int]] | None


def write_row(name: str, value: msgspec.Struct) -> bytes:
    """Return one row of a table: its name and its value, keys in order, None left out."""
    members = msgspec.to_builtins(value)
    row = {key: item for key in _sorted_keys(type(value)) if (item := members[key]) is not None}
    return _encode({name: row})[1:-1]  # without the table's braces


_encode = msgspec.json.Encoder().encode


@cache
def _sorted_keys(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(sorted(kind.__struct_encode_fields__))


def write_topic_table(topics: TopicRows) -> bytes:
    """Return the body of 21, which is the file of topics as well."""
    return write_json(_topics(topics), standard=False)


def write_topic_registration(topics: TopicRows) -> bytes:
    """Return the body of 103 in its plain form, without filter servers."""
    return write_json(_Registered([], _topics(topics)), standard=False)


def write_group_table(
    data_version: DataVersion, rows: list[bytes], forbidden: dict[str, dict[str, int]]
) -> bytes:
    """Return the body of 201, which is the file of groups as well."""
    return write_json(_Groups(data_version, _joined(rows), forbidden or None), standard=False)


def _topics(topics: TopicRows) -> _Topics:
    return _Topics(topics.data_version, _joined(topics.rows))


def _joined(rows: list[bytes]) -> msgspec.Raw:
    return msgspec.Raw(b"{%s}" % b",".join(rows))
