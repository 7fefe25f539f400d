"""Tables that are joined of ready rows are the bytes that the whole table is written as."""

import pytest

from orbitmq.wire.bodies_namesrv import (
    DataVersion,
    RegisterBrokerBody,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfig,
    TopicConfigTable,
    write_register_body,
)
from orbitmq.wire.fastjson import write_json
from orbitmq.wire.ready_tables import (
    TopicRows,
    write_group_table,
    write_row,
    write_topic_registration,
    write_topic_table,
)

VERSION = DataVersion(counter=7, timestamp_ms=5)
TOPICS = {
    "T": TopicConfig(topic_name="T", order=True),
    "%RETRY%é\u2028": TopicConfig(topic_name="%RETRY%é\u2028", topic_sys_flag=2),
    "With": TopicConfig(topic_name="With", attributes={"z": "1", "a": '"'}),
    "Without": TopicConfig(topic_name="Without", attributes={}),
}
GROUPS = {
    "G": SubscriptionGroupConfig(group_name="G"),
    "Of5": SubscriptionGroupConfig(
        group_name="Of5",
        consume_message_orderly=True,
        group_retry_policy={"type": "CUSTOMIZED", "next": [1, 2]},
        attributes={"b": "2", "a": "1"},
    ),
}


@pytest.mark.parametrize("names", [[], ["T"], list(TOPICS)])
def test_a_topic_table_and_its_registration_are_written_as_a_whole_one(names: list[str]) -> None:
    configs = {name: TOPICS[name] for name in names}
    rows = TopicRows(VERSION, configs, [write_row(*item) for item in configs.items()])
    whole = TopicConfigTable(data_version=VERSION, topic_config_table=configs)
    assert write_topic_table(rows) == write_json(whole, standard=False)
    registered = RegisterBrokerBody(topics=whole, filter_server_list=[])
    assert write_topic_registration(rows) == write_register_body(registered, compressed=False)


@pytest.mark.parametrize("forbidden", [{}, {"G": {"T": 4}}])
def test_a_group_table_is_written_as_a_whole_one(forbidden: dict[str, dict[str, int]]) -> None:
    rows = [write_row(*item) for item in GROUPS.items()]
    whole = SubscriptionGroupTable(
        data_version=VERSION,
        subscription_group_table=GROUPS,
        forbidden_table=forbidden or None,
    )
    assert write_group_table(VERSION, rows, forbidden) == write_json(whole, standard=False)
