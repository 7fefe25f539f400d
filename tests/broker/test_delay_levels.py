"""The list of delays: what it says by default, how it is written, and what retries make of it."""

import pytest

from orbitmq.broker.handlers.send_back import FIRST_LEVEL
from orbitmq.broker.store_options import parse_delays
from orbitmq.config import BrokerSettings
from orbitmq.errors import SettingError

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
RETRIES = 16


def test_there_are_18_levels_from_a_second_to_two_hours() -> None:
    delays = parse_delays(BrokerSettings().message_delay_level)
    assert delays == (
        *(1 * SECOND, 5 * SECOND, 10 * SECOND, 30 * SECOND),
        *(number * MINUTE for number in range(1, 11)),
        *(20 * MINUTE, 30 * MINUTE, 1 * HOUR, 2 * HOUR),
    )
    assert len(delays) == 18


def test_delays_are_numbers_with_s_m_h_or_d_and_there_may_be_more_of_them() -> None:
    assert parse_delays("2s 3m 4h 5d") == (2 * SECOND, 3 * MINUTE, 4 * HOUR, 5 * DAY)
    longer = f"{BrokerSettings().message_delay_level} 1d"
    assert parse_delays(longer)[18] == DAY


@pytest.mark.parametrize("text", ["5", "s", "5w", "-1s", "1.5s", "1s,2s"])
def test_what_is_no_delay_is_refused_with_its_setting(text: str) -> None:
    with pytest.raises(SettingError, match="messageDelayLevel"):
        parse_delays(text)


def test_the_16_retries_of_a_group_take_4_hours_45_minutes_and_40_seconds() -> None:
    delays = parse_delays(BrokerSettings().message_delay_level)
    waits = [delays[FIRST_LEVEL - 1 + tries] for tries in range(RETRIES)]
    assert waits[0] == 10 * SECOND
    assert waits == sorted(waits)
    assert sum(waits) == 4 * HOUR + 45 * MINUTE + 40 * SECOND
