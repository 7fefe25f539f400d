"""From a process's settings to what its server needs.

In: ServerSettings. Out: the limits and the TLS side of a listening port, and how to dial a port
that has the same settings. One place, so that name server and broker cannot differ.
"""

from orbitmq.config import ServerSettings
from orbitmq.net.limits import Limits
from orbitmq.net.proxy_protocol import Proxies, read_networks
from orbitmq.world.tls import ClientAuth, ClientTls, TlsClientSettings, TlsMode, TlsSettings


def limits_from(settings: ServerSettings) -> Limits:
    """Give the limits that the settings ask for."""
    return Limits(
        connections_max=settings.connections_max,
        idle_s=float(settings.server_channel_max_idle_time_seconds),
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


def dial_tls_from(settings: ServerSettings) -> ClientTls | None:
    """Give the TLS of connections to our own kind: used when plain ones are refused.

    We show the certificate that we serve with. The other side is not checked, as in the original
    (tls.client.authServer=false); who it is follows from the address in the settings.
    """
    if TlsMode(settings.tls_server_mode) is not TlsMode.ENFORCING:
        return None
    return ClientTls(
        TlsClientSettings(
            cert_path=settings.tls_server_cert_path or None,
            key_path=settings.tls_server_key_path or None,
            key_password=settings.tls_server_key_password or None,
            checks_server=False,
        )
    )
