"""Settings of an application: arguments, then the file, then the environment."""

from pathlib import Path

import pytest

from orbitmq.aio import MessageModel, Selector
from orbitmq.app import App
from orbitmq.app.settings import load
from orbitmq.errors import SettingError
from orbitmq.world.files import SystemFiles
from orbitmq.world.tls import TlsClientSettings
from tests.app import shop


def _file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "orbitmq.toml"
    path.write_text(text)
    return str(path)


def test_the_file_wins_over_arguments_and_the_environment_over_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _file(tmp_path, '[app]\nnamesrv = "file:1"\ngroup = "of_file"\n')
    given = {"namesrv": "argument:1", "group": "of_argument", "namespace": "n"}
    read = load(given, SystemFiles(), path).app
    assert (read.namesrv, read.group, read.namespace) == ("file:1", "of_file", "n")
    monkeypatch.setenv("ORBITMQ_NAMESRV", "environment:1")
    assert load(given, SystemFiles(), path).app.namesrv == "environment:1"


def test_a_listener_is_switched_off_in_the_file(tmp_path: Path) -> None:
    path = _file(tmp_path, "[listeners.ship]\nenabled = false\n")
    app = App(file=path)
    app.listener("orders")(shop.ship)
    assert app.listeners() == []


def test_a_listener_is_switched_off_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORBITMQ_LISTENER_SHIP_ENABLED", "false")
    assert "ship" not in [one.name for one in shop.app.listeners()]


def test_a_listener_is_changed_in_file_and_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _file(tmp_path, '[listeners.ship]\ntopic = "orders_eu"\nconcurrency = 3\n')
    monkeypatch.setenv("ORBITMQ_LISTENER_SHIP_GROUP", "eu")
    monkeypatch.setenv("ORBITMQ_LISTENER_SHIP_CONCURRENCY", "7")
    monkeypatch.setenv("ORBITMQ_FILE", path)
    (ship,) = (one for one in shop.app.listeners() if one.name == "ship")
    assert (ship.topic, ship.group, ship.options["consume_threads"]) == ("orders_eu", "eu", 7)


def test_a_listener_may_hold_placeholders_and_its_name_server_falls_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = App("global:1", "shop")
    words = {"group": "g_${REGION}", "selector": "${TAGS:a || b}", "namesrv": "${OWN:}"}
    app.listener("orders_${REGION:eu}", **words)(shop.ship)  # type: ignore[arg-type]  # a table
    monkeypatch.delenv("REGION", raising=False)
    with pytest.raises(SettingError, match=r"REGION is not set.*\$\{REGION:otherwise\}"):
        app.listeners()
    monkeypatch.setenv("REGION", "us")
    (ship,) = app.listeners()
    assert (ship.topic, ship.group, ship.namesrv) == ("orders_us", "g_us", "")
    assert ship.selector == Selector("a || b")
    monkeypatch.setenv("TAGS", "paid")
    monkeypatch.setenv("OWN", "own:1")
    (ship,) = app.listeners()
    assert (ship.selector, ship.namesrv) == (Selector("paid"), "own:1")
    monkeypatch.setenv("ORBITMQ_LISTENER_SHIP_NAMESRV", "elsewhere:1")
    assert app.listeners()[0].namesrv == "elsewhere:1"


def test_a_listener_without_a_group_is_in_one_of_its_own() -> None:
    groups = {one.name: one.group for one in shop.app.listeners()}
    assert groups == {"ship": "shipping", "large": "shop_large", "refuse": "shop_refuse"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[app]\nnamserv = 1", "namserv"),
        ("[listener.ship]", "listener"),
        ("[listeners.ship]\nenable = true", "enable"),
        ("nonsense", "orbitmq.toml"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        load({}, SystemFiles(), _file(tmp_path, text))


def test_a_file_that_was_asked_for_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORBITMQ_FILE", "nowhere.toml")
    with pytest.raises(SettingError, match=r"there is no settings file nowhere\.toml"):
        shop.app.settings()


def test_two_listeners_of_one_name_are_refused() -> None:
    app = App()
    app.listener("a")(shop.ship)
    with pytest.raises(SettingError, match="two listeners are called ship"):
        app.listener("b")(shop.ship)


def test_two_listeners_in_one_group_are_refused() -> None:
    app = App()
    app.listener("a", group="g", name="one")(shop.ship)
    app.listener("b", group="g", name="other")(shop.ship)
    with pytest.raises(SettingError, match="one and other are both in group g"):
        app.listeners()


def test_a_listener_that_only_the_file_knows_is_named(tmp_path: Path) -> None:
    """A misspelt name left a listener on that was to be off."""
    app = App(file=_file(tmp_path, "[listeners.shp]\nenabled = false\n"))
    app.listener("orders")(shop.ship)
    with pytest.raises(SettingError, match="a listener shp, did you mean ship"):
        app.listeners()


def test_a_listener_of_many_messages_at_a_time_is_refused() -> None:
    """Its handler got a list where it takes a message, and every message became a dead letter."""
    with pytest.raises(SettingError, match="one message at a time"):
        App().listener("orders", consume_batch_size=10)(shop.ship)


def test_a_listener_that_broadcasts_in_order_is_refused() -> None:
    broadcasting = MessageModel.BROADCASTING
    with pytest.raises(SettingError, match="broadcasts cannot be orderly"):
        App().listener("orders", message_model=broadcasting, is_orderly=True)(shop.ship)
    App().listener("orders", message_model=broadcasting)(shop.ship)


def test_an_option_that_does_not_exist_is_refused_when_the_application_is_made() -> None:
    with pytest.raises(SettingError, match="no option namspace; did you mean namespace"):
        App(namspace="n")  # type: ignore[call-arg]  # the mistake that is tested


def test_tls_is_set_by_argument_or_file(tmp_path: Path) -> None:
    path = _file(tmp_path, '[app.tls]\ntrust_cert_path = "ca.pem"\n')
    assert App(file=path).settings().app.tls == TlsClientSettings(trust_cert_path="ca.pem")
    given = TlsClientSettings(checks_server=False)
    assert App(tls=given).settings().app.tls == given


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[app]\nnamesrv = 5", r"shop\.toml, \[app\]: .*namesrv"),
        ("[app]\nnamesv = 'a'", r"shop\.toml, \[app\]: .*did you mean namesrv"),
        ("[listeners.ship]\nconcurrency = 'x'", r"shop\.toml, \[listeners\.ship\]: .*concurrency"),
    ],
)
def test_settings_errors_named_no_file(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(text)
    with pytest.raises(SettingError, match=said):
        App("127.0.0.1:1", file=str(file)).settings()


def test_settings_errors_named_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORBITMQ_LISTENER_SHIP_CONCURRENCY", "many")
    with pytest.raises(SettingError, match="variable ORBITMQ_LISTENER_SHIP_CONCURRENCY: "):
        App("127.0.0.1:1").settings()
