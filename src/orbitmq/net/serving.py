"""From a process's settings to what its server needs.

In: ServerSettings. Out: the limits and the TLS side of a listening port, and how to dial a port
that has the same settings. One place, so that name server and broker cannot differ.
"""

from orbitmq.config import BrokerSettings, ServerSettings
from orbitmq.errors import SettingError
from orbitmq.net.limits import Limits
from orbitmq.net.proxy_protocol import Proxies, read_networks
from orbitmq.world.tls import ClientAuth, ClientTls, TlsClientSettings, TlsMode, TlsSettings


def limits_from(settings: ServerSettings) -> Limits:
    """Give the limits that the settings ask for."""
    return Limits(
        connections_max=settings.connections_max,
        idle_s=float(settings.server_channel_max_idle_time_seconds),
        backlog=settings.server_socket_backlog,
        receive_buffer_bytes=settings.server_socket_rcv_buf_size,
        send_buffer_bytes=settings.server_socket_snd_buf_size,
    )


def dial_limits_from(settings: BrokerSettings) -> Limits:
    """Give the limits of connections to name servers."""
    return Limits(
        connect_s=settings.connect_timeout_millis / 1000,
        idle_s=float(settings.client_channel_max_idle_time_seconds),
    )


def tls_from(settings: ServerSettings) -> TlsSettings:
    """Give the TLS side of a listening port."""
    return TlsSettings(
        mode=TlsMode(settings.tls_server_mode),
        cert_path=settings.tls_server_cert_path or None,
        key_path=settings.tls_server_key_path or None,
        key_password=settings.tls_server_key_password or None,
        trust_cert_path=settings.tls_server_trust_cert_path or None,
        client_auth=ClientAuth(settings.tls_server_need_client_auth),
    )


def proxies_from(settings: ServerSettings) -> Proxies | None:
    """Give who may speak the PROXY protocol; raises SettingError for what is no network."""
    networks = read_networks(settings.proxy_protocol_from, "proxyProtocolFrom")
    return Proxies(networks) if settings.proxy_protocol_enable else None


def dial_tls_from(settings: BrokerSettings) -> ClientTls | None:
    """Give the TLS of connections to name servers; None when they are plain.

    Used when asked for, and when plain connections are refused here, too. Without a certificate of
    its own the one that we serve with is shown. The other side is not checked by default, as in
    the original; who it is follows from the address in the settings.
    """
    is_enforcing = TlsMode(settings.tls_server_mode) is TlsMode.ENFORCING
    if not (is_enforcing or settings.tls_enable):
        return None
    pair = (
        settings.tls_client_cert_path,
        settings.tls_client_key_path,
        settings.tls_client_key_password,
    )
    if not any(pair[:2]):
        pair = (
            settings.tls_server_cert_path,
            settings.tls_server_key_path,
            settings.tls_server_key_password,
        )
    cert_path, key_path, key_password = pair
    if bool(cert_path) != bool(key_path):
        raise SettingError(
            f"certificate {cert_path!r} and key {key_path!r} for dialling name servers: give both,"
            " tls.client.certPath and tls.client.keyPath, or neither"
        )
    return ClientTls(
        TlsClientSettings(
            trust_cert_path=settings.tls_client_trust_cert_path or None,
            cert_path=cert_path or None,
            key_path=key_path or None,
            key_password=key_password or None,
            checks_server=settings.tls_client_auth_server,
        )
    )
