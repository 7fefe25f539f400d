"""The behaviour suite, played against an original broker: what it asks of OrbitMQ is so there, too.

The tests of tests/behaviour are written once. Here a pytest of its own runs them with a 4.9.7 in
the place of OrbitMQ: a test that it fails is a wrong test, or a difference that is not named.
Differences that are kept are named in the test that skips or asserts them. 5.5.0 is no judge of
them: it answers many refusals with codes of its own.
"""

import pytest

from tests.foreign.replaying import LIMIT_S, passed_on_original

pytestmark = [
    pytest.mark.nightly("originals"),
    pytest.mark.foreign,
    pytest.mark.slow,
    pytest.mark.timeout(2 * LIMIT_S + 60),
]


def test_an_original_passes_the_behaviour_suite() -> None:
    assert passed_on_original(["tests/behaviour"], "4.9.7", workers=1)["tests/behaviour"] > 280
