"""Settings of an application: arguments, then the file, then the environment."""

from pathlib import Path

import pytest

from orbitmq.app import App
from orbitmq.app.settings import load
from orbitmq.errors import SettingError
from orbitmq.world.files import SystemFiles
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
