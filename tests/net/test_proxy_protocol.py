"""The PROXY protocol: who a connection is for, by the word of a proxy that may give it.

Lines and bytes are those of the protocol's public description: the longest lines of version 1 as it
counts them, and version 2 put together field by field.
"""

import asyncio
import ipaddress
import struct

import pytest

from orbitmq.config import BrokerSettings, NamesrvSettings
from orbitmq.errors import RemoteProtocolError, SettingError
from orbitmq.net.connection import Connection, Result
from orbitmq.net.limits import Limits
from orbitmq.net.proxy_protocol import Preamble, Proxies, read_networks, read_preamble
from orbitmq.net.serving import proxies_from
from orbitmq.wire.command import Command, encode_command, reply_to
from orbitmq.world.tls import TlsMode
from tests.net.running import HOST, Client, Run, connected, serving, until
from tests.net.test_tls import Papers

V1_LINE = b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n"
FULL = b"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
LONGEST_V6 = b"PROXY TCP6 %b %b 65535 65535\r\n" % (FULL, FULL)
LONGEST_UNKNOWN = b"PROXY UNKNOWN %b %b 65535 65535\r\n" % (FULL, FULL)
MARK = bytes.fromhex("0d0a0d0a000d0a515549540a")
NOOP_TLV = b"\x04\x00\x03abc"
AUTHORITY_TLV = b"\x02\x00\x0bexample.com"
ANY = Proxies()


def v2(command: int = 0x21, family: int = 0x11, rest: bytes = b"") -> bytes:
    return MARK + struct.pack(">BBH", command, family, len(rest)) + rest


def addresses(source: str, destination: str, *ports: int) -> bytes:
    packed = ipaddress.ip_address(source).packed + ipaddress.ip_address(destination).packed
    return packed + struct.pack(">HH", *ports)


V2_4 = v2(rest=addresses("203.0.113.7", "10.0.0.5", 56324, 9876))
V2_6 = v2(family=0x21, rest=addresses("2001:db8::7", "2001:db8::5", 56324, 9876) + AUTHORITY_TLV)
WHOLE = {
    "v1": (V1_LINE, ("192.168.0.1", 56324), ("192.168.0.11", 443)),
    "v1-longest-v6": (LONGEST_V6, (FULL.decode(), 65535), (FULL.decode(), 65535)),
    "v2": (V2_4, ("203.0.113.7", 56324), ("10.0.0.5", 9876)),
    "v2-v6-tlv": (V2_6, ("2001:db8::7", 56324), ("2001:db8::5", 9876)),
}
WITHOUT_ADDRESS = {
    "v1-unknown": b"PROXY UNKNOWN\r\n",
    "v1-longest-unknown": LONGEST_UNKNOWN,
    "v2-local": v2(0x20, 0x00),
    "v2-local-with-addresses": v2(0x20, 0x11, addresses("1.2.3.4", "5.6.7.8", 1, 2)),
    "v2-unspec": v2(0x21, 0x00, NOOP_TLV),
    "v2-unix": v2(0x21, 0x31, bytes(216)),
    "v2-udp4": v2(0x21, 0x12, bytes(12)),
}
REFUSED = {
    "v1-no-end": (b"PROXY TCP4 " + b"1" * 96, "proxy-oversize"),
    "v1-family": (b"PROXY TCP5 1.2.3.4 1.2.3.4 1 2\r\n", "proxy-malformed"),
    "v1-mixed": (b"PROXY TCP4 ::1 ::1 1 2\r\n", "proxy-malformed"),
    "v1-words": (b"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n", "proxy-malformed"),
    "v1-ip": (b"PROXY TCP4 1.2.3.400 1.2.3.4 1 2\r\n", "proxy-malformed"),
    "v1-scope": (b"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n", "proxy-malformed"),
    "v1-port": (b"PROXY TCP4 1.2.3.4 1.2.3.4 65536 2\r\n", "proxy-malformed"),
    "v1-port-zeros": (b"PROXY TCP4 1.2.3.4 1.2.3.4 01 2\r\n", "proxy-malformed"),
    "v1-mark": (b"PROXIMITY", "proxy-malformed"),
    "v2-mark": (b"\r\n\r\n\r\n", "proxy-malformed"),
    "v2-version": (v2(0x11), "proxy-version"),
    "v2-command": (v2(0x22), "proxy-version"),
    "v2-family": (v2(0x21, 0x44, bytes(12)), "proxy-malformed"),
    "v2-short": (v2(0x21, 0x21, bytes(35)), "proxy-malformed"),
    "v2-oversize": (v2(0x21, 0x11, bytes(4_097)), "proxy-oversize"),
}


# --- the parser ---


@pytest.mark.parametrize("case", WHOLE)
def test_a_preamble_gives_both_addresses_and_its_size(case: str) -> None:
    data, source, destination = WHOLE[case]
    assert read_preamble(data + b"\0\0rest") == Preamble(len(data), source, destination)


@pytest.mark.parametrize("case", WITHOUT_ADDRESS)
def test_a_preamble_without_ip_addresses_keeps_the_real_ones(case: str) -> None:
    data = WITHOUT_ADDRESS[case]
    assert read_preamble(data + b"rest") == Preamble(len(data))


@pytest.mark.parametrize("data", [V1_LINE, V2_4, V2_6, *WITHOUT_ADDRESS.values()])
def test_a_torn_preamble_is_awaited_whatever_byte_it_ends_at(data: bytes) -> None:
    for size in range(1, len(data)):
        assert read_preamble(data[:size]) is None
    assert read_preamble(data) is not None


@pytest.mark.parametrize("case", REFUSED)
def test_a_malformed_or_oversize_preamble_is_refused_by_reason(case: str) -> None:
    data, reason = REFUSED[case]
    with pytest.raises(RemoteProtocolError) as caught:
        read_preamble(data)
    assert caught.value.reason == reason


def test_the_longest_lines_are_as_long_as_the_description_says() -> None:
    assert (len(LONGEST_V6), len(LONGEST_UNKNOWN)) == (104, 107)


def test_networks_are_read_from_a_comma_list_or_refused_with_the_setting() -> None:
    networks = read_networks("10.0.0.0/8, ::1 ,", "proxyProtocolFrom")
    assert [str(one) for one in networks] == ["10.0.0.0/8", "::1/128"]
    with pytest.raises(SettingError, match=r"proxyProtocolFrom.*10\.0\.0\.1/8"):
        read_networks("10.0.0.1/8", "proxyProtocolFrom")
    with pytest.raises(SettingError, match="65 networks, limit 64"):
        read_networks("10.0.0.1," * 65, "proxyProtocolFrom")


def test_an_ipv4_proxy_on_an_ipv6_socket_is_known_by_its_ipv4_network() -> None:
    proxies = Proxies(read_networks("10.0.0.0/8", "proxyProtocolFrom"))
    proxies.check("::ffff:10.1.2.3")
    with pytest.raises(RemoteProtocolError, match="proxyProtocolFrom"):
        proxies.check("::ffff:11.1.2.3")


@pytest.mark.parametrize("kind", [BrokerSettings, NamesrvSettings])
def test_it_is_off_unless_a_setting_says_otherwise(
    kind: type[BrokerSettings] | type[NamesrvSettings],
) -> None:
    assert proxies_from(kind()) is None
    assert proxies_from(kind(proxy_protocol_enable=True)) == Proxies(())
    with pytest.raises(SettingError, match="proxyProtocolFrom"):
        proxies_from(kind(proxy_protocol_from="everywhere"))


# --- connections ---


def who(request: Command, connection: Connection) -> Result:
    """Answer with the addresses that the connection has."""
    (peer_ip, peer_port), (local_ip, local_port) = (
        connection.peer_address,
        connection.local_address,
    )
    return reply_to(request, remark=f"{peer_ip} {peer_port} {local_ip} {local_port}")


async def whose(client: Client) -> list[str]:
    client.ask(Command(10, opaque=1))
    return ((await client.answer()).remark or "").split()


FRAME = encode_command(Command(10, opaque=1))


@pytest.mark.parametrize("case", WHOLE)
@pytest.mark.parametrize("is_torn", [False, True])
def test_the_address_given_becomes_the_connections(run: Run, case: str, is_torn: bool) -> None:
    data, source, destination = WHOLE[case]

    async def scenario() -> None:
        async with serving(who, proxies=ANY) as site, connected(site.port) as client:
            for piece in [bytes([byte]) for byte in data] if is_torn else [data]:
                client.write(piece)
                await asyncio.sleep(0)
            expected = [source[0], str(source[1]), destination[0], str(destination[1])]
            assert await whose(client) == expected
            assert site.connection().peer == f"{source[0]}:{source[1]}"

    run(scenario())


def test_a_frame_in_the_same_packet_is_handled(run: Run) -> None:
    async def scenario() -> None:
        async with serving(who, proxies=ANY) as site, connected(site.port) as client:
            client.write(V2_4 + FRAME + FRAME)
            assert (await client.answer()).remark == "203.0.113.7 56324 10.0.0.5 9876"
            assert (await client.answer()).remark == "203.0.113.7 56324 10.0.0.5 9876"

    run(scenario())


@pytest.mark.parametrize("case", WITHOUT_ADDRESS)
def test_local_and_unknown_keep_the_real_address(run: Run, case: str) -> None:
    async def scenario() -> None:
        async with serving(who, proxies=ANY) as site, connected(site.port) as client:
            client.write(WITHOUT_ADDRESS[case])
            own_ip, own_port = client.writer.get_extra_info("sockname")
            assert await whose(client) == [own_ip, str(own_port), HOST, str(site.port)]

    run(scenario())


def test_a_client_without_a_proxy_is_served_beside(run: Run) -> None:
    async def scenario() -> None:
        async with serving(who, proxies=ANY) as site, connected(site.port) as client:
            assert (await whose(client))[0] == HOST

    run(scenario())


def test_tls_may_follow_the_preamble(run: Run, tmp_path_factory: pytest.TempPathFactory) -> None:
    papers = Papers(tmp_path_factory.mktemp("papers"))

    async def scenario() -> None:
        tls = papers.settings(TlsMode.ENFORCING)
        async with serving(who, proxies=ANY, tls=tls) as site, connected(site.port) as client:
            client.write(V2_4)
            await client.writer.start_tls(papers.context(), server_hostname=HOST)
            assert (await whose(client))[0] == "203.0.113.7"

    run(scenario())


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_preamble_closes_the_connection_and_is_counted(run: Run, case: str) -> None:
    data, reason = REFUSED[case]

    async def scenario() -> None:
        async with serving(who, proxies=ANY) as site, connected(site.port) as client:
            client.write(data)
            assert await client.ended() == b""
            assert site.closes(reason) == 1
            assert site.traffic.protocol_errors.value(reason) == 1

    run(scenario())


def test_a_second_preamble_is_no_frame(run: Run) -> None:
    async def scenario() -> None:
        async with serving(who, proxies=ANY) as site, connected(site.port) as client:
            client.write(V1_LINE + V1_LINE)
            await client.ended()
            assert site.closes("frame-oversize") == 1

    run(scenario())


def test_a_preamble_from_elsewhere_is_refused_and_its_frames_are_not_handled(run: Run) -> None:
    proxies = Proxies(read_networks("10.0.0.0/8", "proxyProtocolFrom"))

    async def scenario() -> None:
        async with serving(who, proxies=proxies) as site, connected(site.port) as client:
            client.write(V1_LINE + FRAME)
            assert await client.ended() == b""
            assert site.closes("proxy-untrusted") == 1

    run(scenario())


def test_a_preamble_is_not_understood_where_it_is_not_enabled(run: Run) -> None:
    async def scenario() -> None:
        async with serving(who) as site, connected(site.port) as client:
            client.write(V1_LINE + FRAME)
            assert await client.ended() == b""
            assert site.closes("frame-oversize") == 1

    run(scenario())


@pytest.mark.parametrize("sent", [b"P", V1_LINE[:-1], V2_4[:-1], V1_LINE])
def test_a_preamble_that_does_not_end_or_has_no_frame_is_closed_in_time(
    run: Run, sent: bytes
) -> None:
    async def scenario() -> None:
        limits = Limits(first_frame_s=0.2)
        async with serving(who, proxies=ANY, limits=limits) as site, connected(site.port) as client:
            client.write(sent)
            await client.ended()
            assert site.closes("first-frame-timeout") == 1

    run(scenario())


def test_what_is_held_of_a_torn_preamble_is_counted_and_let_go(run: Run) -> None:
    async def scenario() -> None:
        async with serving(who, proxies=ANY) as site:
            async with connected(site.port) as client:
                client.write(V2_4[:20])
                await until(lambda: site.traffic.held.value == 20)
            await until(lambda: site.traffic.held.value == 0)

    run(scenario())
