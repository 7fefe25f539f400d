"""A short program with each foreign client states on ours what it stated on an original.

The scenarios are those of the compatibility programs that wait for nothing; all of them are played
by `make nightly-clients`. What an original answered is on record (records.py).
"""

from collections.abc import Callable

import pytest

from tests.foreign.compat import Played
from tests.foreign.compat_clients import new_prefix, play_go, play_node, play_python
from tests.foreign.compat_java import play
from tests.foreign.judged import System
from tests.foreign.peers import require_tool
from tests.foreign.records import recorded

pytestmark = pytest.mark.foreign

JAVA = ("sync", "batch", "oneway", "pull", "offsets", "query", "concurrent", "tags", "sql")
GO = ("sync", "batch", "oneway", "pull", "refused", "tags", "sql")
NODE = ("ali-sync", "ali-tags", "fork-sync", "fork-tags", "cpp-sync", "cpp-tags")
PYTHON = ("sync", "batch", "tags", "pull")

Play = Callable[[System], Played]
PROGRAMS: dict[str, tuple[tuple[str, ...], Play]] = {
    "java-4.9.7": (JAVA, lambda system: play(system, "4.9.7", JAVA)),
    "java-5.5.0": (JAVA, lambda system: play(system, "5.5.0", JAVA)),
    "go": (GO, lambda system: play_go(system, new_prefix(), GO)),
    "node": (NODE, lambda system: play_node(system, new_prefix(), NODE)),
    "python": (PYTHON, lambda system: play_python(system, new_prefix(), PYTHON)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_client_states_on_ours_what_it_stated_on_an_original(
    name: str, compat_ours: System
) -> None:
    scenarios, run = PROGRAMS[name]
    if name.startswith("java"):
        require_tool("javac")
    ours, theirs = run(compat_ours), recorded(name)
    assert ours.errors == {}
    for scenario in scenarios:
        stated = ours.of(scenario)
        assert stated, scenario
        for fact, value in stated.items():
            assert value == theirs.facts[scenario, fact], (scenario, fact)
