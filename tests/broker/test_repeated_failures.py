"""Failures that repeat: told at once, then seldom, and none is forgotten.

In: failures and a clock that the test moves. Out: log lines.
"""

import logging

import pytest

from orbitmq.broker.repeated_failures import PERIOD_S, RepeatedFailure
from tests.namesrv.registering import HandClock


def test_a_failure_that_repeats_is_told_once_a_period_with_the_number_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = HandClock()
    failure = RepeatedFailure(logging.getLogger("orbitmq.broker.test"), clock)
    for number in range(100):
        failure.report(f"no room {number}")
    assert caplog.messages == ["no room 0"]
    clock.now_s += PERIOD_S
    failure.report("no room still")
    assert caplog.messages[1:] == ["no room still (99 more such lines were left out)"]
    clock.now_s += PERIOD_S
    failure.report("no room again")
    assert caplog.messages[2:] == ["no room again"]
