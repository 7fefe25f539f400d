"""The Python client's own tests, played against original brokers: what it does there is the same.

The tests of tests/client are written once. Here a pytest of its own runs those that ask the system
under test with an original in the place of OrbitMQ (tests/client/conftest.py); those that need what
an original lacks say so and are skipped there.
"""

import pytest

from tests.foreign.judged import VERSIONS
from tests.foreign.replaying import LIMIT_S, passed_on_original

pytestmark = [
    pytest.mark.foreign,
    pytest.mark.compat,
    pytest.mark.slow,
    pytest.mark.timeout(2 * LIMIT_S + 60),
]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_client_passes_its_tests_on_an_original(version: str) -> None:
    assert passed_on_original("tests/client", version, workers=2) > 250
