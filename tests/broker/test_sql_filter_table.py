"""The life of a group's filter: made by a heartbeat, replaced, dead, forgotten, read again."""

import json
from pathlib import Path

import pytest

from orbitmq.broker import filters
from orbitmq.broker.filters import (
    COMPILED_CHARS_MAX,
    DEAD_MS_MAX,
    RESTART_MS,
    FilterData,
    FilterTable,
)
from orbitmq.sql import Expression, compile_expression
from orbitmq.store.bloom import Bloom
from orbitmq.wire.bodies_client import SQL92, TAG, SubscriptionData
from orbitmq.world.files import SystemFiles

BORN_MS = 1_700_000_000_000


class Hands:
    """A clock whose hands are moved by the test."""

    def __init__(self) -> None:
        self.now_ms = BORN_MS

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_s(self) -> float:
        return self.now_ms / 1000

    def file_stamp(self, wall_ms: int) -> int:
        return wall_ms


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def table(tmp_path: Path, clock: Hands) -> FilterTable:
    return FilterTable(SystemFiles(), tmp_path, clock)


def wanted(
    expression: str, *, version: int = 1, topic: str = "T", kind: str = SQL92
) -> SubscriptionData:
    return SubscriptionData(
        topic=topic, sub_string=expression, sub_version=version, expression_type=kind
    )


def found(table: FilterTable, topic: str = "T") -> FilterData:
    data = table.find(topic, "G")
    assert data is not None
    return data


def save(table: FilterTable) -> bool:
    action = table.file.take()
    if action is not None:
        action()
    return action is not None


def test_a_filter_is_made_with_its_bits_and_saved_in_the_originals_form(
    table: FilterTable, tmp_path: Path
) -> None:
    table.register("CID_JODIE_1", [wanted("a > 3", version=7, topic="TopicTest")])
    assert save(table)
    text = (tmp_path / "consumerFilter.json").read_bytes()
    assert json.loads(text) == {
        "filterDataByTopic": {
            "TopicTest": {
                "groupFilterData": {
                    "CID_JODIE_1": {
                        "bloomFilterData": {"bitNum": 112, "bitPos": [96, 40, 33]},
                        "bornTime": BORN_MS,
                        "clientVersion": 7,
                        "consumerGroup": "CID_JODIE_1",
                        "dead": False,
                        "deadTime": 0,
                        "expression": "a > 3",
                        "expressionType": "SQL92",
                        "topic": "TopicTest",
                    }
                },
                "topic": "TopicTest",
            }
        }
    }


def test_tags_and_wrong_expressions_make_no_filter(table: FilterTable) -> None:
    table.register("G", [wanted("A", kind=TAG), wanted("a >", topic="U"), wanted("", topic="V")])
    assert len(table) == 0
    assert not save(table)


def test_an_expression_counts_only_with_a_greater_version(table: FilterTable, clock: Hands) -> None:
    table.register("G", [wanted("a = 1", version=5)])
    clock.now_ms += 10
    for version in (4, 5):
        table.register("G", [wanted("a = 2", version=version)])
        assert (found(table).expression, found(table).born_ms) == ("a = 1", BORN_MS)
    table.register("G", [wanted("a = 2", version=6)])
    data = found(table)
    assert (data.expression, data.born_ms, data.client_version) == ("a = 2", BORN_MS + 10, 6)


def test_the_same_expression_in_a_greater_version_is_the_same_filter(
    table: FilterTable, clock: Hands
) -> None:
    table.register("G", [wanted("a = 1", version=5)])
    clock.now_ms += 10
    table.register("G", [wanted("a = 1", version=6)])
    assert (found(table).born_ms, found(table).client_version) == (BORN_MS, 6)


def test_a_wrong_expression_takes_the_old_filter_along(table: FilterTable) -> None:
    table.register("G", [wanted("a = 1", version=5)])
    table.register("G", [wanted("a =", version=6)])
    assert table.find("T", "G") is None


def test_a_heartbeat_that_changes_nothing_saves_nothing(table: FilterTable) -> None:
    table.register("G", [wanted("a = 1")])
    assert save(table)
    table.register("G", [wanted("a = 1")])
    assert not save(table)


def test_filters_die_with_their_topic_or_their_group_and_come_back(
    table: FilterTable, clock: Hands
) -> None:
    both = [wanted("a = 1"), wanted("a = 1", topic="U")]
    table.register("G", both)
    clock.now_ms += 1_000
    table.register("G", both[:1])
    assert (found(table).is_dead, found(table, "U").is_dead) == (False, True)
    assert found(table, "U").dead_ms == clock.now_ms
    table.unregister("G")
    assert found(table).is_dead
    clock.now_ms += 1_000
    table.register("G", both)
    data = found(table)
    assert (data.is_dead, data.dead_ms, data.born_ms) == (False, 0, BORN_MS)


def test_a_filter_that_died_stays_dead_from_then_on(table: FilterTable, clock: Hands) -> None:
    table.register("G", [wanted("a = 1")])
    table.unregister("G")
    clock.now_ms += 1_000
    table.unregister("G")
    assert found(table).dead_ms == BORN_MS


def test_a_dead_filter_is_forgotten_after_a_day(table: FilterTable, clock: Hands) -> None:
    table.register("G", [wanted("a = 1")])
    table.register("Other", [wanted("a = 1")])
    table.unregister("G")
    clock.now_ms += DEAD_MS_MAX
    table.expire()
    assert len(table) == 2
    clock.now_ms += 1
    table.expire()
    assert [data.consumer_group for data in table.of_topic("T")] == ["Other"]
    assert table.of_group("G") == []


def test_after_a_start_filters_are_dead_until_their_groups_come_back(
    table: FilterTable, clock: Hands, tmp_path: Path
) -> None:
    table.register("G", [wanted("a = 1")])
    save(table)
    clock.now_ms += 100_000
    again = FilterTable(SystemFiles(), tmp_path, clock)
    assert (found(again).is_dead, found(again).dead_ms) == (True, clock.now_ms - RESTART_MS)
    again.register("G", [wanted("a = 1")])
    assert (found(again).is_dead, found(again).born_ms) == (False, BORN_MS)


def test_a_filter_never_died_before_it_was_born(
    table: FilterTable, clock: Hands, tmp_path: Path
) -> None:
    table.register("G", [wanted("a = 1")])
    save(table)
    clock.now_ms += 1_000
    again = FilterTable(SystemFiles(), tmp_path, clock)
    assert found(again).dead_ms == BORN_MS


def test_what_no_longer_compiles_is_not_read(
    table: FilterTable, clock: Hands, tmp_path: Path
) -> None:
    table.register("G", [wanted("a = 1"), wanted("b = 1", topic="U")])
    save(table)
    path = tmp_path / "consumerFilter.json"
    path.write_bytes(path.read_bytes().replace(b"b = 1", b"b = !"))
    again = FilterTable(SystemFiles(), tmp_path, clock)
    assert again.find("U", "G") is None
    assert found(again).expression == "a = 1"


def test_bits_of_another_shape_are_made_anew(
    table: FilterTable, clock: Hands, tmp_path: Path
) -> None:
    """The original forgets all filters then."""
    table.register("G", [wanted("a = 1")])
    save(table)
    bloom = Bloom(error_percent=5, filter_count=64)
    again = FilterTable(SystemFiles(), tmp_path, clock, bloom=bloom)
    bits = found(again).bloom_bits
    assert bits is not None
    assert (bits.bit_num, bits.bit_pos) == (bloom.bit_count, bloom.positions("G", "T"))


def test_their_number_is_bounded(
    table: FilterTable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(filters, "FILTER_COUNT_MAX", 2)
    for number in range(3):
        table.register(f"G{number}", [wanted("a = 1")])
    assert len(table) == 2
    assert "group G2 gets none" in caplog.text


def test_a_heartbeat_with_many_expressions_is_taken_in_piece_by_piece(
    table: FilterTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: 1,000 new expressions in one heartbeat stopped the broker for four seconds; those
    that did not compile cost as much, each time."""
    compiled: list[str] = []

    def compiles(text: str) -> Expression:
        compiled.append(text)
        return compile_expression(text)

    monkeypatch.setattr(filters, "compile_expression", compiles)
    text = "a = '" + "x" * 1_000 + "'"
    wants = [wanted(f"{text} OR b = {number}", topic=f"T{number}") for number in range(100)]
    wants.insert(1, wanted(f"no expression {'?' * 8_000}", topic="Wrong"))
    counts: list[int] = []
    while len(counts) < 6:
        left = table.register("G", wants)
        assert left >= 0
        counts.append(len(table))
        assert sum(map(len, compiled)) <= COMPILED_CHARS_MAX
        compiled.clear()
    assert counts[0] < counts[1] < counts[-1] == 100


def test_what_is_known_already_costs_a_heartbeat_nothing(table: FilterTable) -> None:
    assert table.register("G", [wanted("a = 1")], 100) == 100 - len("a = 1")
    assert table.register("G", [wanted("a = 1")], 100) == 100
    assert table.register("G", [wanted("a = 1", version=2)], 100) == 100
    assert table.register("G", [wanted("a = 22", version=3)], 5) == 5
    assert found(table).expression == "a = 1", "the old one stays until the new one is taken in"
    assert table.register("G", [wanted("a = 22", version=3)], 6) == 0
    assert found(table).expression == "a = 22"
