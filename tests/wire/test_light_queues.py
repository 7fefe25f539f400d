"""Names and numbers of light queues, as properties carry them."""

import pytest

from orbitmq.wire.light_queues import light_places, names_fault, split_names


def stored(names: str, numbers: str) -> bytes:
    queues = f"INNER_MULTI_DISPATCH\x01{names}"
    return f"A\x01b\x02{queues}\x02INNER_MULTI_QUEUE_OFFSET\x01{numbers}".encode()


@pytest.mark.parametrize(
    ("names", "numbers", "places"),
    [
        ("%LMQ%a", "7", [("%LMQ%a", 7)]),
        ("%LMQ%a,%LMQ%b", "0,12", [("%LMQ%a", 0), ("%LMQ%b", 12)]),
        ("%LMQ%a,,", "3", [("%LMQ%a", 3)]),
        ("%LMQ%a,%LMQ%a", "3,3", [("%LMQ%a", 3)]),
        ("%LMQ%a,Other,%LMQ%/../x", "1,2,3", [("%LMQ%a", 1)]),
        ("%LMQ%a,%LMQ%b", "1", []),
        ("%LMQ%a", "-1", []),
        ("%LMQ%a", "x", []),
        ("%LMQ%a", "9" * 19, []),
        ("", "1", []),
    ],
)
def test_of_a_stored_record_only_what_is_surely_meant_counts(
    names: str, numbers: str, places: list[tuple[str, int]]
) -> None:
    assert light_places(stored(names, numbers)) == places


def test_a_record_without_numbers_is_in_its_own_queue_only() -> None:
    assert light_places(b"INNER_MULTI_DISPATCH\x01%LMQ%a") == []


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("%LMQ%a", None),
        ("%LMQ%home%+%#,%LMQ%home%küche 1", None),
        ("%LMQ%a,", None),
        ("Other", "'Other' is no light queue"),
        ("%LMQ%", "is no light queue"),
        (" ", "is no light queue"),
        (",%LMQ%a", "is no light queue"),
        ("%LMQ%a,%LMQ%a", "it names a light queue twice"),
        ("%LMQ%/../x", "a character that is not allowed"),
        ("%LMQ%a@g", "a character that is not allowed"),
        ("%LMQ%a\nb", "a character that is not allowed"),
        ("%LMQ%" + "x" * 251, "has more than 255 bytes"),
        (",".join(f"%LMQ%{number}" for number in range(1_001)), "1001 light queues, limit 1000"),
    ],
)
def test_names_that_lead_elsewhere_are_none(value: str, fault: str | None) -> None:
    found = names_fault(split_names(value))
    assert found is None if fault is None else fault in (found or "")
