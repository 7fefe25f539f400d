"""Arrow columns as stored records: the way back from `decode`.

In: a batch with the columns of `columns`, bodies and properties as they are stored. Out: a binary
array with one whole record per row.

Rules:
1. Bytes are those of `wire.record.encode_record`: it computes CRCs and host bits, and so does this.
2. Plain rows (IPv4 hosts, topics of up to 127 bytes) are made by columns, others one by one.
"""

import struct
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from orbitmq.arrow.encode import (
    as_binary,
    check_property_sizes,
    joined,
    property_size_bytes,
    sizes_of,
)
from orbitmq.arrow.frames import HEAD, PROPERTIES_SIZE_SIZE, TOPIC_SIZE_SIZE
from orbitmq.arrow.segments import bytes_of
from orbitmq.errors import LocalProtocolError
from orbitmq.wire.checksum import body_crc
from orbitmq.wire.host import V4_SIZE, Host, pack_ip
from orbitmq.wire.record import MAGIC_V1, MAGIC_V2, RECORD_SIZE_MAX, Record, encode_record
from orbitmq.wire.sysflag import BORN_HOST_V6, STORE_HOST_V6

_TOPIC_SIZE_MAX = 127
_OTHER_SIZE = HEAD.itemsize + TOPIC_SIZE_SIZE + PROPERTIES_SIZE_SIZE
_PORT_MAX = 2**31
_PORT = struct.Struct(">i")
_HOSTS_V6 = BORN_HOST_V6 | STORE_HOST_V6
_NUMBERS = {
    "queueId": "queue_id",
    "flag": "flag",
    "queueOffset": "queue_offset",
    "physicalOffset": "log_offset",
    "reconsumeTimes": "reconsume_times",
    "preparedTransactionOffset": "prepared_offset",
}


def encode_stored(batch: Any) -> Any:
    """Return the record of each row; `body` and `properties` are binary, as they are stored.

    Raises LocalProtocolError for what no record holds.
    """
    columns = {name: batch.column(name) for name in batch.schema.names}
    check_property_sizes(sizes_of(columns["properties"]))
    hosts = {name: _hosts(columns[name]) for name in ("bornHost", "storeHost")}
    is_plain = sizes_of(columns["topic"]) <= _TOPIC_SIZE_MAX
    for packed in hosts.values():
        is_plain &= np.array([len(each) == V4_SIZE + _PORT.size for each in packed], dtype=np.bool_)
    plain = pa.array(is_plain)
    if is_plain.all():
        return _plain_records(columns, hosts)
    fast = {name: column.filter(plain) for name, column in columns.items()}
    fast_hosts = {
        name: [each for each, keep in zip(packed, is_plain, strict=True) if keep]
        for name, packed in hosts.items()
    }
    slow = [_slow_record(row) for row in batch.filter(pa.array(~is_plain)).to_pylist()]
    both = pa.concat_arrays([_plain_records(fast, fast_hosts), pa.array(slow, pa.binary())])
    order = np.where(is_plain, np.cumsum(is_plain), np.cumsum(~is_plain) + is_plain.sum()) - 1
    return both.take(pa.array(order))


def _plain_records(columns: dict[str, Any], hosts: dict[str, list[bytes]]) -> Any:
    bodies, properties = columns["body"], columns["properties"]
    topics = columns["topic"].cast(pa.binary())
    sizes = [sizes_of(part) for part in (bodies, topics, properties)]
    head = np.zeros(len(bodies), dtype=HEAD)
    size = sizes[0] + sizes[1] + sizes[2] + _OTHER_SIZE
    if len(sizes[0]) and (int(size.max()) > RECORD_SIZE_MAX or not sizes[1].all()):
        row = int(size.argmax())
        raise LocalProtocolError(
            f"record of {size[row]} bytes in row {row}, limit {RECORD_SIZE_MAX}; no topic is empty"
        )
    head["total_size"] = size
    head["magic"] = MAGIC_V1
    head["crc"] = _sums(bodies)
    head["sys_flag"] = columns["sysFlag"].to_numpy(zero_copy_only=False) & ~_HOSTS_V6
    head["born_ms"] = _times_ms(columns["bornTimestamp"])
    head["store_ms"] = _times_ms(columns["storeTimestamp"])
    head["born_host"] = np.frombuffer(b"".join(hosts["bornHost"]), dtype=">i8")
    head["store_host"] = np.frombuffer(b"".join(hosts["storeHost"]), dtype=">i8")
    head["body_size"] = sizes[0]
    for column, field in _NUMBERS.items():
        head[field] = columns[column].to_numpy(zero_copy_only=False)
    topic_sizes = as_binary(sizes[1].astype(np.int8))
    property_sizes = property_size_bytes(sizes[2])
    return joined(as_binary(head), bodies, topic_sizes, topics, property_sizes, properties)


def _hosts(texts: Any) -> list[bytes]:
    """Return hosts as records hold them; each text that there is is read once."""
    packed = {text: _packed(host_of(text)) for text in texts.unique().to_pylist()}
    return [packed[text] for text in texts.to_pylist()]


def _packed(host: Host) -> bytes:
    return pack_ip(host.ip) + _PORT.pack(host.port)


def host_of(text: str) -> Host:
    """The host that a column of hosts shows, as `192.0.2.1:10911` or `[2001:db8::1]:10911`."""
    ip, _, port = text.rpartition(":")
    ip = ip.removeprefix("[").removesuffix("]")
    pack_ip(ip)
    if not port.removeprefix("-").isdecimal() or not -_PORT_MAX <= int(port) < _PORT_MAX:
        raise LocalProtocolError(f"{text[:80]!r} is no host with a port")
    return Host(ip, int(port))


def _sums(bodies: Any) -> NDArray[np.uint32]:
    memory, borders = bytes_of(bodies)
    pairs = pairwise(borders.tolist())
    return np.array([body_crc(memory[begin:end].data) for begin, end in pairs], dtype=np.uint32)


def _times_ms(times: Any) -> NDArray[np.int64]:
    times_us: NDArray[np.int64] = times.view(pa.int64()).to_numpy(zero_copy_only=False)
    return times_us // 1_000


def _slow_record(row: dict[str, Any]) -> bytes:
    topic = row["topic"]
    born_ms, store_ms = (
        int(_times_ms(pa.array([row[name]], pa.timestamp("us", tz="UTC")))[0])
        for name in ("bornTimestamp", "storeTimestamp")
    )
    record = Record(
        topic=topic,
        body=row["body"],
        properties=row["properties"],
        sys_flag=row["sysFlag"],
        born_ms=born_ms,
        store_ms=store_ms,
        born_host=host_of(row["bornHost"]),
        store_host=host_of(row["storeHost"]),
        magic=MAGIC_V1 if len(topic.encode()) <= _TOPIC_SIZE_MAX else MAGIC_V2,
        **{field: row[column] for column, field in _NUMBERS.items()},
    )
    return encode_record(record)
