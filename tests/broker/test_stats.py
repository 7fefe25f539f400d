"""Figures: totals, windows, rates and bounds, sampled by hand."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.broker import counts as counts_module
from orbitmq.broker import stats as stats_module
from orbitmq.broker.counts import Totals
from orbitmq.broker.stats_windows import Series
from orbitmq.wire.bodies_runtime import BrokerStatsData, WindowFigures
from orbitmq.wire.names import SCHEDULE_TOPIC
from tests.broker.figures import Figures


@pytest.fixture
def figures(tmp_path: Path) -> Iterator[Figures]:
    made = Figures(tmp_path)
    yield made
    made.store.close()


def test_the_minute_holds_six_intervals_of_ten_seconds() -> None:
    series = Series()
    for number in range(1, 13):
        series.sample(number, number * 10_000, Totals(number * 6, number * 600, number))
    assert series.view(0).stats_minute == WindowFigures(36, 0.6, 6.0)
    assert series.view(1).stats_minute == WindowFigures(3600, 60.0, 600.0)


def test_hour_and_day_are_sampled_each_ten_minutes_and_each_hour() -> None:
    series = Series()
    for number in range(1, 60):
        series.sample(number, number * 10_000, Totals(number))
    assert series.view(0).stats_hour == WindowFigures()
    series.sample(60, 600_000, Totals(60))
    assert series.view(0).stats_hour == WindowFigures(60, 0.1, 0.0)
    assert series.view(0).stats_day == WindowFigures()
    for number in range(61, 25 * 360 + 1):
        series.sample(number, number * 10_000, Totals(number))
    assert series.view(0).stats_hour == WindowFigures(360, 0.1, 0.0)
    assert series.view(0).stats_day == WindowFigures(24 * 360, 0.1, 0.0)


def test_a_series_whose_totals_went_back_begins_anew() -> None:
    series = Series()
    series.sample(1, 10_000, Totals(100))
    series.sample(2, 20_000, Totals(3))
    assert series.view(0).stats_minute.sum == 3


def test_puts_are_counted_by_topic_with_their_bytes(figures: Figures) -> None:
    figures.put("A", 3)
    figures.put("A", 2, queue_id=1)
    figures.put("B", 1)
    figures.sample()
    assert figures.sums("TOPIC_PUT_NUMS", "A") == (5, 0, 0)
    assert figures.sums("TOPIC_PUT_NUMS", "B") == (1, 0, 0)
    assert figures.sums("BROKER_PUT_NUMS", "C") == (6, 0, 0)
    size = figures.sums("TOPIC_PUT_SIZE", "A")
    assert size is not None
    assert size[0] + size[0] // 5 == figures.store.tail.written_offset


def test_what_was_put_before_the_start_is_not_counted(tmp_path: Path) -> None:
    first = Figures(tmp_path)
    first.put("A", 3)
    first.store.close()
    second = Figures(tmp_path)
    second.put("A", 1)
    second.sample()
    assert second.sums("TOPIC_PUT_NUMS", "A") == (1, 0, 0)
    second.store.close()


def test_a_topic_leaves_the_minute_when_nothing_comes(figures: Figures) -> None:
    figures.put("A", 3)
    figures.sample(7)
    assert figures.sums("TOPIC_PUT_NUMS", "A") == (0, 0, 0)
    figures.sample(53)
    assert figures.sums("TOPIC_PUT_NUMS", "A") == (0, 3, 0)
    figures.sample(300)
    assert figures.sums("TOPIC_PUT_NUMS", "A") == (0, 3, 3)


def test_pulls_are_counted_by_topic_and_group(figures: Figures) -> None:
    figures.counts.note_got("A", "G", 32, 3200)
    figures.counts.note_got("A", "G", 8, 800)
    assert figures.stats.view("GROUP_GET_NUMS", "A@G") == BrokerStatsData()
    figures.sample()
    data = figures.stats.view("GROUP_GET_NUMS", "A@G")
    assert data is not None
    assert data.stats_minute == WindowFigures(40, 4.0, 20.0)
    assert figures.sums("GROUP_GET_SIZE", "A@G") == (4000, 0, 0)
    assert figures.sums("BROKER_GET_NUMS", "C") == (40, 0, 0)


def test_messages_sent_back_are_counted_and_are_no_puts_of_the_broker(figures: Figures) -> None:
    figures.put(SCHEDULE_TOPIC, 1, queue_id=2)
    figures.counts.note_sent_back("A", "G")
    figures.sample()
    assert figures.sums("SNDBCK_PUT_NUMS", "A@G") == (1, 0, 0)
    assert figures.stats.view("BROKER_PUT_NUMS", "C") is not None
    assert figures.sums("BROKER_PUT_NUMS", "C") == (0, 0, 0)
    assert figures.sums("QUEUE_PUT_NUMS", f"{SCHEDULE_TOPIC}@2") == (1, 0, 0)


def test_delivered_delayed_messages_are_gets_of_their_queue_and_of_its_consumer(
    figures: Figures,
) -> None:
    by_group = f"{SCHEDULE_TOPIC}@SCHEDULE_CONSUMER"
    by_queue = f"{SCHEDULE_TOPIC}@0@SCHEDULE_CONSUMER"
    assert figures.stats.view("GROUP_GET_NUMS", by_group) is None
    figures.counts.note_delivered(0, 2, 300)
    assert figures.stats.view("GROUP_GET_NUMS", by_group) == BrokerStatsData()
    figures.counts.note_delivered(3, 1, 150)
    figures.counts.note_got(SCHEDULE_TOPIC, "SCHEDULE_CONSUMER", 4, 600)
    figures.sample()
    data = figures.stats.view("GROUP_GET_SIZE", by_group)
    assert data is not None
    assert data.stats_minute == WindowFigures(1050, 105.0, 262.5)
    assert figures.sums("QUEUE_GET_NUMS", by_queue) == (2, 0, 0)
    assert figures.sums("QUEUE_GET_SIZE", by_queue) == (300, 0, 0)
    assert figures.sums("BROKER_GET_NUMS", "C") == (4, 0, 0), "deliveries are no gets of the broker"


def test_the_time_of_pulls_is_that_of_those_which_the_hot_path_left(figures: Figures) -> None:
    figures.put("A", 1)
    assert figures.stats.view("GROUP_GET_LATENCY", "0@A@G") is None
    figures.counts.note_got("A", "G", 1, 10)
    assert figures.stats.view("GROUP_GET_LATENCY", "0@A@G") == BrokerStatsData()
    assert figures.stats.view("GROUP_GET_LATENCY", "1@A@G") is None
    assert figures.stats.view("GROUP_GET_LATENCY", "A@G") is None
    figures.counts.note_latency(0, "A", "G", 0.0039)
    figures.counts.note_latency(0, "A", "G", 0.0061)
    figures.sample()
    data = figures.stats.view("GROUP_GET_LATENCY", "0@A@G")
    assert data is not None
    assert data.stats_minute == WindowFigures(9, 0.9, 4.5)
    del figures.core.topics["A"]
    figures.sample(is_forgetful=True)
    assert figures.stats.view("GROUP_GET_LATENCY", "0@A@G") is None


def test_the_longest_look_of_a_pull_is_kept_in_whole_milliseconds(figures: Figures) -> None:
    assert figures.counts.get_ms_max == 0
    for took_s in (0.0004, 0.0129, 0.003):
        figures.counts.note_look(took_s)
    assert figures.counts.get_ms_max == 12


def test_rates_are_those_of_the_last_ten_seconds_minute_and_ten_minutes(figures: Figures) -> None:
    figures.put("A", 60)
    figures.counts.note_missed()
    assert figures.stats.rates(2.0)[0].put == 30.0
    figures.sample(6)
    ten_s, minute, ten_minutes = figures.stats.rates(60.0)
    assert (ten_s.put, minute.put, ten_minutes.put) == (0.0, 1.0, 1.0)
    assert minute.missed == pytest.approx(1 / 60)
    figures.sample(60)
    assert [rate.put for rate in figures.stats.rates(660.0)] == [0.0, 0.0, 0.0]


def test_pulls_that_found_or_missed_and_what_they_got_are_rates_of_their_own(
    figures: Figures,
) -> None:
    figures.counts.note_got("A", "G", 32, 3200)
    figures.counts.note_got("A", "G", 8, 800)
    figures.counts.note_missed()
    ten_s = figures.stats.rates(1.0)[0]
    assert (ten_s.got, ten_s.found, ten_s.missed) == (40.0, 2.0, 1.0)


def test_a_new_day_keeps_the_totals_of_the_morning(figures: Figures) -> None:
    figures.put("A", 5)
    figures.stats.note_day(20260101)
    assert figures.stats.put_mornings == (0, 0)
    figures.stats.note_day(20260102)
    figures.put("A", 2)
    figures.counts.note_got("A", "G", 1, 10)
    figures.stats.note_day(20260103)
    assert figures.stats.put_mornings == (5, 7)
    assert figures.stats.got_mornings == (0, 1)


def test_topics_and_groups_that_are_gone_are_forgotten_when_asked_for(figures: Figures) -> None:
    figures.put("A", 1)
    figures.counts.note_got("A", "G", 3, 30)
    figures.counts.note_sent_back("A", "G")
    figures.sample()
    del figures.core.topics["A"]
    figures.sample()
    assert figures.sums("TOPIC_PUT_NUMS", "A") == (1, 0, 0)
    figures.sample(is_forgetful=True)
    assert figures.stats.view("TOPIC_PUT_NUMS", "A") is None
    assert figures.stats.view("GROUP_GET_NUMS", "A@G") is None
    assert figures.stats.view("SNDBCK_PUT_NUMS", "A@G") is None
    assert figures.stats.totals(0.0).got == 3


def test_what_is_more_than_the_tables_hold_is_counted_together(
    figures: Figures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.core.state.GOT_MAX", 2)
    monkeypatch.setattr(stats_module, "SERIES_MAX", 2)
    monkeypatch.setattr(counts_module, "KEYS_MAX", 2)
    for number in range(4):
        figures.put(f"T{number}", 1)
        figures.counts.note_got(f"T{number}", "G", 1, 10)
        figures.counts.note_sent_back(f"T{number}", "G")
        figures.counts.note_latency(0, f"T{number}", "G", 0.001)
    assert len(figures.counts.latencies) == 2
    figures.sample()
    shown = [figures.stats.view("TOPIC_PUT_NUMS", f"T{number}") for number in range(4)]
    assert [data is not None and data.stats_minute.sum for data in shown[:2]] == [1, 1]
    assert [data and data.stats_minute.sum for data in shown[2:]] == [0, 0]
    assert len(figures.core.got) == 2
    assert figures.core.got_other.count == 2
    assert figures.sums("BROKER_GET_NUMS", "C") == (4, 0, 0)
    assert figures.stats.view("SNDBCK_PUT_NUMS", "T3@G") is None


def test_idle_groups_make_room_in_a_full_table(
    figures: Figures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats_module, "SERIES_MAX", 2)
    figures.put("A", 1)
    figures.core.groups |= {"H"}
    figures.counts.note_got("A", "G", 1, 10)
    figures.counts.note_got("A", "H", 1, 10)
    for _ in range(26):
        figures.sample(359)
        figures.counts.note_got("A", "H", 1, 10)
        figures.sample()
    assert set(figures.core.got) == {("A", "H")}
    assert figures.stats.totals(0.0).got == 28


def test_a_refused_write_is_no_put(figures: Figures, monkeypatch: pytest.MonkeyPatch) -> None:
    figures.put("A", 1)
    queue = figures.store.queue("A", 0)
    size = queue.put_bytes

    def refuse(_log_offset: int, _data: bytes) -> None:
        raise OSError("refused")

    with monkeypatch.context() as patch:
        patch.setattr(figures.store._log, "write", refuse)
        with pytest.raises(OSError, match="refused"):
            figures.put("A", 2)
    assert (queue.put_count, queue.put_bytes) == (1, size)
    figures.put("A", 1)
    assert (queue.put_count, queue.put_bytes) == (2, 2 * size)


def test_put_times_are_those_of_the_last_whole_minute(figures: Figures) -> None:
    figures.store.stats.count_puts(989, 0, 0.0009)
    figures.store.stats.count_puts(10, 0, 0.003)
    figures.store.stats.count_puts(1, 0, 0.1)
    figures.sample(5)
    assert figures.stats.put_ms_percentiles == (0.0, 0.0)
    figures.sample()
    assert figures.stats.put_ms_percentiles == (4.096, 4.096)
    figures.sample(6)
    assert figures.stats.put_ms_percentiles == (0.0, 0.0)
