"""Admin asks everything that servers answer; what it does not ask has a reason here."""

import re
from pathlib import Path

from orbitmq.broker import requests as broker
from orbitmq.namesrv import requests as namesrv

SOURCE = Path(__file__).parents[2] / "src/orbitmq"
BROKERS = "brokers and slaves ask it"
CLIENTS = "producers and consumers ask it, in another form"
WHOLE_LIST = "the whole list is asked for: brokers of 4.9 have nothing else"
MEMBERS = "members are asked for, and tell their subscriptions"
ONE_BY_ONE = "each is made by its own request, which brokers of 4.9 have as well"
NOT_ASKED = {
    "BROKER_HEARTBEAT": BROKERS,
    "GET_ALL_CONSUMER_OFFSET": BROKERS,
    "GET_ALL_DELAY_OFFSET": BROKERS,
    "GET_BROKER_MEMBER_GROUP": BROKERS,
    "QUERY_DATA_VERSION": BROKERS,
    "REGISTER_BROKER": BROKERS,
    "REGISTER_TOPIC_IN_NAMESRV": BROKERS,
    "UNREGISTER_BROKER": BROKERS,
    "LITE_PULL_MESSAGE": CLIENTS,
    "SEND_MESSAGE": CLIENTS,
    "GET_SUBSCRIPTIONGROUP_CONFIG": WHOLE_LIST,
    "GET_SYSTEM_TOPIC_LIST_FROM_BROKER": WHOLE_LIST,
    "GET_SYSTEM_TOPIC_LIST_FROM_NS": WHOLE_LIST,
    "QUERY_SUBSCRIPTION_BY_CONSUMER": MEMBERS,
    "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST": ONE_BY_ONE,
    "UPDATE_AND_CREATE_TOPIC_LIST": ONE_BY_ONE,
}


def _codes(*folders: str) -> set[str]:
    paths = [path for folder in folders for path in (SOURCE / folder).rglob("*.py")]
    text = "".join(path.read_text() for path in paths)
    return set(re.findall(r"RequestCode\.([A-Z]\w+)", text))


def test_everything_that_servers_answer_is_asked_by_a_client() -> None:
    answered = {row.code.name for row in broker.SERVED} | {row.code.name for row in namesrv.SERVED}
    asked = _codes("client")
    assert len(answered) > 60
    assert answered - asked == set(NOT_ASKED)
