"""The network, through one door: event loops, listening, dialling, socket settings.

In: addresses and protocol factories. Out: a running loop, listening servers, connected transports,
or an error that names the address and the cause.

Rules:
1. uvloop is used where it can be imported, asyncio's own loop everywhere else; no event-loop policy
   is ever installed, so a program that embeds us keeps its own.
2. Names are resolved anew at each dial.
3. Every connection has Nagle's delay off and keep-alive on, and a peer that stops acknowledging
   what was sent to it is given up after `UNACKNOWLEDGED_S`.
"""

import asyncio
import contextlib
import importlib
import ipaddress
import socket
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from orbitmq.errors import ConnectFailed, SettingError

BACKLOG = 1024
"""Connections that the kernel keeps until they are accepted: RocketMQ's own number."""

KEEPALIVE_IDLE_S = 60
KEEPALIVE_INTERVAL_S = 15
KEEPALIVE_PROBES = 4
UNACKNOWLEDGED_S = 120
ESTABLISHED = 1
"""A connection's state, in the kernel's table, while neither side has ended it."""

_TCP_OPTIONS = [
    (getattr(socket, name), value)
    for name, value in (
        ("TCP_NODELAY", 1),
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
        ("TCP_USER_TIMEOUT", UNACKNOWLEDGED_S * 1000),
    )
    if hasattr(socket, name)  # not every system has all of them
]
_KNOWS_STATES = hasattr(socket, "TCP_INFO")

ELSEWHERE = ("203.0.113.1", 9)
"""An address that is on no network of ours: it is reserved for examples."""

T = TypeVar("T")
P = TypeVar("P", bound=asyncio.BaseProtocol)
Address = tuple[str, int]


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a uvloop event loop, or asyncio's own where uvloop is not to be had."""
    try:
        uvloop = importlib.import_module("uvloop")
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run(
    main: Coroutine[Any, Any, T],
    loop_factory: Callable[[], asyncio.AbstractEventLoop] = new_loop,
) -> T:
    """Run a program's main coroutine on a loop of its own and give its result."""
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main)


def split_address(address: str) -> Address:
    """Host and port of `host:port` or `[v6]:port`; raises SettingError when it is neither."""
    host, colon, port_text = address.strip().rpartition(":")
    port = int(port_text) if port_text.isascii() and port_text.isdigit() else -1
    if not colon or not host or "/" in host or not 0 < port < 65536:
        advice = " alone, without http:// and without a path" if "/" in address else ""
        raise SettingError(f"{address[:200]!r} is not an address; write it as host:port{advice}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return host, port


def read_addresses(text: str) -> list[str]:
    """Return the addresses of a list, each once; raises SettingError for one that is none.

    They are separated by semicolons, commas or ends of lines.
    """
    parts = text.replace(",", ";").replace("\n", ";").split(";")
    addresses = [part.strip() for part in parts if part.strip()]
    for address in addresses:
        split_address(address)
    return list(dict.fromkeys(addresses))


async def listen(
    loop: asyncio.AbstractEventLoop,
    factory: Callable[[], asyncio.BaseProtocol],
    host: str,
    port: int,
    *,
    backlog: int = BACKLOG,
) -> asyncio.Server:
    """Listen on host and port; raises SettingError when the system refuses."""
    try:
        server: asyncio.Server = await loop.create_server(factory, host, port, backlog=backlog)
    except (OSError, UnicodeError) as error:
        raise SettingError(
            f"cannot listen on {host}:{port}: {_cause(error)}; choose another host or port, "
            "or stop the process that has it"
        ) from error
    return server


def set_buffers(server: asyncio.Server, receive_bytes: int, send_bytes: int) -> None:
    """Set the kernel's buffers of connections to come; 0 leaves a size to the kernel."""
    for listening in server.sockets:  # accepted sockets inherit from it
        _set_buffers(listening, receive_bytes, send_bytes)


def _set_buffers(one: Any, receive_bytes: int, send_bytes: int) -> None:
    for option, size in ((socket.SO_RCVBUF, receive_bytes), (socket.SO_SNDBUF, send_bytes)):
        if size:
            one.setsockopt(socket.SOL_SOCKET, option, size)


def listening_port(server: asyncio.Server) -> int:
    """Return the port a server really listens on."""
    port: int = server.sockets[0].getsockname()[1]
    return port


async def dial(
    loop: asyncio.AbstractEventLoop,
    factory: Callable[[], P],
    address: str,
    timeout_s: float,
    buffer_sizes: tuple[int, int] = (0, 0),
) -> P:
    """Connect to `host:port`; raises ConnectFailed when that fails or takes too long.

    `buffer_sizes` are those of the kernel, for receiving and sending; 0 leaves one to the kernel.
    """
    try:
        host, port = split_address(address)
        async with asyncio.timeout(timeout_s):
            transport, protocol = await loop.create_connection(factory, host, port)
        _set_buffers(transport.get_extra_info("socket"), *buffer_sizes)
    except TimeoutError:
        text = f"no connection to {address} within {timeout_s:g} s"
        raise ConnectFailed(text, address) from None
    except (OSError, UnicodeError, SettingError) as error:
        raise ConnectFailed(f"no connection to {address}: {_cause(error)}", address) from error
    return protocol


def tune(transport: asyncio.BaseTransport) -> None:
    """Set a connection's socket to answer fast and to notice a peer that is gone."""
    connection = transport.get_extra_info("socket")
    with contextlib.suppress(OSError):  # the peer may be gone already; the transport will say so
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _TCP_OPTIONS:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def has_left(transport: asyncio.BaseTransport) -> bool:
    """Whether the peer has ended the connection, though what it sent before may still be unread.

    A transport that reads and writes nothing at the moment does not notice that. It costs 5 µs and,
    unlike a poll, does not let go of the interpreter.
    """
    if not _KNOWS_STATES:
        return False  # it is noticed when it is read from again
    connection = transport.get_extra_info("socket")
    try:
        state: int = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    except OSError:
        return False  # the transport will say what is wrong with it
    return state != ESTABLISHED


def address_of(transport: asyncio.BaseTransport, which: str) -> Address:
    """Return the `peername` or `sockname` of a transport; empty when the peer is gone already."""
    name = transport.get_extra_info(which)
    return (name[0], name[1]) if name else ("", 0)


def allow_descriptors(wanted: int) -> int:
    """Raise this process's limit of open descriptors towards `wanted`; return what is allowed.

    The usual soft limit of 1,024 is there for programs that use select(); the hard one is the
    administrator's word.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited or soft >= wanted:
        return wanted
    allowed = wanted if hard == unlimited else min(wanted, hard)
    if allowed > soft:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return min(wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _cause(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error)
    return str(text) or type(error).__name__


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches that address or name."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def reachable_address(given: str) -> str:
    """Return the IP address to tell others for an address or name that we listen on or are told.

    For "every address" (0.0.0.0, ::) it is the machine's own, as its name resolves or, where that
    leads nowhere but to itself, the one that packets to others leave from. Raises SettingError for
    a name that does not resolve.
    """
    is_every = given in ("0.0.0.0", "::")  # noqa: S104 - compared, not bound
    name = socket.gethostname() if is_every else given
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(name))
    try:
        found = socket.getaddrinfo(name, None, socket.AF_INET)
    except (OSError, UnicodeError):
        if is_every:
            return _leaving_address() or "127.0.0.1"
        raise SettingError(f"{name[:200]!r} has no IPv4 address; give an address") from None
    addresses = [str(entry[4][0]) for entry in found]
    outside = [address for address in addresses if not address.startswith("127.")]
    if is_every and not outside:
        return _leaving_address() or addresses[0]
    return (outside or addresses)[0]


async def own_address(timeout_s: float) -> str:
    """Return this machine's address as others see it, without holding up the loop.

    It is the one that packets to others leave from; only where none leave, the machine's name is
    asked for, in a thread and for so long at most.
    """
    found = _leaving_address()
    if found is None:
        name = "0.0.0.0"  # noqa: S104 - not bound
        loop = asyncio.get_running_loop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                found = await loop.run_in_executor(None, reachable_address, name)
    return found or "127.0.0.1"


def _leaving_address() -> str | None:
    """Return the address that packets to other machines leave from; None when they cannot leave."""
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
    ):
        datagrams.connect(ELSEWHERE)  # nothing is sent
        address: str = datagrams.getsockname()[0]
        return address
    return None
