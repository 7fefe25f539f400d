"""Extra units of queue entries and filters' bits, by turns written by OrbitMQ and by an original.

Both run with enableConsumeQueueExt and enableCalcFilterBitMap. The judge is the other broker: it
opens the folder and gives consumers that filter by SQL92 the same messages. What is compared byte
by byte: where the bits of a group lie, and the units that an original wrote.
"""

import json
import struct
from typing import NamedTuple

import pytest

from orbitmq.store.bloom import Bloom
from orbitmq.wire.record import decode_record
from tests.behaviour.requests import pull_request, send_request
from tests.foreign.asking import await_claim
from tests.foreign.stores import SMALL, DataFolder, check_store, original_on, ours_on
from tests.wire_client import WireClient

pytestmark = [pytest.mark.nightly("exchange"), pytest.mark.foreign, pytest.mark.slow]

COUNT = 1_500
"""More units than a file of the smallest size holds."""
HEARTBEAT = 34
TOPIC = "Extended"
FILTERS = {
    "group-small": "n < 50",
    "group-even": "kind = 'even' AND n IS NOT NULL",
    "group-none": "n > 1000000",
    "Gruppe_7-%": "n BETWEEN 700 AND 720 OR kind = 'new'",
}
SIZES = {
    **SMALL,
    "mappedFileSizeConsumeQueueExt": "32768",
    "enableConsumeQueueExt": "true",
    "enableCalcFilterBitMap": "true",
    "enablePropertyFilter": "true",
    "autoCreateSubscriptionGroup": "true",
}
ENTRY = struct.Struct(">qiq")
UNIT = struct.Struct(">hqqh")


class Entry(NamedTuple):
    """A queue entry as it stands in its file."""

    log_offset: int
    size: int
    code: int


# --- Talking to either broker ---


def register_filters(client: WireClient) -> None:
    """Say hello as one consumer of each group; from now on the broker knows their filters."""
    for group, expression in FILTERS.items():
        subscription = {
            "topic": TOPIC,
            "subString": expression,
            "subVersion": 1,
            "expressionType": "SQL92",
            "classFilterMode": False,
            "codeSet": [],
            "tagsSet": [],
        }
        consumer = {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [subscription],
            "unitMode": False,
        }
        body = {"clientID": f"c@{group}", "consumerDataSet": [consumer], "producerDataSet": []}
        answer = client.ask(HEARTBEAT, json.dumps(body).encode())
        assert answer.code == 0, answer.remark


def send_numbers(client: WireClient, first: int, count: int, kind: str = "") -> None:
    for number in range(first, first + count):
        word = kind or ("even" if number % 2 == 0 else "odd")
        properties = f"n\x01{number}\x02kind\x01{word}\x02TAGS\x01t{number % 3}\x02"
        answer = client.call(send_request(TOPIC, b"%d" % number, i=properties, d=1))
        assert answer.code == 0, answer.remark


def filtered(client: WireClient, group: str) -> list[int]:
    """Everything that a group's registered filter lets pass."""
    found: list[int] = []
    offset = 0
    for _ in range(10_000):
        request = pull_request(
            TOPIC, group, offset, sysFlag=0, subVersion=1, expressionType="SQL92"
        )
        request.fields.pop("subscription", None)
        answer = client.call(request)
        assert answer.code in (0, 19, 20), (answer.code, answer.remark)
        data = answer.body if answer.code == 0 else b""
        while data:
            record, size = decode_record(data)
            found.append(int(record.body))
            data = data[size:]
        if answer.code == 19:
            return found
        offset = int(answer.fields["nextBeginOffset"])
    raise AssertionError(f"group {group} pulls and pulls")


def assert_filtered(client: WireClient, numbers: int, news: int) -> None:
    """Each group gets exactly what its expression says of all that was sent."""
    behind = list(range(numbers, numbers + news))
    assert filtered(client, "group-small") == list(range(50))
    assert filtered(client, "group-even") == list(range(0, numbers, 2))
    assert filtered(client, "group-none") == []
    assert filtered(client, "Gruppe_7-%") == [*range(700, 721), *behind]


# --- Looking into the files ---


def entries_of(folder: DataFolder, topic: str = TOPIC) -> list[Entry]:
    found = []
    for path in sorted((folder.store / "consumequeue" / topic / "0").glob("*")):
        entries = (Entry(*one) for one in ENTRY.iter_unpack(path.read_bytes()))
        found += [entry for entry in entries if entry.size]
    return found


def units_of(folder: DataFolder, topic: str = TOPIC) -> list[bytes | None]:
    """The unit of each entry, None for an entry without."""
    files = {
        int(path.name): path.read_bytes()
        for path in (folder.store / "consumequeue_ext" / topic / "0").iterdir()
    }
    units: list[bytes | None] = []
    for entry in entries_of(folder, topic):
        place = entry.code + 2**63
        if entry.code > -(2**31) - 1:
            units.append(None)
            continue
        start = max(start for start in files if start <= place)
        piece = files[start][place - start :]
        units.append(piece[: UNIT.unpack_from(piece)[0]])
    return units


def saved_bits(folder: DataFolder) -> dict[str, tuple[int, ...]]:
    saved = json.loads((folder.store / "config" / "consumerFilter.json").read_text())
    filters = saved["filterDataByTopic"][TOPIC]["groupFilterData"]
    return {group: tuple(one["bloomFilterData"]["bitPos"]) for group, one in filters.items()}


def assert_bits(folder: DataFolder, first: int, numbers: range, kind: str = "") -> None:
    """The units of messages, from the entry `first` on, say exactly which filters they pass."""
    bloom = Bloom()
    units = units_of(folder)[first:]
    assert len(units) >= len(numbers)
    for unit, number in zip(units, numbers, strict=False):
        assert unit is not None
        word = kind or ("even" if number % 2 == 0 else "odd")
        passed = {
            "group-small": number < 50,
            "group-even": word == "even",
            "Gruppe_7-%": 700 <= number <= 720 or word == "new",
        }
        groups = [group for group, is_passed in passed.items() if is_passed]
        assert unit[UNIT.size :] == bloom.bit_map(bloom.positions(one, TOPIC) for one in groups)


def fill(client: WireClient) -> None:
    """Send the first message, which makes the topic, say hello, send the rest."""
    send_numbers(client, 0, 1)
    register_filters(client)
    send_numbers(client, 1, COUNT - 1)


def test_an_originals_units_and_bits_are_read_and_gone_on_with(
    folder: DataFolder, namesrv: str
) -> None:
    with original_on("4.9.7", folder, namesrv) as original, WireClient(original.broker) as client:
        fill(client)
        assert_filtered(client, COUNT, 0)
    bloom = Bloom()
    assert saved_bits(folder) == {group: bloom.positions(group, TOPIC) for group in FILTERS}
    assert_bits(folder, 1, range(1, COUNT))
    with ours_on(folder) as ours, WireClient(ours.broker) as client:
        register_filters(client)
        assert_filtered(client, COUNT, 0)
        send_numbers(client, COUNT, 40, "new")
        assert_filtered(client, COUNT, 40)
    check_store(folder)
    assert saved_bits(folder) == {group: bloom.positions(group, TOPIC) for group in FILTERS}
    assert_bits(folder, 1, range(1, COUNT))
    assert_bits(folder, COUNT, range(COUNT, COUNT + 40), "new")
    with original_on("4.9.7", folder, namesrv) as original, WireClient(original.broker) as client:
        register_filters(client)
        assert_filtered(client, COUNT, 40)
        send_numbers(client, COUNT + 40, 10, "new")
        assert_filtered(client, COUNT, 50)
    check_store(folder)
    assert_bits(folder, COUNT, range(COUNT, COUNT + 50), "new")


def test_an_original_goes_on_with_units_of_ours_after_a_kill_and_ours_after_its_kill(
    folder: DataFolder, namesrv: str
) -> None:
    with ours_on(folder) as ours:
        with WireClient(ours.broker) as client:
            fill(client)
            assert_filtered(client, COUNT, 0)
        await_units(folder, COUNT)
        ours.kill()
    assert len(list((folder.store / "consumequeue_ext" / TOPIC / "0").iterdir())) == 2
    with original_on("4.9.7", folder, namesrv) as original:
        with WireClient(original.broker) as client:
            register_filters(client)
            assert_filtered(client, COUNT, 0)
            send_numbers(client, COUNT, 40, "new")
        await_units(folder, COUNT + 40)
        original.kill()
    with ours_on(folder) as ours, WireClient(ours.broker) as client:
        register_filters(client)
        assert_filtered(client, COUNT, 40)
        send_numbers(client, COUNT + 40, 10, "new")
        assert_filtered(client, COUNT, 50)
    check_store(folder)


def await_units(folder: DataFolder, count: int) -> None:
    """Wait until so many entries with a unit are in their files."""
    await_claim(lambda: len(entries_of(folder)) >= count, f"{count} entries are written", 20)
    assert None not in units_of(folder)
