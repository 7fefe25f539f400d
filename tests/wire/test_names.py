"""Names: what is allowed, what is derived, what belongs to the system."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import LocalProtocolError
from orbitmq.wire import names

ALLOWED = string.ascii_letters + string.digits + "%|-_"
GOOD_NAMES = st.text(ALLOWED, min_size=1, max_size=60)


@given(st.text(ALLOWED, min_size=1, max_size=127))
def test_allowed_characters_pass(name: str) -> None:
    assert names.topic_fault(name) is None
    assert names.group_fault(name) is None
    names.check_topic(name)
    names.check_group(name)


@given(GOOD_NAMES, GOOD_NAMES, st.characters(exclude_characters=ALLOWED))
def test_any_other_character_is_named_with_its_position(
    before: str, after: str, character: str
) -> None:
    fault = names.topic_fault(before + character + after)
    assert fault is not None
    assert f"{character!r} at position {len(before)}" in fault
    assert "% | - _" in fault


def test_lengths_are_limited() -> None:
    assert names.topic_fault("t" * 127) is None
    assert names.group_fault("g" * 255) is None
    with pytest.raises(LocalProtocolError, match=r"topic t+… has 128 characters, limit 127"):
        names.check_topic("t" * 128)
    with pytest.raises(LocalProtocolError, match=r"group g+… has 256 characters, limit 255"):
        names.check_group("g" * 256)
    assert names.topic_fault("%RETRY%" + "g" * 240, names.RETRY_TOPIC_LENGTH_MAX) is None


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="the topic has no name"):
        names.check_topic("")
    with pytest.raises(LocalProtocolError, match="the group has no name"):
        names.check_group("")


@pytest.mark.parametrize("name", ["..", "a/b", "a\\b", "a\x00", "t\n"])
def test_no_name_leads_out_of_its_folder(name: str) -> None:
    assert names.topic_fault(name) is not None


def test_derived_names() -> None:
    assert names.retry_topic("g") == "%RETRY%g"
    assert names.dead_letter_topic("g") == "%DLQ%g"
    assert names.pop_retry_topic("g", "t") == "%RETRY%g_t"
    assert names.pop_retry_topic_v2("g", "t") == "%RETRY%g+t"
    assert names.reply_topic("DefaultCluster") == "DefaultCluster_REPLY_TOPIC"
    assert names.revive_topic("DefaultCluster") == "rmq_sys_REVIVE_LOG_DefaultCluster"


@given(GOOD_NAMES)
def test_the_group_of_a_retry_or_dead_letter_topic_is_found(group: str) -> None:
    assert names.retry_group(names.retry_topic(group)) == group
    assert names.retry_group(names.dead_letter_topic(group)) == group
    assert names.is_retry_topic(names.retry_topic(group))
    assert names.is_dead_letter_topic(names.dead_letter_topic(group))


def test_an_ordinary_topic_is_nobody_s_retry_topic() -> None:
    assert names.retry_group("TopicA") is None
    assert not names.is_retry_topic("TopicA")
    assert not names.is_dead_letter_topic("%RETRY%g")


# Expected values: what NamespaceUtil of 4.9.7 and 5.5.0 makes of these names in namespace "ns".
@pytest.mark.parametrize(
    ("name", "wrapped", "unwrapped", "namespace"),
    [
        ("T", "ns%T", "T", ""),
        ("%RETRY%G", "%RETRY%ns%G", "%RETRY%G", ""),
        ("%DLQ%G", "%DLQ%ns%G", "%DLQ%G", ""),
        ("TBW102", "TBW102", "TBW102", ""),
        ("rmq_sys_x", "rmq_sys_x", "rmq_sys_x", ""),
        ("CID_RMQ_SYS_X", "CID_RMQ_SYS_X", "CID_RMQ_SYS_X", ""),
        ("TOOLS_CONSUMER", "ns%TOOLS_CONSUMER", "TOOLS_CONSUMER", ""),
        ("ns%T", "ns%T", "T", "ns"),
        ("%RETRY%ns%G", "%RETRY%ns%G", "%RETRY%G", "ns"),
        ("%DLQ%ns%G", "%DLQ%ns%G", "%DLQ%G", "ns"),
        ("other%T", "ns%other%T", "other%T", "other"),
        ("ns%", "ns%", "", "ns"),
        ("%T", "ns%%T", "%T", ""),
        ("ns%a%b", "ns%a%b", "a%b", "ns"),
        ("", "", "", ""),
        ("%RETRY%", "%RETRY%ns%", "%RETRY%", ""),
        ("%RETRY%%RETRY%G", "%RETRY%ns%%RETRY%G", "%RETRY%%RETRY%G", ""),
        ("ns%ns%T", "ns%ns%T", "ns%T", "ns"),
        ("%RETRY%TBW102", "%RETRY%ns%TBW102", "%RETRY%TBW102", ""),
        ("ns%TBW102", "ns%TBW102", "TBW102", "ns"),
    ],
)
def test_namespaces_as_in_the_original(
    name: str, wrapped: str, unwrapped: str, namespace: str
) -> None:
    assert names.wrap_namespace("ns", name) == wrapped
    assert names.unwrap_namespace("ns", name) == unwrapped
    assert names.namespace_of(name) == namespace


@given(GOOD_NAMES)
def test_without_a_namespace_names_stay_as_they_are(name: str) -> None:
    assert names.wrap_namespace("", name) == name
    assert names.unwrap_namespace("", name) == name


def test_system_topics_are_known_by_name_and_by_prefix() -> None:
    assert names.is_system_topic("TBW102")
    assert names.is_system_topic("rmq_sys_wheel_timer")
    assert not names.is_system_topic("RMQ_SYS_something")
    assert not names.is_system_topic("TopicA")
    assert names.broker_topics("c", "b") == {"c", "b", "c_REPLY_TOPIC"}


def test_clients_may_not_send_to_six_topics_but_to_the_template() -> None:
    assert {name for name in names.SYSTEM_TOPICS if names.is_closed_to_clients(name)} == {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
    assert not names.is_closed_to_clients("TBW102")


def test_system_groups_are_known_by_name_and_by_prefix() -> None:
    assert names.is_system_group("TOOLS_CONSUMER")
    assert names.is_system_group("CID_RMQ_SYS_TRANS")
    assert not names.is_system_group("CID_mine")
