"""The checksum of bodies is the same number whichever library computes it."""

import importlib
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.core import checksum
from orbitmq.wire import checksum as exact
from tests.core.hot import IMPLEMENTATIONS


@given(st.binary(max_size=5_000))
def test_the_quickest_way_gives_the_numbers_of_the_exact_one(data: bytes) -> None:
    assert checksum.crc32(data) & 0x7FFFFFFF == exact.body_crc(data)
    assert checksum.crc32(memoryview(data)) == zlib.crc32(data)


def test_without_the_extra_python_computes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zlib_ng", None)
    monkeypatch.setitem(sys.modules, "zlib_ng.zlib_ng", None)
    try:
        assert importlib.reload(checksum).crc32 is zlib.crc32
    finally:
        monkeypatch.undo()
        importlib.reload(checksum)
    assert checksum.crc32.__module__ == "zlib_ng.zlib_ng"


@pytest.mark.skipif("compiled" not in IMPLEMENTATIONS, reason="it is not built")
@pytest.mark.parametrize("may_fold", [True, False])
@given(data=st.binary(max_size=400), more=st.integers(0, 40))
def test_the_compiled_core_computes_it_by_folding_and_by_tables(
    data: bytes, more: int, *, may_fold: bool
) -> None:
    data = data * more + data[:more]
    compiled = IMPLEMENTATIONS["compiled"]
    assert compiled.crc32(data, may_fold=may_fold) == zlib.crc32(data)
