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
    """Return the limits that the settings ask for; raises SettingError when they do not fit."""
    pause_bytes, resume_bytes = _water_marks(settings)
    return Limits(
        connections_max=settings.connections_max,
        idle_s=float(settings.server_channel_max_idle_time_seconds),
        backlog=settings.server_socket_backlog,
        receive_buffer_bytes=settings.server_socket_rcv_buf_size,
        send_buffer_bytes=settings.server_socket_snd_buf_size,
        output_pause_bytes=pause_bytes,
        output_resume_bytes=resume_bytes,
    )


def dial_limits_from(settings: BrokerSettings) -> Limits:
    """Return the limits of connections to name servers."""
    pause_bytes, resume_bytes = _water_marks(settings)
    return Limits(
        connect_s=settings.connect_timeout_millis / 1000,
        idle_s=float(settings.client_channel_max_idle_time_seconds),
        receive_buffer_bytes=settings.client_socket_rcv_buf_size,
        send_buffer_bytes=settings.client_socket_snd_buf_size,
        output_pause_bytes=pause_bytes,
        output_resume_bytes=resume_bytes,
        closes_overdue=settings.client_close_socket_if_timeout,
    )


def _water_marks(settings: ServerSettings) -> tuple[int, int | None]:
    """Return with how much unsent output reading stops, and with how much it goes on."""
    high, low = settings.write_buffer_high_water_mark, settings.write_buffer_low_water_mark
    if not high or not low:  # both count, or none, as in the original
        return Limits().output_pause_bytes, None
    if low > high:
        raise SettingError(
            f"writeBufferLowWaterMark={low} is above writeBufferHighWaterMark={high}: output has"
            " drained when less is left than where reading stopped"
        )
    return high, low


def tls_from(settings: ServerSettings) -> TlsSettings:
    """Return the TLS side of a listening port."""
    return TlsSettings(
        mode=TlsMode(settings.tls_server_mode),
        cert_path=settings.tls_server_cert_path or None,
        key_path=settings.tls_server_key_path or None,
        key_password=settings.tls_server_key_password or None,
        trust_cert_path=settings.tls_server_trust_cert_path or None,
        client_auth=ClientAuth(settings.tls_server_need_client_auth),
        is_trial=settings.tls_test_mode_enable,
    )


def proxies_from(settings: ServerSettings) -> Proxies | None:
    """Return who may speak the PROXY protocol; raises SettingError for what is no network."""
    networks = read_networks(settings.proxy_protocol_from, "proxyProtocolFrom")
    return Proxies(networks) if settings.proxy_protocol_enable else None


def dial_tls_from(settings: BrokerSettings) -> ClientTls | None:
    """Return the TLS of connections to name servers; None when they are plain.

    Used when asked for, and when plain connections are refused here, too. Without a certificate of
    its own the one that we serve with is shown. The other side is not checked by default, as in
    the original; who it is follows from the address in the settings.
    """
    is_enforcing = TlsMode(settings.tls_server_mode) is TlsMode.ENFORCING
    if not (is_enforcing or settings.tls_enable or settings.use_tls):
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
