"""Errors: the families that programs catch, and the facts that each one keeps."""

import asyncio
import pickle
import socket

import pytest

from orbitmq import errors
from orbitmq.client.message import Message
from orbitmq.client.producer import Producer
from orbitmq.client.remote import failure_of
from orbitmq.errors import (
    AccessDenied,
    BrokerBusy,
    ConnectFailed,
    ConnectionClosed,
    DiskFull,
    LimitExceeded,
    MQError,
    OutcomeUnknown,
    ReadFailed,
    RequestFailed,
)
from orbitmq.wire.command import Command
from orbitmq.world.file_steps import refused
from orbitmq.world.net import dial

FAMILIES = (
    "ProtocolError LocalProtocolError RemoteProtocolError StoreError CorruptRecord DiskFull"
    " SyncFailed RequestFailed RouteNotFound RequestTimeout AccessDenied LimitExceeded"
)


def test_every_family_has_one_root() -> None:
    for name in FAMILIES.split():
        assert issubclass(getattr(errors, name), MQError), name


@pytest.mark.parametrize(
    ("code", "kind"), [(1, RequestFailed), (2, BrokerBusy), (16, AccessDenied), (215, BrokerBusy)]
)
def test_a_code_is_its_kind_of_failure(code: int, kind: type[RequestFailed]) -> None:
    failure = failure_of(Command(code, remark="why"))
    assert type(failure) is kind
    assert (failure.code, failure.remark) == (code, "why")


def test_who_could_not_be_reached_is_known() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        async def main() -> None:
            await dial(asyncio.get_running_loop(), asyncio.Protocol, address, 5.0)

        with pytest.raises(ConnectFailed, match=address) as caught:
            asyncio.run(main())
    assert caught.value.address == address


def test_a_connection_that_ended_names_its_peer_and_may_have_done_it() -> None:
    error = ConnectionClosed("10.0.0.1:10911", "idle")
    assert (error.peer, error.reason) == ("10.0.0.1:10911", "idle")
    assert str(error) == "the connection to 10.0.0.1:10911 ended: idle"
    assert isinstance(error, OutcomeUnknown)


def test_a_limit_is_a_number_and_the_setting_that_changes_it() -> None:
    async def main() -> None:
        async with Producer("127.0.0.1:1", group="PG", message_bytes_max=10) as producer:
            await producer.send(Message("t", bytes(11)))

    with pytest.raises(LimitExceeded) as caught:
        asyncio.run(main())
    assert (caught.value.limit, caught.value.setting) == (10, "message_bytes_max")


def test_a_refused_file_is_known() -> None:
    error = refused(OSError(28, "No space left on device"), "write", "/data/log")
    assert isinstance(error, DiskFull)
    assert error.path == "/data/log"


@pytest.mark.parametrize("error", [ConnectFailed("no", "a:1"), ReadFailed("no", "/data")])
def test_an_error_survives_the_way_to_another_process(error: MQError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
