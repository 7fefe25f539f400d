"""sysFlag: each function reads and writes its own bits only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import RemoteProtocolError
from orbitmq.wire.sysflag import (
    COMPRESSED,
    COMPRESSION_MASK,
    MULTI_TAGS,
    TRANSACTION_MASK,
    Compression,
    Transaction,
    compression_of,
    enters_queue,
    is_compressed,
    transaction_of,
    with_compression,
    with_host_bits,
    with_transaction,
    without_compression,
)

FLAGS = st.integers(-(2**31), 2**31 - 1)


def test_the_bits_are_the_original_s() -> None:
    assert (COMPRESSED, MULTI_TAGS, TRANSACTION_MASK) == (1, 2, 12)
    values = {transaction.name: transaction.value for transaction in Transaction}
    assert values == {"NONE": 0, "PREPARED": 4, "COMMIT": 8, "ROLLBACK": 12}
    assert is_compressed(0x301)
    assert not is_compressed(0x300)


@given(FLAGS, st.sampled_from(Transaction))
def test_a_transaction_type_is_set_and_read_and_nothing_else_changes(
    flag: int, transaction: Transaction
) -> None:
    changed = with_transaction(flag, transaction)
    assert transaction_of(changed) is transaction
    assert (changed ^ flag) & ~TRANSACTION_MASK == 0


@given(FLAGS, st.sampled_from(Compression))
def test_a_compression_is_set_read_and_removed_and_nothing_else_changes(
    flag: int, kind: Compression
) -> None:
    packed = with_compression(flag, kind)
    assert is_compressed(packed)
    assert compression_of(packed) is kind
    plain = without_compression(packed)
    assert not is_compressed(plain)
    assert (packed ^ flag) & ~(COMPRESSION_MASK | 1) == 0
    assert (plain ^ flag) & ~(COMPRESSION_MASK | 1) == 0


@given(FLAGS, st.booleans(), st.booleans())
def test_host_bits_are_set_and_nothing_else_changes(flag: int, born: bool, store: bool) -> None:
    changed = with_host_bits(flag, born_is_v6=born, store_is_v6=store)
    assert (bool(changed & 0x10), bool(changed & 0x20)) == (born, store)
    assert (changed ^ flag) & ~0x30 == 0


@pytest.mark.parametrize(
    ("flag", "kind"),
    [
        (0x1, Compression.ZLIB),
        (0x301, Compression.ZLIB),
        (0x101, Compression.LZ4),
        (0x201, Compression.ZSTD),
    ],
)
def test_the_bits_name_the_kind(flag: int, kind: Compression) -> None:
    assert compression_of(flag) is kind


@pytest.mark.parametrize("flag", [0x401, 0x501, 0x601, 0x701])
def test_a_kind_nobody_knows_is_refused(flag: int) -> None:
    with pytest.raises(RemoteProtocolError, match="unknown compression type"):
        compression_of(flag)


def test_prepared_and_rolled_back_records_get_no_queue_entry() -> None:
    assert [enters_queue(value) for value in Transaction] == [True, False, True, False]
    assert enters_queue(0x301)
