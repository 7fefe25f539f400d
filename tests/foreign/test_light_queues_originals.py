"""Light queues in one folder, by turns written by OrbitMQ and by an original 4.9.7.

Both run with enableLmq and enableMultiDispatch. The judge is the other broker: it opens the folder,
has the same messages under the same numbers, goes on behind them, and knows the offsets.
"""

import pytest

from orbitmq.wire.properties import parse_properties
from orbitmq.wire.record import scan_records
from tests.behaviour.requests import pull_request, send_request
from tests.foreign.asking import await_claim
from tests.foreign.stores import SMALL, DataFolder, Opened, check_store, original_on, ours_on
from tests.wire_client import WireClient

pytestmark = [pytest.mark.nightly("exchange"), pytest.mark.foreign, pytest.mark.slow]

COUNT = 300
VERSION = "4.9.7"
NAMES = ("%LMQ%all", "%LMQ%0", "%LMQ%1", "%LMQ%2")
SIZES = {**SMALL, "enableLmq": "true", "enableMultiDispatch": "true"}
GROUP = "%LMQ%readers"


def numbers_of(count: int) -> dict[str, list[int]]:
    """Which messages each light queue has, of so many."""
    return {name: list(range(count))[_part(name)] for name in NAMES}


def _part(name: str) -> slice:
    return slice(None) if name == "%LMQ%all" else slice(int(name[-1]), None, 3)


def send_all(opened: Opened, first: int, count: int) -> None:
    """Send messages; all of them can be read then."""
    with WireClient(opened.broker) as client:
        for number in range(first, first + count):
            names = f"{NAMES[0]},{NAMES[1 + number % 3]}"
            properties = f"KEYS\x01k{number}\x02INNER_MULTI_DISPATCH\x01{names}\x02WAIT\x01true"
            request = send_request("T", b"%d" % number, e=number % 4, i=properties)
            answer = client.call(request)
            assert answer.code == 0, answer.remark
        await_all(client, first + count)


def await_all(client: WireClient, count: int) -> None:
    ends = {name: str(len(numbers)) for name, numbers in numbers_of(count).items()}
    await_claim(
        lambda: (
            {name: client.ask(30, topic=name, queueId=0).fields["offset"] for name in ends} == ends
        ),
        f"light queues end at {ends}",
        10,
    )


def read_all(opened: Opened, count: int) -> None:
    """Read every light queue: all messages are there, and each says its number."""
    with WireClient(opened.broker) as client:
        await_all(client, count)
        for name, numbers in numbers_of(count).items():
            found: list[int] = []
            while len(found) < len(numbers):
                answer = client.call(pull_request(name, GROUP, len(found)))
                assert answer.code == 0, answer.remark
                for record in scan_records(answer.body):
                    table = parse_properties(record.properties)
                    queues = table["INNER_MULTI_DISPATCH"].split(",")
                    own = table["INNER_MULTI_QUEUE_OFFSET"].split(",")[queues.index(name)]
                    assert int(own) == len(found)
                    found.append(int(record.body))
            assert found == numbers


def commit(opened: Opened, offset: int) -> None:
    with WireClient(opened.broker) as client:
        for group in (GROUP, "Usual"):
            place: dict[str, str | int] = {"consumerGroup": group, "topic": NAMES[0], "queueId": 0}
            assert client.ask(15, commitOffset=offset, **place).code == 0


def committed(opened: Opened) -> list[str]:
    with WireClient(opened.broker) as client:
        place: dict[str, str | int] = {"topic": NAMES[0], "queueId": 0}
        answers = [client.ask(14, consumerGroup=group, **place) for group in (GROUP, "Usual")]
    return [answer.fields["offset"] for answer in answers]


def test_light_queues_go_from_one_to_the_other_and_back(folder: DataFolder, namesrv: str) -> None:
    with original_on(VERSION, folder, namesrv) as opened:
        send_all(opened, 0, COUNT)
        commit(opened, 7)
    check_store(folder)
    with ours_on(folder) as opened:
        read_all(opened, COUNT)
        assert committed(opened) == ["7", "7"]
        send_all(opened, COUNT, COUNT)
        commit(opened, 9)
    check_store(folder)
    with original_on(VERSION, folder, namesrv) as opened:
        read_all(opened, 2 * COUNT)
        assert committed(opened) == ["9", "9"]
        send_all(opened, 2 * COUNT, COUNT)
    check_store(folder)
    with ours_on(folder) as opened:
        read_all(opened, 3 * COUNT)


def test_light_queues_are_whole_after_a_kill_of_either_broker(
    folder: DataFolder, namesrv: str
) -> None:
    with original_on(VERSION, folder, namesrv) as opened:
        send_all(opened, 0, COUNT)
        opened.kill()
    with ours_on(folder) as opened:
        read_all(opened, COUNT)
        send_all(opened, COUNT, COUNT)
        opened.kill()
    with original_on(VERSION, folder, namesrv) as opened:
        read_all(opened, 2 * COUNT)
        send_all(opened, 2 * COUNT, 1)
    check_store(folder)
    with ours_on(folder) as opened:
        read_all(opened, 2 * COUNT + 1)


def test_what_an_original_was_sent_back_stays_in_its_light_queues(
    folder: DataFolder, namesrv: str
) -> None:
    """It is there three times: as it came, while it waits, and when it is tried again."""
    with (
        original_on(VERSION, folder, namesrv) as opened,
        WireClient(opened.broker) as client,
    ):
        send_all(opened, 0, 1)
        (record,) = scan_records(client.call(pull_request(NAMES[0], "Usual", 0)).body)
        back = client.ask(
            36, group="Usual", offset=record.log_offset, delayLevel=1, originTopic="T"
        )
        assert back.code == 0
        await_claim(
            lambda: client.ask(30, topic=NAMES[0], queueId=0).fields["offset"] == "3",
            "the light queue has the message three times",
            20,
        )
    check_store(folder)
    for _ in range(2):
        with ours_on(folder) as opened, WireClient(opened.broker) as client:
            answer = client.call(pull_request(NAMES[0], GROUP, 0))
            found = [(one.topic, one.body) for one in scan_records(answer.body)]
            assert found == [("T", b"0"), ("SCHEDULE_TOPIC_XXXX", b"0"), ("%RETRY%Usual", b"0")]
        assert "aside" not in {path.name for path in folder.store.iterdir()}
        check_store(folder)
