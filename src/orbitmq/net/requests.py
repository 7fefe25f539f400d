"""A row of the table of requests: who serves a code, what right it needs for what, who asks.

In: a row of a server's table (`broker.requests`, `namesrv.requests`) and a request. Out: the
handlers by code; the resources that a request is about, each with the right that it needs.

Rules:
1. A code is served by one row of one server; nothing else maps codes to handlers.
2. A right is about something: a row has resources, unless it needs no right.
3. A retry topic stands for its group: whoever sends to it or reads it needs the right to subscribe
   with that group, as in the original.
4. A resource that a request may leave out yields nothing when it does.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from orbitmq.ensure import ensure
from orbitmq.net.connection import Connection, Handler, Result
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.names import RETRY_PREFIX, is_retry_topic

S = TypeVar("S")


class Right(Enum):
    """What one must be allowed to do with the resources of a request."""

    NONE = "none"
    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    ADMIN = "admin"


class Kind(Enum):
    """The kinds of resources."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"


class Asker(Enum):
    """Who sends a request."""

    CLIENT = "client"
    ADMIN = "admin"
    """Command-line tools and dashboards."""
    BROKER = "broker"


class Resource(NamedTuple):
    """What a request is about, and the right that it needs for it. A cluster has no name here."""

    kind: Kind
    name: str
    right: Right


@dataclass(frozen=True, slots=True)
class About:
    """Where a request says what it is about."""

    kind: Kind
    place: str
    """For readers: the header's field, or the body."""
    names: Callable[[Command], Iterable[str | None]]
    """Empty ones do not count. Raises RemoteProtocolError for a body that cannot be read."""


CLUSTER = About(Kind.CLUSTER, "", lambda _request: ())


def topic(field: str, separator: str | None = None) -> About:
    """Return that a field of the header names a topic, or several with a separator."""
    return About(Kind.TOPIC, f"`{field}`", partial(_in_header, field, separator))


def group(field: str) -> About:
    """Return that a field of the header names a group."""
    return About(Kind.GROUP, f"`{field}`", partial(_in_header, field, None))


def in_body(kind: Kind, names: Callable[[bytes], Iterable[str | None]]) -> About:
    """Return that the body names topics or groups."""
    return About(kind, "the body", lambda request: names(request.body))


def _in_header(field: str, separator: str | None, request: Command) -> Iterable[str]:
    text = request.fields.get(field) or ""
    return text.split(separator) if separator else (text,)


@dataclass(frozen=True, slots=True)
class Request(Generic[S]):
    """One row; `S` is what the server's handlers share."""

    code: RequestCode
    serve: Callable[[S, Command, Connection], Result]
    right: Right
    about: tuple[About, ...]
    asked_by: tuple[Asker, ...]

    def resources(self, request: Command) -> list[Resource]:
        """Return what one request of this code is about; raises RemoteProtocolError."""
        found: dict[Resource, None] = {}
        for about in self.about:
            if about.kind is Kind.CLUSTER:
                found[Resource(about.kind, "", self.right)] = None
            for name in filter(None, about.names(request)):
                found[self._resource(about.kind, name)] = None
        return list(found)

    def _resource(self, kind: Kind, name: str) -> Resource:
        if kind is not Kind.TOPIC or not is_retry_topic(name):
            return Resource(kind, name, self.right)
        right = Right.SUBSCRIBE if self.right is Right.PUBLISH else self.right
        return Resource(Kind.GROUP, name.removeprefix(RETRY_PREFIX), right)


Serve = Callable[[S, Command, Connection], Result]
By = tuple[Asker, ...]


def publish(code: RequestCode, serve: Serve[S], *about: About) -> Request[S]:
    """Return the row of a request that stores messages."""
    return Request(code, serve, Right.PUBLISH, about, (Asker.CLIENT,))


def subscribe(
    code: RequestCode, serve: Serve[S], *about: About, by: By = (Asker.CLIENT,)
) -> Request[S]:
    """Return the row of a request that consumers need."""
    return Request(code, serve, Right.SUBSCRIBE, about, by)


def admin(code: RequestCode, serve: Serve[S], *about: About, by: By = (Asker.ADMIN,)) -> Request[S]:
    """Return the row of a request that administers."""
    return Request(code, serve, Right.ADMIN, about, by)


def free(code: RequestCode, serve: Serve[S], *, by: By) -> Request[S]:
    """Return the row of a request that anybody may make."""
    return Request(code, serve, Right.NONE, (), by)


def handlers_of(table: Iterable[Request[S]], shared: S) -> dict[int, Handler]:
    """Return the handler of each code of a table, with what they share filled in."""
    handlers: dict[int, Handler] = {}
    for row in table:
        ensure(row.code not in handlers, f"code {row.code} has one row")
        handlers[int(row.code)] = partial(row.serve, shared)
    return handlers
