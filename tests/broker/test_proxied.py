"""Messages that come through a proxy: their born host is the client's, by the proxy's word.

An original 5.5.0 takes the same bytes and keeps the proxy's own address as born host; ours is what
the setting is for. 4.9.7 knows no preambles.
"""

import asyncio
from pathlib import Path

import pytest

from orbitmq.config import BrokerSettings
from orbitmq.net.turn import Turn
from orbitmq.wire.record import scan_records
from orbitmq.world.net import run
from tests.behaviour.requests import pull_request, send_request
from tests.broker.running import running
from tests.net.running import connected
from tests.net.test_proxy_protocol import V1_LINE, V2_4, V2_6

SETTINGS = BrokerSettings(
    listen_port=0, mapped_file_size_commit_log=1 << 20, proxy_protocol_enable=True
)


@pytest.mark.parametrize(
    ("preamble", "ip", "port"),
    [
        (V1_LINE, "192.168.0.1", 56324),
        (V2_4, "203.0.113.7", 56324),
        (V2_6, "2001:db8::7", 56324),
    ],
)
def test_a_message_through_a_proxy_is_born_at_the_clients_address(
    tmp_path: Path, preamble: bytes, ip: str, port: int
) -> None:
    async def scenario() -> None:
        turn = Turn(asyncio.get_running_loop())
        async with running(tmp_path, turn, SETTINGS) as site:
            async with connected(int(site.broker.address.rpartition(":")[2])) as client:
                client.write(preamble)
                for number in range(2):  # the second one takes the hot path
                    client.ask(send_request("T", b"%d" % number))
                    assert (await client.answer()).code == 0
            pulled = await site.call(pull_request("T", "G", 0))
            records = list(scan_records(pulled.body))
            assert [record.body for record in records] == [b"0", b"1"]
            assert {str(record.born_host.ip) for record in records} == {ip}
            assert {record.born_host.port for record in records} == {port}

    run(scenario())
