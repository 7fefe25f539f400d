"""How options become a way to a cluster: credentials, TLS, the client's own, and no secret told."""

import pytest

from orbitmq.client.signing import Signing
from orbitmq.errors import SettingError
from orbitmq.spark.connection_options import ConnectionOptions, client_settings, resolved
from orbitmq.spark.options import read_options
from orbitmq.wire.command import Command
from orbitmq.wire.signature import signature_of

ADDRESS = {"namesrvAddr": "127.0.0.1:9876"}


def options_of(**given: str) -> ConnectionOptions:
    return read_options(ConnectionOptions, {**ADDRESS, **given}, "rocketmq")


def test_a_signature_is_that_of_the_original_over_sorted_values_and_body() -> None:
    fields = {"topic": "T", "AccessKey": "me", "b": "2", "Signature": "ignored"}
    # base64(hmac-sha1("secret", "me" + "2" + "T" + "body")), by openssl
    assert signature_of("secret", fields, b"body") == "FWpPXggRJ6oucq8TDWFoQm5Nl9k="


def test_a_signed_request_can_be_signed_again_for_another_server() -> None:
    asked = Command(code=105, fields={"topic": "T"})
    hook = Signing("me", "secret")
    hook.before("a:1", asked)
    once = dict(asked.fields)
    hook.before("b:1", asked)
    assert asked.fields == once
    assert set(once) == {"topic", "AccessKey", "Signature"}


def test_a_secret_is_in_no_text_of_options_settings_or_hooks() -> None:
    options = options_of(
        accessKey="the-access-key",
        secretKey="the-secret-key",
        **{"tls.enable": "true", "tls.keyPassword": "the-password"},
    )
    settings = client_settings(options)
    shown = f"{options!r} {options} {settings!r}"
    assert "the-secret-key" not in shown
    assert "the-access-key" not in shown
    assert "the-password" not in shown
    assert "secretKey=***" in repr(options)


def test_a_secret_key_without_its_access_key_is_refused() -> None:
    with pytest.raises(SettingError, match="'accessKey' is missing"):
        client_settings(options_of(secretKey="x"))


@pytest.mark.parametrize("name", ["tls.trustCertPath", "tls.keyPassword", "tls.checksServer"])
def test_an_option_of_tls_does_not_send_plain_text_in_silence(name: str) -> None:
    """Symptom: with `tls.enable` forgotten, keys and messages were sent for all to read."""
    with pytest.raises(SettingError, match=f"'{name}' needs 'tls.enable'"):
        client_settings(options_of(**{name: "false"}))


def test_a_token_without_the_keys_it_goes_with_is_refused() -> None:
    with pytest.raises(SettingError, match="'securityToken' needs 'accessKey'"):
        client_settings(options_of(securityToken="x"))


def test_without_an_address_the_environment_of_the_planner_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "10.0.0.1:9876")
    options = resolved(read_options(ConnectionOptions, {}, "rocketmq"))
    monkeypatch.delenv("NAMESRV_ADDR")
    assert client_settings(options).namesrv == "10.0.0.1:9876"
    with pytest.raises(SettingError, match="'namesrvAddr' is missing"):
        resolved(read_options(ConnectionOptions, {}, "rocketmq"))


def test_name_servers_and_brokers_together_are_refused() -> None:
    with pytest.raises(SettingError, match="not both"):
        client_settings(options_of(brokerAddr="127.0.0.1:10911"))


def test_client_settings_of_the_original_are_passed_on() -> None:
    given = {
        "clientIP": "10.1.2.3",
        "heartbeatBrokerInterval": "2500",
        "mqClientApiTimeout": "1500",
        "pollNameServerInterval": "7000",
        "unitName": "east",
        "vipChannelEnabled": "true",
    }
    settings = client_settings(
        options_of(**{f"rocketmq.client.{name}": value for name, value in given.items()})
    )
    assert (settings.client_ip, settings.unit_name) == ("10.1.2.3", "east")
    assert (settings.heartbeat_interval_s, settings.route_interval_s) == (2.5, 7.0)
    assert settings.request_timeout_s == 1.5
    assert settings.use_vip_channel


def test_a_misspelt_client_setting_names_the_right_one() -> None:
    given = {"rocketmq.client.mqClientApiTimeOuts": "1500"}
    with pytest.raises(SettingError, match=r"rocketmq\.client\.mqClientApiTimeout"):
        client_settings(options_of(**given))
    with pytest.raises(SettingError, match="'soon' is wrong"):
        client_settings(options_of(**{"rocketmq.client.mqClientApiTimeout": "soon"}))
    with pytest.raises(SettingError, match="vipChannelEnabled: 'maybe' is wrong"):
        client_settings(options_of(**{"rocketmq.client.vipChannelEnabled": "maybe"}))


def test_equal_options_give_equal_settings_so_that_connections_are_shared() -> None:
    given = {"accessKey": "a", "secretKey": "b", "tls.enable": "true"}
    assert client_settings(options_of(**given)) == client_settings(options_of(**given))
    assert hash(client_settings(options_of(**given))) == hash(client_settings(options_of(**given)))
    assert client_settings(options_of(**given)) != client_settings(options_of())
