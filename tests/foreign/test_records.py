"""What originals answer to the compatibility programs is what was recorded of them."""

from collections.abc import Callable

import pytest

from tests.foreign import test_compat_go, test_compat_node, test_compat_python
from tests.foreign.compat import Played
from tests.foreign.compat_clients import new_prefix
from tests.foreign.compat_java import CLIENTS, play_originals, record_name
from tests.foreign.judged import System
from tests.foreign.records import KEPT, keep, recorded

PROGRAMS: dict[str, Callable[[System, str], Played]] = {
    "go": test_compat_go.play,
    "node": test_compat_node.play,
    "python": test_compat_python.play,
}
NAMES = (*PROGRAMS, *map(record_name, CLIENTS))


@pytest.mark.nightly("originals")
@pytest.mark.foreign
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_original_answers_a_program_as_it_did(name: str, compat_original: System) -> None:
    keep(name, ["4.9.7"], PROGRAMS[name](compat_original, new_prefix()))


@pytest.mark.nightly("originals")
@pytest.mark.foreign
@pytest.mark.parametrize("client", CLIENTS)
def test_originals_answer_a_java_client_as_they_did(client: str, compat_original: System) -> None:
    versions = ["4.9.7", "5.5.0"] if client == "5.5.0" else ["4.9.7"]
    keep(record_name(client), versions, play_originals(compat_original, client))


@pytest.mark.parametrize("name", NAMES)
def test_the_record_is_of_the_program_as_it_is_now(name: str) -> None:
    assert recorded(name).facts


def test_there_is_no_other_record() -> None:
    assert {path.stem for path in KEPT.glob("*.json")} >= {*NAMES}
