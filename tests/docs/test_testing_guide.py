"""The guide to testing: every example in it is a file, and a pytest of its own runs them all."""

import re
from pathlib import Path

import pytest

from orbitmq.broker.store_options import parse_delays
from orbitmq.config import BrokerSettings
from orbitmq.testing.parts import MODEST

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.timeout(300)  # another process starts, on a machine that may be busy

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/guides/testing.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
FILES = {block.partition("\n")[0].removeprefix("# "): block for block in BLOCKS}


def test_each_example_is_a_file_with_a_name() -> None:
    assert len(FILES) == len(BLOCKS) >= 6
    assert all(re.fullmatch(r"\w+\.py", name) for name in FILES)


def test_the_examples_pass(pytester: pytest.Pytester) -> None:
    for name, text in FILES.items():
        (pytester.path / name).write_text(text)
    pytester.makeini("[pytest]\npythonpath = .\nfilterwarnings = error\n")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    tests = len(re.findall(r"^ *def test_", "".join(BLOCKS), re.MULTILINE))
    result.assert_outcomes(passed=tests)


def test_the_numbers_of_the_guide_are_true() -> None:
    delays_ms = parse_delays(BrokerSettings().message_delay_level)
    assert delays_ms[16 - 1] == 30 * 60_000
    assert int(MODEST["mappedFileSizeCommitLog"]) == 16 * 1_048_576
    assert int(MODEST["mappedFileSizeConsumeQueue"]) == 10_000 * 20
    assert MODEST["connectionsMax"] == "500"
