"""Settings of the original that no other test turns: each with a value of its own and its effect.

In: a broker with one setting that is not the default. Out: what clients, tools and files see of it.
"""

import asyncio
import json
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from orbitmq.broker import broker as broker_module
from orbitmq.config import BrokerSettings
from orbitmq.net.turn import Turn
from orbitmq.store.flush import LogSync
from orbitmq.store.store import Store
from orbitmq.wire.bodies_client import SQL92, SubscriptionData
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.record import scan_records
from orbitmq.world.net import run
from tests.behaviour.requests import heartbeat_body, send_request
from tests.broker.running import Running, running
from tests.broker.test_registration import REGISTER, NameServerDouble
from tests.net.running import serving, until

SETTINGS = BrokerSettings(
    bind_address="127.0.0.1", listen_port=0, mapped_file_size_commit_log=1 << 20
)
PAGE_SIZE = 4_096
NEVER = str(2**62)


def with_setting(**changes: str | int | bool) -> BrokerSettings:
    return msgspec.structs.replace(SETTINGS, **changes)


def new_turn() -> Turn:
    return Turn(asyncio.get_running_loop())


def test_the_address_for_slaves_is_the_one_that_was_set(tmp_path: Path) -> None:
    server = NameServerDouble()

    async def main() -> None:
        async with serving(server) as site:
            settings = with_setting(broker_ip2="10.1.2.3", namesrv_addr=site.address)
            async with running(tmp_path, new_turn(), settings):
                (told,) = {
                    one.fields["haServerAddr"] for one in server.asked if one.code == REGISTER
                }
                assert told.startswith("10.1.2.3:")

    run(main())


@pytest.mark.parametrize(
    ("changes", "asked", "found"),
    [
        ({"max_msgs_num_batch": 3}, {"key": "k"}, [b"3", b"4", b"5"]),
        ({"default_query_max_num": 2}, {"key": "U", "_UNIQUE_KEY_QUERY": "true"}, [b"4", b"5"]),
        (
            {"max_msgs_num_batch": 3},
            {"key": "U", "_UNIQUE_KEY_QUERY": "true"},
            [b"%d" % n for n in range(6)],
        ),
    ],
    ids=["by key", "by unique key", "each its own"],
)
def test_a_query_gives_as_many_messages_as_was_set(
    tmp_path: Path, changes: dict[str, int], asked: dict[str, str], found: list[bytes]
) -> None:
    async def main() -> None:
        async with running(tmp_path, new_turn(), with_setting(**changes)) as broker:
            for number in range(6):
                properties = "UNIQ_KEY\x01U\x02KEYS\x01k\x02"
                sent = await broker.call(send_request("T", b"%d" % number, i=properties))
                assert sent.code == 0
            whole = {"topic": "T", "maxNum": "64", "beginTimestamp": "0", "endTimestamp": NEVER}
            answer = await broker.call(Command(RequestCode.QUERY_MESSAGE, fields=whole | asked))
            assert [record.body for record in scan_records(answer.body)] == found

    run(main())


@pytest.mark.parametrize(("is_set", "code"), [(True, 1), (False, 0)])
def test_figures_of_a_topic_that_is_gone_are_kept_unless_they_are_to_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_set: bool, code: int
) -> None:
    monkeypatch.setattr(broker_module, "SAMPLE_S", 0.02)

    async def figures(broker: Running) -> Command:
        return await broker.ask(
            RequestCode.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="T"
        )

    async def main() -> None:
        settings = with_setting(auto_delete_unused_stats=is_set)
        async with running(tmp_path, new_turn(), settings) as broker:
            assert (await broker.call(send_request("T"))).code == 0
            await sampled(broker)
            assert (await figures(broker)).code == 0
            assert (await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")).code == 0
            await sampled(broker)
            assert (await figures(broker)).code == code

    run(main())


async def sampled(broker: Running) -> None:
    """Return when figures have been sampled twice more."""
    stats = broker.broker._context.stats
    wanted = stats._number + 2
    await until(lambda: stats._number >= wanted)


@pytest.mark.parametrize(("span_ms", "is_left"), [(1_000, False), (60_000, True)])
def test_the_filter_of_a_group_that_left_is_forgotten_after_the_time_that_was_set(
    tmp_path: Path, span_ms: int, is_left: bool
) -> None:
    async def main() -> None:
        settings = with_setting(enable_property_filter=True, filter_data_clean_time_span=span_ms)
        async with running(tmp_path, new_turn(), settings) as broker:
            filters = broker.broker._context.filters
            wanted = SubscriptionData(
                topic="T", sub_string="a = 1", sub_version=1, expression_type=SQL92
            )
            filters.register("G", [wanted])
            filters.unregister("G")
            await asyncio.sleep(1.1)
            await broker.broker._expire_clients()
            assert (filters.find("T", "G") is not None) is is_left

    run(main())


def test_traces_have_the_topic_that_was_set(tmp_path: Path) -> None:
    async def main() -> None:
        settings = with_setting(trace_topic_enable=True, msg_trace_topic_name="Traces")
        async with running(tmp_path, new_turn(), settings) as broker:
            table = json.loads((await broker.ask(RequestCode.GET_ALL_TOPIC_CONFIG)).body)
            assert table["topicConfigTable"]["Traces"]["perm"] == 6
            assert "RMQ_SYS_TRACE_TOPIC" not in table["topicConfigTable"]

    run(main())


@pytest.mark.parametrize(
    ("changes", "bit_count", "position_count"),
    [
        ({}, 112, 3),
        ({"max_error_rate_of_bloom_filter": 5}, 200, 5),
        ({"expect_consumer_num_use_filter": 64}, 216, 3),
    ],
    ids=["default", "errors", "groups"],
)
def test_filters_have_the_bits_that_follow_from_errors_and_groups(
    tmp_path: Path, changes: dict[str, int], bit_count: int, position_count: int
) -> None:
    async def main() -> None:
        settings = with_setting(enable_property_filter=True, **changes)
        async with running(tmp_path, new_turn(), settings) as broker:
            assert (await broker.call(send_request("T"))).code == 0
            beat = heartbeat_body("c@1", "G", "T", "n > 3").replace(b'"TAG"', b'"SQL92"')
            assert (await broker.call(Command(34, body=beat))).code == 0

    run(main())
    saved = json.loads((tmp_path / "config" / "consumerFilter.json").read_text())
    bits = saved["filterDataByTopic"]["T"]["groupFilterData"]["G"]["bloomFilterData"]
    assert (bits["bitNum"], len(bits["bitPos"])) == (bit_count, position_count)


def test_fewer_pages_than_was_set_wait_for_the_thorough_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []
    begin_sync = Store.begin_sync

    def look(store: Store, least_pages: int = 0) -> LogSync | None:
        looks.append(job := begin_sync(store, least_pages))
        return job

    monkeypatch.setattr(Store, "begin_sync", look)
    settings = with_setting(
        flush_commit_log_least_pages=8,
        flush_interval_commit_log=50,
        flush_commit_log_thorough_interval=60_000,
        unsynced_millis_max=600_000,
    )

    async def main() -> None:
        async with running(tmp_path, new_turn(), settings) as broker:
            store = broker.broker._context.store
            await until(lambda: store.unsynced_bytes == 0)
            before = store.durable_offset
            for _ in range(7):
                assert (await broker.call(send_request("T", bytes(PAGE_SIZE - 400)))).code == 0
            looks.clear()
            await until(lambda: len(looks) >= 3)
            assert (set(looks), store.durable_offset) == ({None}, before), "less than 8 pages"
            for _ in range(2):
                assert (await broker.call(send_request("T", bytes(PAGE_SIZE)))).code == 0
            await until(lambda: store.durable_offset > before)

    run(main())


def test_the_listening_queue_and_the_buffers_of_connections_have_the_sizes_that_were_set(
    tmp_path: Path,
) -> None:
    sizes = {"server_socket_rcv_buf_size": 16_384, "server_socket_snd_buf_size": 32_768}

    async def main() -> None:
        settings = with_setting(server_socket_backlog=7, **sizes)
        async with running(tmp_path, new_turn(), settings) as broker:
            await broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
            server = broker.broker._server
            assert server._listener is not None
            assert backlog_of(server._listener.sockets[0]) == 7
            (connection,) = server.connections
            accepted = connection._transport.get_extra_info("socket")
            buffers = [
                accepted.getsockopt(socket.SOL_SOCKET, option) // 2  # Linux doubles what is asked
                for option in (socket.SO_RCVBUF, socket.SO_SNDBUF)
            ]
            assert buffers == list(sizes.values())

    run(main())


def backlog_of(listening: Any) -> int:
    """Return how many connections may wait at a listening socket, as Linux tells it."""
    info = listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    found: int = struct.unpack_from("=I", info, 28)[0]  # tcpi_sacked
    return found


def test_a_name_server_is_dialled_for_as_long_as_was_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        with deaf_port() as port:
            settings = with_setting(connect_timeout_millis=50, namesrv_addr=f"127.0.0.1:{port}")
            async with running(tmp_path, new_turn(), settings):
                await until(
                    lambda: f"no connection to 127.0.0.1:{port} within 0.05 s" in caplog.text
                )

    run(main())


@contextmanager
def deaf_port() -> Iterator[int]:
    """A port whose listening queue is full: who dials it hears nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=1) as listening, ExitStack() as stack:
        address = listening.getsockname()
        for _ in range(8):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        yield address[1]


def test_a_silent_connection_to_a_name_server_is_closed_after_the_time_that_was_set(
    tmp_path: Path,
) -> None:
    server = NameServerDouble()

    async def main() -> None:
        async with serving(server) as site:
            settings = with_setting(
                client_channel_max_idle_time_seconds=1, namesrv_addr=site.address
            )
            async with running(tmp_path, new_turn(), settings):
                (connection,) = server.connections
                await until(lambda: connection.closed)

    run(main())
