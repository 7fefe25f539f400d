"""How a Spark source or sink reaches its cluster: addresses, credentials, TLS, the client's own.

In: a reader's or writer's options. Out: ClientSettings, of which each worker makes its connections.

Rules:
1. Exactly one of `namesrvAddr` and `brokerAddr`. Without either the environment's NAMESRV_ADDR
   counts, as the program that plans the query sees it: workers may have another environment.
2. `rocketmq.client.*` has the names of the original's client settings; times are in milliseconds.
3. Secrets are in no text that is made of the options or the settings.
"""

import difflib
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec

from orbitmq.client.settings import NAMESRV_VARIABLE, ClientSettings, environment
from orbitmq.client.signing import Signing
from orbitmq.errors import SettingError
from orbitmq.spark.options import Options, doc, is_secret, option_fields
from orbitmq.world.tls import TlsClientSettings

CLIENT_PREFIX = "rocketmq.client."
HIDDEN = "***"


class ConnectionOptions(Options, frozen=True, kw_only=True):
    """What every format of ours that talks to a cluster takes."""

    PREFIXES: ClassVar[tuple[str, ...]] = (CLIENT_PREFIX,)

    namesrv_addr: Annotated[
        str, doc("Name servers, `host:port`, separated by `;` or `,`; else NAMESRV_ADDR.")
    ] = ""
    broker_addr: Annotated[
        str,
        doc("Brokers to ask instead of name servers, `host:port`, separated by `;` or `,`."),
    ] = ""
    namespace: Annotated[str, doc("Put before every topic and group.")] = ""
    access_key: Annotated[str, doc("Who asks, where brokers want to know.", is_secret=True)] = ""
    secret_key: Annotated[str, doc("The secret that signs requests.", is_secret=True)] = ""
    security_token: Annotated[
        str, doc("A token that goes along with the access key.", is_secret=True)
    ] = ""
    tls_enable: Annotated[bool, doc("Speak TLS to name servers and brokers.")] = msgspec.field(
        default=False, name="tls.enable"
    )
    tls_trust_cert_path: Annotated[
        str, doc("Certificates to trust; the system's if not given.")
    ] = msgspec.field(default="", name="tls.trustCertPath")
    tls_cert_path: Annotated[str, doc("This client's own certificate.")] = msgspec.field(
        default="", name="tls.certPath"
    )
    tls_key_path: Annotated[str, doc("The key of this client's certificate.")] = msgspec.field(
        default="", name="tls.keyPath"
    )
    tls_key_password: Annotated[str, doc("The password of that key.", is_secret=True)] = (
        msgspec.field(default="", name="tls.keyPassword")
    )
    tls_checks_server: Annotated[bool, doc("Refuse servers whose certificate is not trusted.")] = (
        msgspec.field(default=True, name="tls.checksServer")
    )

    def __repr__(self) -> str:
        return _shown(self)


T = TypeVar("T", bound=ConnectionOptions)


def client_settings(options: ConnectionOptions) -> ClientSettings:
    """Return how clients reach the cluster; equal options give equal settings.

    Raises SettingError that names the option that is missing or wrong.
    """
    return ClientSettings(
        **_addresses(options),
        namespace=options.namespace,
        tls=_tls(options),
        rpc_hooks=_hooks(options),
        **_client_settings(options),
    )


def resolved(options: T) -> T:
    """Return options that mean the same in every process (rule 1)."""
    return msgspec.structs.replace(options, **_spelt(_addresses(options)))


def _spelt(addresses: dict[str, str]) -> dict[str, str]:
    return {
        "namesrv_addr": addresses.get("namesrv", ""),
        "broker_addr": addresses.get("brokers", ""),
    }


def _addresses(options: ConnectionOptions) -> dict[str, Any]:
    if options.namesrv_addr and options.broker_addr:
        raise SettingError("give one of the options 'namesrvAddr' and 'brokerAddr', not both")
    if options.broker_addr:
        return {"brokers": options.broker_addr}
    namesrv = options.namesrv_addr or environment(NAMESRV_VARIABLE)
    if not namesrv:
        raise SettingError(
            "the option 'namesrvAddr' is missing: give name servers as 'host:9876', or brokers "
            f"as 'brokerAddr', or set the environment's {NAMESRV_VARIABLE}"
        )
    return {"namesrv": namesrv}


def _tls(options: ConnectionOptions) -> TlsClientSettings | None:
    if not options.tls_enable:
        unused = [name for name in _given(options) if name.startswith("tls.")]
        if unused:
            raise SettingError(f"the option {unused[0]!r} needs 'tls.enable' as true beside it")
        return None
    return TlsClientSettings(
        trust_cert_path=options.tls_trust_cert_path or None,
        cert_path=options.tls_cert_path or None,
        key_path=options.tls_key_path or None,
        key_password=options.tls_key_password or None,
        checks_server=options.tls_checks_server,
    )


def _hooks(options: ConnectionOptions) -> tuple[Signing, ...]:
    if bool(options.access_key) != bool(options.secret_key):
        missing = "secretKey" if options.access_key else "accessKey"
        raise SettingError(
            f"the option {missing!r} is missing: accessKey and secretKey go together"
        )
    if not options.access_key and options.security_token:
        raise SettingError("the option 'securityToken' needs 'accessKey' and 'secretKey' beside it")
    if not options.access_key:
        return ()
    return (Signing(options.access_key, options.secret_key, options.security_token),)


def _seconds(text: str) -> float:
    return int(text) / 1000


def _flag(text: str) -> bool:
    return bool(msgspec.convert(text, bool, strict=False))


_CLIENT_SETTINGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "clientIP": ("client_ip", str),
    "heartbeatBrokerInterval": ("heartbeat_interval_s", _seconds),
    "mqClientApiTimeout": ("request_timeout_s", _seconds),
    "pollNameServerInterval": ("route_interval_s", _seconds),
    "unitName": ("unit_name", str),
    "vipChannelEnabled": ("use_vip_channel", _flag),
}
"""The original's client settings that mean something here: our name, and how to read one."""


def _client_settings(options: ConnectionOptions) -> dict[str, Any]:
    spelt = {f"{CLIENT_PREFIX}{name}".lower(): name for name in _CLIENT_SETTINGS}
    found: dict[str, Any] = {}
    for option, text in options.others.items():
        if option not in spelt:
            near = difflib.get_close_matches(option, spelt, 1)
            there = [f"{CLIENT_PREFIX}{spelt[each]}" for each in near or spelt]
            raise SettingError(f"there is no option {option!r}; there is {', '.join(there)}")
        field, read = _CLIENT_SETTINGS[spelt[option]]
        try:
            found[field] = read(text)
        except (ValueError, msgspec.ValidationError):
            raise SettingError(
                f"option {CLIENT_PREFIX}{spelt[option]}: {text!r} is wrong"
            ) from None
    return found


def _shown(options: Options) -> str:
    """Return options as text, without what is secret and what is not given."""
    shown = [
        f"{name}={HIDDEN if is_secret(field) else repr(getattr(options, field.name))}"
        for name, field in _given(options).items()
    ]
    return f"{type(options).__name__}({', '.join(shown)})"


def _given(options: Options) -> dict[str, msgspec.structs.FieldInfo]:
    """Return the options that are not as they would be without a word."""
    return {
        name: field
        for name, field in option_fields(type(options)).items()
        if getattr(options, field.name) != field.default
    }
