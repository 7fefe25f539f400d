"""T8, peers whose link goes down: no end, no reset, nothing at all comes from them any more.

Method: a broker and a good client in one network, the peers in another, and the cable between them
is pulled while each of the peers is in the middle of something. The broker must close each within
its time, by its reason, hold no memory for them, and serve the good client all the while.
"""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq.wire.command import Command, encode_command
from tests.behaviour.requests import fill, heartbeat_body, pull_request, send_request
from tests.foreign.judged import PATIENT
from tests.reliability.bystander import bystander
from tests.reliability.networks import HOME, Networks, two_networks
from tests.reliability.processes import broker_process, wait_until
from tests.wire_client import WireClient

pytestmark = pytest.mark.timeout(120)
IDLE_S = 4
PATIENCE_S = 20.0
GROWN_MIB_MAX = 16
"""What sockets' buffers hold is the kernel's; of ours there are 4 MiB of a frame and a few answers.
"""


def dial(port: int) -> socket.socket:
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    peer.settimeout(PATIENCE_S)
    peer.connect((HOME, port))
    return peer


def idle_member(port: int) -> socket.socket:
    """A member of a group, between two heartbeats."""
    peer = dial(port)
    peer.sendall(encode_command(Command(34, body=heartbeat_body("lost", "Lost", "Big"))))
    assert peer.recv(4_096)
    return peer


def held_pull(port: int) -> socket.socket:
    """A consumer that waits for the next message."""
    peer = dial(port)
    held = pull_request("Big", "Lost", 8, sysFlag=6, suspendTimeoutMillis=15_000)
    peer.sendall(encode_command(held))
    return peer


def half_a_frame(port: int) -> socket.socket:
    """A producer in the middle of a frame of 4 MiB."""
    peer = dial(port)
    peer.sendall(encode_command(send_request("Small")))
    assert peer.recv(4_096)
    peer.sendall(encode_command(send_request("Big", bytes(4 << 20)))[: 2 << 20])
    return peer


def unread_answers(port: int) -> socket.socket:
    """A consumer that has asked for more than it has read."""
    peer = dial(port)
    peer.sendall(encode_command(pull_request("Big", "Lost", 0)) * 40)
    return peer


PEERS: dict[Callable[[int], socket.socket], str] = {
    idle_member: "idle",
    held_pull: "idle",
    half_a_frame: "frame-timeout",
    unread_answers: "slow-reader",
}
"""What a peer is doing, and the reason under which its end is counted."""


def scenario(networks: Networks, folder: Path) -> None:
    options = ("--host", HOME, "-D", f"serverChannelMaxIdleTimeSeconds={IDLE_S}", *PATIENT)
    env = {"ORBITMQ_TEST_PATIENCE_S": str(IDLE_S - 0.5)}
    with (
        broker_process(folder, *options, module="tests.reliability.impatient", env=env) as broker,
        bystander(broker.address) as good,
    ):
        with WireClient(broker.address) as client:
            fill(client, "Big", [bytes(60_000)] * 8)
        good.times()  # it is there
        wait_until(lambda: broker.metric("orbitmq_net_connections") == 1)
        before, sockets, before_mib = broker.closes(), broker.descriptors(), broker.own_mib()
        peers = [networks.away.submit(act, broker.port).result() for act in PEERS]
        wait_until(lambda: broker.metric("orbitmq_broker_held_pulls") >= 1)
        networks.pull_cable()
        assert broker.metric("orbitmq_net_connections") == 1 + len(peers), "pulled too late"
        good.times()
        with WireClient(broker.address) as client:  # the answer to the pull that waits goes nowhere
            fill(client, "Big", [b"news"])
        took_s = wait_until(lambda: broker.metric("orbitmq_net_connections") == 1)
        grown_mib = broker.own_mib() - before_mib
        times = good.times()
        print(
            f"T8 link down: {len(peers)} peers closed {took_s:.1f} s after, memory grown by"
            f" {grown_mib} MiB, good client p99 {times.p99_ms:.1f} ms"
        )
        reasons, closed = list(PEERS.values()), broker.closes() - before
        counted = {reason: closed[reason] for reason in reasons}
        assert counted == {reason: reasons.count(reason) for reason in reasons}
        assert grown_mib <= GROWN_MIB_MAX
        assert times.rounds > 50
        wait_until(lambda: broker.descriptors() <= sockets)
        for name in ("net_laters", "broker_held_pulls"):
            assert broker.metric(f"orbitmq_{name}") == 0
        wait_until(lambda: broker.metric("orbitmq_broker_client_members") == 1)
        for peer in peers:
            peer.close()


def test_peers_whose_link_goes_down_are_closed_in_time_and_hold_up_nobody(tmp_path: Path) -> None:
    with two_networks() as networks:
        networks.home.submit(scenario, networks, tmp_path / "data").result()
