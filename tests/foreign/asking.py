"""Ask in plain bytes whether a broker, a topic or a message has arrived.

In: an address and a name. Out: nothing, as soon as the server knows (or no longer knows) it; an
error after the time limit. It waits for what brokers do in their own time: registrations (4.9.7
while it boots, 5.5.0 up to ten seconds after that; of a topic made by a message, after the
message's answer) and, on originals, the queues, which are written behind the answers.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable

RUNTIME_INFO = 28
GET_ROUTE = 105
GET_CLUSTER_INFO = 106
ANSWER_LIMIT_S = 10
# Nobody tells us of a registration, so we look again until the time is up.
LOOK_AGAIN_S = 0.1


def ask(address: str, code: int, **ext_fields: str) -> tuple[int, bytes]:
    """One request with a JSON header on a connection of its own: answer code and body."""
    header = {"code": code, "language": "JAVA", "version": 401, "opaque": 1, "flag": 0}
    head = json.dumps({**header, "extFields": ext_fields}).encode()
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), ANSWER_LIMIT_S) as connection:
        connection.sendall(struct.pack(">II", 4 + len(head), len(head)) + head)
        (size,) = struct.unpack(">I", _read(connection, 4))
        frame = _read(connection, size)
    head_size = int.from_bytes(frame[1:4])
    answer = json.loads(frame[4 : 4 + head_size])
    return answer["code"], frame[4 + head_size :]


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise ConnectionError(f"closed after {len(data)} of {size} bytes")
        data += chunk
    return data


def _names_broker(body: bytes, broker_name: str) -> bool:
    # Enough of a look for a wait; the body's dialect is judged by the original clients.
    return f'"brokerName":"{broker_name}"'.encode() in body.replace(b" ", b"")


def await_claim(claim: Callable[[], bool], what: str, limit_s: float) -> None:
    """Return when the claim is true; it is asked again and again."""
    deadline = time.monotonic() + limit_s
    while not claim():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not so after {limit_s} s")
        time.sleep(LOOK_AGAIN_S)


def await_broker(namesrv: str, broker_name: str, *, limit_s: float = 60) -> None:
    """Return when the name server lists the broker."""
    await_claim(
        lambda: _names_broker(ask(namesrv, GET_CLUSTER_INFO)[1], broker_name),
        f"{namesrv} lists {broker_name}",
        limit_s,
    )


def await_broker_gone(namesrv: str, broker_name: str, *, limit_s: float = 60) -> None:
    """Return when the name server does not list the broker."""
    await_claim(
        lambda: not _names_broker(ask(namesrv, GET_CLUSTER_INFO)[1], broker_name),
        f"{namesrv} has forgotten {broker_name}",
        limit_s,
    )


def await_topic(namesrv: str, topic: str, broker_name: str, *, limit_s: float = 60) -> None:
    """Return when the route of the topic leads to the broker."""
    await_claim(
        lambda: _names_broker(ask(namesrv, GET_ROUTE, topic=topic)[1], broker_name),
        f"{namesrv} leads {topic} to {broker_name}",
        limit_s,
    )


def await_route(namesrv: str, topic: str, *, limit_s: float = 60) -> None:
    """Return when the name server knows the topic."""
    claim = f"{namesrv} knows {topic}"
    await_claim(lambda: ask(namesrv, GET_ROUTE, topic=topic)[0] == 0, claim, limit_s)


def await_queued(broker: str, *, limit_s: float = 60) -> None:
    """Return when a broker's queues hold every message that it has acknowledged until now."""
    await_claim(
        lambda: b'"dispatchBehindBytes":"0"' in ask(broker, RUNTIME_INFO)[1].replace(b" ", b""),
        f"{broker} has queued all of its log",
        limit_s,
    )
