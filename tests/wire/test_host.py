"""Hosts: text and bytes say the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import LocalProtocolError
from orbitmq.wire.host import Host, pack_host, pack_ip, unpack_ip


@given(st.ip_addresses())
def test_an_address_packs_and_unpacks(address: object) -> None:
    assert unpack_ip(pack_ip(str(address))) == str(address)


@given(st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16))
def test_every_4_or_16_bytes_are_an_address(packed: bytes) -> None:
    assert pack_ip(unpack_ip(packed)) == packed


def test_a_host_is_written_with_its_port_and_ipv6_in_brackets() -> None:
    assert str(Host("127.0.0.1", 10911)) == "127.0.0.1:10911"
    assert str(Host("fd00::2", 10911)) == "[fd00::2]:10911"


def test_a_packed_host_is_address_and_four_bytes_of_port() -> None:
    assert pack_host(Host("127.0.0.1", 10911)) == bytes.fromhex("7F00000100002A9F")
    assert pack_host(Host("::1", 1)) == bytes(15) + b"\x01" + b"\x00\x00\x00\x01"


@pytest.mark.parametrize("text", ["", "localhost", "1.2.3", "1.2.3.4:5", "01.2.3.4"])
def test_text_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(LocalProtocolError, match="resolve host names first"):
        pack_ip(text)
