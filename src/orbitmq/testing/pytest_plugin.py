"""Fixtures for pytest: a broker per session and a topic per test.

In: the settings that a project gives in a fixture of its own. Out: a running broker, a topic's name.
Rule: pytest loads this at every start, also where nobody wants a broker: so the broker is imported
when it is first asked for.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from orbitmq.testing.embedded import EmbeddedBroker

NAME_CHARS_MAX = 80
"""A topic has up to 127 characters; retry topics put some before it."""

_numbers = itertools.count(1)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")


@pytest.fixture(scope="session")
def orbitmq_settings() -> Mapping[str, str | int | bool]:
    """Settings of the broker by the original's keys; override it in conftest.py."""
    return {}


@pytest.fixture(scope="session")
def orbitmq_broker(
    orbitmq_settings: Mapping[str, str | int | bool],
) -> "Iterator[EmbeddedBroker]":
    """A name server and a broker (orbitmq.testing.EmbeddedBroker), shared by all tests."""
    from orbitmq.testing.embedded import EmbeddedBroker  # noqa: PLC0415 - see the rule

    with EmbeddedBroker(settings=orbitmq_settings) as broker:
        yield broker


@pytest.fixture
def orbitmq_topic(orbitmq_broker: "EmbeddedBroker", request: pytest.FixtureRequest) -> str:
    """The name of a topic that is there and that no other test uses; good for a group, too."""
    shown = _NOT_IN_NAMES.sub("_", request.node.name)[:NAME_CHARS_MAX].strip("_")
    topic = f"{shown}_{next(_numbers)}"
    orbitmq_broker.create_topic(topic)
    return topic
