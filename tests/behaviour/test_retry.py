"""Messages that a consumer could not deal with: given back, tried again, dead letters."""

from collections.abc import Callable, Iterator

import pytest

from orbitmq.wire.bodies_namesrv import TopicRoute
from orbitmq.wire.command import Command
from orbitmq.wire.fastjson import read_json
from orbitmq.wire.message_id import decode_offset_id
from orbitmq.wire.properties import parse_properties
from orbitmq.wire.record import Record, scan_records
from tests.behaviour.requests import heartbeat_body, pull_request, send_request
from tests.behaviour.test_delay import SCHEDULE_TOPIC, delivered, record_of
from tests.foreign.asking import await_claim, await_topic
from tests.foreign.judged import System, judged_original
from tests.wire_client import WireClient

Fresh = Callable[[str], str]


class Setting:
    """A topic with one message, and a group that consumes it."""

    def __init__(self, client: WireClient, topic: str, group: str) -> None:
        self.client = client
        self.topic = topic
        self.group = group
        answer = client.call(Command(34, body=heartbeat_body(group, group, topic)))
        assert answer.code == 0, answer.remark
        sent = "KEYS\x01k\x02TAGS\x01TagA\x02WAIT\x01true\x02x\x01y"
        self.answer = client.call(send_request(topic, b"body", i=sent, e=1, h=5))
        self.message = record_of(client, self.answer)

    def give_back(self, log_offset: int | None = None, /, **fields: str | int) -> Command:
        """Return a message back, the first one without an offset."""
        offset = self.message.log_offset if log_offset is None else log_offset
        given: dict[str, str | int] = {"offset": offset, "group": self.group, "delayLevel": 0}
        return self.client.ask(36, **(given | fields))

    def waiting(self, level: int) -> list[Record]:
        """The newest messages of this group that wait in a level."""
        asked = self.client.ask(30, topic=SCHEDULE_TOPIC, queueId=level - 1)
        end = int(asked.fields["offset"])
        answer = self.client.call(
            pull_request(SCHEDULE_TOPIC, self.group, max(0, end - 8), queueId=level - 1)
        )
        return [
            record
            for record in scan_records(answer.body)
            if f"%RETRY%{self.group}".encode() in record.properties
        ]

    def dead_letters(self) -> list[Record]:
        """What is in the group's dead-letter topic; there must be something."""
        return delivered(self.client, f"%DLQ%{self.group}", self.group)

    def kept(self) -> dict[str, str]:
        """The properties that every later form of the message has."""
        return {
            **parse_properties(self.message.properties),
            "RETRY_TOPIC": self.topic,
            "ORIGIN_MESSAGE_ID": self.answer.fields["msgId"],
            "WAIT": "false",
        }


@pytest.fixture
def setting(system: System, fresh_name: Fresh) -> Iterator[Setting]:
    with WireClient(system.broker) as client:
        yield Setting(client, fresh_name("T"), fresh_name("G"))


def eventually_waiting(setting: Setting, level: int) -> Record:
    """The newest message of the group that waits; the originals fill queues a moment later."""
    await_claim(lambda: bool(setting.waiting(level)), f"something waits in level {level}", 10)
    return setting.waiting(level)[-1]


def test_a_message_given_back_waits_in_level_3_and_then_comes_in_the_retry_topic(
    setting: Setting,
) -> None:
    assert setting.give_back().code == 0
    record = eventually_waiting(setting, 3)
    assert (record.body, record.flag, record.reconsume_times) == (b"body", 5, 1)
    assert record.born_host == setting.message.born_host
    assert record.born_ms == setting.message.born_ms
    assert parse_properties(record.properties) == {
        **setting.kept(),
        "DELAY": "3",
        "REAL_TOPIC": f"%RETRY%{setting.group}",
        "REAL_QID": "0",
    }


def test_a_second_try_waits_one_level_longer_and_keeps_its_first_id(setting: Setting) -> None:
    topic = f"%RETRY%{setting.group}"
    assert setting.give_back(delayLevel=1, originMsgId="X", originTopic=setting.topic).code == 0
    (first,) = delivered(setting.client, topic, setting.group)
    assert (first.topic, first.queue_id, first.reconsume_times) == (topic, 0, 1)
    assert setting.give_back(first.log_offset).code == 0
    second = eventually_waiting(setting, 4)
    assert second.reconsume_times == 2
    assert parse_properties(second.properties) == {
        **setting.kept(),
        "DELAY": "4",
        "REAL_TOPIC": topic,
        "REAL_QID": "0",
    }
    assert setting.give_back(first.log_offset, maxReconsumeTimes=1).code == 0
    (dead,) = setting.dead_letters()
    assert dead.reconsume_times == 2
    assert parse_properties(dead.properties)["ORIGIN_MESSAGE_ID"] == setting.answer.fields["msgId"]


def test_a_level_below_zero_makes_a_dead_letter_at_once(setting: Setting) -> None:
    assert setting.give_back(delayLevel=-1).code == 0
    (record,) = setting.dead_letters()
    assert (record.topic, record.queue_id) == (f"%DLQ%{setting.group}", 0)
    assert (record.body, record.reconsume_times) == (b"body", 1)
    assert parse_properties(record.properties) == {**setting.kept(), "DELAY": "0"}


def test_as_many_tries_as_the_client_allows_make_a_dead_letter(setting: Setting) -> None:
    assert setting.give_back(maxReconsumeTimes=0).code == 0
    (record,) = setting.dead_letters()
    assert record.reconsume_times == 1


def test_the_dead_letter_topic_has_one_queue_that_can_be_read_and_written(
    system: System, setting: Setting
) -> None:
    setting.give_back(delayLevel=-1)
    topic = f"%DLQ%{setting.group}"
    await_topic(system.namesrv, topic, "broker-a")
    with WireClient(system.namesrv) as namesrv:
        answer = namesrv.ask(105, topic=topic)
    (queues,) = read_json(answer.body, TopicRoute).queue_datas
    assert (queues.read_queue_count, queues.write_queue_count, queues.perm) == (1, 1, 6)


def test_the_highest_level_is_used_for_what_lies_above_it(setting: Setting) -> None:
    assert setting.give_back(delayLevel=99).code == 0
    assert parse_properties(eventually_waiting(setting, 18).properties)["DELAY"] == "18"


@pytest.mark.parametrize("log_offset", [-1, 10**15])
def test_what_is_not_there_cannot_be_given_back(setting: Setting, log_offset: int) -> None:
    answer = setting.give_back(log_offset)
    assert answer.code == 1
    assert (answer.remark or "").startswith(f"look message by offset failed, {log_offset}")


def test_the_middle_of_a_message_cannot_be_given_back(setting: Setting) -> None:
    assert setting.give_back(setting.message.log_offset + 1).code == 1


def test_a_group_that_was_never_seen_is_made_for_what_it_gives_back(
    setting: Setting, fresh_name: Fresh
) -> None:
    setting.group = fresh_name("G")
    assert setting.give_back(delayLevel=-1).code == 0
    assert len(setting.dead_letters()) == 1


def test_a_group_whose_name_cannot_be_one_is_unknown(setting: Setting) -> None:
    """The originals store the message in a topic with this name, which nobody can ask for."""
    expected = 26 if judged_original() is None else 0
    assert setting.give_back(group="no group!").code == expected


def test_retries_beyond_the_table_wait_in_its_last_level(setting: Setting) -> None:
    request = send_request(f"%RETRY%{setting.group}", b"often", i="", j=20, l=99)
    record = record_of(setting.client, setting.client.call(request))
    assert (record.topic, record.reconsume_times) == (f"%RETRY%{setting.group}", 20)
    assert setting.give_back(record.log_offset, maxReconsumeTimes=99).code == 0
    assert eventually_waiting(setting, 18).reconsume_times == 21


def test_one_dead_letter_topic_made_when_needed_has_the_letters_of_all_topics(
    system: System, setting: Setting, fresh_name: Fresh
) -> None:
    topic = f"%DLQ%{setting.group}"
    with WireClient(system.namesrv) as namesrv:
        assert namesrv.ask(105, topic=topic).code == 17
    assert topic.encode() not in setting.client.ask(21).body
    other = record_of(
        setting.client, setting.client.call(send_request(fresh_name("T"), b"of another topic"))
    )
    assert setting.give_back(delayLevel=-1).code == 0
    assert setting.give_back(other.log_offset, delayLevel=-1).code == 0
    letters = delivered(setting.client, topic, setting.group, count=2)
    assert [letter.body for letter in letters] == [b"body", b"of another topic"]
    assert [parse_properties(letter.properties)["RETRY_TOPIC"] for letter in letters] == [
        setting.topic,
        other.topic,
    ]


# --- Sends to a retry topic: what a client does when giving back has failed ---


@pytest.mark.parametrize(
    ("changes", "topic"),
    [
        ({"j": 15}, "%RETRY%"),
        ({"j": 16}, "%DLQ%"),
        ({"j": 3, "l": 4}, "%RETRY%"),
        ({"j": 3, "l": 3}, "%DLQ%"),
        ({"j": 20, "l": -1}, "%DLQ%"),
    ],
)
def test_a_send_to_a_retry_topic_becomes_a_dead_letter_after_its_last_try(
    setting: Setting, changes: dict[str, int], topic: str
) -> None:
    sent = "DELAY\x0118\x02RETRY_TOPIC\x01X\x02TAGS\x01t"
    request = send_request(f"%RETRY%{setting.group}", b"again", i=sent, **changes)
    record = record_of(setting.client, setting.client.call(request))
    assert (record.topic, record.queue_id) == (SCHEDULE_TOPIC, 17), "its delay counts all the same"
    assert record.reconsume_times == changes["j"]
    properties = parse_properties(record.properties)
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == (f"{topic}{setting.group}", "0")


def test_a_client_older_than_3_4_9_does_not_say_how_often(setting: Setting) -> None:
    request = send_request(f"%RETRY%{setting.group}", b"again", i="", j=3, l=3)
    request.version = 100
    answer = setting.client.call(request)
    assert record_of(setting.client, answer).topic == f"%RETRY%{setting.group}"


def test_without_a_delay_a_dead_letter_is_stored_at_once(setting: Setting) -> None:
    request = send_request(f"%RETRY%{setting.group}", b"again", i="", j=16)
    answer = setting.client.call(request)
    assert answer.fields["queueId"] == "0"
    assert record_of(setting.client, answer).topic == f"%DLQ%{setting.group}"


def test_the_offset_id_of_a_retry_leads_to_its_own_place(setting: Setting) -> None:
    request = send_request(f"%RETRY%{setting.group}", b"again", i="", j=1)
    answer = setting.client.call(request)
    record = record_of(setting.client, answer)
    assert record.log_offset == decode_offset_id(answer.fields["msgId"]).log_offset
    assert record.log_offset > setting.message.log_offset
