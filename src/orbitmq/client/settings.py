"""What every client object can be told, producers and consumers and administrators alike.

In: keyword arguments of a client's constructor. Out: one frozen value.

Rules:
1. `ClientOptions` names the keyword arguments, for type checkers and editors; `ClientSettings` has
   the same names with defaults and sentences. A test compares the two.
2. Times are seconds, as everywhere in the Python client.
"""

import functools
import os
from collections.abc import Sequence
from typing import Any, TypedDict, TypeVar, get_type_hints

import msgspec

from orbitmq.client.arguments import fault_of, unknown
from orbitmq.client.rpc_hooks import RpcHook
from orbitmq.errors import SettingError
from orbitmq.wire.codes import Language
from orbitmq.world.tls import TlsClientSettings

LANGUAGE = Language.PYTHON.name

NAMESRV_VARIABLE = "NAMESRV_ADDR"
LOOKUP_VARIABLE = "NAMESRV_LOOKUP"


class ClientOptions(TypedDict, total=False):
    """Keyword arguments that every client takes; ClientSettings says what they mean."""

    brokers: str
    namespace: str
    instance_name: str
    unit_name: str
    client_ip: str
    tls: TlsClientSettings | None
    request_timeout_s: float
    route_interval_s: float
    heartbeat_interval_s: float
    namesrv_lookup: str
    use_vip_channel: bool
    rpc_hooks: Sequence[RpcHook]


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How one client reaches its cluster."""

    namesrv: str = ""
    """Name servers, `host:port` separated by `;`. Empty: the environment's NAMESRV_ADDR, then the
    address that `namesrv_lookup` gives."""

    brokers: str = ""
    """Brokers to ask instead of name servers, `host:port` separated by `;`."""

    namespace: str = ""
    """Put before every topic and group, so that several users share a cluster."""

    instance_name: str = ""
    """Clients of one name in one process share connections and one client id. Empty: a name of its
    own for each."""

    unit_name: str = ""
    """Added to the client id, as the original's unit mode wants it."""

    client_ip: str = ""
    """The address in the client id and in message ids. Empty: this machine's."""

    tls: TlsClientSettings | None = None
    """Speak TLS to name servers and brokers."""

    request_timeout_s: float = 5.0
    """How long a request that has no time-out of its own waits for its answer."""

    route_interval_s: float = 30.0
    """How often routes are asked for again."""

    heartbeat_interval_s: float = 30.0
    """How often brokers are told that this client lives."""

    namesrv_lookup: str = ""
    """An http address whose answer is the list of name servers; asked at the start and every two
    minutes. Empty: the environment's NAMESRV_LOOKUP."""

    use_vip_channel: bool = False
    """Send to the port two below the broker's, as old Java clients do."""

    rpc_hooks: Sequence[RpcHook] = ()
    """Called with every request and every answer. Those who share an instance share them all."""


S = TypeVar("S", bound=msgspec.Struct)


def settings_from(settings_type: type[S], options: dict[str, Any], **fixed: Any) -> S:
    """Return the settings that a constructor's keyword arguments ask for.

    Raises SettingError for a name that does not exist, with the nearest one that does, and for a
    value of another type.
    """
    hints = _hints(settings_type)
    for name in sorted(set(options) - set(hints)):
        raise SettingError(unknown(name, hints))
    for name, value in (fixed | options).items():
        if (fault := fault_of(name, value, hints[name])) is not None:
            raise SettingError(fault)
    return settings_type(**fixed, **options)


@functools.cache
def _hints(settings_type: type[msgspec.Struct]) -> dict[str, Any]:
    return get_type_hints(settings_type)


def environment(name: str) -> str:
    """Return a variable of the environment, or an empty text."""
    return os.environ.get(name, "").strip()
