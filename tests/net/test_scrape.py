"""The metrics port answers GET /metrics and nothing else."""

import asyncio

import pytest

from orbitmq.metrics import Registry
from orbitmq.net import scrape
from orbitmq.net.scrape import REQUEST_SIZE_MAX, start_metrics
from tests.net.running import HOST, Run, connected


async def _fetch(port: int, request: bytes) -> tuple[str, str, str]:
    """Return status line, headers and body of the answer."""
    async with connected(port) as client:
        client.write(request)
        head, _, body = (await client.ended()).partition(b"\r\n\r\n")
    status, _, headers = head.decode().partition("\r\n")
    return status, headers, body.decode()


def _registry() -> Registry:
    registry = Registry()
    registry.counter("orbitmq_test_total", "A test.").value = 7
    return registry


def test_get_metrics_gives_the_registry_as_text(run: Run) -> None:
    async def scenario() -> None:
        registry = _registry()
        server, port = await start_metrics(registry, HOST, 0)
        status, headers, body = await _fetch(port, b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n")
        assert status == "HTTP/1.1 200 OK"
        assert "Content-Type: text/plain; version=0.0.4; charset=utf-8" in headers
        assert f"Content-Length: {len(body)}" in headers
        assert body == registry.render()
        server.close()
        await server.wait_closed()

    run(scenario())


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "404"),
        (b"nonsense\r\n\r\n", "404"),
        (b"\x16\x03\x01\x00\r\n\r\n", "404"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"a" * REQUEST_SIZE_MAX, "431"),
    ],
)
def test_anything_else_is_refused(run: Run, request_bytes: bytes, status: str) -> None:
    async def scenario() -> None:
        server, port = await start_metrics(_registry(), HOST, 0)
        assert (await _fetch(port, request_bytes))[0].split()[1] == status
        server.close()
        await server.wait_closed()

    run(scenario())


def test_a_silent_client_is_closed_and_their_number_is_bounded(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrape, "REQUEST_S", 0.3)
    monkeypatch.setattr(scrape, "CONNECTIONS_MAX", 1)

    async def scenario() -> None:
        server, port = await start_metrics(_registry(), HOST, 0)
        async with connected(port) as silent:
            silent.write(b"GET /metrics HTTP/1.1\r\n")
            await asyncio.sleep(0.01)
            assert await _fetch(port, b"GET /metrics HTTP/1.1\r\n\r\n") == ("", "", "")
            assert await silent.ended() == b""
        assert (await _fetch(port, b"GET /metrics HTTP/1.1\r\n\r\n"))[0] == "HTTP/1.1 200 OK"
        server.close()
        await server.wait_closed()

    run(scenario())


def test_a_metric_that_cannot_be_read_is_a_500_and_is_logged(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        registry = _registry()
        registry.gauge("orbitmq_broken", "Broken.", lambda: 1 / 0)
        server, port = await start_metrics(registry, HOST, 0)
        assert "500" in (await _fetch(port, b"GET /metrics HTTP/1.1\r\n\r\n"))[0]
        server.close()
        await server.wait_closed()

    run(scenario())
    assert "the metrics cannot be shown" in caplog.text
