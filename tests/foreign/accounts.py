"""Bookkeeping of messages: what was sent against what was received.

In: the lines of a probe's `send` and `consume`. Out: nothing, or an error that names the messages
that are missing, strange, changed or there twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.foreign.peers import Line

Place = tuple[str, int, int]


def events(lines: Sequence[Line], event: str) -> list[Line]:
    return [line for line in lines if line["event"] == event]


def place_of(line: Line) -> Place:
    """Where a message lies: broker, queue, offset in the queue."""
    return line["brokerName"], line["queueId"], line["queueOffset"]


def assert_all_accepted(sent: Sequence[Line], topic: str, count: int) -> None:
    """`count` messages were stored, each at a place of its own, without gaps in any queue."""
    assert [line for line in sent if line["status"] != "SEND_OK"] == []
    assert {line["body"] for line in sent} == {f"{topic}-{i}" for i in range(count)}
    assert len({line["msgId"] for line in sent}) == len(sent) == count
    assert {line["topic"] for line in sent} == {topic}
    offsets: dict[tuple[str, int], list[int]] = {}
    for line in sent:
        offsets.setdefault((line["brokerName"], line["queueId"]), []).append(line["queueOffset"])
    gaps = {queue: got for queue, got in offsets.items() if sorted(got) != list(range(len(got)))}
    assert gaps == {}, "queue offsets with gaps or repetitions"


def assert_accounted(sent: Sequence[Line], received: Sequence[Line]) -> None:
    """Every message that was sent was received once, where and as it was sent."""
    counts = Counter(place_of(line) for line in received)
    bodies = {place_of(line): line["body"] for line in sent}
    missing = [bodies[place] for place in sorted(bodies) if place not in counts]
    twice = {bodies.get(place, place): count for place, count in counts.items() if count > 1}
    strange = [line for line in received if place_of(line) not in bodies]
    assert missing == [], f"{len(missing)} messages of {len(sent)} never came"
    assert strange == [], "messages that nobody sent"
    assert twice == {}, "messages that came more than once"
    ids = {place_of(line): line["msgId"] for line in sent}
    changed = [
        line
        for line in received
        if (line["body"], line["msgId"]) != (bodies[place_of(line)], ids[place_of(line)])
    ]
    assert changed == [], "messages with another body or id than sent"
