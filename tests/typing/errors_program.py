"""A user's program that catches every error there is and reads its facts, checked by mypy --strict.

In: a name server's address. Out: what became of some calls that fail, one line each, and "done".
test_every_name checks and runs it.
"""

import sys
from collections.abc import Callable
from typing import assert_type

from orbitmq import Admin, Message, Producer, PushConsumer, Selector
from orbitmq.errors import (
    AccessDenied,
    ArgumentError,
    BatchFailed,
    BatchUnknown,
    BrokerBusy,
    BrokerNotFound,
    ClientStateError,
    ConnectFailed,
    ConnectionClosed,
    CorruptRecord,
    DiskFull,
    FileFailed,
    LimitExceeded,
    LocalProtocolError,
    MissingExtra,
    MissingProgram,
    MQError,
    NotFound,
    OutcomeUnknown,
    PartlyFailed,
    PartlyUnknown,
    ProtocolError,
    ReadFailed,
    RemoteProtocolError,
    RequestFailed,
    RequestTimeout,
    RouteNotFound,
    SendFailed,
    SendUnknown,
    SettingError,
    SqlError,
    StoreError,
    SyncFailed,
    WriteFailed,
)

TOPIC = "EveryError"
Act = Callable[[], object]
Attempts = tuple[tuple[str, Exception], ...]


def sent(act: Act) -> str:
    """Say what became of a send: failed, or nobody knows."""
    try:
        return told(act)
    except (SendFailed, SendUnknown) as error:
        assert_type(error.attempts, Attempts)
        is_unknown = isinstance(error, OutcomeUnknown)
        return f"{error.topic}: {len(error.attempts)} tries, unknown: {is_unknown}"
    except (BatchFailed, BatchUnknown) as error:
        assert_type(error.outcomes, tuple[object, ...])
        return f"{error.topic}: {len(error.outcomes)} messages"
    except RequestTimeout as error:
        return f"request {error.code} to {error.peer} got no answer in {error.timeout_s:.1f} s"
    except ConnectionClosed as error:
        return f"{error.peer} ended it: {error.reason}"
    except PartlyUnknown as error:
        return f"done at {error.done}, else {error.failures}"
    except OutcomeUnknown as error:
        return f"look before you do it again: {error}"


def told(act: Act) -> str:
    """Say what became of a request: where it could not go, or what it was answered."""
    try:
        return kept(act)
    except RouteNotFound as error:
        assert_type(error.name_servers, tuple[str, ...])
        return f"{error.topic}: {error.cause} ({len(error.name_servers)} asked); {error.advice}"
    except BrokerNotFound as error:
        return f"{error.broker_name} of {error.topic}"
    except NotFound as error:
        return f"no {error.kind} {error.name}; {error.advice}"
    except PartlyFailed as error:
        assert_type(error.failures, Attempts)
        return f"done at {', '.join(error.done)}"
    except ConnectFailed as error:
        return f"no connection to {error.address or 'any of them'}"
    except (BrokerBusy, AccessDenied) as error:
        return f"later, or never: {error.remark}"
    except RequestFailed as error:
        assert_type(error.code, int)
        return f"answered with {error.code}: {error.remark}"


def kept(act: Act) -> str:
    """Say what became of files, bytes and expressions."""
    try:
        return used(act)
    except (DiskFull, WriteFailed, ReadFailed, SyncFailed) as error:
        return f"the disk of {error.path}"
    except FileFailed as error:
        assert_type(error.path, str)
        return f"the file: {error}"
    except CorruptRecord as error:
        assert_type(error.log_offset, int)
        return f"{error.log_offset}: {error.detail}"
    except StoreError as error:
        return f"the store: {error}"
    except RemoteProtocolError as error:
        return f"{error.reason}: {error.detail}"
    except (LocalProtocolError, ProtocolError) as error:
        return f"the protocol: {error}"
    except SqlError as error:
        assert_type(error.position, int)
        return f"{error.problem} at {error.position}"


def used(act: Act) -> str:
    """Say what the program itself, or its machine, lacks."""
    try:
        return f"no error: {act()}"
    except ArgumentError as error:
        return f"{error.argument} is of another type: {error}"
    except MissingExtra as error:
        return f"{error.package} comes with {error.extra}"
    except MissingProgram as error:
        return f"install it: {error}"
    except LimitExceeded as error:
        assert_type(error.limit, int)
        return f"{error.setting} is {error.limit}"
    except (ClientStateError, SettingError) as error:
        return f"{type(error).__name__}: {error}"


def main(namesrv: str) -> None:
    """Make some mistakes."""
    closed = Producer(namesrv, "every_error")
    closed.close()
    consumer = PushConsumer(namesrv, "every_error", lambda message: None)
    with Admin(namesrv) as admin, Producer("127.0.0.1:1", "every_error") as lost, consumer:
        admin.create_topic(TOPIC)
        for act in (
            lambda: admin.topic_route("Nothing"),
            lambda: admin.broker_settings("nobody"),
            lambda: lost.send(Message("T", b"x")),
            lambda: closed.send(Message("T", b"x")),
            lambda: Producer(namesrv, "no group"),
            lambda: consumer.subscribe(TOPIC, Selector.sql("a >")),
        ):
            print(sent(act))
    print("done")


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except MQError as error:
        sys.exit(str(error))
