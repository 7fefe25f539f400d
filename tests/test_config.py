"""Settings: Java's properties text, typed values, unknown keys, and what is shown again."""

from typing import Annotated, Literal

import pytest
from hypothesis import given, strategies

from orbitmq.config import (
    BrokerSettings,
    NamesrvSettings,
    NoEffect,
    Settings,
    change_settings,
    edit_properties,
    fact,
    facts_of,
    file_text,
    load_settings,
    parse_properties,
    refusals,
    render_properties,
    write_properties,
)
from orbitmq.config.properties import KEY_COUNT_MAX, TEXT_SIZE_MAX
from orbitmq.config.settings import HIDDEN
from orbitmq.ensure import BrokenInvariant
from orbitmq.errors import SettingError

# What getNamesrvConfig of 4.9.7 and of 5.5.0 printed.
KEYS_OF_4_9_7 = """
    bindAddress clusterTest configStorePath kvConfigPath listenPort orderMessageEnable
    productEnvName rocketmqHome serverAsyncSemaphoreValue serverCallbackExecutorThreads
    serverChannelMaxIdleTimeSeconds serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable
    serverSelectorThreads serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize
    serverWorkerThreads useEpollNativeSelector writeBufferHighWaterMark writeBufferLowWaterMark
"""
KEYS_OF_5_5_0 = """
    bindAddress clientRequestThreadPoolNums clientRequestThreadPoolQueueCapacity clusterTest
    configBlackList configStorePath defaultThreadPoolNums defaultThreadPoolQueueCapacity
    deleteTopicWithBrokerRegistration enableAllTopicList enableControllerInNamesrv
    enableShutdownGracefully enableTopicList kvConfigPath listenPort needWaitForService
    notifyMinBrokerIdChanged orderMessageEnable productEnvName returnOrderTopicConfigToBroker
    rocketmqHome scanNotActiveBrokerInterval serverAsyncSemaphoreValue
    serverCallbackExecutorThreads serverChannelMaxIdleTimeSeconds serverNettyWorkerGroupEnable
    serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable serverSelectorThreads
    serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads
    shutdownWaitTimeSeconds supportActingMaster unRegisterBrokerQueueCapacity
    useEpollNativeSelector waitSecondsForService writeBufferHighWaterMark writeBufferLowWaterMark
"""


# --- properties text ---


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a = 1", {"a": "1"}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a\t:\f 1", {"a": "1"}),
        ("  a=1  ", {"a": "1  "}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=1", {"": "1"}),
        ("a==1", {"a": "=1"}),
        ("a=1=2:3", {"a": "1=2:3"}),
        ("a=1\nb=2\r\nc=3\rd=4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("# a=1\n ! b=2\n\n  \t\nc=3", {"c": "3"}),
        ("a=1\\\n   2\\\n\t3", {"a": "123"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        ("# a comment does not go on \\\nb=2", {"b": "2"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\\\\\nb", {"a": "1\\b"}),
        ("a=1\\", {"a": "1"}),
        ("a=\\\n", {"a": ""}),
        ("a\\=b=1", {"a=b": "1"}),
        ("a\\ b=1", {"a b": "1"}),
        ("a\\:b:1", {"a:b": "1"}),
        ("a=\\t\\n\\r\\f", {"a": "\t\n\r\f"}),
        ('a=\\q\\\\\\"', {"a": 'q\\"'}),
        ("a=\\u00e9\\u4e2d", {"a": "é中"}),
        ("a=\\uD83D\\uDE00", {"a": "😀"}),
        ("a=\\\\u0041", {"a": "\\u0041"}),
        ("a=1\na=2", {"a": "2"}),
        ("name=zażółć", {"name": "zażółć"}),
        ("\ufeffa=1", {"\ufeffa": "1"}),
        ("", {}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_bytes_are_utf_8_with_or_without_a_mark() -> None:
    assert parse_properties("ü=1".encode()) == {"ü": "1"}
    assert parse_properties(b"\xef\xbb\xbfa=1") == {"a": "1"}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"a=1\nb=\xff", "line 2 of the settings is not UTF-8"),
        ("a=1\n\nb=\\u12", "line 3 has .u without four hexadecimal digits"),
        ("a=\\uD83D", "half of a surrogate pair"),
        ("x" * (TEXT_SIZE_MAX + 1), "the limit is 1048576"),
        ("\n".join(f"k{number}=" for number in range(KEY_COUNT_MAX + 1)), "more than 2000 keys"),
    ],
)
def test_text_that_cannot_be_read_is_refused_with_its_place(data: str | bytes, reason: str) -> None:
    with pytest.raises(SettingError, match=reason):
        parse_properties(data)


def test_a_file_that_is_not_utf_8_is_latin_1_and_is_written_back_as_it_was() -> None:
    data = "# 名前\nname=caf".encode("gbk") + b"\xe9\nport=1\n"
    text, encoding = file_text(data)
    assert parse_properties(text) == {"name": "café", "port": "1"}
    changed = edit_properties(text, {"port": "2"}).encode(encoding)
    assert changed == data.replace(b"port=1", b"port=2")
    assert file_text("name=café".encode()) == ("name=café", "utf-8")
    with pytest.raises(SettingError, match="the limit is 1048576"):
        file_text(b"x" * (TEXT_SIZE_MAX + 1))


texts = strategies.text(strategies.characters(codec="utf-8"), max_size=30)


@given(properties=strategies.dictionaries(texts, texts, max_size=10))
def test_what_is_written_is_read_back(properties: dict[str, str]) -> None:
    written = write_properties(properties)
    assert written.isascii()
    assert parse_properties(written) == properties


@given(text=strategies.text(alphabet="ab=: \\\n\r\t\fu0#!1é", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        properties = parse_properties(text)
    except SettingError:
        return
    assert parse_properties(write_properties(properties)) == properties


def test_ordinary_values_are_written_plainly() -> None:
    table = {"listenPort": "9876", "path": "/a b/c:d", "list": "a;b=c"}
    assert write_properties(table) == "listenPort=9876\npath=/a b/c:d\nlist=a;b=c\n"


# --- loading ---


class Sample(Settings, frozen=True, kw_only=True):
    """Settings of each kind."""

    without_effect = {"oldKey": NoEffect("7", "there is nothing to do")}  # noqa: RUF012 - as the base declares it

    listen_port: Annotated[int, fact("A port.", unit="tcp", least=1, most=99)] = 10
    is_fast: Annotated[bool, fact("Speed.", changeable=True)] = False
    mode: Annotated[Literal["slow", "fast"], fact("A mode.", changeable=True)] = "slow"
    name: Annotated[str, fact("A name.")] = "x"
    pass_word: Annotated[str, fact("A secret.", secret=True)] = ""


def test_values_are_typed_and_overrides_win() -> None:
    settings, notes = load_settings(
        Sample,
        {"listenPort": " 12 ", "isFast": "TRUE", "mode": "Fast", "name": " kept "},
        {"listenPort": "+13"},
    )
    assert (settings.listen_port, settings.is_fast, settings.mode) == (13, True, "fast")
    assert settings.name == " kept "
    assert notes == []


def test_an_unknown_key_is_named_with_the_nearest_and_does_not_stop() -> None:
    settings, notes = load_settings(Sample, {"listenprt": "1", "zzzzzz": "2"})
    assert settings.listen_port == 10
    assert notes == [
        "unknown setting listenprt; did you mean listenPort?",
        "unknown setting zzzzzz",
    ]
    assert settings.kept == {"listenprt": "1", "zzzzzz": "2"}


def test_strict_refuses_all_unknown_keys_at_once() -> None:
    with pytest.raises(SettingError) as failure:
        load_settings(Sample, {"listenprt": "1"}, {"zzzzzz": "2"}, strict=True)
    assert "listenPort" in str(failure.value)
    assert "zzzzzz" in str(failure.value)


def test_a_key_without_effect_is_accepted_with_its_reason_also_when_strict() -> None:
    settings, notes = load_settings(Sample, {"oldKey": "9"}, strict=True)
    assert notes == ["oldKey is accepted without effect: there is nothing to do"]
    assert "oldKey=9\n" in render_properties(settings)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("listenPort", "0", "a whole number from 1 to 99 (tcp)"),
        ("listenPort", "100", "a whole number from 1 to 99 (tcp)"),
        ("listenPort", "1.5", "a whole number"),
        ("listenPort", "", "a whole number"),
        ("listenPort", "9" * 5_000, "a whole number"),
        ("listenPort", "1_0", "a whole number"),
        ("listenPort", "１", "a whole number"),  # noqa: RUF001 - a digit that int() would take
        ("isFast", "yes", "true or false"),
        ("mode", "medium", "one of slow, fast"),
        ("name", "n" * 5_000, "a text of at most 4096 characters"),
    ],
)
def test_a_wrong_value_is_refused_with_key_value_and_expected_form(
    key: str, value: str, expected: str
) -> None:
    with pytest.raises(SettingError) as failure:
        load_settings(Sample, {}, {key: value})
    text = str(failure.value)
    assert text.startswith(f"{key}={value[:80]}")
    assert expected in text
    assert len(text) < 300


def test_all_wrong_values_are_named_together() -> None:
    with pytest.raises(SettingError, match=r"listenPort=0 .*; isFast=2 "):
        load_settings(Sample, {}, {"listenPort": "0", "isFast": "2"})


@pytest.mark.parametrize(("value", "used"), [("0", 1), ("-7", 1), ("100", 99), (" 100 ", 99)])
def test_a_file_s_number_outside_its_range_becomes_the_nearest_with_a_note(
    value: str, used: int
) -> None:
    """Symptom: a file that the original runs with (it clamps) stopped the start."""
    settings, notes = load_settings(Sample, {"listenPort": value})
    assert settings.listen_port == used
    expected = "a whole number from 1 to 99 (tcp)"
    assert notes == [f"listenPort={value.strip()} is not {expected}; {used} is used"]
    with pytest.raises(SettingError, match="listenPort="):
        load_settings(Sample, {"listenPort": value}, strict=True)
    settings, notes = load_settings(Sample, {"listenPort": value}, {"listenPort": "5"})
    assert (settings.listen_port, notes) == (5, [])


@pytest.mark.parametrize("value", ["1.5", "", "x", "9" * 20])
def test_a_file_s_text_that_is_no_number_is_refused(value: str) -> None:
    with pytest.raises(SettingError, match="listenPort="):
        load_settings(Sample, {"listenPort": value})


def test_a_number_that_names_something_is_never_replaced_by_its_neighbour() -> None:
    for key in ("listenPort", "haListenPort"):
        with pytest.raises(SettingError, match=f"{key}=70000 cannot be used"):
            load_settings(BrokerSettings, {key: "70000"})
    with pytest.raises(SettingError, match="brokerId=-1 cannot be used"):
        load_settings(BrokerSettings, {"brokerId": "-1"})
    with pytest.raises(SettingError, match="listenPort=70000 cannot be used"):
        load_settings(NamesrvSettings, {"listenPort": "70000"})


def test_hostile_keys_and_values_cannot_break_a_log_line() -> None:
    _, notes = load_settings(Sample, {"a\nb\x1b[31m" + "k" * 500: "1"})
    assert notes[0].isprintable()
    assert len(notes[0]) < 200


def test_a_secret_is_never_shown() -> None:
    settings, _ = load_settings(Sample, {"passWord": "hunter2", "otherSecretKey": "hunter2"})
    shown = render_properties(settings)
    assert "hunter2" not in shown
    assert f"passWord={HIDDEN}\n" in shown
    with pytest.raises(SettingError) as failure:
        load_settings(Sample, {"passWord": "hunter2" * 1_000})
    assert "hunter2" not in str(failure.value)


# --- changing ---


def test_only_settings_marked_changeable_may_be_changed() -> None:
    texts = refusals(Sample, ["isFast", "listenPort", "oldKey", "isFst"])
    assert [text.split()[0] for text in texts] == ["unknown", "listenPort", "oldKey"]
    assert refusals(Sample, ["isFast", "mode"]) == []


def test_changed_settings_are_new_values() -> None:
    before = Sample()
    after = change_settings(before, {"isFast": "true", "mode": "slow"})
    assert (before.is_fast, after.is_fast) == (False, True)
    assert after.mode == before.mode


# --- our own mistakes ---


def test_a_setting_without_a_fact_or_a_range_is_a_bug() -> None:
    class NoFact(Settings, frozen=True, kw_only=True):
        port: int = 1

    class NoRange(Settings, frozen=True, kw_only=True):
        port: Annotated[int, fact("A port.")] = 1

    for settings_type in (NoFact, NoRange):
        with pytest.raises(BrokenInvariant):
            facts_of(settings_type)
    with pytest.raises(BrokenInvariant):
        fact("Sentence.", chngeable=True)


# --- the name server's table ---


@pytest.mark.parametrize("key", sorted({*KEYS_OF_4_9_7.split(), *KEYS_OF_5_5_0.split()}))
def test_every_key_of_the_originals_is_obeyed_or_accepted_with_a_reason(key: str) -> None:
    obeyed = {one.key for one in facts_of(NamesrvSettings)}
    assert (key in obeyed) != (key in NamesrvSettings.without_effect)


def test_the_name_server_has_the_original_s_defaults() -> None:
    settings, notes = load_settings(NamesrvSettings, {})
    assert notes == []
    assert settings.listen_port == 9876
    assert settings.server_channel_max_idle_time_seconds == 120
    assert settings.scan_not_active_broker_interval == 10_000
    assert not settings.order_message_enable
    shown = parse_properties(render_properties(settings))
    assert shown["serverWorkerThreads"] == "8"
    assert shown["serverSelectorThreads"] == "3"
    assert shown["serverOnewaySemaphoreValue"] == "256"
    assert shown["serverAsyncSemaphoreValue"] == "64"
    assert shown["productEnvName"] == "center"


def test_what_the_name_server_shows_loads_again() -> None:
    settings, _ = load_settings(NamesrvSettings, {"orderMessageEnable": "true", "myKey": "é\\"})
    again, _ = load_settings(NamesrvSettings, parse_properties(render_properties(settings)))
    assert render_properties(again) == render_properties(settings)
