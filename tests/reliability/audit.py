"""The audit that every load programme shares: a history of events, and checkers that judge it.

In: events, one line each: `time process kind op topic queue offset id body-hash`. Out: sentences,
each of which says that a promise was broken. Everything here is a function of the history.

Rules:
1. `invoke` is written before a request goes out, its outcome afterwards. An invoke without outcome
   is unknown, as is one whose answer says so; `fail` means that nothing was stored.
2. `read` is the complete look at every queue after the faults; `pull` is what consumers got.
3. A delayed message is invoked for the topic it belongs to, and answered with its place in the
   schedule topic. It must come out of there exactly once for each time that it went in.
4. A message given back is a send of `id#n`, n being how often it was given back.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_" + "X" * 4
SHOWN_MAX = 5
"""So many violations of a kind are told; the rest is counted."""
FIELD_COUNT = 9
NONE = "-"

Queue = tuple[str, int]
Place = tuple[str, int, int]


class Event(NamedTuple):
    """One line of a history."""

    time_s: float
    process: str
    kind: str
    op: str
    topic: str = NONE
    queue_id: int = -1
    offset: int = -1
    id: str = NONE
    body_hash: str = NONE

    @property
    def queue(self) -> Queue:
        """Topic and queue."""
        return self.topic, self.queue_id

    @property
    def place(self) -> Place:
        """Topic, queue and offset."""
        return self.topic, self.queue_id, self.offset


def format_event(event: Event) -> str:
    """Return an event as a line."""
    time_s, *rest = event
    return f"{time_s:.6f} {' '.join(map(str, rest))}\n"


def parse_events(text: str) -> Iterator[Event]:
    """Return the events of a history; the last line of a killed process may be torn."""
    names: dict[str, str] = {}
    for line in text[: text.rfind("\n") + 1].splitlines():
        fields = line.split(" ")
        assert len(fields) == FIELD_COUNT, f"no event: {line!r}"
        time_s, process, kind, op, topic, queue_id, offset, name, body_hash = (
            names.setdefault(field, field) for field in fields
        )
        numbers = int(queue_id), int(offset)
        yield Event(float(time_s), process, kind, op, topic, *numbers, name, body_hash)


class Send:
    """Everything that was tried with one message."""

    __slots__ = ("attempts", "body_hash", "fails", "first_s", "oks", "process", "queue_id", "topic")

    def __init__(self, first: Event) -> None:
        self.process = first.process
        self.topic = first.topic
        self.queue_id = first.queue_id
        self.body_hash = first.body_hash
        self.first_s = first.time_s
        self.attempts = 0
        self.fails = 0
        self.oks: list[Event] = []


class History:
    """The events of all processes, in the order of time, and what follows from them at once."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.events = sorted(events)

    @classmethod
    def load(cls, folder: Path) -> History:
        """Read the files `*.history` of a folder."""
        paths = sorted(folder.glob("*.history"))
        return cls(event for path in paths for event in parse_events(path.read_text()))

    def of(self, *ops: str, kind: str = "ok") -> Iterator[Event]:
        """Return the events of these operations."""
        return (event for event in self.events if event.kind == kind and event.op in ops)

    @cached_property
    def sends(self) -> dict[str, Send]:
        """Every message that was sent, by id."""
        sends: dict[str, Send] = {}
        for event in self.events:
            if event.op != "send":
                continue
            if event.kind == "invoke":
                sends.setdefault(event.id, Send(event)).attempts += 1
            elif event.kind == "ok":
                sends[event.id].oks.append(event)
            elif event.kind == "fail":
                sends[event.id].fails += 1
        return sends

    @cached_property
    def reads(self) -> dict[Place, Event]:
        """What the queues hold after the faults."""
        return {event.place: event for event in self.of("read")}

    @cached_property
    def copies(self) -> dict[str, list[int]]:
        """Id to the offsets at which it is in the topic it was sent to."""
        copies: dict[str, list[int]] = defaultdict(list)
        for event in self.reads.values():
            if event.topic != SCHEDULE_TOPIC:
                copies[event.id].append(event.offset)
        return copies

    @cached_property
    def kills(self) -> list[float]:
        """When brokers were killed."""
        return [event.time_s for event in self.of("kill") if event.topic == "broker"]


# --- Checkers -------------------------------------------------------------------------------------


def lost(history: History) -> Iterator[str]:
    """P1: every acknowledged send is in its queue, once for each acknowledgement."""
    for name, send in history.sends.items():
        copies = len(history.copies.get(name, ()))
        if copies < len(send.oks):
            yield (
                f"{name} for {send.topic} was acknowledged {len(send.oks)} times, {copies} are"
                f" there; last at {send.oks[-1].time_s:.6f}, place {send.oks[-1].place}"
            )


def aborted_read(history: History) -> Iterator[str]:
    """What certainly failed is nowhere."""
    for event in history.of("pull", "read"):
        send = history.sends.get(event.id)
        if send is not None and send.fails == send.attempts:
            yield f"{event.id} was refused {send.fails} times, but is at {event.place}"


def inconsistent_offset(history: History) -> Iterator[str]:
    """P3: a place names one message for ever, whoever tells of it."""
    first: dict[Place, Event] = {}
    for event in history.of("send", "pull", "read"):
        if event.offset < 0:
            continue
        known = first.setdefault(event.place, event)
        if known.id != event.id:
            yield (
                f"{event.place} is {known.id} ({known.op} of {known.process}) and {event.id}"
                f" ({event.op} of {event.process})"
            )


def duplicate(history: History) -> Iterator[str]:
    """P5: no more copies than sends that may have been stored."""
    for name, offsets in history.copies.items():
        send = history.sends.get(name)
        if send is not None and len(offsets) > send.attempts - send.fails:
            yield (
                f"{name} is {len(offsets)} times in {send.topic} (offsets {sorted(offsets)}) after"
                f" {send.attempts} sends, {send.fails} of them refused"
            )


def order(history: History) -> Iterator[str]:
    """P4: what a producer sent after an acknowledgement stands behind what was acknowledged."""
    latest: dict[tuple[str, Queue], tuple[float, str]] = {}
    seen: set[str] = set()
    for place in sorted(history.reads):
        event = history.reads[place]
        send = history.sends.get(event.id)
        if send is None or event.id in seen or send.queue_id < 0 or event.topic == SCHEDULE_TOPIC:
            continue
        seen.add(event.id)
        key = send.process, event.queue
        begun_s, behind = latest.get(key, (0.0, ""))
        if send.oks and send.oks[0].topic == event.topic and send.oks[0].time_s < begun_s:
            yield f"{event.id} at {place} stands behind {behind}, which was sent after it was there"
        latest[key] = max((begun_s, behind), (send.first_s, event.id))


def hole(history: History) -> Iterator[str]:
    """P4: offsets have no gaps between the smallest and the largest."""
    queues: dict[Queue, list[int]] = defaultdict(list)
    for topic, queue_id, offset in sorted(history.reads):
        queues[topic, queue_id].append(offset)
    for queue, offsets in queues.items():
        for before, offset in pairwise(offsets):
            if offset != before + 1:
                yield f"{queue}: nothing between {before} and {offset}"


def ghost(history: History) -> Iterator[str]:
    """P2: only what was sent to a queue comes out of it, as it was sent."""
    for event in history.of("pull", "read"):
        send = history.sends.get(event.id)
        if send is None:
            yield f"{event.id} at {event.place} was never sent"
        elif event.body_hash != send.body_hash:
            yield f"{event.id} at {event.place} was altered"
        elif event.topic not in (send.topic, SCHEDULE_TOPIC):
            yield f"{event.id} at {event.place} was sent to {send.topic}"
        elif event.topic == send.topic and send.queue_id not in (-1, event.queue_id):
            yield f"{event.id} at {event.place} was sent to queue {send.queue_id}"


def not_once(history: History) -> Iterator[str]:
    """A delayed message comes out of the schedule topic as often as it went in."""
    waited: Counter[str] = Counter()
    for event in history.reads.values():
        waited[event.id] += event.topic == SCHEDULE_TOPIC
    for name, count in waited.items():
        came = len(history.copies.get(name, ()))
        if count and came != count:
            yield f"{name} waited {count} times and was delivered {came} times"


def regress(history: History, window_s: float) -> Iterator[str]:
    """P6: a stored offset is never lower than one committed before.

    A kill may cost the commits of the last `window_s`: offsets are saved now and then. What is in
    the file (`saved`, seen after a kill) is kept in any case.
    """
    floors: dict[tuple[str, Queue], int] = defaultdict(int)
    fresh: dict[tuple[str, Queue], list[Event]] = defaultdict(list)
    for event in history.events:
        if event.kind != "ok":
            continue
        if event.op == "kill" and event.topic == "broker":
            for key, commits in fresh.items():
                kept = [one.offset for one in commits if one.time_s < event.time_s - window_s]
                floors[key] = max([floors[key], *kept])
            fresh.clear()
        elif event.op == "commit":
            fresh[event.id, event.queue].append(event)
        elif event.op in ("stored", "saved"):
            key = event.id, event.queue
            floor = max([floors[key], *(one.offset for one in fresh.get(key, ()))])
            if event.offset < floor:
                yield f"group {event.id} stood at {floor} of {event.queue}, now at {event.offset}"
            elif event.op == "saved":
                floors[key] = event.offset


def unseen(history: History) -> Iterator[str]:
    """P5, P6: a group gets everything that lies before an offset that it committed."""
    pulled: dict[Queue, set[int]] = defaultdict(set)
    for event in history.of("pull"):
        pulled[event.queue].add(event.offset)
    ends: dict[Queue, int] = defaultdict(int)
    for event in history.of("commit"):
        ends[event.queue] = max(ends[event.queue], event.offset)
    for queue, end in ends.items():
        missing = sorted(set(range(end)) - pulled[queue])
        if missing:
            yield f"{queue}: {len(missing)} messages before {end} never came, first {missing[0]}"


def visible_lags(history: History) -> Iterator[tuple[float, Event]]:
    """How long each message that a consumer got was acknowledged before; kills in between aside."""
    pulled: dict[Place, float] = {}
    for event in history.of("pull"):
        pulled.setdefault(event.place, event.time_s)
    for event in history.of("send"):
        pulled_s = pulled.get(event.place)
        if pulled_s is None or event.offset < 0:
            continue
        first = bisect_right(history.kills, event.time_s)
        if first == len(history.kills) or history.kills[first] > pulled_s:
            yield max(0.0, pulled_s - event.time_s), event


def visible_lag(history: History, limit_s: float) -> Iterator[str]:
    """What is acknowledged can be read soon."""
    for lag_s, event in visible_lags(history):
        if lag_s > limit_s:
            yield f"{event.id} at {event.place} came {lag_s:.2f} s after its acknowledgement"


def recoveries(history: History) -> list[float]:
    """How long it took after each kill of a broker until one was ready again."""
    times: list[float] = []
    killed_s: float | None = None
    for event in history.of("kill", "ready"):
        if event.topic != "broker":
            continue
        if event.op == "kill":
            killed_s = killed_s or event.time_s
        elif killed_s is not None:
            times.append(event.time_s - killed_s)
            killed_s = None
    return times


# --- The verdict ----------------------------------------------------------------------------------

Checker = Callable[[History], Iterator[str]]

CHECKERS: tuple[Checker, ...] = (
    lost,
    aborted_read,
    inconsistent_offset,
    duplicate,
    order,
    hole,
    ghost,
    not_once,
    unseen,
)


def audit(history: History, *, window_s: float, lag_limit_s: float) -> list[str]:
    """Return the violations that all checkers find, each with the checker's name."""
    found: list[str] = []
    found += _named("regress", regress(history, window_s))
    found += _named("visible lag", visible_lag(history, lag_limit_s))
    for checker in CHECKERS:
        found += _named(checker.__name__.replace("_", " "), checker(history))
    return found


def _named(name: str, violations: Iterator[str]) -> list[str]:
    all_of_them = list(violations)
    shown = [f"{name}: {text}" for text in all_of_them[:SHOWN_MAX]]
    if len(all_of_them) > SHOWN_MAX:
        shown.append(f"{name}: {len(all_of_them)} in all")
    return shown
