"""TLS by settings: a certificate that is made up for trials, and a file of TLS settings."""

import logging
import os
import ssl
import tempfile
from pathlib import Path

import pytest

from orbitmq.broker.starting import Given, put_together
from orbitmq.cli.namesrv import load_start
from orbitmq.config import BrokerSettings
from orbitmq.errors import SettingError
from orbitmq.net.serving import tls_from
from orbitmq.wire.command import Command
from orbitmq.world.files import SystemFiles
from orbitmq.world.made_certificate import NAME, made_pair
from orbitmq.world.tls import ServerTls
from tests.net.certificates import Authority
from tests.net.running import Run, connected, serving


def trusting(certificate: str) -> ssl.SSLContext:
    """A careful client that trusts this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=certificate)
    return context


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
def test_for_trials_tls_is_offered_with_a_certificate_that_is_made_up(
    run: Run, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    async def scenario() -> None:
        given = {"tls.test.mode.enable": "true", "tls.server.mode": mode}
        start = put_together(SystemFiles(), Path("unused"), Given({}, given, None))
        with caplog.at_level(logging.WARNING):
            async with serving(tls=tls_from(start.settings)) as site:
                context = trusting(made_pair().certificate.decode())
                async with connected(site.port, ssl=context, server_hostname=NAME) as client:
                    client.ask(Command(10, body=b"sealed"))
                    assert (await client.answer()).body == b"sealed"
        assert "made up (tls.test.mode.enable)" in caplog.text

    run(scenario())


def test_a_given_certificate_is_served_also_in_trials(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        authority = Authority(tmp_path)
        pair = authority.issue("server")
        settings = BrokerSettings(
            tls_test_mode_enable=True,
            tls_server_cert_path=pair.cert_path,
            tls_server_key_path=pair.key_path,
        )
        async with serving(tls=tls_from(settings)) as site:
            context = trusting(Path(authority.path).read_text())
            async with connected(site.port, ssl=context, server_hostname="127.0.0.1") as client:
                client.ask(Command(10, body=b"sealed"))
                assert (await client.answer()).body == b"sealed"

    run(scenario())


def test_nothing_of_a_made_up_certificate_is_left_on_the_disk(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def scenario() -> None:
        async with serving(tls=tls_from(BrokerSettings(tls_test_mode_enable=True))):
            assert os.listdir(tmp_path) == []

    run(scenario())


def test_without_a_certificate_an_enforced_port_says_how_to_have_one_made() -> None:
    settings = BrokerSettings(tls_server_mode="enforcing")
    with pytest.raises(SettingError, match=r"tls\.test\.mode\.enable=true"):
        ServerTls(tls_from(settings))


# --- tls.config.file ---

FILE = """\
tls.server.certPath=/run/tls/server.pem
tls.server.keyPath=/run/tls/server.key
tls.server.keyPassword=hidden
tls.server.need.client.auth=require
tls.server.trustCertPath=/run/tls/ca.pem
tls.server.authClient=true
tls.client.authServer=true
tls.client.trustCertPath=/run/tls/ca.pem
tls.server.mode=enforcing
"""


def test_the_file_of_tls_settings_has_the_last_word_of_a_broker(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text(FILE)
    overrides = {"tls.config.file": str(file), "tls.server.certPath": "/elsewhere.pem"}
    given = Given({"tls.server.need.client.auth": "none"}, overrides, None)
    start = put_together(SystemFiles(), tmp_path / "store", given, strict=True)
    tls = tls_from(start.settings)
    assert (tls.cert_path, tls.key_path, tls.key_password) == (
        "/run/tls/server.pem",
        "/run/tls/server.key",
        "hidden",
    )
    assert (tls.client_auth, tls.trust_cert_path) == ("require", "/run/tls/ca.pem")
    assert start.settings.tls_client_auth_server
    assert start.settings.tls_server_mode == "permissive", "the original does not read it there"
    assert any(note.startswith("tls.server.mode is not read from") for note in start.notes)


def test_the_file_of_tls_settings_has_the_last_word_of_a_name_server(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text(FILE)
    properties = {"tls.config.file": str(file), "tls.server.keyPath": "/elsewhere.key"}
    start = load_start(SystemFiles(), tmp_path / "namesrv", properties, {}, strict=True)
    assert tls_from(start.settings).key_path == "/run/tls/server.key"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "does not exist"),
        ("tls.server.certPath=\\u12", "without four hexadecimal digits"),
        ("tls.server.need.client.auth=perhaps", "expected one of none, optional, require"),
    ],
)
def test_a_file_of_tls_settings_that_cannot_be_used_is_refused(
    tmp_path: Path, text: str | None, reason: str
) -> None:
    file = tmp_path / "tls.properties"
    if text is not None:
        file.write_text(text)
    given = Given({}, {"tls.config.file": str(file)}, None)
    with pytest.raises(SettingError, match=reason):
        put_together(SystemFiles(), tmp_path / "store", given)
