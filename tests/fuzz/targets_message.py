"""Fuzz targets of the message encodings: one callable a decoder, bytes in.

Rule: a target returns when the decoder gave a value or the one error it states; anything else that
comes out of it is a finding. Where a decoder accepts x, encode(decode(x)) = x is asserted; where
that cannot hold its first line says why.
"""

from collections.abc import Callable

from orbitmq.errors import CorruptRecord, LocalProtocolError, RemoteProtocolError
from orbitmq.wire.batch import encode_batch
from orbitmq.wire.compression import compress, decompress
from orbitmq.wire.expression import TagFilter
from orbitmq.wire.java import index_hash, string_hash
from orbitmq.wire.message_id import (
    decode_offset_id,
    decode_unique_id,
    encode_offset_id,
    encode_unique_id,
)
from orbitmq.wire.names import (
    check_group,
    check_topic,
    namespace_of,
    topic_fault,
    unwrap_namespace,
    wrap_namespace,
)
from orbitmq.wire.properties import encode_properties, format_properties, parse_properties
from orbitmq.wire.record import decode_record, encode_record, scan_records
from orbitmq.wire.sysflag import Compression
from tests.wire.batches import messages_in

PLAIN_SIZE_MAX = 100_000


def fuzz_record(data: bytes) -> None:
    """One record; random bytes rarely carry a right CRC, so the second try does not look at it."""
    try:
        record, size = decode_record(data)
    except CorruptRecord:
        pass
    else:
        assert encode_record(record) == data[:size]
    try:
        record, size = decode_record(data, is_crc_checked=False)
    except CorruptRecord:
        return
    # Encoding writes the right CRC, whatever stood there (bytes 8 to 12).
    written = encode_record(record)
    assert written[:8] + written[12:] == data[:8] + data[12:size]


def fuzz_records(data: bytes) -> None:
    """Records back to back; bytes behind a blank record are not looked at and cannot return."""
    written = b""
    try:
        for record in scan_records(data):
            written += encode_record(record)
    except CorruptRecord:
        pass
    assert data.startswith(written)


def fuzz_batch(data: bytes) -> None:
    """A batch; magic and CRC (bytes 4 to 12 of each message) are ignored and written as 0."""
    try:
        messages = messages_in(data)
    except RemoteProtocolError:
        return
    written = encode_batch(messages)
    assert len(written) == len(data)
    assert messages_in(written) == messages


def fuzz_properties(data: bytes) -> None:
    """Properties never fail; dropped entries and replaced bytes do not return, all others do.

    Bytes that are not UTF-8 grow threefold when replaced, which may pass the size limit.
    """
    properties = parse_properties(data)
    assert parse_properties(format_properties(properties)) == properties
    try:
        written = encode_properties(properties, is_closed=True)
    except LocalProtocolError:
        assert len(format_properties(properties, is_closed=True).encode()) > 32_767
        return
    assert parse_properties(written) == properties


def fuzz_decompress(data: bytes) -> None:
    """All three kinds; one plain body has many packed forms, so the plain one is compared."""
    for kind in Compression:
        try:
            plain = decompress(data, kind, PLAIN_SIZE_MAX)
        except RemoteProtocolError:
            continue
        assert len(plain) <= PLAIN_SIZE_MAX
        assert decompress(compress(plain, kind), kind, PLAIN_SIZE_MAX) == plain


def fuzz_offset_id(data: bytes) -> None:
    """An offset id, once as text and once with every byte as two digits; lower case is accepted."""
    for text in (data.decode("latin-1"), data.hex()):
        try:
            host, log_offset = decode_offset_id(text)
        except RemoteProtocolError:
            continue
        assert encode_offset_id(host, log_offset) == text.upper()


def fuzz_unique_id(data: bytes) -> None:
    """A unique id, likewise."""
    for text in (data.decode("latin-1"), data.hex()):
        try:
            unique_id = decode_unique_id(text)
        except RemoteProtocolError:
            continue
        assert encode_unique_id(unique_id) == text.upper()


def fuzz_tag_expression(data: bytes) -> None:
    """A tag expression; spaces, order and doubles do not return, so the tags are compared."""
    try:
        chosen = TagFilter.parse(data.decode(errors="replace"))
    except RemoteProtocolError:
        return
    again = " || ".join(chosen.tags)
    # A lone tag "*" (written with spaces) reads as "all" once the spaces are gone.
    assert again == "*" or TagFilter.parse(again) == chosen


def fuzz_names(data: bytes) -> None:
    """Names: a fault or none, one verdict from both functions, and namespaces that come off."""
    name = data.decode(errors="replace")
    for check in (check_topic, check_group):
        try:
            check(name)
        except LocalProtocolError:
            assert check is check_group or topic_fault(name) is not None
    wrapped = wrap_namespace("ns", name)
    if wrapped != name:
        assert namespace_of(wrapped) == "ns"
        assert unwrap_namespace("ns", wrapped) == name


def fuzz_string_hash(data: bytes) -> None:
    """The hash of any text fits 32 bits; the index's is not negative."""
    text = data.decode("utf-8", "surrogateescape")
    value = string_hash(text)
    assert -(2**31) <= value < 2**31
    assert index_hash(text) == (0 if value == -(2**31) else abs(value))


TARGETS: dict[str, Callable[[bytes], None]] = {
    "record": fuzz_record,
    "records": fuzz_records,
    "batch": fuzz_batch,
    "properties": fuzz_properties,
    "decompress": fuzz_decompress,
    "offset_id": fuzz_offset_id,
    "unique_id": fuzz_unique_id,
    "tag_expression": fuzz_tag_expression,
    "names": fuzz_names,
    "string_hash": fuzz_string_hash,
}
