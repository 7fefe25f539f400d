"""TLS: certificate files, their reload, and a pipe that seals and opens bytes without a socket.

In: settings that name files; bytes of a connection. Out: contexts, opened and sealed bytes, or a
SettingError (our files) or RemoteProtocolError (the peer).

Rules:
1. TLS 1.2 and newer, no renegotiation.
2. Files that cannot serve (missing, unreadable, not matching, expired, not yet valid) are refused
   when a server starts; at a reload they are refused as well and the old ones stay in use.
3. A changed trust file counts at once; certificate and key only when both have changed, so that
   files replaced one after the other are never mixed. Connections keep what they began with.
4. The password of a key is in no text that is made of settings.
5. A pipe works on bytes already read, so plain and TLS share a port and its back-pressure.
"""

import contextlib
import os
import ssl
from collections.abc import Sequence
from enum import StrEnum

import msgspec

from orbitmq.errors import RemoteProtocolError, SettingError
from orbitmq.world.made_certificate import made_pair
from orbitmq.world.temporary import make_temporary_folder, remove_tree

HANDSHAKE_BYTE = 0x16
"""The first byte of a TLS hello. As the first byte of a frame it would mean 369 MB or more."""

_READ_SIZE = 65_536


class TlsMode(StrEnum):
    """What a port takes: `tls.server.mode` of the originals."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(StrEnum):
    """Whether a client must show a certificate: `tls.server.need.client.auth`."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The TLS side of a server. Without a certificate a permissive port is plain."""

    mode: TlsMode = TlsMode.PERMISSIVE
    cert_path: str | None = None
    key_path: str | None = None
    key_password: str | None = None
    trust_cert_path: str | None = None
    client_auth: ClientAuth = ClientAuth.NONE
    is_trial: bool = False
    """Whether a certificate is made up where none is given."""
    refresh_s: float = 1.0
    """How often the files are looked at."""

    def __repr__(self) -> str:
        return _shown(self)


class TlsClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The TLS side of what we dial. Without a trust file the system's own certificates count."""

    trust_cert_path: str | None = None
    cert_path: str | None = None
    key_path: str | None = None
    key_password: str | None = None
    checks_server: bool = True

    def __repr__(self) -> str:
        return _shown(self)


def _shown(settings: TlsSettings | TlsClientSettings) -> str:
    """Return settings as text, without the password."""
    values = {name: getattr(settings, name) for name in settings.__struct_fields__}
    values["key_password"] = settings.key_password and "***"
    told = ", ".join(f"{name}={value!r}" for name, value in values.items())
    return f"{type(settings).__name__}({told})"


class ServerTls:
    """What a listening port needs for TLS, renewed when its files change."""

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self.mode = settings.mode
        self.refresh_s = settings.refresh_s
        self._seen = self._stamps()
        self._refused: _Stamps | None = None
        self._context = self._load()

    @property
    def is_made_up(self) -> bool:
        """Whether it serves with a certificate that nobody gave."""
        return self._context is not None and self._settings.cert_path is None

    def pipe(self) -> "TlsPipe | None":
        """Return the server's end of a new connection; None when TLS is not offered."""
        return TlsPipe(self._context) if self._context is not None else None

    def refresh(self) -> bool:
        """Load files that have changed; give whether anything was loaded.

        Raises SettingError, once per change, when they cannot be used; the old ones stay.
        """
        if self._context is None:
            return False
        now = self._stamps()
        pair_changed = now.cert != self._seen.cert and now.key != self._seen.key
        if now == self._refused or not (pair_changed or now.trust != self._seen.trust):
            return False
        try:
            self._context = self._load()
        except SettingError:
            self._refused = now
            raise
        self._seen = now
        self._refused = None
        return True

    def _load(self) -> ssl.SSLContext | None:
        settings = self._settings
        if settings.mode is TlsMode.DISABLED:
            return None
        if settings.cert_path is None and settings.key_path is None:
            if settings.is_trial:
                return _trial_context(settings)
            if settings.mode is TlsMode.PERMISSIVE:
                return None
            raise SettingError(
                "TLS mode enforcing needs a certificate and a key; set tls.server.certPath and "
                "tls.server.keyPath, or tls.server.mode to permissive; for trials "
                "tls.test.mode.enable=true makes one up"
            )
        if settings.cert_path is None or settings.key_path is None:
            raise SettingError("TLS needs both tls.server.certPath and tls.server.keyPath")
        return _server_context(settings, settings.cert_path, settings.key_path)

    def _stamps(self) -> "_Stamps":
        settings = self._settings
        return _Stamps(
            cert=_stamp(settings.cert_path),
            key=_stamp(settings.key_path),
            trust=_stamp(settings.trust_cert_path),
        )


_Stamp = tuple[int, int] | None


class _Stamps(msgspec.Struct, frozen=True):
    """What tells one state of the three files from another."""

    cert: _Stamp
    key: _Stamp
    trust: _Stamp


def _stamp(path: str | None) -> _Stamp:
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            # Two versions may come within one tick of the file system's clock.
            return os.fstat(file.fileno()).st_mtime_ns, hash(file.read())
    except OSError:
        return None


# --- contexts ---


def _server_context(settings: TlsSettings, cert_path: str, key_path: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _harden(context)
    _load_pair(context, cert_path, key_path, settings.key_password)
    _refuse_outdated(context, cert_path)
    if settings.trust_cert_path is not None:
        _load_trust(context, settings.trust_cert_path)
    if settings.client_auth is ClientAuth.NONE:
        return context
    if settings.trust_cert_path is None:
        raise SettingError(
            f"client certificates ({settings.client_auth}) can be checked only against "
            "tls.server.trustCertPath; set it"
        )
    needed = settings.client_auth is ClientAuth.REQUIRE
    context.verify_mode = ssl.CERT_REQUIRED if needed else ssl.CERT_OPTIONAL
    return context


def _trial_context(settings: TlsSettings) -> ssl.SSLContext:
    """Serve with a certificate that is made up; `ssl` takes it from files only."""
    folder = make_temporary_folder("orbitmq-trial-")
    try:
        paths = [folder / "certificate.pem", folder / "key.pem"]
        for path, data in zip(paths, made_pair(), strict=True):
            path.write_bytes(data)
        return _server_context(settings, *map(str, paths))
    finally:
        remove_tree(folder)


class ClientTls:
    """What dialling needs for TLS; raises SettingError when its files cannot be used."""

    def __init__(self, settings: TlsClientSettings) -> None:
        self._context = _client_context(settings)

    def pipe(self, server_name: str) -> "TlsPipe":
        """Return the client's end of a new connection to a server of this name."""
        return TlsPipe(self._context, server_name=server_name)


def _client_context(settings: TlsClientSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _harden(context)
    if not settings.checks_server:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif settings.trust_cert_path is None:
        context.load_default_certs()
    if settings.trust_cert_path is not None:
        _load_trust(context, settings.trust_cert_path)
    if settings.cert_path is not None and settings.key_path is not None:
        _load_pair(context, settings.cert_path, settings.key_path, settings.key_password)
    return context


def _harden(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION


def _load_pair(
    context: ssl.SSLContext, cert_path: str, key_path: str, password: str | None
) -> None:
    for path in (cert_path, key_path):
        _refuse_unreadable(path)
    try:
        # Without a password OpenSSL would ask for one on the terminal; an empty one is refused.
        context.load_cert_chain(cert_path, key_path, password or "")
    except (ssl.SSLError, OSError, ValueError) as error:
        raise SettingError(
            f"certificate {cert_path} and key {key_path} cannot be used: {_cause(error)}"
        ) from error


def _load_trust(context: ssl.SSLContext, path: str) -> None:
    _refuse_unreadable(path)
    try:
        context.load_verify_locations(path)
    except (ssl.SSLError, OSError) as error:
        raise SettingError(
            f"trusted certificates {path} cannot be used: {_cause(error)}"
        ) from error


def _refuse_unreadable(path: str) -> None:
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise SettingError(f"TLS file {path} cannot be read: {error.strerror}") from error


def _refuse_outdated(context: ssl.SSLContext, cert_path: str) -> None:
    """Refuse a certificate that every careful client would refuse: expired, not yet valid.

    `ssl` shows a certificate's dates only to a peer that verified it. So we shake hands with
    ourselves, in memory, as a client that trusts exactly the certificates of this file.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _load_trust(client, cert_path)
    ours, theirs = TlsPipe(context), TlsPipe(client, server_name="")
    try:
        for _ in range(3):  # hello; certificate and finished; finished
            theirs.feed(ours.outgoing())
            ours.feed(theirs.outgoing())
    except RemoteProtocolError as error:
        raise SettingError(f"certificate {cert_path} is not valid: {error.detail}") from error
    if not theirs.is_ready:
        raise SettingError(f"certificate {cert_path} does not lead to a finished handshake")


def _cause(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(error.verify_message)
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return str(error) or type(error).__name__


# --- the pipe ---


class TlsPipe:
    """One TLS connection as a pair of functions on bytes.

    With a `server_name` it is the client's end; an empty name is sent to nobody and not checked.
    """

    def __init__(self, context: ssl.SSLContext, *, server_name: str | None = None) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_name is None,
            server_hostname=server_name or None,
        )
        self.is_ready = False
        self.is_ended = False
        self.is_inside_record = False
        """Whether the last bytes opened nothing: they were a piece of a record."""

    def feed(self, sealed: bytes) -> bytes:
        """Take bytes from the peer and return what they contain; with none, begin a handshake.

        Raises RemoteProtocolError; `outgoing` then has the alert that tells the peer.
        """
        if sealed:
            self._incoming.write(sealed)
        opened: list[bytes] = []
        try:
            if not self.is_ready:
                self._tls.do_handshake()
                self.is_ready = True
            while chunk := self._tls.read(_READ_SIZE):
                opened.append(chunk)
            self.is_ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.is_ended = True
        except ssl.SSLError as error:
            reason = "tls-record" if self.is_ready else "tls-handshake"
            raise RemoteProtocolError(reason, _cause(error)) from None
        self.is_inside_record = not opened
        return opened[0] if len(opened) == 1 else b"".join(opened)

    def seal(self, parts: Sequence[bytes | memoryview]) -> bytes:
        """Return `parts` as bytes for the peer; only when the handshake is done."""
        left = memoryview(b"".join(parts))
        while left:
            left = left[self._tls.write(left) :]
        return self._outgoing.read()

    def outgoing(self) -> bytes:
        """Return what the handshake, or its failure, has for the peer."""
        return self._outgoing.read()

    def farewell(self) -> bytes:
        """Return the record that says nothing more will come."""
        if self.is_ready:
            with contextlib.suppress(ssl.SSLError):  # the peer's own farewell is not waited for
                self._tls.unwrap()
        return self._outgoing.read()
