"""Key-value settings as values: the file's form, its limits, and what a damaged file leads to."""

from pathlib import Path

import pytest
from hypothesis import given, strategies

from orbitmq.errors import RequestFailed, StoreError
from orbitmq.namesrv import kv
from orbitmq.namesrv.kv import KvSettings, load_kv
from orbitmq.world.files import SystemFiles

FILES = SystemFiles()
texts = strategies.text(strategies.characters(codec="utf-8"), max_size=20)
tables = strategies.dictionaries(texts, strategies.dictionaries(texts, texts, max_size=4))


def test_the_original_s_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_bytes(b'{"configTable":{"ORDER_TOPIC_CONFIG":{"T1":"broker-a:4"},"n":{}}}')
    settings, complaint = load_kv(FILES, path)
    assert complaint is None
    assert settings.get("ORDER_TOPIC_CONFIG", "T1") == "broker-a:4"
    assert settings.namespace("n") == {}
    assert settings.namespace("x") is None


def test_no_file_is_an_empty_table_and_an_empty_file_is_said(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    assert load_kv(FILES, path)[1] is None
    path.write_bytes(b"\n")
    settings, complaint = load_kv(FILES, path)
    assert settings.namespace("n") is None
    assert complaint is not None
    assert "is empty" in complaint


@pytest.mark.parametrize(
    "damage", [b"{", b'{"configTable":{"n":{"k":"v"}}', b"\x00" * 100, b'{"configTable":[]}', b"[]"]
)
def test_a_damaged_file_is_kept_aside_and_does_not_stop_the_start(
    tmp_path: Path, damage: bytes
) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_bytes(damage)
    settings, complaint = load_kv(FILES, path)
    assert complaint is not None
    assert "kvConfig.json.damaged-1" in complaint
    assert path.read_bytes() == damage
    FILES.replace(path, settings.put("n", "k", "v").contents())
    assert (tmp_path / "kvConfig.json.damaged-1").read_bytes() == damage


def test_a_second_damage_does_not_overwrite_the_first(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    for damage in (b"{1", b"{2", b"{1"):
        path.write_bytes(damage)
        load_kv(FILES, path)
    aside = {one.name: one.read_bytes() for one in tmp_path.glob("*.damaged-*")}
    assert aside == {"kvConfig.json.damaged-1": b"{1", "kvConfig.json.damaged-2": b"{2"}


def test_damaged_copies_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv, "DAMAGED_COPIES_MAX", 1)
    path = tmp_path / "kvConfig.json"
    path.write_bytes(b"{1")
    load_kv(FILES, path)
    path.write_bytes(b"{2")
    with pytest.raises(StoreError, match="move them away"):
        load_kv(FILES, path)


@given(table=tables)
def test_what_is_saved_is_what_is_loaded(table: kv.Table, tmp_path_factory: object) -> None:
    assert isinstance(tmp_path_factory, pytest.TempPathFactory)
    path = tmp_path_factory.mktemp("kv") / "kvConfig.json"
    settings = KvSettings({**table, "n": {"k": "x"}})
    save = settings.put("n", "k", "v")
    FILES.replace(path, save.contents())
    loaded, complaint = load_kv(FILES, path)
    assert complaint is None
    save.commit()
    for namespace in {*table, "n"}:
        assert loaded.namespace(namespace) == settings.namespace(namespace)


def test_a_change_is_not_there_before_it_is_committed() -> None:
    settings = KvSettings()
    save = settings.put("n", "k", "v")
    assert settings.get("n", "k") is None
    save.commit()
    assert settings.get("n", "k") == "v"
    removal = settings.delete("n", "k")
    assert removal is not None
    assert settings.get("n", "k") == "v"
    removal.commit()
    assert settings.namespace("n") == {}
    assert settings.delete("n", "k") is None


@pytest.mark.parametrize(
    ("namespace", "key", "value", "reason"),
    [
        ("", "k", "v", "namespace is empty"),
        ("n", "", "v", "key is empty"),
        ("n" * 256, "k", "v", "256 characters, allowed 1 to 255"),
        ("n", "a\nb", "v", "cannot be printed"),
        ("n", "k", "v" * 65_537, "65537 characters, allowed 0 to 65536"),
    ],
)
def test_names_and_values_have_limits(namespace: str, key: str, value: str, reason: str) -> None:
    with pytest.raises(RequestFailed, match=reason):
        KvSettings().put(namespace, key, value)


def test_the_table_has_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv, "NAMESPACES_MAX", 2)
    monkeypatch.setattr(kv, "KEYS_MAX", 3)
    monkeypatch.setattr(kv, "TABLE_CHARS_MAX", 40)
    settings = KvSettings({"a": {"1": "x", "2": "x"}, "b": {}})
    with pytest.raises(RequestFailed, match="2 namespaces are there, the limit is 2"):
        settings.put("c", "1", "x")
    settings.put("b", "3", "x").commit()
    with pytest.raises(RequestFailed, match="3 keys are there, the limit is 3"):
        settings.put("b", "4", "x")
    settings.put("b", "3", "y").commit()
    with pytest.raises(RequestFailed, match="would pass 40 characters"):
        settings.put("b", "3", "y" * 40)


def test_a_file_that_is_too_large_already_can_still_be_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kv, "TABLE_CHARS_MAX", 5)
    settings = KvSettings({"a": {"k": "long value"}})
    settings.put("a", "k", "shorter").commit()
    assert settings.get("a", "k") == "shorter"


def test_the_summary_shows_no_values() -> None:
    assert KvSettings().summary() == ""
    text = KvSettings({f"n{number}": {"k": "secret"} for number in range(12)}).summary()
    assert text.startswith("key-value settings: n0 1, n1 1")
    assert text.endswith("and 2 more namespaces")
    assert "secret" not in text
