"""The guide to running a broker: its commands are taken, and its settings exist."""

import re
import shlex
from pathlib import Path

import pytest

from orbitmq.cli.main import make_parser
from orbitmq.cli.mqbroker import make_parser as make_mqbroker_parser
from orbitmq.cli.process import read_overrides
from orbitmq.config import BrokerSettings, facts_of, load_settings

GUIDE = (Path(__file__).parents[2] / "docs/guides/broker.md").read_text()
COMMANDS = [
    line.partition(" #")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)
    for line in block.splitlines()
]


def test_the_guide_has_examples() -> None:
    assert len(COMMANDS) >= 5


@pytest.mark.parametrize("command", COMMANDS)
def test_each_example_is_taken_by_its_command(command: str) -> None:
    name, *words = shlex.split(command)
    if name == "mqbroker":
        _, rest = make_mqbroker_parser().parse_known_args(words)
        assert rest == []
        return
    assert name == "orbitmq"
    parsed = make_parser().parse_args(words)
    load_settings(BrokerSettings, {}, read_overrides(parsed.overrides), strict=True)


def test_each_setting_that_is_named_exists() -> None:
    known = {one.key for one in facts_of(BrokerSettings)}
    named = set(re.findall(r"-D (\w+)=", GUIDE)) - {"key"}
    named |= set(re.findall(r"`([a-z]+[A-Z]\w*)`", GUIDE))
    assert named <= known
