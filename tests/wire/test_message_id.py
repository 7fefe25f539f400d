"""Message ids, both kinds."""

import contextlib
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import LocalProtocolError, RemoteProtocolError
from orbitmq.wire.host import Host
from orbitmq.wire.message_id import (
    OffsetId,
    UniqueId,
    UniqueIds,
    decode_offset_id,
    decode_unique_id,
    encode_offset_id,
    encode_unique_id,
    unique_id_born_ms,
)

IPS = st.ip_addresses().map(str)
CHINA = timezone(timedelta(hours=8))


def ms(year: int, month: int, day: int, zone: timezone | ZoneInfo = UTC) -> int:
    return int(datetime(year, month, day, tzinfo=zone).timestamp() * 1000)


@given(st.builds(Host, IPS, st.integers(0, 65_535)), st.integers(0, 2**63 - 1))
def test_an_offset_id_says_host_and_log_offset(host: Host, log_offset: int) -> None:
    text = encode_offset_id(host, log_offset)
    assert len(text) == (56 if ":" in host.ip else 32)
    assert text == text.upper()
    assert decode_offset_id(text) == OffsetId(host, log_offset)
    assert decode_offset_id(text.lower()) == OffsetId(host, log_offset)


def test_offset_ids_of_the_original_are_read() -> None:
    assert decode_offset_id("7F00000100002A9F00000000000000BF") == (("127.0.0.1", 10911), 191)
    assert decode_offset_id("0A6C73D900002A9F000000000000484E") == (
        ("10.108.115.217", 10911),
        0x484E,
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7F",
        "7F00000100002A9F00000000000000B",
        "7F00000100002A9F00000000000000BG",
        "7F 00 00 01 00 00 2A 9F 00 00 00",
        "7F00000100010000000000000000000F",
        "7F00000100002A9FFFFFFFFFFFFFFFFF",
        "\N{FULLWIDTH DIGIT SEVEN}F00000100002A9F00000000000000BF",
    ],
)
def test_text_that_is_no_offset_id_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode_offset_id(text)
    assert caught.value.reason == "message-id"


@pytest.mark.parametrize(
    ("host", "log_offset"),
    [
        (Host("127.0.0.1", -1), 0),
        (Host("127.0.0.1", 65_536), 0),
        (Host("127.0.0.1", 1), -1),
        (Host("127.0.0.1", 1), 2**63),
        (Host("localhost", 1), 0),
    ],
)
def test_no_offset_id_is_made_of_an_impossible_place(host: Host, log_offset: int) -> None:
    with pytest.raises(LocalProtocolError):
        encode_offset_id(host, log_offset)


UNIQUE_IDS = st.builds(
    UniqueId,
    IPS,
    st.integers(0, 0xFFFF),
    st.integers(0, 0xFFFFFFFF),
    st.integers(0, 0xFFFFFFFF),
    st.integers(0, 0xFFFF),
)


@given(UNIQUE_IDS)
def test_a_unique_id_decodes_to_its_parts(unique_id: UniqueId) -> None:
    text = encode_unique_id(unique_id)
    assert len(text) == (56 if ":" in unique_id.ip else 32)
    assert decode_unique_id(text) == unique_id


def test_a_unique_id_of_the_original_is_read() -> None:
    assert decode_unique_id("0A6C73D93EC518B4AAC20CC4ACD90000") == UniqueId(
        "10.108.115.217", 0x3EC5, 0x18B4AAC2, 0x0CC4ACD9, 0
    )


@given(st.text(max_size=60))
def test_arbitrary_text_is_an_id_or_a_remote_error(text: str) -> None:
    for decode in (decode_offset_id, decode_unique_id):
        with contextlib.suppress(RemoteProtocolError):
            decode(text)


def test_ids_of_one_maker_share_their_prefix_and_count_up() -> None:
    ids = UniqueIds("127.0.0.1", 0x1_3EC5, 0x18B4AAC2, UTC)
    now = ms(2026, 11, 1) + 0x0CC4ACD9
    made = [ids.next_id(now) for _ in range(3)]
    assert made == [f"7F0000013EC518B4AAC20CC4ACD9000{count}" for count in range(3)]


def test_65536_ids_of_one_millisecond_differ_and_then_the_counter_begins_again() -> None:
    ids = UniqueIds("::1", 1, 2, UTC)
    made = [ids.next_id(1_794_770_315_227) for _ in range(65_537)]
    assert len(set(made)) == 65_536
    assert made[-1] == made[0]


def test_the_time_in_an_id_begins_anew_with_each_month_of_the_zone() -> None:
    ids = UniqueIds("127.0.0.1", 1, 2, CHINA)
    turn = ms(2026, 12, 1, zone=CHINA)
    before, after, back = (decode_unique_id(ids.next_id(turn + step)) for step in (-1, 0, -1))
    assert before.month_ms == 30 * 86_400_000 - 1
    assert after.month_ms == 0
    assert back.month_ms == before.month_ms


def test_the_last_millisecond_of_the_longest_month_fits() -> None:
    ids = UniqueIds("127.0.0.1", 1, 2, ZoneInfo("Europe/Berlin"))
    # October has 31 days and the hour that summer time gives back.
    end = ms(2026, 11, 1, zone=ZoneInfo("Europe/Berlin"))
    unique_id = decode_unique_id(ids.next_id(end - 1))
    assert unique_id.month_ms == (31 * 24 + 1) * 3_600_000 - 1


@given(st.integers(0, 4_000_000_000_000), st.sampled_from([UTC, CHINA, ZoneInfo("US/Pacific")]))
def test_the_time_an_id_was_made_is_found_again(now: int, zone: timezone | ZoneInfo) -> None:
    unique_id = decode_unique_id(UniqueIds("127.0.0.1", 1, 2, zone).next_id(now))
    assert unique_id_born_ms(unique_id, now, zone) == now


def test_an_id_of_last_month_is_not_taken_for_one_of_the_future() -> None:
    made = ms(2026, 10, 20)
    unique_id = decode_unique_id(UniqueIds("127.0.0.1", 1, 2, UTC).next_id(made))
    assert unique_id_born_ms(unique_id, ms(2026, 11, 15), UTC) == made


def test_a_time_beyond_four_bytes_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="4294967296 ms"):
        encode_unique_id(UniqueId("127.0.0.1", 1, 2, 2**32, 0))
