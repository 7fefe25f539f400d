"""The official mqadmin shows and changes a broker's settings.

The judge is the tool, of 4.9.7 and of 5.5.0: what it prints must be what is in force.
"""

from __future__ import annotations

import re

import pytest

from tests.foreign.judged import System, judged_original
from tests.foreign.peers import mqadmin_script

pytestmark = pytest.mark.foreign

STEPS = (
    "getBrokerConfig -b {broker}",
    "updateBrokerConfig -b {broker} -k fileReservedTime -v 71",
    "getBrokerConfig -b {broker}",
    "updateBrokerConfig -b {broker} -k fileReservedTime -v 72",
)
"""What is run on the system under test alone."""


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_mqadmin_shows_and_changes_settings(system: System, version: str) -> None:
    commands = [step.format(broker=system.broker).split() for step in STEPS]
    before, changed, after, _ = mqadmin_script(version, commands)
    assert re.search(r"^fileReservedTime\s+=\s+72$", before.out, re.MULTILINE), before
    assert f"update broker config success, {system.broker}" in changed.out, changed
    assert re.search(r"^fileReservedTime\s+=\s+71$", after.out, re.MULTILINE), after
    assert len(re.findall(r"^\w+\s+=", before.out, re.MULTILINE)) > 170


@pytest.mark.skipif(judged_original() is not None, reason="the original takes any key")
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_mqadmin_says_why_a_setting_is_not_changed(system: System, version: str) -> None:
    (said,) = mqadmin_script(
        version, [("updateBrokerConfig", "-b", system.broker, "-k", "listenPort", "-v", "99")]
    )
    assert "CODE: 16" in said.err
    assert "listenPort cannot be changed over the network" in said.err
