"""The Python client's own tests, played against original brokers: what it does there is the same.

The tests of the asynchronous and the synchronous client, of the application layer and of the shell
are written once. Here a pytest of its own runs those that ask the system under test with an
original in the place of OrbitMQ (tests/conftest.py); those that need what an original lacks say so
and are skipped there. What the shell says before it asks a broker is not played again.
"""

import pytest

from tests.foreign.judged import VERSIONS
from tests.foreign.replaying import LIMIT_S, ROOT, passed_on_original

PASSED_MIN = {
    "tests/client": 250,
    "tests/blocking": 18,
    "tests/app": 10,
    "tests/cli/test_shell_admin.py": 8,
    "tests/cli/test_shell_streams.py": 8,
}
"""What is played, and how many of its tests pass at least: fewer means that they were not found."""
LEFT_OUT = (
    "tests/cli/test_shell_admin.py::test_a_mistake_is_one_sentence_with_the_next_step",
    "tests/cli/test_shell_streams.py::test_a_shell_completes_commands_flags_and_names",
)

pytestmark = [
    pytest.mark.nightly("originals"),
    pytest.mark.foreign,
    pytest.mark.slow,
    pytest.mark.timeout(2 * LIMIT_S + 60),
]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_client_passes_its_tests_on_an_original(version: str) -> None:
    passed = passed_on_original([*PASSED_MIN], version, workers=2, left_out=LEFT_OUT)
    assert [path for path, least in PASSED_MIN.items() if passed[path] < least] == [], passed


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_is_left_out_is_there(name: str) -> None:
    path, _, function = name.partition("::")
    assert f"def {function}(" in (ROOT / path).read_text()
