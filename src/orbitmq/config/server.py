"""The settings that every listening process has: where, for whom, and TLS.

In and out: see `settings`. Keys with dots are those that the original takes as Java system
properties (`-Dtls.server.mode=...`). `net.serving` turns them into limits and TLS of a server.
"""

from typing import Annotated, Literal

import msgspec

from orbitmq.config.settings import Settings, fact

_BUFFER_SIZE_MAX = 1 << 30
_WATER_MARK_MAX = 32 << 20
"""Half of the unsent output that closes a connection."""


class ServerSettings(Settings, frozen=True, kw_only=True):
    """What a listening process obeys."""

    bind_address: Annotated[
        str,
        fact("The address to listen on; 0.0.0.0 is every IPv4 address.", original="0.0.0.0"),  # noqa: S104 - names the original's default, binds nothing
    ] = "127.0.0.1"
    server_channel_max_idle_time_seconds: Annotated[
        int,
        fact("Close a connection without a byte for so long.", unit="s", least=1, most=86_400),
    ] = 120
    connections_max: Annotated[
        int,
        fact(
            "Accept so many connections at one time, over all ports of the process.",
            least=1,
            most=1_000_000,
            original="-",
        ),
    ] = 10_000

    server_socket_backlog: Annotated[
        int,
        fact(
            "So many connections may wait to be accepted; the system may allow fewer.",
            least=1,
            most=65_535,
        ),
    ] = 1_024
    server_socket_rcv_buf_size: Annotated[
        int,
        fact(
            "The receive buffer of each accepted connection; 0 leaves it to the system.",
            unit="bytes",
            least=0,
            most=_BUFFER_SIZE_MAX,
        ),
    ] = 0
    server_socket_snd_buf_size: Annotated[
        int,
        fact(
            "The send buffer of each accepted connection; 0 leaves it to the system.",
            unit="bytes",
            least=0,
            most=_BUFFER_SIZE_MAX,
        ),
    ] = 0

    write_buffer_high_water_mark: Annotated[
        int,
        fact(
            "With so much unsent output nothing more is read from a connection; 0: 1 MiB. Both"
            " water marks count, or none.",
            unit="bytes",
            least=0,
            most=_WATER_MARK_MAX,
        ),
    ] = 0
    write_buffer_low_water_mark: Annotated[
        int,
        fact(
            "It is read from again when no more than this is left; 0: a quarter of 1 MiB.",
            unit="bytes",
            least=0,
            most=_WATER_MARK_MAX,
        ),
    ] = 0

    # --- proxies in front ---
    proxy_protocol_enable: Annotated[
        bool,
        fact(
            "Take a client's address from a PROXY protocol preamble (v1, v2), where there is one.",
            original="-",
        ),
    ] = False
    proxy_protocol_from: Annotated[
        str,
        fact(
            "The networks of the proxies, separated by commas; empty trusts everyone.",
            original="-",
        ),
    ] = ""

    # --- TLS ---
    tls_config_file: Annotated[
        str,
        fact(
            "A properties file with tls.* keys; what it says wins, tls.server.mode and tls.enable"
            " are not read from it.",
            original="/etc/rocketmq/tls.properties",
        ),
    ] = msgspec.field(name="tls.config.file", default="")
    tls_test_mode_enable: Annotated[
        bool,
        fact(
            "Without a certificate, offer TLS with one that is made up at the start, for trials;"
            " a given one is used all the same.",
            original="true",
        ),
    ] = msgspec.field(name="tls.test.mode.enable", default=False)
    tls_server_mode: Annotated[
        Literal["disabled", "permissive", "enforcing"],
        fact("Refuse, allow or demand TLS on the same port; without a certificate it is plain."),
    ] = msgspec.field(name="tls.server.mode", default="permissive")
    tls_server_cert_path: Annotated[str, fact("The file with the certificate chain (PEM).")] = (
        msgspec.field(name="tls.server.certPath", default="")
    )
    tls_server_key_path: Annotated[str, fact("The file with the private key (PEM).")] = (
        msgspec.field(name="tls.server.keyPath", default="")
    )
    tls_server_key_password: Annotated[
        str, fact("The password of the private key.", secret=True)
    ] = msgspec.field(name="tls.server.keyPassword", default="")
    tls_server_trust_cert_path: Annotated[
        str, fact("The file with the certificates that clients' certificates must come from.")
    ] = msgspec.field(name="tls.server.trustCertPath", default="")
    tls_server_need_client_auth: Annotated[
        Literal["none", "optional", "require"], fact("Whether clients must show a certificate.")
    ] = msgspec.field(name="tls.server.need.client.auth", default="none")
