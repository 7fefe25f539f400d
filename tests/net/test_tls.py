"""TLS and plain on one port: modes, versions, client certificates, limits, our own dialling."""

import asyncio
import shutil
import socket
import ssl
from pathlib import Path
from typing import Any

import msgspec
import pytest

from orbitmq.config import BrokerSettings
from orbitmq.errors import ConnectFailed, ConnectionClosed, SettingError
from orbitmq.net.connection import Connection, Result
from orbitmq.net.limits import Limits
from orbitmq.net.peer import Peer
from orbitmq.net.serving import dial_tls_from
from orbitmq.wire.command import Command, decode_command, encode_command, reply_to
from orbitmq.wire.frame import FrameDecoder
from orbitmq.world.tls import (
    ClientAuth,
    ClientTls,
    TlsClientSettings,
    TlsMode,
    TlsSettings,
)
from tests.net.certificates import DAY, Authority, Pair
from tests.net.running import HOST, PATIENCE_S, Client, Run, Site, connected, serving, until


class Papers:
    """The certificates of this module."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder)
        self.stranger = Authority(folder, "stranger")
        self.server = self.authority.issue("server")
        self.client = self.authority.issue("client")
        self.strange_client = self.stranger.issue("strange-client")

    def settings(self, mode: TlsMode = TlsMode.ENFORCING, **changes: Any) -> TlsSettings:
        return TlsSettings(
            **{
                "mode": mode,
                "cert_path": self.server.cert_path,
                "key_path": self.server.key_path,
                **changes,
            }
        )

    def context(self, pair: Pair | None = None) -> ssl.SSLContext:
        """What a careful client of another make uses."""
        context = ssl.create_default_context(cafile=self.authority.path)
        if pair is not None:
            context.load_cert_chain(pair.cert_path, pair.key_path)
        return context


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


async def _echoes(client: Client) -> None:
    for number in range(20):
        client.ask(Command(10, opaque=number, body=b"%d" % number))
    for number in range(20):
        answer = await client.answer()
        assert (answer.opaque, answer.body) == (number, b"%d" % number)


# --- who may speak what ---


@pytest.mark.parametrize("mode", [TlsMode.PERMISSIVE, TlsMode.ENFORCING])
def test_tls_is_answered_on_the_same_port(run: Run, papers: Papers, mode: TlsMode) -> None:
    async def scenario() -> None:
        async with (
            serving(tls=papers.settings(mode)) as site,
            connected(site.port, ssl=papers.context()) as client,
        ):
            await _echoes(client)

    run(scenario())


@pytest.mark.parametrize("mode", [TlsMode.PERMISSIVE, TlsMode.DISABLED])
def test_plain_is_answered_unless_tls_is_enforced(run: Run, papers: Papers, mode: TlsMode) -> None:
    async def scenario() -> None:
        async with serving(tls=papers.settings(mode)) as site, connected(site.port) as client:
            await _echoes(client)

    run(scenario())


def test_plain_bytes_are_refused_where_tls_is_enforced(run: Run, papers: Papers) -> None:
    async def scenario() -> None:
        async with serving(tls=papers.settings()) as site, connected(site.port) as client:
            client.ask(Command(10))
            assert await client.ended() == b""
            assert site.closes("tls-required") == 1
            assert site.traffic.requests.total() == 0

    run(scenario())


@pytest.mark.parametrize(
    "settings", [None, TlsSettings(), TlsSettings(mode=TlsMode.DISABLED)], ids=repr
)
def test_a_tls_hello_is_refused_where_there_is_no_tls(
    run: Run, papers: Papers, settings: TlsSettings | None
) -> None:
    async def scenario() -> None:
        async with serving(tls=settings) as site:
            with pytest.raises(OSError):
                async with connected(site.port, ssl=papers.context()):
                    pass
            assert site.closes("tls-unavailable") == 1
            async with connected(site.port) as client:
                await _echoes(client)

    run(scenario())


def test_tls_1_2_is_accepted_and_older_is_refused(run: Run, papers: Papers) -> None:
    async def scenario() -> None:
        async with serving(tls=papers.settings()) as site:
            new = papers.context()
            new.maximum_version = ssl.TLSVersion.TLSv1_2
            async with connected(site.port, ssl=new) as client:
                await _echoes(client)
            old = papers.context()
            old.set_ciphers("DEFAULT:@SECLEVEL=0")
            with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
                old.minimum_version = ssl.TLSVersion.TLSv1_1
            with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
                old.maximum_version = ssl.TLSVersion.TLSv1_1
            with pytest.raises(OSError):
                async with connected(site.port, ssl=old):
                    pass
            await until(lambda: site.closes("tls-handshake") == 1)

    run(scenario())


def test_bytes_that_only_begin_like_tls_are_refused(run: Run, papers: Papers) -> None:
    async def scenario() -> None:
        async with serving(tls=papers.settings()) as site, connected(site.port) as client:
            client.write(b"\x16\x03\x01\x00\x05hello" + bytes(100))
            await client.ended()
            assert site.closes("tls-handshake") == 1
            assert site.traffic.protocol_errors.value("tls-handshake") == 1

    run(scenario())


def test_damage_in_a_record_closes_the_connection(run: Run, papers: Papers) -> None:
    async def scenario() -> None:
        async with (
            serving(tls=papers.settings()) as site,
            connected(site.port, ssl=papers.context()) as client,
        ):
            await _echoes(client)
            # Past the client's own TLS, onto the socket below it.
            raw = socket.fromfd(
                client.writer.get_extra_info("socket").fileno(), socket.AF_INET, socket.SOCK_STREAM
            )
            with raw:
                raw.send(b"\x17\x03\x03\x00\x20" + bytes(32))
            await client.ended()
            assert site.closes("tls-record") == 1

    run(scenario())


# --- client certificates ---


def test_a_required_client_certificate_is_required(run: Run, papers: Papers) -> None:
    async def scenario() -> None:
        settings = papers.settings(
            client_auth=ClientAuth.REQUIRE, trust_cert_path=papers.authority.path
        )
        async with serving(tls=settings) as site:
            async with connected(site.port, ssl=papers.context(papers.client)) as client:
                await _echoes(client)
            for pair in (None, papers.strange_client):
                refused = site.closes("tls-handshake")
                async with connected(site.port, ssl=papers.context(pair)) as client:
                    client.ask(Command(10))
                    assert await client.ended() == b""
                assert site.closes("tls-handshake") == refused + 1
            assert site.traffic.requests.total() == 20

    run(scenario())


def test_an_optional_client_certificate_may_be_absent_but_not_wrong(
    run: Run, papers: Papers
) -> None:
    async def scenario() -> None:
        settings = papers.settings(
            client_auth=ClientAuth.OPTIONAL, trust_cert_path=papers.authority.path
        )
        async with serving(tls=settings) as site:
            for pair in (None, papers.client):
                async with connected(site.port, ssl=papers.context(pair)) as client:
                    await _echoes(client)
            async with connected(site.port, ssl=papers.context(papers.strange_client)) as client:
                client.ask(Command(10))
                assert await client.ended() == b""
            assert site.closes("tls-handshake") == 1

    run(scenario())


# --- the stream inside ---


class Sealed:
    """A TLS client that shows its sealed bytes, so that a test can cut them anywhere."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname=HOST)

    async def shake_hands(self, client: Client) -> None:
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                for byte in self.outgoing.read():
                    client.write(bytes([byte]))
                self.incoming.write(await client.reader.read(65536))
        client.write(self.outgoing.read())

    def seal(self, data: bytes) -> bytes:
        self.tls.write(data)
        return self.outgoing.read()

    async def open(self, client: Client, size: int) -> bytes:
        """Return at least `size` opened bytes."""
        opened = b""
        while len(opened) < size:
            try:
                opened += self.tls.read(65536)
            except ssl.SSLWantReadError:
                self.incoming.write(await client.reader.read(65536))
        return opened


def test_records_and_frames_may_be_cut_anywhere(run: Run, papers: Papers) -> None:
    async def scenario() -> None:
        async with serving(tls=papers.settings()) as site, connected(site.port) as client:
            sealed = Sealed(papers.context())
            await sealed.shake_hands(client)
            frame = encode_command(Command(10, opaque=1, body=b"body"))
            answer = encode_command(reply_to(Command(10, opaque=1), body=b"body"))
            for byte in sealed.seal(frame[:30]) + sealed.seal(frame[30:] + frame[:5]):
                client.write(bytes([byte]))
            assert await sealed.open(client, len(answer)) == answer
            client.write(sealed.seal(frame[5:]) + sealed.seal(frame) + sealed.seal(frame))
            assert await sealed.open(client, 3 * len(answer)) == 3 * answer

    run(scenario())


def test_an_unfinished_record_counts_as_an_unfinished_frame(run: Run, papers: Papers) -> None:
    async def scenario() -> None:
        limits = Limits(begun_frame_s=0.3)
        async with (
            serving(tls=papers.settings(), limits=limits) as site,
            connected(site.port) as client,
        ):
            sealed = Sealed(papers.context())
            await sealed.shake_hands(client)
            frame = encode_command(Command(10))
            client.write(sealed.seal(frame))
            await sealed.open(client, len(encode_command(reply_to(Command(10)))))
            client.write(sealed.seal(frame)[:20])
            await client.ended()
            assert site.closes("frame-timeout") == 1

    run(scenario())


def test_a_handshake_that_is_not_finished_in_time_is_closed(run: Run, papers: Papers) -> None:
    async def scenario() -> None:
        limits = Limits(first_frame_s=0.2)
        async with (
            serving(tls=papers.settings(), limits=limits) as site,
            connected(site.port) as client,
        ):
            client.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc")
            await client.ended()
            assert site.closes("first-frame-timeout") == 1

    run(scenario())


def test_a_farewell_of_the_client_ends_the_connection_after_its_answers(
    run: Run, papers: Papers
) -> None:
    async def scenario() -> None:
        async with serving(tls=papers.settings()) as site, connected(site.port) as client:
            sealed = Sealed(papers.context())
            await sealed.shake_hands(client)
            last = sealed.seal(encode_command(Command(10, opaque=1)))
            with pytest.raises(ssl.SSLWantReadError):
                sealed.tls.unwrap()
            client.write(last + sealed.outgoing.read())
            answer = encode_command(reply_to(Command(10, opaque=1)))
            assert await sealed.open(client, len(answer)) == answer
            await client.ended()
            assert site.closes("peer") == 1

    run(scenario())


def test_a_tls_peer_that_does_not_read_is_not_read_from(run: Run, papers: Papers) -> None:
    async def scenario() -> None:
        def handle(request: Command, connection: Connection) -> Result:
            return reply_to(request, body=bytes(100_000))

        limits = Limits(output_pause_bytes=200_000)
        async with serving(handle, limits=limits, tls=papers.settings()) as site:
            deaf = socket.socket()
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32_768)
            deaf.setblocking(False)
            await asyncio.get_running_loop().sock_connect(deaf, (HOST, site.port))
            reader, writer = await asyncio.open_connection(sock=deaf, limit=1)
            client = Client(reader, writer)
            sealed = Sealed(papers.context())
            await sealed.shake_hands(client)
            client.write(
                sealed.seal(b"".join(encode_command(Command(10, opaque=n)) for n in range(300)))
            )
            connection = site.connection()
            await until(lambda: connection.is_undrained)
            assert site.traffic.requests.value(10) < 300
            assert connection.held_bytes < 600_000
            decoder, answers = FrameDecoder(), list[Command]()
            while len(answers) < 300:
                answers += map(decode_command, decoder.feed(await sealed.open(client, 1)))
            assert [answer.opaque for answer in answers] == list(range(300))
            assert {answer.body for answer in answers} == {bytes(100_000)}
            await client.close()

    run(scenario())


def test_big_answers_come_through_whole(run: Run, papers: Papers) -> None:
    async def scenario() -> None:
        body = bytes(range(256)) * 40_000
        async with (
            serving(tls=papers.settings()) as site,
            connected(site.port, ssl=papers.context()) as client,
        ):
            client.ask(Command(10, body=body))
            assert (await client.answer()).body == body

    run(scenario())


# --- dialling ---


def _client_tls(papers: Papers, **changes: Any) -> ClientTls:
    return ClientTls(TlsClientSettings(**{"trust_cert_path": papers.authority.path, **changes}))


def test_a_peer_dials_with_tls_and_is_asked_back(run: Run, papers: Papers) -> None:
    async def scenario() -> None:
        settings = papers.settings(
            client_auth=ClientAuth.REQUIRE, trust_cert_path=papers.authority.path
        )
        async with serving(tls=settings) as site:
            tls = _client_tls(
                papers, cert_path=papers.client.cert_path, key_path=papers.client.key_path
            )
            peer = Peer(site.address, site.turn, tls=tls)
            answer = await peer.call(Command(10, body=bytes(1_000_000)), PATIENCE_S)
            assert len(answer.body) == 1_000_000
            assert (await site.connection().call(Command(40), PATIENCE_S)).code == 3
            peer.close()
            await peer.wait_closed()
            await until(lambda: site.closes("peer") == 1)

    run(scenario())


def test_a_peer_refuses_a_server_it_does_not_know(run: Run, papers: Papers) -> None:
    async def scenario() -> None:
        async with serving(tls=papers.settings()) as site:
            tls = _client_tls(papers, trust_cert_path=papers.stranger.path)
            peer = Peer(site.address, site.turn, tls=tls)
            with pytest.raises(ConnectFailed, match="TLS"):
                await peer.call(Command(10), PATIENCE_S)
            unchecked = Peer(
                site.address,
                site.turn,
                tls=ClientTls(TlsClientSettings(checks_server=False)),
            )
            assert (await unchecked.call(Command(10), PATIENCE_S)).code == 0
            for one in (peer, unchecked):
                one.close()
                await one.wait_closed()

    run(scenario())


def test_a_peer_refuses_a_server_of_another_name(run: Run, papers: Papers) -> None:
    async def scenario() -> None:
        async with serving(tls=papers.settings()) as site:
            peer = Peer(f"localhost:{site.port}", site.turn, tls=_client_tls(papers))
            with pytest.raises(ConnectFailed, match="TLS"):
                await peer.call(Command(10), PATIENCE_S)
            peer.close()
            await peer.wait_closed()

    run(scenario())


def test_a_peer_that_wants_tls_gets_none_from_a_plain_or_silent_port(
    run: Run, papers: Papers
) -> None:
    async def scenario() -> None:
        async with serving() as site:
            peer = Peer(site.address, site.turn, tls=_client_tls(papers))
            with pytest.raises(ConnectFailed, match="TLS"):
                await peer.call(Command(10), PATIENCE_S)
            peer.close()
            await peer.wait_closed()
            with socket.create_server((HOST, 0)) as silent:
                address = f"{HOST}:{silent.getsockname()[1]}"
                limits = Limits(connect_s=0.2)
                peer = Peer(address, site.turn, tls=_client_tls(papers), limits=limits)
                with pytest.raises(ConnectFailed, match=r"by TLS within 0\.2 s"):
                    await peer.call(Command(10), PATIENCE_S)
                peer.close()
                await peer.wait_closed()

    run(scenario())


# --- files ---


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cert_path": "/nowhere/server.crt"}, r"/nowhere/server\.crt cannot be read: No such"),
        ({"key_path": "/nowhere/server.key"}, r"/nowhere/server\.key cannot be read: No such"),
        ({"cert_path": None, "key_path": None}, r"needs a certificate and a key; set tls\.server"),
        ({"key_path": None}, r"needs both tls\.server\.certPath and tls\.server\.keyPath"),
        ({"key_path": "{client.key}"}, "cannot be used: key values mismatch"),
        ({"cert_path": "{garbage}"}, "cannot be used"),
        ({"cert_path": "{expired.crt}", "key_path": "{expired.key}"}, "is not valid: .*expired"),
        ({"cert_path": "{early.crt}", "key_path": "{early.key}"}, "is not valid: .*not yet valid"),
        ({"cert_path": "{locked.crt}", "key_path": "{locked.key}"}, "cannot be used"),
        ({"trust_cert_path": "/nowhere/ca.pem"}, r"/nowhere/ca\.pem cannot be read"),
        ({"trust_cert_path": "{garbage}"}, "trusted certificates .* cannot be used"),
        ({"client_auth": ClientAuth.REQUIRE}, r"only against tls\.server\.trustCertPath"),
    ],
)
def test_files_that_cannot_serve_are_refused_at_the_start(
    run: Run, papers: Papers, changes: dict[str, Any], message: str
) -> None:
    papers.authority.issue("expired", begins=-3 * DAY, ends=-DAY)
    papers.authority.issue("early", begins=DAY, ends=3 * DAY)
    papers.authority.issue("locked", password="secret")
    (papers.folder / "garbage").write_text("this is no certificate")
    changes = {
        name: str(papers.folder / value[1:-1])
        if isinstance(value, str) and value.startswith("{")
        else value
        for name, value in changes.items()
    }

    async def scenario() -> None:
        with pytest.raises(SettingError, match=message):
            async with serving(tls=papers.settings(**changes)):
                pass

    run(scenario())


def test_a_locked_key_is_opened_with_its_password(run: Run, papers: Papers) -> None:
    async def scenario() -> None:
        locked = papers.authority.issue("locked-well", password="secret")
        settings = papers.settings(
            cert_path=locked.cert_path, key_path=locked.key_path, key_password="secret"
        )
        async with (
            serving(tls=settings) as site,
            connected(site.port, ssl=papers.context()) as client,
        ):
            await _echoes(client)

    run(scenario())


async def _served_name(port: int, papers: Papers) -> str:
    """The common name of the certificate that a new connection is shown."""
    async with connected(port, ssl=papers.context()) as client:
        certificate = client.writer.get_extra_info("ssl_object").getpeercert()
        name: str = certificate["subject"][0][0][1]
        return name


def test_certificate_and_key_are_reloaded_once_both_have_changed(run: Run, papers: Papers) -> None:
    async def scenario() -> None:
        old, new = papers.authority.issue("old"), papers.authority.issue("new")
        used = Pair(str(papers.folder / "used.crt"), str(papers.folder / "used.key"))
        shutil.copy(old.cert_path, used.cert_path)
        shutil.copy(old.key_path, used.key_path)
        settings = papers.settings(cert_path=used.cert_path, key_path=used.key_path, refresh_s=0.02)
        async with serving(tls=settings) as site:
            reloads = site.server._tls_reloads
            async with connected(site.port, ssl=papers.context()) as before:
                assert await _served_name(site.port, papers) == "old"
                shutil.copy(new.cert_path, used.cert_path)
                looks = _looks(site.server)
                await until(lambda: len(looks) >= 3)
                assert reloads.total() == 0
                assert await _served_name(site.port, papers) == "old"
                shutil.copy(new.key_path, used.key_path)
                await until(lambda: reloads.value("loaded") == 1)
                assert await _served_name(site.port, papers) == "new"
                await _echoes(before)

    run(scenario())


def _looks(server: Any) -> list[bool]:
    """Note every look at the files from now on."""
    looks: list[bool] = []
    refresh = server._tls.refresh

    def noted() -> bool:
        changed: bool = refresh()
        looks.append(changed)
        return changed

    server._tls.refresh = noted
    return looks


def test_trusted_certificates_are_reloaded_at_once(run: Run, papers: Papers) -> None:
    async def scenario() -> None:
        trusted = papers.folder / "trusted.pem"
        shutil.copy(papers.stranger.path, trusted)
        settings = papers.settings(
            client_auth=ClientAuth.REQUIRE, trust_cert_path=str(trusted), refresh_s=0.02
        )
        async with serving(tls=settings) as site:
            async with connected(site.port, ssl=papers.context(papers.client)) as client:
                client.ask(Command(10))
                assert await client.ended() == b""
            shutil.copy(papers.authority.path, trusted)
            await until(lambda: site.server._tls_reloads.value("loaded") == 1)
            async with connected(site.port, ssl=papers.context(papers.client)) as client:
                await _echoes(client)

    run(scenario())


def test_changed_files_that_cannot_serve_are_refused_once_and_the_old_ones_stay(
    run: Run, papers: Papers, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        old = papers.authority.issue("kept")
        expired = papers.authority.issue("too-old", begins=-3 * DAY, ends=-DAY)
        used = Pair(str(papers.folder / "bad.crt"), str(papers.folder / "bad.key"))
        shutil.copy(old.cert_path, used.cert_path)
        shutil.copy(old.key_path, used.key_path)
        settings = papers.settings(cert_path=used.cert_path, key_path=used.key_path, refresh_s=0.02)
        async with serving(tls=settings) as site:
            shutil.copy(expired.cert_path, used.cert_path)
            shutil.copy(expired.key_path, used.key_path)
            reloads = site.server._tls_reloads
            await until(lambda: reloads.value("refused") == 1)
            looks = _looks(site.server)
            await until(lambda: len(looks) >= 3)
            assert reloads.value("refused") == 1
            assert await _served_name(site.port, papers) == "kept"

    run(scenario())
    assert "changed TLS files are not used" in caplog.text


# --- how a broker dials, by its settings ---


async def _is_answered(site: Site, settings: BrokerSettings) -> bool:
    peer = Peer(site.address, site.turn, tls=dial_tls_from(settings))
    try:
        return (await peer.call(Command(10), PATIENCE_S)).code == 0
    except (ConnectFailed, ConnectionClosed):
        return False
    finally:
        peer.close()
        await peer.wait_closed()


def test_a_broker_shows_the_certificate_of_tls_client_and_checks_the_server_s(
    run: Run, papers: Papers
) -> None:
    """Symptom: tls.client.* and tls.enable were accepted, and nothing obeyed them."""

    async def scenario() -> None:
        demanding = papers.settings(
            client_auth=ClientAuth.REQUIRE, trust_cert_path=papers.authority.path
        )
        async with serving(tls=demanding) as site:
            settings = BrokerSettings(
                tls_enable=True,
                tls_client_cert_path=papers.client.cert_path,
                tls_client_key_path=papers.client.key_path,
                tls_client_auth_server=True,
                tls_client_trust_cert_path=papers.authority.path,
            )
            assert await _is_answered(site, settings)
            for wrong in (
                {"tls_enable": False},
                {"tls_client_cert_path": "", "tls_client_key_path": ""},
                {"tls_client_trust_cert_path": papers.stranger.path},
            ):
                assert not await _is_answered(site, msgspec.structs.replace(settings, **wrong))

    run(scenario())


def test_without_tls_client_a_broker_shows_what_it_serves_with_and_checks_nothing(
    run: Run, papers: Papers
) -> None:
    async def scenario() -> None:
        demanding = papers.settings(
            client_auth=ClientAuth.REQUIRE, trust_cert_path=papers.authority.path
        )
        async with serving(tls=demanding) as site:
            settings = BrokerSettings(
                tls_server_mode="enforcing",
                tls_server_cert_path=papers.server.cert_path,
                tls_server_key_path=papers.server.key_path,
                tls_client_trust_cert_path=papers.stranger.path,
            )
            assert await _is_answered(site, settings)

    run(scenario())


def test_a_broker_opens_the_key_that_it_dials_with_by_its_password(
    run: Run, papers: Papers
) -> None:
    """tls.client.keyPassword, right and wrong."""

    async def scenario() -> None:
        demanding = papers.settings(
            client_auth=ClientAuth.REQUIRE, trust_cert_path=papers.authority.path
        )
        locked = papers.authority.issue("locked", password="the-password")
        async with serving(tls=demanding) as site:
            settings = BrokerSettings(
                tls_enable=True,
                tls_client_cert_path=locked.cert_path,
                tls_client_key_path=locked.key_path,
                tls_client_key_password="the-password",
            )
            assert await _is_answered(site, settings)
            wrong = msgspec.structs.replace(settings, tls_client_key_password="another")
            with pytest.raises(SettingError, match=r"locked\.key"):
                dial_tls_from(wrong)

    run(scenario())


def test_half_a_pair_for_dialling_is_refused(papers: Papers) -> None:
    half = BrokerSettings(tls_enable=True, tls_client_cert_path=papers.client.cert_path)
    with pytest.raises(SettingError, match=r"tls\.client\.keyPath"):
        dial_tls_from(half)
