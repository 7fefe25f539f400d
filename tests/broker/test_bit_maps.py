"""Bit maps of messages: which filters they speak of, and what a pull may conclude from them."""

import asyncio
import json
from pathlib import Path

import pytest

from orbitmq.broker.bit_maps import BitMaps, unit_filter
from orbitmq.broker.filters import BloomBits, FilterData, FilterTable
from orbitmq.config import BrokerSettings
from orbitmq.net.turn import Turn
from orbitmq.store.bloom import Bloom, has_all
from orbitmq.store.queue_ext import Unit
from orbitmq.wire.bodies_client import SubscriptionData
from orbitmq.wire.command import Command
from orbitmq.wire.record import scan_records
from orbitmq.world.net import run
from tests.behaviour.requests import heartbeat_body, pull_request, send_request
from tests.broker.running import Running, running
from tests.world.memory_files import MemoryFiles

BLOOM = Bloom()
BORN_MS = 1_000
CONFIG = Path("/store/config")


def bits(group: str, topic: str = "T") -> BloomBits:
    return BloomBits(bit_num=BLOOM.bit_count, bit_pos=BLOOM.positions(group, topic))


def filter_of(group: str, expression: str, bloom_bits: BloomBits | None = None) -> FilterData:
    return FilterData(
        consumer_group=group,
        topic="T",
        expression=expression,
        expression_type="SQL92",
        born_ms=BORN_MS,
        bloom_bits=bloom_bits or bits(group),
    )


class At:
    """A clock that stands still."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_s(self) -> float:
        return self.now_ms / 1000

    def file_stamp(self, wall_ms: int) -> int:
        return wall_ms


def subscription(expression: str) -> SubscriptionData:
    return SubscriptionData(
        topic="T", sub_string=expression, sub_version=1, expression_type="SQL92"
    )


def table_of(
    expressions: dict[str, str], bloom: Bloom = BLOOM, now_ms: int = BORN_MS + 5, stored_ms: int = 0
) -> FilterTable:
    """Filters of groups on topic T, as an original with usual settings saves them."""
    filters = {
        group: {
            "bloomFilterData": {"bitNum": 112, "bitPos": list(BLOOM.positions(group, "T"))},
            "bornTime": BORN_MS,
            "clientVersion": 1,
            "consumerGroup": group,
            "dead": False,
            "deadTime": 0,
            "expression": expression,
            "expressionType": "SQL92",
            "topic": "T",
        }
        for group, expression in expressions.items()
    }
    files = MemoryFiles(CONFIG)
    saved = {"filterDataByTopic": {"T": {"groupFilterData": filters, "topic": "T"}}}
    files.put(CONFIG / "consumerFilter.json", json.dumps(saved).encode())
    return FilterTable(files, CONFIG, At(now_ms), bloom=bloom, stored_ms=lambda: stored_ms)


def test_a_message_has_the_bits_of_every_filter_it_passes() -> None:
    bit_map_of = BitMaps(table_of({"low": "n < 10", "odd": "kind = 'odd'"})).freeze()
    assert bit_map_of is not None
    low, odd = BLOOM.positions("low", "T"), BLOOM.positions("odd", "T")
    assert bit_map_of("T", b"n\0013\2kind\1odd\2") == BLOOM.bit_map([low, odd])
    assert bit_map_of("T", b"n\x0130\x02kind\x01odd\x02") == BLOOM.bit_map([odd])
    assert bit_map_of("T", b"n\x0130\x02") == bytes(14)
    assert bit_map_of("T", b"") == bytes(14)


def test_topics_without_filters_have_no_bit_map() -> None:
    bit_map_of = BitMaps(table_of({"low": "n < 10"})).freeze()
    assert bit_map_of is not None
    assert bit_map_of("Other", b"n\0013\2") == b""
    assert BitMaps(table_of({})).freeze() is None


def test_a_filter_that_came_later_has_its_bits_in_later_messages_only() -> None:
    table = table_of({"low": "n < 10"})
    maps = BitMaps(table)
    before = maps.freeze()
    assert maps.freeze() is before
    table.register("high", [subscription("n > 2")])
    after = maps.freeze()
    assert before is not None
    assert after is not None
    low, high = BLOOM.positions("low", "T"), BLOOM.positions("high", "T")
    assert before("T", b"n\0013\2") == BLOOM.bit_map([low])
    assert after("T", b"n\0013\2") == BLOOM.bit_map([low, high])


def test_filters_of_groups_that_left_keep_their_bits_until_they_are_forgotten() -> None:
    table = table_of({"low": "n < 10"})
    table.unregister("low")
    bit_map_of = BitMaps(table).freeze()
    assert bit_map_of is not None
    assert bit_map_of("T", b"n\0013\2") == BLOOM.bit_map([BLOOM.positions("low", "T")])


def test_with_bits_of_another_shape_a_filter_is_born_anew() -> None:
    """Bit maps of as many bits would otherwise rule out what nobody has looked at."""
    known = table_of({"low": "n < 10"}).find("T", "low")
    assert known is not None
    assert known.born_ms == BORN_MS
    table = table_of({"low": "n < 10"}, Bloom(error_percent=10, filter_count=23))
    assert table.bloom.bit_count == BLOOM.bit_count
    found = table.find("T", "low")
    assert found is not None
    assert found.born_ms == BORN_MS + 5


def test_no_filter_is_born_before_the_newest_message_when_the_clock_was_set_back() -> None:
    table = table_of({}, stored_ms=9_000, now_ms=2_000)
    table.register("low", [subscription("n < 10")])
    found = table.find("T", "low")
    assert found is not None
    assert found.born_ms == 9_000
    may_accept = unit_filter(found, BLOOM)
    assert may_accept is not None
    assert may_accept(Unit(0, 9_000, bytes(14)))


@pytest.mark.parametrize(
    ("unit", "may_pass"),
    [
        (Unit(0, BORN_MS + 1, BLOOM.bit_map([BLOOM.positions("low", "T")])), True),
        (Unit(0, BORN_MS + 1, bytes(14)), False),
        (Unit(0, BORN_MS, bytes(14)), True),  # stored before the filter was there
        (Unit(0, BORN_MS + 1, b""), True),  # nobody looked
        (Unit(0, BORN_MS + 1, bytes(8)), True),  # bits of another shape
        (Unit(0, BORN_MS + 1, bytes(15)), True),
    ],
)
def test_a_unit_rules_a_message_out_only_when_it_speaks_of_the_filter(
    unit: Unit, may_pass: bool
) -> None:
    may_accept = unit_filter(filter_of("low", "n < 10"), BLOOM)
    assert may_accept is not None
    assert may_accept(unit) is may_pass


@pytest.mark.parametrize(
    "odd_bits",
    [
        BloomBits(bit_num=64, bit_pos=(1, 2, 3)),
        BloomBits(bit_num=112, bit_pos=(1, 2)),
        BloomBits(bit_num=112, bit_pos=(1, 2, 112)),
        BloomBits(bit_num=112, bit_pos=(1, -2, 3)),
    ],
)
def test_a_filter_with_other_bits_looks_at_every_record(odd_bits: BloomBits) -> None:
    assert unit_filter(filter_of("low", "n < 10", odd_bits), BLOOM) is None


def test_a_filter_without_bits_looks_at_every_record() -> None:
    bare = FilterData(consumer_group="low", topic="T", expression="n", expression_type="SQL92")
    assert unit_filter(bare, BLOOM) is None


def test_bits_of_one_group_seldom_let_another_one_pass() -> None:
    bit_map = BLOOM.bit_map([BLOOM.positions("low", "T")])
    others = [BLOOM.positions(f"other-{number}", "T") for number in range(50)]
    assert sum(has_all(bit_map, positions) for positions in others) < 5


# --- The whole broker ---

SETTINGS = BrokerSettings(
    bind_address="127.0.0.1",
    listen_port=0,
    namesrv_addr="",
    enable_property_filter=True,
    enable_consume_queue_ext=True,
    enable_calc_filter_bit_map=True,
    mapped_file_size_commit_log=1 << 20,
    mapped_file_size_consume_queue=6_000,
    mapped_file_size_consume_queue_ext=32_768,
    max_hash_slot_num=100,
    max_index_num=400,
)


def hello(group: str, expression: str) -> Command:
    """The heartbeat of a consumer that filters by expression."""
    body = heartbeat_body("c@1", group, "T", expression).replace(b'"TAG"', b'"SQL92"')
    return Command(34, body=body)


async def pulled(broker: Running, group: str) -> list[bytes]:
    """What a group's own filter lets pass of queue 0."""
    bodies: list[bytes] = []
    offset = 0
    while True:
        request = pull_request("T", group, offset, sysFlag=0, subVersion=1)
        request.fields.pop("subscription", None)
        answer = await broker.call(request)
        if answer.code == 19:
            return bodies
        assert answer.code in (0, 20), answer.remark
        bodies += [record.body for record in scan_records(answer.body)] if answer.body else []
        offset = int(answer.fields["nextBeginOffset"])


def take_bits_out(path: Path, number: int) -> None:
    """Let the unit of one message say that it passes no filter."""
    data, position = bytearray(path.read_bytes()), 0
    for _ in range(number):
        position += int.from_bytes(data[position : position + 2], "big")
    assert data[position + 18 : position + 20] == b"\0\x0e"
    assert any(data[position + 20 : position + 34])
    data[position + 20 : position + 34] = bytes(14)
    path.write_bytes(data)


def test_an_old_message_that_its_bits_rule_out_is_not_looked_at(tmp_path: Path) -> None:
    """Bits taken out by hand hide a message: so they are asked before the record is."""

    async def fill(broker: Running) -> None:
        assert (await broker.call(send_request("T", b"0", i="n\x010\x02", d=1))).code == 0
        assert (await broker.call(hello("low", "n < 3"))).code == 0
        for number in range(1, 6):
            await asyncio.sleep(0.002)  # stored after the filter was born, by the clock
            request = send_request("T", b"%d" % number, i=f"n\x01{number}\x02", d=1)
            assert (await broker.call(request)).code == 0

    async def read(broker: Running) -> list[bytes]:
        assert (await broker.call(hello("low", "n < 3"))).code == 0
        return await pulled(broker, "low")

    async def steps() -> None:
        turn = Turn(asyncio.get_running_loop())
        async with running(tmp_path, turn, SETTINGS) as broker:
            await fill(broker)
            assert await read(broker) == [b"0", b"1", b"2"]
        (units,) = (tmp_path / "consumequeue_ext" / "T" / "0").iterdir()
        async with running(tmp_path, turn, SETTINGS) as broker:
            assert await read(broker) == [b"0", b"1", b"2"]
        take_bits_out(units, 2)
        async with running(tmp_path, turn, SETTINGS) as broker:
            assert await read(broker) == [b"0", b"1"]

    run(steps())
