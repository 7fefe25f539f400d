"""Each checker of the audit finds what it is for, and blames nobody else."""

from pathlib import Path

import pytest

from tests.reliability import audit
from tests.reliability.audit import SCHEDULE_TOPIC, Event, History, format_event, parse_events

WINDOW_S = 1.0


def sent(name: str, offset: int, at_s: float = 1.0, kind: str = "ok") -> list[Event]:
    """A send to queue 0 of T with its outcome, half a second later."""
    return [
        Event(at_s, "p", "invoke", "send", "T", 0, -1, name, "h" + name),
        Event(at_s + 0.5, "p", kind, "send", "T", 0, offset, name, "h" + name),
    ]


def delayed(name: str, offset: int) -> list[Event]:
    return [
        Event(1.0, "p", "invoke", "send", "T", 0, -1, name, "h" + name),
        Event(1.5, "p", "ok", "send", SCHEDULE_TOPIC, 0, offset, name, "h" + name),
    ]


def read(name: str, offset: int, topic: str = "T", queue_id: int = 0) -> Event:
    return Event(9.0, "reader", "ok", "read", topic, queue_id, offset, name, "h" + name)


def pulled(name: str, offset: int, at_s: float = 2.0) -> Event:
    return Event(at_s, "c", "ok", "pull", "T", 0, offset, name, "h" + name)


def commit(offset: int, at_s: float) -> Event:
    return Event(at_s, "c", "ok", "commit", "T", 0, offset, "G")


def stored(offset: int, at_s: float) -> Event:
    return Event(at_s, "c", "ok", "stored", "T", 0, offset, "G")


def kill(at_s: float) -> Event:
    return Event(at_s, "judge", "ok", "kill", "broker")


def ready(at_s: float) -> Event:
    return Event(at_s, "judge", "ok", "ready", "broker")


GOOD = [
    *sent("a", 0, 1.0),
    *sent("b", 1, 2.0),
    *sent("u", -1, 2.5, "unknown"),
    *sent("f", -1, 2.6, "fail"),
    pulled("a", 0, 1.7),
    commit(1, 1.8),
    stored(1, 1.9),
    kill(3.0),
    ready(3.4),
    stored(1, 3.5),
    pulled("b", 1, 3.6),
    commit(2, 3.7),
    *delayed("d", 0),
    read("d", 0, SCHEDULE_TOPIC),
    read("d", 3),
    read("a", 0),
    read("b", 1),
    read("u", 2),
]


def found(events: list[Event]) -> list[str]:
    return audit.audit(History(events), window_s=WINDOW_S, lag_limit_s=5.0)


def only(events: list[Event], checker: str) -> str:
    """The one violation in a history, which this checker must have found."""
    (text,) = found(events)
    assert text.startswith(f"{checker}: ")
    return text


def test_a_good_history_has_no_violations() -> None:
    assert found(GOOD) == []


def test_lost_an_acknowledged_send_that_nobody_can_read() -> None:
    assert "x for T" in only([*GOOD, *sent("x", 4)], "lost")


def test_lost_one_of_two_acknowledged_copies() -> None:
    events = [*sent("x", 0), *sent("x", 1, 5.0), read("x", 0)]
    assert "acknowledged 2 times, 1 are there" in only(events, "lost")


def test_aborted_read_a_refused_send_that_is_there() -> None:
    text = found([*GOOD, read("f", 4)])
    assert any(line.startswith("aborted read: f was refused") for line in text)


def test_aborted_read_of_a_consumer_counts_as_well() -> None:
    assert "f was refused" in only([*GOOD, pulled("f", 4)], "aborted read")


def test_inconsistent_offset_an_answer_and_a_read_disagree() -> None:
    events = [*sent("a", 0), *sent("b", 1, 1.0), read("b", 0), read("a", 1)]
    texts = found(events)
    assert len(texts) == 2
    assert all(text.startswith("inconsistent offset: ('T', 0, ") for text in texts)


def test_inconsistent_offset_a_place_changes_between_two_reads() -> None:
    events = [*sent("a", -1, kind="unknown"), *sent("b", 0), pulled("a", 0), read("b", 0)]
    assert found(events)[0].startswith("inconsistent offset: ('T', 0, 0) is b (send of p) and a")


def test_duplicate_one_send_is_there_twice() -> None:
    assert "x is 2 times in T" in only(
        [*GOOD, *sent("x", 4, 5.0), read("x", 4), read("x", 5)], "duplicate"
    )


def test_duplicate_a_second_send_after_an_unknown_outcome_may_be_there_twice() -> None:
    again = [*sent("x", -1, 1.0, "unknown"), *sent("x", 5, 3.0), read("x", 4), read("x", 5)]
    assert found([*GOOD, *again]) == []


def test_order_what_was_sent_later_stands_before() -> None:
    events = [*sent("a", 1, 1.0), *sent("b", 0, 2.0), read("b", 0), read("a", 1)]
    assert "a at ('T', 0, 1) stands behind b" in only(events, "order")


def test_order_does_not_matter_among_sends_that_were_under_way_together() -> None:
    assert found([*sent("a", 1, 1.0), *sent("b", 0, 1.2), read("b", 0), read("a", 1)]) == []


def test_hole_an_offset_is_missing() -> None:
    events = [*sent("a", 0), *sent("b", 2, 2.0), read("a", 0), read("b", 2)]
    assert "nothing between 0 and 2" in only(events, "hole")


def test_ghost_what_nobody_sent() -> None:
    assert "z at ('T', 0, 4) was never sent" in only([*GOOD, read("z", 4)], "ghost")


def test_ghost_what_was_altered() -> None:
    events = [*GOOD, *sent("x", 4, 5.0), read("x", 4)._replace(body_hash="other")]
    assert "x at ('T', 0, 4) was altered" in only(events, "ghost")


@pytest.mark.parametrize("place", [("U", 0), ("T", 1)])
def test_ghost_what_was_sent_elsewhere(place: tuple[str, int]) -> None:
    events = [*sent("x", -1, kind="unknown"), read("x", 0, *place)]
    assert "was sent to" in only(events, "ghost")


@pytest.mark.parametrize("count", [0, 2])
def test_not_once_a_delayed_message_that_is_delivered_too_often_or_not(count: int) -> None:
    sends = [Event(1.0, "p", "invoke", "send", "T", 0, -1, "x", "hx")] * 2  # both unknown
    events = [*sends, read("x", 0, SCHEDULE_TOPIC), *(read("x", n) for n in range(count))]
    assert f"waited 1 times and was delivered {count}" in only(events, "not once")


def test_regress_a_stored_offset_goes_back() -> None:
    events = [pulled("u", n) for n in range(7)]
    events = [event._replace(id=f"u{event.offset}", body_hash="h") for event in events]
    sends = [Event(1.0, "p", "invoke", "send", "T", 0, -1, one.id, "h") for one in events]
    assert "stood at 7" in only([*sends, *events, commit(7, 3.0), stored(6, 3.1)], "regress")


def test_regress_a_kill_costs_the_last_commits_only() -> None:
    def history(stored_offset: int) -> History:
        commits = [commit(3, 3.0), commit(5, 5.0), kill(5.5), ready(5.8)]
        return History([*commits, stored(stored_offset, 6.0)])

    assert list(audit.regress(history(3), WINDOW_S)) == []
    assert list(audit.regress(history(2), WINDOW_S)) != []


def test_regress_what_a_kill_has_cost_once_is_not_asked_for_later() -> None:
    events = [commit(3, 3.0), commit(5, 5.0), kill(5.5), stored(3, 6.0), kill(9.0), stored(3, 9.5)]
    assert list(audit.regress(History(events), WINDOW_S)) == []


def test_regress_what_the_file_had_at_a_kill_is_kept_however_young() -> None:
    def history(stored_offset: int) -> History:
        saved = stored(5, 5.6)._replace(op="saved")
        return History([commit(5, 5.0), kill(5.5), saved, stored(stored_offset, 6.0)])

    assert list(audit.regress(history(5), WINDOW_S)) == []
    assert list(audit.regress(history(4), WINDOW_S)) != []


def test_unseen_a_group_passes_over_a_message() -> None:
    events = [*sent("a", 0), *sent("b", 1, 2.0), read("a", 0), read("b", 1)]
    events += [pulled("b", 1, 3.0), commit(2, 4.0)]
    assert "1 messages before 2 never came, first 0" in only(events, "unseen")


def test_visible_lag_what_is_acknowledged_comes_late() -> None:
    events = [*sent("a", 0, 1.0), read("a", 0), pulled("a", 0, 8.0)]
    assert "came 6.50 s after" in only(events, "visible lag")


def test_visible_lag_is_not_counted_over_a_kill() -> None:
    assert found([*sent("a", 0, 1.0), read("a", 0), kill(2.0), pulled("a", 0, 8.0)]) == []


def test_recoveries_are_counted_from_the_first_kill_to_the_next_ready() -> None:
    times = audit.recoveries(History([ready(0.5), kill(1.0), kill(1.5), ready(3.0), kill(4.0)]))
    assert times == [2.0]


def test_many_violations_of_a_kind_are_counted_not_listed() -> None:
    texts = found([event for n in range(50) for event in sent(f"x{n}", n)])
    assert len(texts) == audit.SHOWN_MAX + 1
    assert texts[-1] == "lost: 50 in all"


def test_a_history_is_read_back_as_it_was_written_and_a_torn_end_is_left_out(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.history").write_text("".join(map(format_event, GOOD[:5])))
    (tmp_path / "b.history").write_text("".join(map(format_event, GOOD[5:])) + "9.0 p ok se")
    assert History.load(tmp_path).events == sorted(GOOD)


def test_a_line_that_is_no_event_is_named() -> None:
    with pytest.raises(AssertionError, match="no event: 'what'"):
        list(parse_events("what\n"))
