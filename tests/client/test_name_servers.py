"""Which name servers a client asks, and what it does when one is gone."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from orbitmq.client.instance import Instance, join
from orbitmq.client.settings import ClientOptions, ClientSettings, settings_from
from orbitmq.errors import ConnectFailed, SettingError
from orbitmq.world.net import read_addresses
from tests.client.name_server_double import name_server_double, route_data
from tests.net.running import until

NOBODY = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.delenv("NAMESRV_LOOKUP", raising=False)


async def _ask(**options: Any) -> Instance:
    """Ask for the route of topic T once, and leave."""
    instance = await join(ClientSettings(**options))
    try:
        await instance.routes.find("T")
    finally:
        await instance.leave()
    return instance


def test_addresses_are_separated_by_semicolons_and_counted_once() -> None:
    assert read_addresses(" a:1; b:2;a:1;") == ["a:1", "b:2"]


def test_an_address_without_a_port_is_refused_by_name() -> None:
    with pytest.raises(SettingError, match="'nowhere' is not an address"):
        read_addresses("a:1;nowhere")


def test_without_any_name_server_the_error_says_where_to_give_one() -> None:
    with pytest.raises(SettingError, match=r"namesrv='host:9876'.*NAMESRV_ADDR"):
        asyncio.run(_ask())


def test_the_argument_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with name_server_double(T=route_data("a")) as given:
            monkeypatch.setenv("NAMESRV_ADDR", NOBODY)
            await _ask(namesrv=given.address)
            assert given.asked == ["T"]

    asyncio.run(main())


def test_the_environment_wins_over_a_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with name_server_double(T=route_data("a")) as named:
            monkeypatch.setenv("NAMESRV_ADDR", named.address)
            await _ask(namesrv_lookup="http://127.0.0.1:1/nothing")
            assert named.asked == ["T"]

    asyncio.run(main())


def test_an_http_address_lists_the_name_servers() -> None:
    async def main() -> None:
        async with name_server_double(T=route_data("a")) as listed:
            with _page(f"{NOBODY};{listed.address}\n") as url:
                await _ask(namesrv_lookup=url)
            assert listed.asked == ["T"]

    asyncio.run(main())


def test_a_look_up_that_fails_names_the_address() -> None:
    with pytest.raises(ConnectFailed, match=r"nothing came from http://127\.0\.0\.1:1/list"):
        asyncio.run(_ask(namesrv_lookup="http://127.0.0.1:1/list"))


def test_the_next_name_server_is_asked_when_one_is_gone() -> None:
    async def main() -> None:
        async with name_server_double(T=route_data("a")) as alive:
            for _ in range(4):  # where it begins is left to chance
                await _ask(namesrv=f"{NOBODY};{alive.address}")
            assert alive.asked == ["T"] * 4

    asyncio.run(main())


def test_when_all_are_gone_the_error_names_them() -> None:
    with pytest.raises(ConnectFailed, match=r"where topic T is.*127\.0\.0\.1:1, 127\.0\.0\.1:2"):
        asyncio.run(_ask(namesrv=f"{NOBODY};127.0.0.1:2"))


def test_a_name_is_resolved_again_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo
    homes = ["127.0.0.2", "127.0.0.1"]

    def moving(host: Any, *rest: Any, **named: Any) -> Any:
        if host == "moved.example":
            host = homes.pop(0) if len(homes) > 1 else homes[0]
        return resolve(host, *rest, **named)

    async def main() -> None:
        async with name_server_double(T=route_data("a")) as double:
            port = double.address.rpartition(":")[2]
            monkeypatch.setattr(socket, "getaddrinfo", moving)
            instance = await join(ClientSettings(namesrv=f"moved.example:{port}"))
            with pytest.raises(ConnectFailed):
                await instance.routes.find("T")
            await instance.routes.find("T")
            await instance.leave()
            assert double.asked == ["T"]

    asyncio.run(main())


def test_options_and_settings_have_the_same_names() -> None:
    assert set(ClientOptions.__annotations__) == set(ClientSettings.__struct_fields__) - {"namesrv"}


def test_an_unknown_option_is_named_with_the_nearest_one() -> None:
    with pytest.raises(SettingError, match="no option name_space; did you mean namespace"):
        settings_from(ClientSettings, {"name_space": "x"})


def test_two_name_servers_do_not_share_what_they_say() -> None:
    """Several clusters live in one process."""

    async def main() -> None:
        async with name_server_double(T=route_data("a")) as one, name_server_double() as other:
            await _ask(namesrv=one.address)
            with pytest.raises(Exception, match="no route for topic T"):
                await _ask(namesrv=other.address)
            assert (one.asked, other.asked) == (["T"], ["T"])

    asyncio.run(main())


@contextmanager
def _page(text: str | list[str], moved_from: str = "") -> Iterator[str]:
    """A page /list that says `text`, or the lines of it; /round leads to itself."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            moved = {moved_from: "/list", "/round": "/round"}
            if self.path in moved:
                self.send_response(302)
                self.send_header("Location", moved[self.path])
                self.end_headers()
                return
            self.send_response(200 if self.path == "/list" else 404)
            self.end_headers()
            self.wfile.write("\n".join([text] if isinstance(text, str) else text).encode())

        def log_message(self, *_words: Any) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/list"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_silent_name_servers_are_told_once_and_once_when_they_are_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with name_server_double(T=route_data("a"), U=route_data("a")) as server:
            instance = await join(ClientSettings(namesrv=server.address))
            for topic in "TU":
                await instance.routes.find(topic)
            server.is_silent = True
            for _ in range(3):
                await instance.routes.refresh_all("TU")
            server.is_silent = False
            for _ in range(3):
                await instance.routes.refresh_all("TU")
            await instance.leave()

    with caplog.at_level("INFO", "orbitmq.client"):
        asyncio.run(main())
    lines = [record.getMessage().split(":")[0] for record in caplog.records]
    assert [line.partition("127")[0] for line in lines] == ["name server "] * 2
    assert "does not answer" in caplog.text
    assert "answers again" in caplog.text


def test_rpc_hooks_see_what_is_asked_of_name_servers() -> None:
    async def main() -> None:
        async with name_server_double(T=route_data("a")) as server:
            instance = await join(ClientSettings(namesrv=server.address))
            seen: list[tuple[str, int]] = []
            instance.remote.before_request.append(
                lambda address, request: seen.append((address, request.code))
            )
            instance.remote.after_answer.append(
                lambda address, _request, answer: seen.append((address, -answer.code))
            )
            await instance.routes.find("T")
            await instance.leave()
            assert seen == [(server.address, 105), (server.address, 0)]

    asyncio.run(main())


async def _dripping(
    _reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hung_up: asyncio.Event
) -> None:
    """Answer without end, a little at a time and never late."""
    writer.write(b"HTTP/1.1 200 OK\r\n")
    with contextlib.suppress(ConnectionError):
        while True:
            writer.write(b"x: y\r\n")
            await writer.drain()
            await asyncio.sleep(0.01)
    hung_up.set()
    writer.close()


def test_a_look_up_that_drips_held_the_start_up_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.client.name_servers.LOOKUP_TIMEOUT_S", 0.3)

    async def main() -> None:
        hung_up = asyncio.Event()
        server = await asyncio.start_server(
            lambda reader, writer: _dripping(reader, writer, hung_up), "127.0.0.1", 0
        )
        port = server.sockets[0].getsockname()[1]
        async with server, asyncio.timeout(10):
            with pytest.raises(ConnectFailed, match=r"/slow: no answer within 0\.3 s"):
                await _ask(namesrv_lookup=f"http://127.0.0.1:{port}/slow")
            await hung_up.wait()

    asyncio.run(main())


def test_a_look_up_is_led_elsewhere_and_says_what_it_found_instead() -> None:
    async def main() -> None:
        async with name_server_double(T=route_data("a")) as listed:
            with _page(listed.address, moved_from="/old") as url:
                await _ask(namesrv_lookup=url.replace("/list", "/old"))
                assert listed.asked == ["T"]
                with pytest.raises(ConnectFailed, match="it answers 404 Not Found"):
                    await _ask(namesrv_lookup=url.replace("/list", "/none"))
                with pytest.raises(ConnectFailed, match="it answers 302 Found"):
                    await _ask(namesrv_lookup=url.replace("/list", "/round"))
            with (
                _page("x" * 100_000) as url,
                pytest.raises(ConnectFailed, match="more than 65536 bytes"),
            ):
                await _ask(namesrv_lookup=url)

    asyncio.run(main())


def test_a_list_is_looked_up_again_and_the_new_one_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.client.instance.LOOKUP_INTERVAL_S", 0.05)

    async def main() -> None:
        async with name_server_double() as first, name_server_double(T=route_data("a")) as second:
            lists = [first.address]
            with _page(lists) as url:
                instance = await join(ClientSettings(namesrv_lookup=url))
                assert instance.name_servers.addresses == [first.address]
                lists[0] = second.address
                await until(lambda: instance.name_servers.addresses == [second.address])
                await instance.routes.find("T")
                await instance.leave()
            assert second.asked == ["T"]

    asyncio.run(main())


def test_a_name_service_that_hangs_held_up_the_programs_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client's own address was asked for on the loop."""
    answered = threading.Event()

    def hung(*_words: object, **_named: object) -> None:
        answered.wait(10)
        raise OSError("no answer")

    async def main() -> None:
        monkeypatch.setattr("orbitmq.world.net._leaving_address", lambda: None)
        monkeypatch.setattr(socket, "getaddrinfo", hung)
        joining = asyncio.create_task(join(ClientSettings(namesrv=NOBODY)))
        for _ in range(10):
            await asyncio.sleep(0.001)  # the loop goes on
        assert not answered.is_set()
        assert not joining.done()
        instance = await joining
        assert not answered.is_set()
        assert instance.client_id.startswith("127.0.0.1@")
        await instance.leave()
        answered.set()

    monkeypatch.setattr("orbitmq.client.instance.OWN_ADDRESS_S", 0.2)
    asyncio.run(main())


def test_a_client_asks_no_name_service_for_its_own_address(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr("orbitmq.world.net._leaving_address", lambda: "192.0.2.7")
        monkeypatch.setattr(socket, "getaddrinfo", None)
        instance = await join(ClientSettings(namesrv=NOBODY))
        assert instance.client_id.startswith("192.0.2.7@")
        assert instance.ip == "192.0.2.7"
        await instance.leave()

    asyncio.run(main())


def test_something_that_speaks_no_http_is_no_list_of_name_servers() -> None:
    async def main() -> None:
        async def babble(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"what?\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(babble, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            with pytest.raises(ConnectFailed, match=f"nothing came from http://127.0.0.1:{port}/l"):
                await _ask(namesrv_lookup=f"http://127.0.0.1:{port}/l")
        finally:
            server.close()

    asyncio.run(main())
