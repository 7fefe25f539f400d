"""The fixtures as a project's own test run has them: in a pytest process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

import orbitmq.testing

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.timeout(300)  # another process starts, on a machine that may be busy

ROOT = Path(__file__).parents[2]

PLAIN = """
import sys
BEFORE = set(sys.modules)
import pytest
from orbitmq.wire.record import scan_records
from tests.behaviour.requests import fill, pull_request
from tests.wire_client import WireClient

TOPICS, BROKERS = set(), set()

def test_nothing_of_a_broker_was_imported_before_it_was_wanted():
    assert "orbitmq.testing.pytest_plugin" in BEFORE
    loaded = {name for name in BEFORE if name.startswith("orbitmq.")}
    assert loaded == {"orbitmq.testing", "orbitmq.testing.pytest_plugin"}

@pytest.mark.parametrize("what", ["a b/c", "d" * 200, "\\u00fc"])
def test_each_test_has_a_topic_of_its_own(orbitmq_broker, orbitmq_topic, what):
    assert orbitmq_topic not in TOPICS
    TOPICS.add(orbitmq_topic)
    with WireClient(orbitmq_broker.namesrv) as client:
        assert client.ask(105, topic=orbitmq_topic).code == 0
    with WireClient(orbitmq_broker.broker) as client:
        fill(client, orbitmq_topic, [what.encode()])
        answer = client.call(pull_request(orbitmq_topic, orbitmq_topic, 0))
    assert [record.body for record in scan_records(answer.body)] == [what.encode()]

@pytest.mark.parametrize("number", [1, 2])
def test_all_tests_share_a_broker(orbitmq_broker, number):
    BROKERS.add(orbitmq_broker.namesrv)
    assert len(BROKERS) == 1
"""

SETTINGS = """
import pytest
from orbitmq.config import parse_properties
from tests.wire_client import WireClient

@pytest.fixture(scope="session")
def orbitmq_settings():
    return {"brokerName": "ours", "autoCreateTopicEnable": False}

def test_a_project_gives_its_own_settings(orbitmq_broker):
    with WireClient(orbitmq_broker.broker) as client:
        shown = parse_properties(client.ask(26).body)
    assert (shown["brokerName"], shown["autoCreateTopicEnable"]) == ("ours", "false")
"""

UNUSED = "def test_nothing(): pass"


def run(pytester: pytest.Pytester, program: str) -> pytest.RunResult:
    pytester.makeini(f"[pytest]\npythonpath = {ROOT}\nfilterwarnings = error\n")
    pytester.makepyfile(program)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider")


def test_a_broker_for_all_tests_and_a_topic_for_each(pytester: pytest.Pytester) -> None:
    run(pytester, PLAIN).assert_outcomes(passed=6)


def test_a_project_gives_settings_in_a_fixture_of_its_own(pytester: pytest.Pytester) -> None:
    run(pytester, SETTINGS).assert_outcomes(passed=1)


def test_a_run_that_wants_no_broker_gets_none(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    run(pytester, UNUSED).assert_outcomes(passed=1)
    assert [path for path in tmp_path.iterdir() if path.name.startswith("orbitmq-")] == []


def test_loading_the_fixtures_imports_next_to_nothing() -> None:
    program = (
        "import pytest, sys; before = set(sys.modules); import orbitmq.testing.pytest_plugin;"
        "print(*sorted(set(sys.modules) - before))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30
    )
    assert shown.stdout.split() == ["orbitmq", "orbitmq.testing", "orbitmq.testing.pytest_plugin"]


def test_the_broker_is_where_the_documentation_says() -> None:
    assert orbitmq.testing.EmbeddedBroker.__module__ == "orbitmq.testing.embedded"
    with pytest.raises(AttributeError, match="no attribute Broker"):
        _ = orbitmq.testing.Broker  # type: ignore[attr-defined]  # that is the point
