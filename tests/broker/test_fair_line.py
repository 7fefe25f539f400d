"""The line of reads: owners take turns, the greediest is refused, nothing is lost."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orbitmq.broker.fair_line import FairLine

COUNT_MAX = 6
OWNERS = st.sampled_from("abcd")


def taken(line: FairLine[str, str]) -> list[str]:
    found = []
    while line.first() is not None:
        found.append(line.take())
    return found


def filled(*names: str, count_max: int = 100) -> FairLine[str, str]:
    """Return a line of things whose first letter is their owner."""
    line: FairLine[str, str] = FairLine(count_max)
    for name in names:
        assert line.add(name[0], name) is None
    return line


def test_owners_take_turns_and_each_ones_things_keep_their_order() -> None:
    line = filled("a1", "a2", "a3", "b1", "c1", "c2")
    assert taken(line) == ["a1", "b1", "c1", "a2", "c2", "a3"]
    assert len(line) == 0


def test_whoever_comes_back_waits_behind_those_in_line() -> None:
    line = filled("a1", "b1", "b2", "c1")
    assert line.take() == "a1"
    assert line.add("a", "a2") is None
    assert taken(line) == ["b1", "c1", "a2", "b2"]


def test_in_a_full_line_the_newest_of_the_greediest_makes_room() -> None:
    line = filled("a1", "a2", "a3", "b1", count_max=4)
    assert line.add("c", "c1") == "a3"
    assert line.add("b", "b2") == "b2"  # as many as the greediest: who came last is refused
    assert line.add("a", "a4") == "a4"
    assert taken(line) == ["a1", "b1", "c1", "a2"]


def test_a_line_without_room_refuses_everything() -> None:
    line = filled(count_max=0)
    assert line.add("a", "a1") == "a1"
    assert taken(line) == []


def test_who_rests_has_no_turn_but_counts_and_may_be_refused() -> None:
    line = filled("a1", "a2", "b1", count_max=3)
    line.rest("a")
    assert taken(line) == ["b1"]
    assert line.first() is None
    assert line.add("b", "b2") is None
    assert line.add("c", "c1") == "a2"
    line.go_on("a")
    assert taken(line) == ["b2", "c1", "a1"]


def test_who_rests_with_nothing_in_line_still_rests_when_it_adds_something() -> None:
    line = filled("a1")
    line.rest("a")
    line.forget("a1")
    assert line.add("a", "a2") is None
    assert line.first() is None
    line.go_on("a")
    assert taken(line) == ["a2"]


def test_what_is_forgotten_never_comes_and_leaves_nothing_behind() -> None:
    line = filled("a1", "a2", "b1")
    line.forget("a1")
    line.forget("a1")
    line.forget("b1")
    assert (len(line), line.count_of("b")) == (1, 0)
    assert taken(line) == ["a2"]


class Lines(RuleBasedStateMachine):
    """Any order of calls: what is in line is known, and how many others may come before it."""

    def __init__(self) -> None:
        super().__init__()
        self.line: FairLine[str, int] = FairLine(COUNT_MAX)
        self.number = 0
        self.waiting: dict[str, list[int]] = {}
        self.resting: set[str] = set()
        self.overtaken: dict[str, list[str]] = {}
        """For each owner in line, whose turn came since its own, or since it is in line."""

    @rule(owner=OWNERS)
    def add(self, owner: str) -> None:
        self.number += 1
        counts = {name: len(own) for name, own in self.waiting.items()}
        refused = self.line.add(owner, self.number)
        if sum(counts.values()) < COUNT_MAX:
            assert refused is None
        elif refused == self.number:
            assert counts.get(owner, 0) + 1 >= max(counts.values())
        else:
            assert refused is not None
            (greedy,) = (name for name, own in self.waiting.items() if refused in own)
            assert counts[greedy] == max(counts.values()) > counts.get(owner, 0) + 1
            assert self.waiting[greedy][-1] == refused
            self._drop(greedy, refused)
        if refused != self.number:
            self.waiting.setdefault(owner, []).append(self.number)
            self.overtaken.setdefault(owner, [])

    @precondition(lambda self: self.line.first() is not None)
    @rule()
    def take(self) -> None:
        owner = self.line.first()
        assert owner is not None
        assert owner not in self.resting
        assert self.line.take() == self.waiting[owner][0]
        for name, before in self.overtaken.items():
            if name != owner and name not in self.resting:
                assert owner not in before, "nobody has two turns while another waits"
                before.append(owner)
        self.overtaken[owner] = []
        self._drop(owner, self.waiting[owner][0])

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(sorted(self.waiting)))
        one = data.draw(st.sampled_from(self.waiting[owner]))
        self.line.forget(one)
        self._drop(owner, one)

    @rule(owner=OWNERS)
    def rest(self, owner: str) -> None:
        self.line.rest(owner)
        self.resting.add(owner)

    @rule(owner=OWNERS)
    def go_on(self, owner: str) -> None:
        self.line.go_on(owner)
        if owner in self.resting and owner in self.overtaken:
            self.overtaken[owner] = []
        self.resting.discard(owner)

    def _drop(self, owner: str, one: int) -> None:
        self.waiting[owner].remove(one)
        if not self.waiting[owner]:
            del self.waiting[owner]
            del self.overtaken[owner]

    @invariant()
    def what_waits_is_known_and_bounded(self) -> None:
        assert len(self.line) == sum(map(len, self.waiting.values())) <= COUNT_MAX
        for owner in "abcd":
            assert self.line.count_of(owner) == len(self.waiting.get(owner, []))
        assert (self.line.first() is None) == (self.waiting.keys() <= self.resting)


TestLines = Lines.TestCase
TestLines.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
